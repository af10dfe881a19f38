# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which pods fit a node: the question as people ask it, kubelet's answer to each, and what would have to change.

`predict` is gpufleet.node.pod_fit without Ansible: facts, a KubeletConfiguration, pods, and what already runs or is free.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import admission_topology
from .admission import AFFINITY, CRASHES, HANGS, OUT_OF, SMT, Node, Placement, State, Verdict, admit, beyond, node_of, start
from .admission_machine import bits_of, popcount
from .admission_memory import memory_of
from .codec import to_json
from .cpuset import CpuSet, union
from .errors import InvalidInput, unknown_name
from .kubelet_version import minor_of
from .kubelet_view import as_kubelet
from .pods import CPU, GPU, MEMORY, Container, Pod, describe, parse_pod
from .quantity import format_bytes
from .start_order import Job, start_orders
from .topology import CPU_MEMORY, Device, Topology

# Resources of GPU vendors' device plugins, by PCI vendor.
RESOURCES = {"10de": GPU, "1002": "amd.com/gpu"}
# Orders of start are told for so many pods; three have six orders.
MAX_ORDERED = 3


@dataclass(frozen=True)
class Fit:
    """A pod's answer: the verdict, what would have to change (a sentence, or ""), and what a topology-aware scheduler would do."""

    verdict: Verdict
    change: str
    scheduler: Dict[str, str]


@dataclass(frozen=True)
class Question:
    """What is asked. ``configuration``: the KubeletConfiguration that kubelet reads in the end; ``version`` like "1.34.4".

    ``running`` pods are there already, in the order of their start. ``free``: what nobody else has, when pods are there that ``running``
    doesn't tell: {"gpus": indexes or PCI addresses, "cpus": a cpulist}. ``devices``: counts by resource and NUMA node, over those of the
    facts. ``in_turn``: each pod comes after those before it, not instead of them.
    """

    topology: Topology
    configuration: Mapping[str, Any]
    version: str
    pods: Sequence[Any]
    running: Sequence[Any] = ()
    free: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, Mapping[Any, int]] = field(default_factory=dict)
    in_turn: bool = True


def predict(question: Question) -> Dict[str, Any]:
    """The answer as a JSON value; gpufleet.node.pod_fit documents it.

    :raises InvalidInput: names what can't be meant
    """
    topology = as_kubelet(question.topology)
    node = node_of(topology, question.configuration, minor_of(question.version), _devices(topology, question.devices))
    state = _with_others(node, node.empty(), topology, question.free)
    gpu = next((RESOURCES[one.vendor] for one in topology.gpus if one.vendor in RESOURCES), GPU)
    for index, value in enumerate(question.running):
        pod = parse_pod(value, "running[%d]" % index, gpu)
        verdict, state = admit(node, state, pod)
        if not verdict.admitted:
            raise InvalidInput(
                "%s (running[%d]) can't run on this node beside the others: %s" % (pod.name, index, verdict.reason),
                "Give the running pods in the order of their start, or say what is free instead.",
            )
        state = start(node, state, pod)
    pods = [parse_pod(value, "pods[%d]" % index, gpu) for index, value in enumerate(question.pods)]
    twice = [key for key, count in Counter([*state.pods, *(pod.key for pod in pods)]).items() if count > 1]
    if twice:
        raise InvalidInput("There is more than one pod %s." % twice[0], "Give each pod a name of its own.")
    before, fits = state, []
    for pod in pods:
        verdict, after = admit(node, state, pod)
        answers = _Answers(node, state, pod, verdict)
        fits.append((pod, Fit(verdict, change(answers), scheduler(answers))))
        state = start(node, after, pod) if question.in_turn else before
    return {
        "pods": [_pod_answer(topology, pod, fit) for pod, fit in fits],
        "free": _free(node, state),
        "start_orders": to_json(_orders(question, node, before, pods)),
    }


# --- the question -------------------------------------------------------------------------------------------------------------------------


def _devices(topology: Topology, given: Mapping[str, Mapping[Any, int]]) -> Dict[str, Dict[int, int]]:
    """Devices by resource and NUMA nodes (a mask): the facts' GPUs, and what is given."""
    devices: Dict[str, Dict[int, int]] = {}
    for gpu in topology.gpus:
        resource = RESOURCES.get(gpu.vendor)
        if resource:
            counts = devices.setdefault(resource, {})
            counts[_mask(gpu)] = counts.get(_mask(gpu), 0) + 1
    for resource, by_node in given.items():
        devices[resource] = {}
        for node, count in by_node.items():
            mask = 0 if node in (None, "", -1, "-1", "None") else CpuSet.parse(str(node)).bits
            devices[resource][mask] = devices[resource].get(mask, 0) + int(count)
    return devices


def _mask(gpu: Device) -> int:
    return 0 if gpu.numa_node is None else 1 << gpu.numa_node


def _with_others(node: Node, state: State, topology: Topology, free: Mapping[str, Any]) -> State:
    """The node with somebody else's pod that has all CPUs and GPUs which aren't free."""
    for name in free:
        if name not in ("gpus", "cpus"):
            raise unknown_name("thing that can be free", str(name), ("gpus", "cpus"))
    state, key = state.copy(), "others"
    requests: Counter[str] = Counter()
    if free.get("cpus") is not None:
        taken = state.shared & ~node.reserved & ~CpuSet.parse(str(free["cpus"])).bits
        state.shared &= ~taken
        state.cpus[key] = {key: taken}
        requests[CPU] = popcount(taken) * 1000
    if free.get("gpus") is not None:
        for gpu in _busy(topology, free["gpus"]):
            resource = RESOURCES.get(gpu.vendor, "")
            if state.free_devices.get(resource, {}).get(_mask(gpu)):
                state.free_devices[resource][_mask(gpu)] -= 1
                requests[resource] += 1
    if requests:
        state.pods[key] = Pod(key, key, (Container(key, requests, requests),))
    return state


def _busy(topology: Topology, free: Iterable[Any]) -> List[Device]:
    """The GPUs that aren't named. A number is nvidia-smi's index, or the position among the facts' GPUs where there is none."""
    names = {str(name) for name in free}
    known: Dict[str, Device] = {}
    for position, gpu in enumerate(topology.gpus):
        known.update({str(position if gpu.index is None else gpu.index): gpu, gpu.address: gpu})
    for name in names:
        if name not in known:
            raise InvalidInput(
                'free.gpus names "%s", and the facts have no such GPU.' % name, "Give indexes or PCI addresses: %s." % ", ".join(known)
            )
    named = {known[name].address for name in names}
    return [gpu for gpu in topology.gpus if gpu.address not in named]


# --- what would have to change, and what others would do ----------------------------------------------------------------------------------


class _Answers:
    """kubelet's answers to one pod: the verdict, and what it would be under other settings or on the empty node, each asked for once."""

    def __init__(self, node: Node, state: State, pod: Pod, verdict: Verdict) -> None:
        self.node, self.state, self.pod, self.verdict = node, state, pod, verdict
        self._known = {self._key(node, False): verdict}

    @staticmethod
    def _key(node: Node, empty: bool) -> Tuple[str, str, bool, bool]:
        return node.policy.name, node.scope, node.memory is None, empty

    def of(self, node: Node, empty: bool = False) -> Verdict:
        """The answer of this node under other settings (``_under``, ``_other_settings``)."""
        key = self._key(node, empty)
        if key not in self._known:
            self._known[key] = admit(node, node.empty() if empty else self.state, self.pod)[0]
        return self._known[key]


def scheduler(answers: _Answers) -> Dict[str, str]:
    """What a topology-aware scheduler does with the pod: required alignment it waits for, without preferred alignment the pod runs too.

    Answers: "runs", "degraded" (runs, but not aligned), "pending" (would run on the empty node), "never".
    """
    if _lacking(answers.node, answers.pod) or beyond(answers.node, answers.pod):
        return {"required": "never", "preferred": "never"}
    strict, loose = (_under(answers.node, policy) for policy in (admission_topology.RESTRICTED, admission_topology.BEST_EFFORT))
    if answers.of(strict).admitted:
        return {"required": "runs", "preferred": "runs"}
    # The two agree on the NUMA nodes, and best-effort takes them in any case: what it refuses on the empty node restricted refuses, too.
    degraded = answers.of(loose).admitted
    ever = degraded or answers.of(loose, empty=True).admitted
    required = "pending" if ever and answers.of(strict, empty=True).admitted else "never"
    return {"required": required, "preferred": "degraded" if degraded else "pending" if ever else "never"}


def _lacking(node: Node, pod: Pod) -> List[str]:
    """Device resources of the pod that the node isn't known to have. kubelet doesn't look at them (removeMissingExtendedResources)."""
    return sorted(name for name in pod.total_limits() if "/" in name and name not in node.devices)


def _under(node: Node, policy: str) -> Node:
    return dataclasses.replace(node, policy=dataclasses.replace(node.policy, name=policy))


def change(answers: _Answers) -> str:
    """What would have to change for the pod to be admitted and get all that it asks for, in a sentence or two; "" where it does."""
    node, pod, verdict = answers.node, answers.pod, answers.verdict
    if verdict.admitted:
        words = "kubelet doesn't look at %s, which this node isn't known to have: name it in devices, or ask a node that has it."
        return words % ", ".join(_lacking(node, pod)) if _lacking(node, pod) else ""
    if verdict.reason in (HANGS, CRASHES):
        return "Choose another configuration for this machine: no kubelet of this version survives such a pod."
    for resource in beyond(node, pod):
        return "The node has %s for pods altogether." % describe({resource: node.allocatable.get(resource, 0)})
    if verdict.reason == SMT:
        per_core = node.cpus.per_core
        odd = next((one for one in pod.containers if one.requests.get(CPU, 0) // 1000 % per_core), None)
        if odd:
            count = odd.requests[CPU] // 1000
            return "Let %s ask for %d CPUs or %d." % (odd.name, count - count % per_core, count - count % per_core + per_core)
    if answers.of(node, empty=True).admitted:
        what = "the sums allow it" if verdict.reason.startswith(OUT_OF) else "enough is free together"
        return "It fits the empty node: other pods have to end until %s. Free now: %s." % (what, _free_words(node, answers.state))
    for words, other in _other_settings(node):
        answer = answers.of(other)
        if answer.admitted:
            return "With %s kubelet would admit it, %s." % (words, _where(other, answer))
    if verdict.reason == AFFINITY:
        return "No state of this node fits it under this policy: ask for less, or for what one NUMA node has."
    return "Not even the empty node fits it: ask for less."


def _other_settings(node: Node) -> List[Tuple[str, Node]]:
    """Configurations near this one, with their names, those that give up least first."""
    return [
        *([("topologyManagerScope container", dataclasses.replace(node, scope="container"))] if node.scope == "pod" else []),
        ("topologyManagerPolicy restricted", _under(node, admission_topology.RESTRICTED)),
        ("topologyManagerPolicy best-effort", _under(node, admission_topology.BEST_EFFORT)),
        ("memoryManagerPolicy None", dataclasses.replace(node, memory=None)),
    ]


def _where(node: Node, verdict: Verdict) -> str:
    nodes = sorted({one for placement in verdict.containers for one in _nodes_of(node, placement)})
    return "on NUMA node %s" % nodes[0] if len(nodes) == 1 else "across NUMA nodes %s" % ", ".join(map(str, nodes)) if nodes else "anywhere"


def _nodes_of(node: Node, placement: Placement) -> List[int]:
    devices = [one for counts in placement.devices.values() for mask in counts for one in bits_of(mask)]
    return [*bits_of(node.cpus.nodes_of(placement.cpus)), *placement.memory_nodes, *devices]


def _free_words(node: Node, state: State) -> str:
    words = []
    for id_, cpus in sorted(node.cpus.numa.items()):
        parts = ["%d CPUs" % popcount(state.shared & cpus & ~node.reserved)] if node.static else []
        if state.memory:
            parts.append("%s memory" % format_bytes(state.memory.nodes[id_].free[MEMORY] >> 20 << 20))
        parts += ["%d %s" % (counts.get(1 << id_, 0), name) for name, counts in state.free_devices.items()]
        words.append("NUMA node %d %s" % (id_, ", ".join(parts)))
    return "; ".join(words)


# --- the answer ---------------------------------------------------------------------------------------------------------------------------


def _pod_answer(topology: Topology, pod: Pod, fit: Fit) -> Dict[str, Any]:
    verdict = fit.verdict
    containers = [_container_answer(topology, one) for one in verdict.containers]
    return {
        "name": verdict.pod,
        "asks_for": describe(pod.total_requests(True)),
        "qos": verdict.qos,
        "admitted": verdict.admitted,
        "reason": verdict.reason,
        "message": verdict.message,
        "ends": list(verdict.ends),
        "change": fit.change,
        "scheduler": fit.scheduler,
        "containers": containers,
    }


def _container_answer(topology: Topology, placement: Placement) -> Dict[str, Any]:
    cpus = CpuSet.from_int(placement.cpus)
    return {
        "name": placement.name,
        "kind": placement.kind,
        "cpus": cpus.to_list(),
        "exclusive": placement.exclusive,
        "cpu_numa_nodes": [node.id for node in topology.numa_nodes if not node.cpus.isdisjoint(cpus)],
        "l3_aligned": _aligned(topology, cpus),
        "memory": [{"numa_nodes": list(bits_of(block.nodes)), "type": block.kind, "bytes": block.size} for block in placement.memory],
        "memory_numa_nodes": placement.memory_nodes,
        "devices": {resource: _by_node(counts) for resource, counts in placement.devices.items()},
        "devices_certain": placement.certain,
    }


def _by_node(counts: Mapping[int, int]) -> Dict[str, int]:
    return {CpuSet.from_int(mask).to_list() or "unknown": count for mask, count in sorted(counts.items())}


def _aligned(topology: Topology, cpus: CpuSet) -> Optional[bool]:
    """Whether CPUs are whole L3 groups, or lie within one; None without CPUs or without L3 groups."""
    touched = [group.cpus for group in topology.l3_groups if not group.cpus.isdisjoint(cpus)]
    if not cpus or not touched:
        return None
    return cpus <= touched[0] if len(touched) == 1 else union(touched) <= cpus


def _free(node: Node, state: State) -> Dict[str, Any]:
    """What is left when all admitted pods run."""
    return {
        "cpus": CpuSet.from_int(state.shared & ~node.reserved).to_list(),
        "devices": {
            resource: _by_node({mask: state.free_devices[resource].get(mask, 0) for mask in counts})
            for resource, counts in node.devices.items()
        },
        "memory_bytes": {str(id_): one.free[MEMORY] for id_, one in sorted(state.memory.nodes.items())} if state.memory else {},
    }


def _orders(question: Question, node: Node, state: State, pods: Sequence[Pod]) -> Any:
    """Which order of start is safe for the pods' memory; none for one pod, for many, or where one of them isn't admitted."""
    if not 2 <= len(pods) <= MAX_ORDERED:
        return ()
    jobs = []
    for pod in pods:
        verdict, state = admit(node, state, pod)
        if not verdict.admitted:
            return ()
        cpus: Counter[int] = Counter()
        for placement in verdict.containers:
            if placement.exclusive and placement.kind != "init":
                cpus.update(
                    {id_: popcount(members & placement.cpus) for id_, members in node.cpus.numa.items() if members & placement.cpus}
                )
        jobs.append(Job(pod.name, pod.total_requests(node.pod_level).get(MEMORY, 0), cpus))
    reserved = memory_of(question.topology, {**question.configuration, "memoryManagerPolicy": "Static"})
    usable = (
        {one.id: reserved.nodes[one.id].free[MEMORY] for one in question.topology.numa_nodes if one.kind == CPU_MEMORY} if reserved else {}
    )
    return start_orders(usable, jobs) if usable else ()
