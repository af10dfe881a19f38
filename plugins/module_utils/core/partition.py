# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who gets which CPU: reserved for the system, isolated, and the pool that is left. Whole physical cores, per NUMA node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

from .cpuset import CpuSet, union
from .errors import InvalidInput
from .notes import Notes
from .policy import Policy
from .topology import NumaNode, Topology

Cores = Tuple[CpuSet, ...]


@dataclass(frozen=True)
class Partition:
    """Disjoint sets of whole cores (of what is online of them) that together are exactly the online CPUs.

    ``housekeeping`` are the CPUs for device interrupts and kernel work: the reserved ones.
    """

    online: CpuSet
    reserved: CpuSet
    isolated: CpuSet
    pool: CpuSet

    @property
    def housekeeping(self) -> CpuSet:
        """Where the system, its daemons and device interrupts run."""
        return self.reserved

    @property
    def available(self) -> CpuSet:
        """What is not reserved."""
        return self.online - self.reserved


def partition(topology: Topology, policy: Policy, notes: Notes) -> Partition:
    """Reserved, isolated and pool CPUs of a node.

    :raises InvalidInput: CPUs that are offline or not there, half cores, the boot CPU isolated, nothing reserved, nothing left; how to
        isolate, where nothing is isolated; a reservation in two ways
    """
    online = topology.cpus.online
    _check_isolates(policy)
    _check_reserves_once(policy)
    asked = policy.isolated_cpus or CpuSet()
    _check_usable("gpufleet_isolated_cpus", asked, topology)
    boot = boot_cpu(topology)
    if boot in asked:
        raise InvalidInput(
            "gpufleet_isolated_cpus holds CPU %d, the boot CPU, which the kernel needs for its own work." % boot,
            "Leave its core out of the set.",
        )

    if policy.reserved_cpus is not None:
        reserved = policy.reserved_cpus
        _check_usable("gpufleet_reserved_cpus", reserved, topology)
        if not reserved.isdisjoint(asked):
            raise InvalidInput(
                "CPUs %s are in both gpufleet_reserved_cpus and gpufleet_isolated_cpus." % (reserved & asked),
                "Name each CPU in one of them.",
            )
    else:
        reserved = union(_choose(node, topology, policy, asked, notes) for node in topology.cpu_nodes)
        if not reserved:
            raise InvalidInput(
                "No NUMA node has a whole core for the system%s." % (" beside gpufleet_isolated_cpus" if asked else ""),
                "Name the CPUs in gpufleet_reserved_cpus; if the NUMA nodes' cpulist files are missing, take the facts anew.",
            )
    if online <= reserved:
        raise InvalidInput(
            "The reserved CPUs %s are all that this node has; nothing is left for work." % reserved,
            "Reserve fewer cores (gpufleet_reserved_cores_per_numa, gpufleet_reserved_cpus) or leave gpufleet_reserved_whole_l3 out.",
        )
    isolated = (asked or online - reserved) if policy.defaults.isolates else CpuSet()
    if boot in isolated:
        raise InvalidInput(
            "Profile isolated would isolate CPU %d, the boot CPU, which the kernel needs for its own work." % boot,
            "Put its core into gpufleet_reserved_cpus.",
        )
    _explain(topology, policy, reserved, boot, notes)
    return Partition(online, reserved, isolated, online - reserved - isolated)


def _check_isolates(policy: Policy) -> None:
    """Nothing that says how CPUs are isolated is given where none is."""
    how = {"isolated_cpus": policy.isolated_cpus, "isolate_domain": policy.isolate_domain, "nohz_full": policy.nohz_full}
    for name, given in how.items():
        if given and not policy.defaults.isolates:
            raise InvalidInput(
                "gpufleet_%s is given, but profile %s isolates no CPU." % (name, policy.profile),
                "Choose gpufleet_profile isolated, or leave gpufleet_%s out." % name,
            )


def _check_reserves_once(policy: Policy) -> None:
    """What is reserved is said in one way."""
    amounts = {"cores_per_numa": policy.reserved_cores_per_numa, "cores_percent": policy.reserved_cores_percent}
    ways = {"cpus": policy.reserved_cpus, **amounts, "whole_l3": policy.reserved_whole_l3 and policy.reserved_cpus}
    given = ["gpufleet_reserved_%s" % name for name, value in ways.items() if value]
    if len(given) > 1:
        raise InvalidInput("%s are both given." % " and ".join(given[:2]), "Keep one of them.")


def boot_cpu(topology: Topology) -> int:
    """CPU 0 where it is online, else the lowest: the kernel needs it for time keeping and cannot isolate it."""
    return topology.cpus.online.first


def _check_usable(variable: str, cpus: CpuSet, topology: Topology) -> None:
    """Online CPUs, in whole cores.

    Membership is checked, never a count: online CPUs may have holes (A3).
    """
    absent = cpus - topology.cpus.present
    if absent:
        raise InvalidInput(
            "%s holds CPUs %s, which this node doesn't have." % (variable, absent), "Its CPUs are %s." % topology.cpus.online
        )
    offline = cpus - topology.cpus.online
    if offline:
        raise InvalidInput(
            "%s holds CPUs %s, which are offline." % (variable, offline),
            "Take them out or bring them online; online are %s." % topology.cpus.online,
        )
    for core in topology.cores:  # A9
        if not core.isdisjoint(cpus) and not core <= cpus:
            raise InvalidInput(
                "%s holds CPU %s but not its thread sibling %s: half a core." % (variable, core & cpus, core - cpus),
                "Name whole cores, here %s." % core,
            )


def _choose(node: NumaNode, topology: Topology, policy: Policy, isolated: CpuSet, notes: Notes) -> CpuSet:
    """The reserved CPUs of one NUMA node: as many cores as asked for, inside as few L3 groups as possible, the boot CPU's core first."""
    every = [core for core in topology.cores if core <= node.cpus]
    cores = [core for core in every if core.isdisjoint(isolated)]
    wanted = policy.reserved_cores_per_numa or 1
    if policy.reserved_cores_percent is not None:
        wanted = -(-len(every) * policy.reserved_cores_percent // 100)
    if not cores:
        return CpuSet()
    groups = _by_l3(cores, topology)
    boot = boot_cpu(topology)
    groups.sort(key=lambda group: group[0].first)
    if not policy.reserved_whole_l3:
        return union(_take(groups, min(wanted, len(cores)), boot))
    taken = union(_take(groups, min(wanted, len(cores)), boot))
    whole = union(union(group) for group in groups if not union(group).isdisjoint(taken))
    if node.cpus <= whole:
        raise InvalidInput(
            "gpufleet_reserved_whole_l3 would reserve all of NUMA node %d, whose CPUs share %s."
            % (node.id, "one L3 cache" if len(groups) == 1 else "these L3 caches"),
            "Leave gpufleet_reserved_whole_l3 out on this node, or reserve fewer cores.",
        )
    return whole


def _by_l3(cores: Sequence[CpuSet], topology: Topology) -> List[List[CpuSet]]:
    """The cores by L3 group; those of no group are one more."""
    rest = list(cores)
    groups = []
    for group in topology.l3_groups:
        inside = [core for core in rest if core <= group.cpus]
        if inside:
            groups.append(inside)
            rest = [core for core in rest if not core <= group.cpus]
    return [*groups, rest] if rest else groups


def _take(groups: Sequence[List[CpuSet]], wanted: int, boot: int) -> List[CpuSet]:
    """``wanted`` cores from as few groups as can be: the boot CPU's, then the first that is large enough, else the largest."""
    left = list(groups)
    taken: List[CpuSet] = []
    if boot in union(left[0]):
        chosen = left.pop(0)
        taken = chosen[:wanted]  # cores come in the order of their CPUs, and the boot CPU is the first there is
    while len(taken) < wanted:
        need = wanted - len(taken)
        chosen = next((group for group in left if len(group) >= need), max(left, key=len))
        left.remove(chosen)
        taken += chosen[:need]
    return taken


def _explain(topology: Topology, policy: Policy, reserved: CpuSet, boot: int, notes: Notes) -> None:
    """Why these CPUs, and what is odd about them."""
    by_node: Dict[int, str] = {node.id: (reserved & node.cpus).to_list() for node in topology.cpu_nodes}
    if policy.reserved_cpus is None:
        notes.info(
            "reserved_cpus",
            "Whole physical cores on each NUMA node that has CPUs, inside as few L3 groups as possible, the boot CPU's core first.",
            boot_cpu=boot, numa_nodes=by_node, reserved=reserved,
        )  # fmt: skip
    else:
        notes.info("reserved_cpus", "The reserved CPUs are those of gpufleet_reserved_cpus.", numa_nodes=by_node, reserved=reserved)
        if boot not in reserved:
            notes.warning(
                "boot_cpu_not_reserved", "CPU %d does the kernel's time keeping and is not among the reserved CPUs." % boot, boot_cpu=boot
            )
    without = [node.id for node in topology.cpu_nodes if reserved.isdisjoint(node.cpus)]
    if without:
        notes.warning(
            "numa_node_without_reserved_cpus",
            "NUMA nodes %s have no reserved CPU: interrupts of their devices go to another node's." % ", ".join(map(str, without)),
            numa_nodes=without,
        )
    halves = [core for core in topology.cores if len(core) < topology.threads_per_core]
    if halves:
        notes.warning(
            "half_cores",
            "%d cores have offline threads; they count as cores of one thread less and don't help a job that asks for whole cores."
            % len(halves),
            cpus=union(halves),
        )
