# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NUMA nodes with their CPUs, memory, distances and hugepages. Their kinds are judged in core/node_kind.py."""

from __future__ import annotations

import re
from typing import Dict, List, Optional, Sequence, Tuple

from ...core.cpuset import CpuSet, union
from ...core.node_kind import RawNode
from ...core.topology import HugepagePool, NumaNode
from ..root import Root
from .values import damaged, first_cpu_set, kilobytes, number, numbered

SYSTEM = "/sys/devices/system/node"
HUGEPAGES = "/sys/kernel/mm/hugepages"
_CPUS = ("cpulist", "cpumap")
_POOL = re.compile(r"hugepages-(\d+)kB\Z")
_LOCAL_DISTANCE = 10  # ACPI SLIT: a node's distance to itself


def node_ids(root: Root) -> List[int]:
    """The NUMA nodes that the kernel shows; a kernel without NUMA shows none."""
    return numbered(root.names(SYSTEM), "node")


def read_nodes(root: Root, ids: List[int], online: CpuSet, memory_bytes: Optional[int]) -> Tuple[RawNode, ...]:
    """The NUMA nodes with these ids; without any, one node with all CPUs and all memory."""
    if not ids:
        return (RawNode(0, online, memory_bytes, {0: _LOCAL_DISTANCE}, _pools(root, HUGEPAGES)),)
    return tuple(_node(root, id, ids, cpus) for id, cpus in zip(ids, _cpus_of_nodes(root, ids, online)))


def _cpus_of_nodes(root: Root, ids: List[int], online: CpuSet) -> List[CpuSet]:
    """The CPUs of each node. A CPU is on one node; where a broken firmware table puts it on several, the links decide, which the kernel
    makes from a CPU to its node, and without them the first node counts."""

    def linked(id: int) -> CpuSet:
        return CpuSet(numbered(root.names("%s/node%d" % (SYSTEM, id)), "cpu"))

    found = []
    for id in ids:
        cpus = first_cpu_set(root, "%s/node%d" % (SYSTEM, id), _CPUS)
        found.append(linked(id) if cpus is None else cpus)
    if sum(map(len, found)) > len(union(found)):
        found = [linked(id) & cpus or cpus for id, cpus in zip(ids, found)]
    left, disjoint = online, []
    for cpus in found:
        disjoint.append(cpus & left)
        left = left - cpus
    return disjoint


def _node(root: Root, id: int, ids: List[int], cpus: CpuSet) -> RawNode:
    folder = "%s/node%d" % (SYSTEM, id)
    meminfo = root.read(folder + "/meminfo")
    return RawNode(
        id,
        cpus,
        None if meminfo is None else _memory(root, folder + "/meminfo", meminfo),
        _distances(root, folder + "/distance", ids),
        _pools(root, folder + "/hugepages"),
    )


def _memory(root: Root, path: str, meminfo: str) -> int:
    """MemTotal in bytes: the kernel shows it of a node without memory too."""
    found = kilobytes(meminfo, "MemTotal")
    if found is None:
        raise damaged(root, path, meminfo)
    return found


def _distances(root: Root, path: str, ids: List[int]) -> Dict[int, int]:
    """The row of the distance table; its columns are the online nodes, which are those that have a folder."""
    text = root.read(path)
    if text is None:
        return {}
    row = text.split()
    if len(row) != len(ids) or not all(cell.isdigit() for cell in row):
        raise damaged(root, path, text)
    return dict(zip(ids, map(int, row)))


def _pools(root: Root, folder: str) -> Dict[int, HugepagePool]:
    """The hugepage pools in a folder, by page size in bytes, ascending."""
    pools = {}
    for name in root.names(folder):
        match = _POOL.match(name)
        if match:
            total, free = (number(root, "%s/%s/%s_hugepages" % (folder, name, which)) or 0 for which in ("nr", "free"))
            pools[int(match.group(1)) * 1024] = HugepagePool(total, free)
    return dict(sorted(pools.items()))


def hugepage_sizes(root: Root, nodes: Sequence[NumaNode]) -> Tuple[int, ...]:
    """The hugepage sizes of the kernel in bytes, ascending."""
    offered = {size for node in nodes for size in node.hugepages}
    if not offered:
        offered = {int(match.group(1)) * 1024 for match in map(_POOL.match, root.names(HUGEPAGES)) if match}
    return tuple(sorted(offered))
