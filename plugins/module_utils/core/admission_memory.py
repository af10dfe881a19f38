# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's memory manager Static: memory and hugepages by NUMA node, and what a container gets.

A NUMA node is used either alone or within one fixed group of nodes; until its last assignment is gone, no other group may have it.
Source: pkg/kubelet/cm/memorymanager/policy_static.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from .admission_machine import bits_of, popcount, subsets, sums
from .admission_topology import Affinity, Hints
from .pods import HUGEPAGES, MEMORY, Amounts
from .quantity import format_bytes, parse_bytes
from .topology import Topology

_UNSIGNED = (1 << 64) - 1  # kubelet's arithmetic wraps


class NoMemory(Exception):
    """The memory manager can't give what is asked for; the text says why."""


class Crash(Exception):
    """kubelet crashes on this."""


@dataclass(frozen=True)
class Block:
    """Memory of one kind from a set of NUMA nodes (a mask)."""

    nodes: int
    kind: str
    size: int


@dataclass
class NodeMemory:
    """One NUMA node: how many blocks lie on it, the group of nodes it is used in, what is free and handed out by kind."""

    assignments: int
    group: int
    free: Dict[str, int]
    used: Dict[str, int]

    def copy(self) -> NodeMemory:
        """Another that can change."""
        return NodeMemory(self.assignments, self.group, dict(self.free), dict(self.used))


class Memory:
    """The memory of all NUMA nodes. ``allocatable`` never changes; ``nodes`` does."""

    def __init__(self, nodes: Dict[int, NodeMemory], allocatable: Mapping[int, Amounts]) -> None:
        self.nodes, self.allocatable = nodes, allocatable

    def copy(self) -> Memory:
        """Another whose nodes can change."""
        return Memory({id_: node.copy() for id_, node in self.nodes.items()}, self.allocatable)

    def hints(self, requests: Amounts, reusable: Mapping[int, Amounts]) -> Dict[int, bool]:
        """The sets of NUMA nodes that could give all requests, each with whether it is preferred: as few nodes as the empty machine needs.

        ``reusable``: what init containers of the pod leave on a set of nodes. {} where nothing fits: kubelet takes that for no preference.
        """
        masks = self._subsets()
        self._know(requests)
        can_ever = self._masks_with(self.allocatable, requests, {})
        free = {id_: node.free for id_, node in self.nodes.items()}
        can_now = self._masks_with(free, requests, reusable)
        enough = min((popcount(mask) for mask in masks if mask in can_ever), default=len(self.nodes))
        return {mask: popcount(mask) == enough for mask in masks if mask in can_ever and mask in can_now and self._joins(mask)}

    def _subsets(self) -> Tuple[int, ...]:
        return subsets(sum(1 << id_ for id_ in self.nodes))

    def _know(self, requests: Amounts) -> None:
        for kind in requests:
            if any(kind not in node.free for node in self.nodes.values()):
                raise Crash("kubelet's memory manager looks for %s on a NUMA node without that page size" % kind)

    def _masks_with(self, amounts: Mapping[int, Amounts], requests: Amounts, reusable: Mapping[int, Amounts]) -> Dict[int, bool]:
        masks = self._subsets()
        found = dict.fromkeys(masks, True)
        for kind, size in requests.items():
            total = sums({id_: node[kind] for id_, node in amounts.items()}, masks)
            for mask in masks:
                if (total[mask] & _UNSIGNED) + reusable.get(mask, {}).get(kind, 0) < size:
                    found.pop(mask, None)
        return found

    def _joins(self, mask: int) -> bool:
        """Whether the nodes may be used as this group: a single one that is in no group, or several unused or already in this one."""
        if popcount(mask) == 1:
            return popcount(self.nodes[mask.bit_length() - 1].group) == 1
        return not self._breaks_group(mask)

    def _breaks_group(self, mask: int) -> bool:
        if popcount(mask) == 1:
            return False
        return any(self.nodes[id_].assignments and self.nodes[id_].group != mask for id_ in bits_of(mask))

    def place(self, affinity: Affinity, requests: Amounts, reusable: Mapping[int, Amounts]) -> int:
        """The NUMA nodes to take the requests from: the topology manager's, or those nodes and more where they lack memory.

        :raises NoMemory: kubelet refuses the pod
        """
        nodes, preferred = affinity.nodes, affinity.preferred
        if nodes is None:
            hints = self.hints(requests, reusable) if requests else {}
            if not hints:
                raise NoMemory("no NUMA nodes have that much memory free, or may be used together")
            nodes, preferred = self._accept(hints, preferred, "memory is free only on more NUMA nodes than the request needs")
        if not self._satisfies(nodes, requests):
            hints = {mask: wanted for mask, wanted in self.hints(requests, reusable).items() if mask & nodes == nodes}
            if not hints:
                raise NoMemory("NUMA nodes %s have too little memory free, and no more nodes can be added" % _ids(nodes))
            nodes, preferred = self._accept(hints, preferred, "memory would come from more NUMA nodes than the request needs")
        if self._breaks_group(nodes):
            raise NoMemory("NUMA nodes %s can't be used together: other pods use some of them in another combination" % _ids(nodes))
        return nodes

    @staticmethod
    def _accept(hints: Hints, preferred: bool, problem: str) -> Tuple[int, bool]:
        best = min(hints, key=lambda mask: (not hints[mask], popcount(mask), mask))
        if preferred and not hints[best]:
            raise NoMemory(problem)
        return best, hints[best]

    def _satisfies(self, mask: int, requests: Amounts) -> bool:
        self._know(requests)
        return all(sum(self.nodes[id_].free[kind] for id_ in bits_of(mask)) & _UNSIGNED >= size for kind, size in requests.items())

    def assign(self, nodes: int, kind: str, size: int) -> None:
        """Hand out ``size`` bytes from the nodes, from the lowest on."""
        for id_ in bits_of(nodes):
            node = self.nodes[id_]
            node.assignments += 1
            node.group = nodes
            part = min(size, node.free[kind])
            node.free[kind] -= part
            node.used[kind] += part
            size -= part

    def release(self, blocks: Tuple[Block, ...]) -> None:
        """Take blocks back, to the lowest nodes first, whoever had taken from them: memory may stay lost that way, as it does with kubelet.

        How much depends on the order of a pod's containers, which is chance in kubelet.
        """
        for block in blocks:
            size = block.size
            for id_ in bits_of(block.nodes):
                node = self.nodes[id_]
                node.assignments -= 1
                if node.assignments == 0:
                    node.group = 1 << id_
                part = min(size, node.used[block.kind])
                node.used[block.kind] -= part
                node.free[block.kind] += part
                size -= part


def memory_of(topology: Topology, configuration: Mapping[str, Any]) -> Optional[Memory]:
    """All memory free, as the memory manager starts; None without the policy Static."""
    if configuration.get("memoryManagerPolicy") != "Static":
        return None
    reserved: Dict[Tuple[int, str], int] = {}
    for entry in configuration.get("reservedMemory") or []:
        for kind, amount in (entry.get("limits") or {}).items():
            reserved[int(entry["numaNode"]), kind] = parse_bytes(amount, "reservedMemory.%s" % kind)
    allocatable: Dict[int, Dict[str, int]] = {}
    for node in topology.numa_nodes:
        pools = {hugepages(size): size * pool.total for size, pool in node.hugepages.items()}
        amounts = {kind: size - reserved.get((node.id, kind), 0) & _UNSIGNED for kind, size in pools.items()}
        amounts[MEMORY] = node.memory_bytes - reserved.get((node.id, MEMORY), 0) - sum(pools.values()) & _UNSIGNED
        allocatable[node.id] = amounts
    nodes = {id_: NodeMemory(0, 1 << id_, dict(amounts), dict.fromkeys(amounts, 0)) for id_, amounts in allocatable.items()}
    return Memory(nodes, allocatable)


def hugepages(size: int) -> str:
    """The resource name of a page size in bytes, as Kubernetes writes it."""
    return HUGEPAGES + format_bytes(size)


def memory_requests(amounts: Amounts) -> Dict[str, int]:
    """Those of the amounts that the memory manager deals with."""
    return {kind: size for kind, size in amounts.items() if kind == MEMORY or kind.startswith(HUGEPAGES)}


def _ids(mask: int) -> str:
    return ", ".join(map(str, bits_of(mask)))
