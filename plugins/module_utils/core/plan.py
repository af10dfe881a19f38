# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of a node: one pure function of its Topology and the Policy. Everything that is applied or verified derives from it.

The JSON form (``codec.to_json``) is ``ansible_facts.gpufleet_plan``. Its keys from ``kubelet`` on are the sections that concerns apply; an
empty section means that nothing of ours is to be there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from .align import Alignment, CpusPerGpu, Shape, alignment, shape_of, sizes_across
from .batch_plan import units_section
from .boot_arguments import kernel_arguments
from .cpuset import CpuSet, union
from .errors import InvalidInput
from .hugepage_plan import hugepage_pools, planned_bytes
from .interrupt_plan import interrupt_section
from .kubelet_plan import kubelet_section, planned_kubelet, uses_static_policy
from .notes import Note, Notes
from .partition import Partition, partition
from .policy import Policy
from .quantity import parse_bytes
from .topology import DEVICE_MEMORY, MEMORY_ONLY, NEEDED_BY_PLAN, Topology
from .tuning_plan import confinement, governor, sysctls, transparent_hugepage

SCHEMA = 1

LAUNCHER_PATH = "/usr/local/bin/numaspread"


@dataclass(frozen=True)
class CpuPlan:
    """``reserved``, ``isolated`` and ``pool`` are disjoint and together ``online``. ``housekeeping`` are the reserved CPUs."""

    online: CpuSet
    reserved: CpuSet
    isolated: CpuSet
    pool: CpuSet
    housekeeping: CpuSet


@dataclass(frozen=True)
class NodePlan:
    """What a NUMA node has for jobs. ``available`` are its CPUs but the reserved ones; ``gpus`` are PCI addresses.

    ``aligned_job_sizes`` are whole L3 groups in CPUs: read them with ``Plan.alignment``.
    """

    id: int
    kind: str
    cpus: CpuSet
    reserved: CpuSet
    available: CpuSet
    available_count: int
    gpus: Tuple[str, ...]
    whole_l3_groups: int
    aligned_job_sizes: Tuple[int, ...]
    cpus_per_gpu: CpusPerGpu
    reserved_memory_bytes: int


@dataclass(frozen=True)
class Plan:
    """See the module's documentation of node_plan for each field."""

    profile: str
    workload: str
    fingerprint: str
    cpus: CpuPlan
    numa_nodes: Tuple[NodePlan, ...]
    aligned_job_sizes_across_nodes: Tuple[int, ...]
    alignment: Alignment
    kubelet: Dict[str, Any]
    kernel_arguments: Tuple[str, ...]
    interrupts: Dict[str, Any]
    sysctl: Dict[str, str]
    transparent_hugepage: Dict[str, str]
    hugepages: Dict[int, Dict[int, int]]
    governor: str
    swap: str
    limits: Dict[str, Any]
    confine: Dict[str, Any]
    launcher: Dict[str, str]
    units: Dict[str, Any]
    notes: Tuple[Note, ...]
    schema: int = SCHEMA


def build_plan(topology: Topology, policy: Policy, launcher: Optional[Mapping[str, str]] = None) -> Plan:
    """The plan. ``launcher`` is {version, source_sha256} of the launcher that the controller has; None: it has none.

    :raises InvalidInput: what was asked for can't be on this node
    """
    lacking = [name for name in NEEDED_BY_PLAN if topology.gathered and name not in topology.gathered]
    if lacking or not topology.cpus.online:
        raise InvalidInput(
            "The facts lack what a plan needs: %s." % (", ".join(lacking) or "online CPUs"),
            "%s Gather the facts as root (become: true)." % topology.gaps[0]
            if topology.gaps
            else "Gather them with gpufleet.node.topology_facts: %s." % ", ".join(NEEDED_BY_PLAN),
        )
    notes = Notes()
    topology = topology.replace(kubelet=planned_kubelet(topology, policy, notes))
    cpus = partition(topology, policy, notes)
    pools = hugepage_pools(topology, policy, notes)
    kubelet = kubelet_section(topology, policy, cpus, planned_bytes(topology, pools), notes)
    static = uses_static_policy(kubelet)
    shapes = {node.id: shape_of(node, topology, cpus.available, len(_gpus_on(node.id, topology))) for node in topology.numa_nodes}
    options = kubelet["configuration"].get("cpuManagerPolicyOptions", {}) if kubelet else {}
    aligned = alignment(topology, cpus, shapes, options, static, notes)
    installed = _launcher(policy, launcher)
    plan = Plan(
        profile=policy.profile,
        workload=policy.workload,
        fingerprint=topology.fingerprint,
        cpus=CpuPlan(cpus.online, cpus.reserved, cpus.isolated, cpus.pool, cpus.housekeeping),
        numa_nodes=_node_plans(topology, cpus, shapes, kubelet),
        aligned_job_sizes_across_nodes=tuple(sizes_across([shapes[node.id] for node in topology.cpu_nodes])),
        alignment=aligned,
        kubelet=kubelet,
        kernel_arguments=kernel_arguments(topology, policy, cpus, pools, notes),
        interrupts=interrupt_section(topology, policy, cpus, notes),
        sysctl=sysctls(topology, policy),
        transparent_hugepage=transparent_hugepage(topology, policy, notes),
        hugepages=pools,
        governor=governor(topology, policy, notes),
        swap=policy.swap,
        limits={"memlock": policy.memlock, "nofile": policy.nofile},
        confine=confinement(topology, policy, cpus, static, notes),
        launcher=installed,
        units=units_section(topology, policy, cpus, static, LAUNCHER_PATH, bool(installed), notes),
        notes=(),
    )
    _note_machine(topology, policy, _memory_in_use(plan), notes)
    if pools and kubelet:  # F10
        notes.info(
            "hugepages_and_eviction",
            "Kubelets differ in whether memory.available counts hugepages as free: set gpufleet_eviction_hard with room.",
        )
    return Plan(**{**plan.__dict__, "notes": notes.freeze()})


def _gpus_on(node_id: int, topology: Topology) -> Tuple[str, ...]:
    return tuple(gpu.address for gpu in topology.job_gpus if gpu.numa_node == node_id)


def _node_plans(topology: Topology, cpus: Partition, shapes: Mapping[int, Shape], kubelet: Mapping[str, Any]) -> Tuple[NodePlan, ...]:
    entries = kubelet["configuration"].get("reservedMemory", []) if kubelet else []
    memory = {entry["numaNode"]: parse_bytes(entry["limits"]["memory"], "reservedMemory") for entry in entries}
    return tuple(
        NodePlan(
            id=node.id,
            kind=node.kind,
            cpus=node.cpus,
            reserved=node.cpus & cpus.reserved,
            available=node.cpus & cpus.available,
            available_count=len(node.cpus & cpus.available),
            gpus=_gpus_on(node.id, topology),
            whole_l3_groups=shapes[node.id].whole_l3_groups,
            aligned_job_sizes=tuple(shapes[node.id].aligned_job_sizes),
            cpus_per_gpu=shapes[node.id].cpus_per_gpu,
            reserved_memory_bytes=memory.get(node.id, 0),
        )
        for node in topology.numa_nodes
    )


def _launcher(policy: Policy, launcher: Optional[Mapping[str, str]]) -> Dict[str, str]:
    wanted = policy.launcher if policy.launcher is not None else policy.defaults.launcher or bool(policy.batch_services)
    if not wanted or launcher is None:
        return {}
    return {"version": launcher["version"], "source_sha256": launcher["source_sha256"], "path": LAUNCHER_PATH}


def _memory_in_use(plan: Plan) -> CpuSet:
    """The NUMA nodes whose memory pools and services of this plan use."""
    services = [plan.units["slice"], *plan.units["pinned"]] if plan.units else []
    return union(map(CpuSet, plan.hugepages.values())) | union(service["memory_nodes"] for service in services if service)


def _note_machine(topology: Topology, policy: Policy, in_use: CpuSet, notes: Notes) -> None:
    """What is odd about this machine, or at odds with what was asked for."""
    unknown = [device.address for device in (*topology.gpus, *topology.nics, *topology.nvmes) if device.numa_node is None]
    if unknown:
        notes.warning(
            "device_without_numa_node",
            "The firmware doesn't say on which NUMA node these devices are; their interrupts go to any reserved CPU.",
            devices=unknown,
        )
    for shared in topology.shared_roots:
        if shared.gpus and shared.nvmes:
            notes.info(
                "gpu_and_nvme_share_root",
                "GPUs and NVMe drives below PCI root %s share its bandwidth: heavy I/O there slows the GPUs' transfers." % shared.pci_root,
                pci_root=shared.pci_root, gpus=shared.gpus, nvmes=shared.nvmes,
            )  # fmt: skip
    if policy.profile == "aligned" and len(topology.cpu_memory_nodes) == 1:
        notes.info("single_numa_node", "The node has one NUMA node with CPUs and memory: profile aligned has nothing to align.")
    kinds = {node.id: node.kind_evidence or node.kind for node in topology.numa_nodes if node.kind in (MEMORY_ONLY, DEVICE_MEMORY)}
    if kinds:
        asked = in_use & CpuSet(kinds)
        notes.info(
            "numa_nodes_without_cpus",
            "NUMA nodes %s hold memory and no CPUs: nothing is interleaved, reserved or pooled on them%s."
            % (CpuSet(kinds), ", except on %s, as asked" % asked if asked else ""),
            numa_nodes=kinds,
        )
    if topology.software.tuned_profile:
        notes.warning(
            "tuned_active",
            "tuned is active with profile %s and sets some of the same things; the later one wins." % topology.software.tuned_profile,
            profile=topology.software.tuned_profile,
        )
    for gap in topology.gaps:
        notes.info("facts_gap", gap)
