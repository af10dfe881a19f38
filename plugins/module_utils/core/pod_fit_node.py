# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node that pod_fit is asked about, as pods find it: what kubelet reads in the end, devices, what runs there, what others have."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from . import kubelet_rules as rules
from .admission import Node, State, admit, start
from .admission_machine import popcount
from .checks import integer
from .cpuset import CpuSet
from .errors import InvalidInput, unknown_name
from .hugepage_plan import planned_bytes
from .kubelet_fields import FIELDS, FLAGS, HEADER
from .kubelet_merge import merged, typed
from .kubelet_plan import machine_section
from .pods import CPU, GPU, Container, Pod
from .topology import Device, HugepagePool, Topology

# Resources of GPU vendors' device plugins, by PCI vendor.
RESOURCES = {"10de": GPU, "1002": "amd.com/gpu"}

# Fields beside those that the rules look at, which pods are counted by, and their flags.
COUNTS = {"maxPods": "max-pods", "podsPerCore": "pods-per-core"}
_FLAGS = {**FLAGS, **{flag: name for name, flag in COUNTS.items()}}
_MISSPELT = 0.8  # none of the other fields of kubelet is that much like one that counts here


def in_force(
    topology: Topology, planned: Mapping[str, Any], flags: Mapping[str, str], what_if: Mapping[str, Any], minor: int
) -> Mapping[str, Any]:
    """The configuration that kubelet has in the end: a plan's, the flags over it, and what is asked for over both.

    A plan was held against kubelet's rules when it was made; with anything over it, the whole is again.

    :raises InvalidInput: kubelet would refuse it, or a field has a name that kubelet would not look at
    """
    flags = {flag: value for flag, value in flags.items() if _FLAGS.get(flag, flag) not in what_if and flag in _FLAGS}
    if not flags and not what_if:
        return planned
    _check_names(what_if)
    files = {**planned, **what_if}
    found = merged(typed(files, "configuration"), (), flags, minor)
    rules.check(found, minor, rules.machine(machine_section(topology, planned_bytes(topology, {}), False)))
    for name, flag in COUNTS.items():
        said = flags.get(flag, files.get(name))
        if said is not None:
            found[name] = integer(0)("kubelet's flag --%s" % flag if flag in flags else "configuration: %s" % name, said)
    return found


def _check_names(given: Mapping[str, Any]) -> None:
    """kubelet has many fields that don't count here. But a name that is nearly one of those that do is misspelt."""
    known = (*FIELDS, *HEADER, *COUNTS)
    for name in given:
        if name not in known and get_close_matches(name, known, n=1, cutoff=_MISSPELT):
            raise unknown_name("field of KubeletConfiguration", name, known)


def with_pools(topology: Topology, pools: Mapping[Any, Mapping[Any, int]]) -> Topology:
    """The facts once a plan's hugepages (pages by NUMA node, by page size in bytes) are there; a size that isn't planned stays as it is."""
    planned = {int(size): {int(node): pages for node, pages in counts.items()} for size, counts in pools.items()}
    nodes = tuple(
        dataclasses.replace(
            node,
            hugepages={**node.hugepages, **{size: HugepagePool(n, n) for size, by in planned.items() for n in [by.get(node.id, 0)]}},
        )
        for node in topology.numa_nodes
    )
    return topology.replace(numa_nodes=nodes) if planned else topology


def gpu_resource(topology: Topology) -> str:
    """The resource that the node's own GPUs are of."""
    return next((RESOURCES[one.vendor] for one in topology.job_gpus if one.vendor in RESOURCES), GPU)


def devices_of(topology: Topology, given: Mapping[str, Any]) -> Dict[str, Dict[int, int]]:
    """Devices by resource and NUMA nodes (a mask): the facts' GPUs, and what is given. ``topology``: kubelet's view.

    :raises InvalidInput: what is given are no counts by NUMA nodes of this machine
    """
    devices: Dict[str, Dict[int, int]] = {}
    for gpu in topology.job_gpus:
        resource = RESOURCES.get(gpu.vendor)
        if resource:
            counts = devices.setdefault(resource, {})
            counts[_mask(gpu)] = counts.get(_mask(gpu), 0) + 1
    for resource, by_node in given.items():
        if "/" not in resource or not isinstance(by_node, Mapping):
            raise InvalidInput(
                "devices holds %s: %s, which are no devices by NUMA node." % (resource, by_node), "Write {nvidia.com/gpu: {0: 4}}."
            )
        devices[resource] = {}
        for numa_node, count in by_node.items():
            mask, name = _nodes(topology, resource, numa_node), "devices.%s.%s" % (resource, numa_node)
            devices[resource][mask] = devices[resource].get(mask, 0) + integer(0)(name, count)
    return devices


def _nodes(topology: Topology, resource: str, given: Any) -> int:
    """The NUMA nodes of a device (a mask), one or a list; 0 where they aren't known."""
    if str(given) in ("", "-1", "None"):
        return 0
    there = CpuSet(node.id for node in topology.numa_nodes)
    try:
        named = CpuSet.parse(str(given))
    except InvalidInput:
        named = CpuSet()
    if not named or not named <= there:
        raise InvalidInput("devices.%s names NUMA node %s, which isn't there." % (resource, given), "There are %s." % there)
    return named.bits


def _mask(gpu: Device) -> int:
    return 0 if gpu.numa_node is None else 1 << gpu.numa_node


@dataclass(frozen=True)
class Free:
    """What is said to be free: CPUs (a mask; None: nothing is said of them), devices by resource and NUMA nodes (those of which it is)."""

    cpus: Optional[int]
    devices: Mapping[str, Mapping[int, int]]

    @property
    def is_said(self) -> bool:
        """Whether anything is."""
        return self.cpus is not None or bool(self.devices)


def free_of(node: Node, topology: Topology, given: Mapping[str, Any]) -> Free:
    """What ``Question.free`` says.

    :raises InvalidInput: CPUs or GPUs that the node doesn't have
    """
    for name in given:
        if name not in ("gpus", "cpus"):
            raise unknown_name("thing that can be free", str(name), ("gpus", "cpus"))
    cpus, gpus = given.get("cpus"), given.get("gpus")
    return Free(None if cpus is None else _free_cpus(node, cpus), {} if gpus is None else _free_gpus(node, topology, gpus))


def _free_cpus(node: Node, given: Any) -> int:
    cpus, online = CpuSet.parse(str(given)), CpuSet.from_int(node.cpus.all)
    if not cpus <= online:
        raise InvalidInput("free.cpus holds CPUs %s, which are not online." % (cpus - online), "Online are %s." % online)
    return cpus.bits & ~node.reserved


def _free_gpus(node: Node, topology: Topology, given: Iterable[Any]) -> Dict[str, Dict[int, int]]:
    free = {resource: dict(node.devices[resource]) for resource in RESOURCES.values() if resource in node.devices}
    for gpu in _busy(topology, given):
        counts = free.get(RESOURCES.get(gpu.vendor, ""), {})
        if counts.get(_mask(gpu)):
            counts[_mask(gpu)] -= 1
    return free


def _busy(topology: Topology, free: Iterable[Any]) -> List[Device]:
    """The GPUs that aren't named. A number is nvidia-smi's index, or the position among the facts' GPUs where there is none."""
    names = {str(name) for name in free}
    known: Dict[str, Device] = {}
    for position, gpu in enumerate(topology.gpus):
        if gpu in topology.job_gpus:
            known.update({str(position if gpu.index is None else gpu.index): gpu, gpu.address: gpu})
    for name in names:
        if name not in known:
            raise InvalidInput(
                'free.gpus names "%s", and the facts have no such GPU for containers.' % name,
                "Give indexes or PCI addresses: %s." % ", ".join(known),
            )
    named = {known[name].address for name in names}
    return [gpu for gpu in topology.job_gpus if gpu.address not in named]


def as_found(node: Node, running: Sequence[Pod], free: Free) -> State:
    """The node with the running pods and, where it is said what is free, somebody else's pod that has all the rest.

    What is free is kept from the running pods: they have what they have.

    :raises InvalidInput: a running pod that kubelet refuses
    """
    state = node.empty()
    state.shared &= ~(free.cpus or 0)
    for resource, counts in free.devices.items():
        state.free_devices[resource] = {mask: count - counts[mask] for mask, count in node.devices[resource].items()}
    for index, pod in enumerate(running):
        verdict, state = admit(node, state, pod)
        if not verdict.admitted:
            where, remedy = "on this node", "or say what is free instead"
            if free.is_said:
                where, remedy = "on what free leaves of this node", "and leave out of free what they have"
            raise InvalidInput(
                "%s (running[%d]) can't run %s beside the others: %s." % (pod.name, index, where, verdict.reason),
                "Give the running pods in the order of their start, %s." % remedy,
            )
        state = start(node, state, pod)
    return _with_others(node, state, free) if free.is_said else state


def _with_others(node: Node, state: State, free: Free) -> State:
    """What the running pods left is somebody else's, and what was kept from them is there again."""
    state, key = state.copy(), "others"
    requests: Dict[str, int] = {}
    if free.cpus is not None:
        taken = state.shared & ~node.reserved
        state.cpus[key] = {key: taken}
        state.shared = state.shared & ~taken | free.cpus
        requests[CPU] = popcount(taken) * 1000
    for resource, counts in free.devices.items():
        taken_devices = state.free_devices[resource]
        state.devices[key] = {**state.devices.get(key, {}), resource: taken_devices}
        state.free_devices[resource] = dict(counts)
        requests[resource] = sum(taken_devices.values())
    if any(requests.values()):
        state.pods[key] = Pod(key, key, (Container(key, requests, requests),))
    return state
