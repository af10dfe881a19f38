# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether kubelet would start on its state files, and who holds what they say.

kubelet exits on a state file that doesn't fit: another policy, another reserved set, other CPUs, other memory, other NUMA nodes. The rule
here is its own, by version. It looks at policy options only as far as they change the expected CPUs (strict-cpu-reservation).

Sources, read at v1.28.0, v1.32.0, v1.34.4, v1.35.4, v1.36.3 and v1.37.2: validateState in pkg/kubelet/cm/cpumanager/policy_static.go and
pkg/kubelet/cm/memorymanager/policy_static.go, NewStaticPolicy, restoreState of both; cadvisor's utils/sysinfo for what kubelet sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from .cpuset import CpuSet, union
from .feature_gates import is_on
from .kubelet_state_format import CPU, MEMORY, Block, NodeState, State, Unusable, WrongChecksum, parse
from .quantity import format_bytes, parse_bytes

# The oldest kubelet whose own files have proven our checksums. To remove a file of an older one for its checksum alone might be our slip.
CHECKSUM_MINOR = 34
POLICY_FIELDS = {CPU: ("cpuManagerPolicy", "none"), MEMORY: ("memoryManagerPolicy", "None")}

_UINT64 = (1 << 64) - 1
_TRUE = ("1", "t", "T", "TRUE", "true", "True")


@dataclass(frozen=True)
class NodeMemory:
    """A NUMA node as kubelet sees it: ``memory_bytes`` is MemTotal, ``hugepages`` the number of pages by size in bytes, 0 too."""

    memory_bytes: int
    hugepages: Mapping[int, int]


@dataclass(frozen=True)
class Machine:
    """The machine as kubelet sees it. ``nodes``: all NUMA nodes with a folder, those without CPUs too; empty where they aren't known, and
    then memory isn't compared."""

    online: CpuSet
    nodes: Mapping[int, NodeMemory]


def stale_because(manager: str, text: str, configuration: Mapping[str, Any], machine: Machine, minor: int) -> Optional[str]:
    """Why kubelet would not start on this file ("it is of policy none, and static is configured"); None when it would. A checksum that
    doesn't fit is a reason from CHECKSUM_MINOR on only; before, it is not checked.

    :param manager: the file's name, cpu_manager_state or memory_manager_state
    :param configuration: the fields of KubeletConfiguration that are in force in the end
    :param minor: of the kubelet that is to read it
    """
    policy = policy_of(manager, configuration)
    pod_level = is_on("PodLevelResourceManagers", configuration.get("featureGates"), minor)
    try:
        state = parse(manager, text, minor, pod_level)
    except WrongChecksum as wrong:
        if minor >= CHECKSUM_MINOR:
            return str(wrong)
        state = wrong.state
    except Unusable as unusable:
        return str(unusable)
    if state.form == "v1" and state.cpus:
        return "it names containers as kubelet before 1.18 did, and those are gone"
    if state.policy != policy:
        return "it is of policy %s, and %s is configured" % (state.policy or '""', policy)
    if policy == "static":
        return _cpus_differ(state, configuration, machine, minor, pod_level)
    if policy == "Static":
        return _memory_differs(state, configuration, machine, minor, pod_level)
    return None


def is_unchecked(manager: str, text: str, minor: int) -> bool:
    """Whether the file's checksum isn't as we reckon it, of a kubelet too old for that to count."""
    if minor >= CHECKSUM_MINOR:
        return False
    try:
        parse(manager, text, minor, False)
    except WrongChecksum:
        return True
    except Unusable:  # which stale_because says
        pass
    return False


def policy_of(manager: str, configuration: Mapping[str, Any]) -> str:
    """The policy of a manager that the configuration gives."""
    name, default = POLICY_FIELDS[manager]
    return str(configuration.get(name) or default)


def holders(manager: str, text: str, minor: int) -> Optional[Dict[str, List[str]]]:
    """Pods (by UID) with the containers that the file gives CPUs or memory of their own; None where it doesn't tell, because no kubelet
    could read it."""
    for known, pod_level in ((minor, True), (36, True), (35, False)):
        try:
            state = parse(manager, text, known, pod_level)
        except Unusable:
            continue
        if state.form == "v1" and state.cpus:
            return None
        pods: Mapping[str, Mapping[str, Any]] = state.cpus if manager == CPU else state.blocks
        found = {pod: sorted(name for name, given in containers.items() if given) for pod, containers in pods.items()}
        found.update((pod, found.get(pod, [])) for pod in (*state.pod_cpus, *state.pod_blocks))
        return {pod: names for pod, names in found.items() if names or pod in state.pod_cpus or pod in state.pod_blocks}
    return None


# CPUs -----------------------------------------------------------------------------------------------------------------------


def _cpus_differ(state: State, configuration: Mapping[str, Any], machine: Machine, minor: int, pod_level: bool) -> Optional[str]:
    shared, reserved = state.shared, CpuSet.parse(str(configuration.get("reservedSystemCPUs") or ""))
    options = configuration.get("cpuManagerPolicyOptions") or {}
    strict = minor >= 32 and str(options.get("strict-cpu-reservation")) in _TRUE
    if not shared:
        return "it gives CPUs to pods and has no shared ones" if state.cpus else None
    if strict and not shared.isdisjoint(reserved):
        return "its shared CPUs %s hold %s, which are strictly reserved" % (shared, shared & reserved)
    if not strict and not reserved <= shared:
        return "its shared CPUs %s lack %s, which are reserved" % (shared, reserved - shared)
    for pod, container, cpus in _given(state):
        if not shared.isdisjoint(cpus):
            return "it gives CPUs %s to container %s of pod %s and shares them" % (shared & cpus, container, pod)
    known = union([shared, *(cpus for _pod, _container, cpus in _given(state)), *(state.pod_cpus.values() if pod_level else ())])
    if strict and not reserved:  # reserved by number: which ones those are is kubelet's choice
        return None
    expected = machine.online - reserved if strict else machine.online
    return None if known == expected else "it is for CPUs %s, and kubelet would divide %s" % (known, expected)


def _given(state: State) -> Iterator[Tuple[str, str, CpuSet]]:
    for pod, containers in state.cpus.items():
        for container, cpus in containers.items():
            yield pod, container, cpus


# Memory ---------------------------------------------------------------------------------------------------------------------


@dataclass
class _Expected:
    """A NUMA node as it has to be by machine and entries; tables are [total, system reserved, allocatable, reserved, free]."""

    cells: Tuple[int, ...]
    tables: Dict[str, List[int]]
    assignments: int = 0


def _memory_differs(state: State, configuration: Mapping[str, Any], machine: Machine, minor: int, pod_level: bool) -> Optional[str]:
    if not state.nodes:
        return "it gives memory to pods and knows no NUMA node" if state.blocks else None
    if not machine.nodes:
        return None
    expected = _machine_state(configuration, machine)
    for pod, containers in state.blocks.items():
        by_pod = state.pod_blocks.get(pod) if pod_level else None
        for blocks in [by_pod] if by_pod else containers.values():
            for block in blocks:
                if not all(node in expected and block.kind in expected[node].tables for node in block.nodes):
                    return "it gives pod %s %s of NUMA nodes %s, which aren't there" % (pod, block.kind, CpuSet(block.nodes))
                _take(expected, block)
    if set(state.nodes) != set(expected):
        return "it is for NUMA nodes %s, and the machine has %s" % (CpuSet(state.nodes), CpuSet(expected))
    return next(filter(None, (_node_differs(id, state.nodes, expected, minor) for id in sorted(expected))), None)


def _machine_state(configuration: Mapping[str, Any], machine: Machine) -> Dict[int, _Expected]:
    """The machine without any pod. Sums are kubelet's 64 bits without a sign: they wrap."""
    reserved: Dict[Tuple[int, str], int] = {}
    for entry in configuration.get("reservedMemory") or []:
        for kind, amount in (entry.get("limits") or {}).items():
            reserved[int(entry["numaNode"]), kind] = parse_bytes(amount, "reservedMemory of NUMA node %s" % entry["numaNode"])
    result = {}
    for id, node in machine.nodes.items():
        sizes = {"hugepages-" + format_bytes(size): size * count for size, count in node.hugepages.items()}
        tables = {}
        for kind, total in (*sizes.items(), ("memory", node.memory_bytes)):
            system = reserved.get((id, kind), 0)
            allocatable = total - system - (sum(sizes.values()) if kind == "memory" else 0) & _UINT64
            tables[kind] = [total, system, allocatable, 0, allocatable]
        result[id] = _Expected((id,), tables)
    return result


def _take(expected: Dict[int, _Expected], block: Block) -> None:
    """Memory of a container is taken from its nodes in their order, as much as each has."""
    left = block.size
    for id in block.nodes:
        node = expected[id]
        node.assignments += 1
        node.cells = block.nodes
        table = node.tables[block.kind]
        taken = min(left, table[4])
        table[3] += taken
        table[4] -= taken
        left -= taken


def _node_differs(id: int, nodes: Mapping[int, NodeState], expected: Mapping[int, _Expected], minor: int) -> Optional[str]:
    found, wanted = nodes[id], expected[id]
    if found.assignments != wanted.assignments:
        return "it counts %d assignments on NUMA node %d and lists %d" % (found.assignments, id, wanted.assignments)
    if sorted(found.cells) != sorted(wanted.cells):
        return "it has NUMA node %d in the group %s, its assignments say %s" % (id, CpuSet(found.cells), CpuSet(wanted.cells))
    if set(found.memory) != set(wanted.tables):
        return "it knows %s of NUMA node %d, and the machine has %s" % (
            ", ".join(sorted(found.memory)), id, ", ".join(sorted(wanted.tables)))  # fmt: skip
    for kind, table in sorted(found.memory.items()):
        total, system, allocatable = wanted.tables[kind][:3]
        if table.total != total:
            return "it has %d bytes of %s on NUMA node %d, and the machine has %d" % (table.total, kind, id, total)
        if table.system_reserved != system:
            return "it has %d bytes of %s reserved on NUMA node %d, and %d are configured" % (table.system_reserved, kind, id, system)
        if table.allocatable != allocatable:
            return "it has %d bytes of %s for pods on NUMA node %d, and there are %d" % (table.allocatable, kind, id, allocatable)
        if not all(cell in nodes and kind in nodes[cell].memory and kind in expected[cell].tables for cell in found.cells):
            return "it has NUMA node %d in a group with nodes that lack %s" % (id, kind)
        # From 1.32 on what counts is the sum of a group: kubelet's own order of taking may differ from that of a restart.
        group = (id,) if minor < 32 else found.cells
        sums = [(nodes[cell].memory[kind].reserved, nodes[cell].memory[kind].free) for cell in group]
        wanted_sums = [(expected[cell].tables[kind][3], expected[cell].tables[kind][4]) for cell in group]
        if [sum(column) & _UINT64 for column in zip(*sums)] != [sum(column) & _UINT64 for column in zip(*wanted_sums)]:
            return "its free %s on NUMA node %d isn't what its entries leave" % (kind, id)
    return None
