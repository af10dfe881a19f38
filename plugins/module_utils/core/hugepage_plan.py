# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hugepage pools: how many pages of which size on which NUMA node. Only when asked for, and only where memory beside CPUs is."""

from __future__ import annotations

from typing import Dict

from .errors import InvalidInput
from .notes import Notes
from .policy import Policy
from .quantity import GIB, format_size, parse_size
from .topology import DEVICE_MEMORY, NumaNode, Topology

# {page size in bytes: {NUMA node id: pages}}, in the order in which the user names the sizes.
Pools = Dict[int, Dict[int, int]]

LARGE_SHARE = 0.9  # of a NUMA node's memory: above, little is left for anything else


def hugepage_pools(topology: Topology, policy: Policy, notes: Notes) -> Pools:
    """The pools that gpufleet_hugepages asks for.

    :raises InvalidInput: a size the kernel lacks, a NUMA node that isn't there or has no memory, more than a node holds; a default size
        without pages
    """
    if policy.default_hugepage_size and not policy.hugepages:
        raise InvalidInput(
            "gpufleet_default_hugepage_size is given without gpufleet_hugepages, and is written only with them.",
            "Ask for pages ({%s: 0} where a node needs none), or leave it out." % format_size(policy.default_hugepage_size),
        )
    pools: Pools = {}
    for text, counts in policy.hugepages.items():
        size = parse_size(text, "gpufleet_hugepages: the page size")
        if size not in topology.hugepage_sizes:
            raise InvalidInput(
                "gpufleet_hugepages names pages of %s, which this kernel lacks." % format_size(size),
                "It has %s." % (", ".join(map(format_size, topology.hugepage_sizes)) or "none"),
            )
        each = counts.get(None)
        named = (
            {node.id: each for node in topology.cpu_memory_nodes}
            if each is not None
            else {id_: n for id_, n in counts.items() if id_ is not None}
        )
        pools[size] = {node_id: count for node_id, count in sorted(named.items()) if count}
    nodes = {node.id: node for node in topology.numa_nodes}
    for node_id in sorted({node_id for counts in pools.values() for node_id in counts}):
        if node_id not in nodes:
            raise InvalidInput(
                "gpufleet_hugepages names NUMA node %d, which isn't there." % node_id, "Name one of %s." % ", ".join(map(str, nodes))
            )
        _check_room(nodes[node_id], sum(size * counts.get(node_id, 0) for size, counts in pools.items()), notes)
    return {size: counts for size, counts in pools.items() if counts}


def planned_bytes(topology: Topology, pools: Pools) -> Dict[int, int]:
    """Bytes of hugepages on each NUMA node once the pools are there: a size that isn't planned stays as it is."""
    return {
        node.id: sum(
            size * (pools[size].get(node.id, 0) if size in pools else node.hugepages[size].total) for size in {*pools, *node.hugepages}
        )
        for node in topology.numa_nodes
    }


def _check_room(node: NumaNode, size: int, notes: Notes) -> None:
    if not node.memory_bytes:  # the kernel would give fewer pages without a word
        raise InvalidInput("gpufleet_hugepages asks for pages on NUMA node %d, which has no memory." % node.id, "Name nodes with memory.")
    if size > node.memory_bytes:
        raise InvalidInput(
            "gpufleet_hugepages asks for %.0f GiB on NUMA node %d, which has %.0f GiB." % (size / GIB, node.id, node.memory_bytes / GIB),
            "Ask for fewer pages.",
        )
    if size > node.memory_bytes * LARGE_SHARE:
        notes.warning(
            "hugepages_large", "Hugepages take more than 90 %% of the memory of NUMA node %d." % node.id, numa_node=node.id, bytes=size
        )
    if node.kind == DEVICE_MEMORY:
        notes.warning(
            "hugepages_on_device_memory", "Hugepages are asked for on NUMA node %d, which is GPU memory." % node.id, numa_node=node.id
        )
