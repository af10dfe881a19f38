# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where device interrupts go: CPUs of the device's own NUMA node that no job owns, as many as their vectors need."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .cpuset import CpuSet, union
from .notes import Notes
from .partition import Partition
from .policy import Policy
from .topology import Device, NumaNode, Topology


def interrupt_section(topology: Topology, policy: Policy, cpus: Partition, notes: Notes) -> Dict[str, Any]:
    """The ``interrupts`` of a plan. Devices on one NUMA node share the same CPUs; who gets which is decided where they are applied."""
    placement = policy.irq_placement
    irqbalance = policy.irqbalance or ("keep" if placement == "none" else "off")
    if topology.software.crio:  # E11
        notes.info("crio_owns_banned_list", "CRI-O edits irqbalance's banned list while pods run; it is left alone.")
    section = {
        "placement": placement,
        "irqbalance": irqbalance,
        "default_affinity": _default_affinity(placement, cpus),
        "isolated": cpus.isolated,
        "devices": [],
    }
    if placement == "none":
        return section
    by_node: Dict[Optional[int], List[Tuple[str, Device]]] = {}
    for kind, devices in (("gpu", topology.gpus), ("nic", topology.nics), ("nvme", topology.nvmes)):
        for device in devices:
            by_node.setdefault(device.numa_node, []).append((kind, device))
    rows = []
    for node_id, devices_here in by_node.items():
        node = _home(node_id, topology)
        target = _target(node, devices_here, topology, policy, cpus, notes)
        rows += [{"device": device.address, "kind": kind, "numa_node": device.numa_node, "cpus": target} for kind, device in devices_here]
        _compare_bandwidth(node, devices_here, policy, topology, cpus, notes)
    section["devices"] = sorted(rows, key=lambda row: str(row["device"]))
    return section


def _default_affinity(placement: str, cpus: Partition) -> CpuSet:
    """Where interrupts that nobody places go: off the isolated CPUs, and by ``housekeeping`` on the reserved ones."""
    if placement == "none":
        return CpuSet()
    return cpus.online - cpus.isolated if cpus.isolated or placement == "local" else cpus.housekeeping


def _home(node_id: Optional[int], topology: Topology) -> Optional[NumaNode]:
    """The NUMA node with CPUs for a device: its own, or the nearest to it when that has none; None when the device's is unknown."""
    node = next((node for node in topology.numa_nodes if node.id == node_id), None)
    if node is None or node.cpus:
        return node
    return min(topology.cpu_nodes, key=lambda other: (node.distances.get(other.id, 255), other.id), default=None)


def _target(
    node: Optional[NumaNode],
    devices: List[Tuple[str, Device]],
    topology: Topology,
    policy: Policy,
    cpus: Partition,
    notes: Notes,
) -> CpuSet:
    """The CPUs for these devices' interrupts, widened on the same NUMA node when they hold too few vectors."""
    here = node.cpus if node else cpus.online
    free = here - cpus.isolated
    if policy.irq_placement == "local":
        start = union(CpuSet([core.first]) for core in topology.cores if core <= free)  # one queue for each core
    else:
        start = cpus.housekeeping & here
    start = start or cpus.housekeeping
    # Kernel-managed NVMe queues have vectors on every CPU already; x86-64 alone has a limit per CPU.
    needed = sum(device.vectors for kind, device in devices if kind != "nvme")
    room = policy.irq_vectors_per_cpu
    if topology.architecture != "x86_64" or needed <= room * len(start):
        return start
    target = start
    for core in topology.cores:
        if needed <= room * len(target):
            break
        if core <= free:
            target = target | core
    threads = topology.threads_per_core
    _report_vectors(node, needed, start, target, -(-needed // (room * threads)), needed <= room * len(target), notes)
    return target


def _report_vectors(node: Optional[NumaNode], needed: int, start: CpuSet, target: CpuSet, cores: int, fits: bool, notes: Notes) -> None:
    where = "NUMA node %d" % node.id if node else "devices without a NUMA node"
    facts = {"numa_node": node.id if node else None, "interrupts": needed, "cpus": target, "reserved_cores_needed": cores}
    enough = "%d reserved cores there would be enough (gpufleet_reserved_cores_per_numa)." % cores
    if fits:
        message = "%d interrupts of %s don't fit on CPUs %s: they spread over %s, which jobs use too. %s"
        notes.warning("interrupt_vectors", message % (needed, where, start, target, enough), **facts)
    else:
        message = "%d interrupts of %s need more vectors than CPUs %s have, and no other CPU is free for them. %s"
        notes.error("interrupt_vectors", message % (needed, where, target, enough), **facts)


def _compare_bandwidth(
    node: Optional[NumaNode], devices: List[Tuple[str, Device]], policy: Policy, topology: Topology, cpus: Partition, notes: Notes
) -> None:
    """What the NICs of a NUMA node can carry against what its housekeeping cores are assumed to serve."""
    gbps = sum((device.speed_mbps or 0) for kind, device in devices if kind == "nic" and not device.virtual_function) / 1000
    here = cpus.housekeeping & node.cpus if node else cpus.housekeeping
    cores = sum(1 for core in topology.cores if core <= here)
    if policy.irq_placement == "housekeeping" and gbps > cores * policy.nic_gbps_per_core:
        notes.info(
            "nic_bandwidth",
            "The NICs of %s carry %.0f Gbit/s; housekeeping cores there: %d, good for about %d (RDMA needs none)."
            % ("NUMA node %d" % node.id if node else "unknown NUMA node", gbps, cores, cores * policy.nic_gbps_per_core),
            numa_node=node.id if node else None, gbps=gbps, cores=cores, gbps_per_core=policy.nic_gbps_per_core,
        )  # fmt: skip
