# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A fingerprint that machines of the same hardware shape share.

Covered: architecture; present CPUs with their threads and L3 groups; each NUMA node's kind, CPUs, distances and memory in whole GiB; how
many GPUs, NICs and NVMe drives of which vendor:device are on which node. Not covered: exact MemTotal, PCI addresses,
the kernel, settings, and which CPUs are online.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from .cpuset import CpuSet, union
from .topology import Device, Topology

_GIB = 1 << 30


def fingerprint(topology: Topology) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the shape."""
    text = json.dumps(shape(topology), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


def shape(topology: Topology) -> Dict[str, Any]:
    """What the fingerprint covers, as plain values.

    Memory is rounded to the nearest GiB, so two machines differ when their MemTotal lies on different sides of a half GiB.
    """
    offline = topology.cpus.offline
    cores = with_offline(topology.cores, offline)
    l3_groups = with_offline([group.cpus for group in topology.l3_groups], offline)
    node_cpus = _node_cpus(topology, [*cores, *l3_groups], offline)
    return {
        "architecture": topology.architecture,
        "present": topology.cpus.present.to_list(),
        "cores": _lists(cores),
        "l3_groups": _lists(l3_groups),
        "numa_nodes": [
            [node.id, node.kind, cpus.to_list(), (node.memory_bytes + _GIB // 2) // _GIB, sorted(node.distances.items())]
            for node, cpus in zip(topology.numa_nodes, node_cpus)
        ],
        "devices": _counts((*topology.gpus, *topology.nics, *topology.nvmes)),
    }


def with_offline(groups: Sequence[CpuSet], offline: CpuSet) -> List[CpuSet]:
    """The groups as they are when all CPUs are online, as far as the other groups show.

    The kernel shows no siblings of an offline CPU. But groups of one kind have one pattern (first CPU and offsets), so an incomplete
    group is completed, or a vanished one restored, where the pattern of another fits and needs nothing but offline CPUs. A single group
    holds everything.
    """
    if len(groups) == 1 and len(groups[0]) > len(offline):
        return [groups[0] | offline]
    found = [group.bits for group in groups]
    patterns = sorted({bits // (bits & -bits) for bits in found}, key=lambda bits: (-bin(bits).count("1"), bits))
    missing = offline.bits
    for cpu in offline:
        if missing >> cpu & 1:
            whole = next(filter(None, (_fit(pattern, cpu, found, missing) for pattern in patterns)), 0)
            found = [bits for bits in found if not bits & whole] + ([whole] if whole else [])
            missing &= ~whole
    return [CpuSet.from_int(bits) for bits in sorted(found, key=lambda bits: bits & -bits)]


def _fit(pattern: int, cpu: int, groups: Sequence[int], missing: int) -> int:
    """The pattern placed over ``cpu`` so that it is one group plus missing CPUs, or missing CPUs only; 0 when it can't be."""
    for offset in CpuSet.from_int(pattern):
        if offset > cpu:
            break
        placed = pattern << (cpu - offset)
        there = placed & ~missing
        if not there or there in groups:
            return placed
    return 0


def _node_cpus(topology: Topology, groups: Iterable[CpuSet], offline: CpuSet) -> List[CpuSet]:
    """The CPUs of each NUMA node with those offline CPUs that share a core or an L3 with one of its CPUs, or else fit its pattern."""
    nodes = [node.cpus for node in topology.numa_nodes]
    for group in groups:
        if not group.isdisjoint(offline):
            on = [index for index, cpus in enumerate(nodes) if not cpus.isdisjoint(group)]
            if len(on) == 1:
                nodes[on[0]] = nodes[on[0]] | group
    left = offline - union(nodes)
    if not left:
        return nodes
    restored = with_offline([cpus for cpus in nodes if cpus], left)
    return [next((whole for whole in restored if cpus and cpus <= whole), cpus) for cpus in nodes]


def _lists(groups: Iterable[CpuSet]) -> List[str]:
    return [group.to_list() for group in groups]


def _counts(devices: Iterable[Device]) -> List[Tuple[str, str, int]]:
    """How many of each vendor:device on each NUMA node ("" when unknown). Virtual functions are a setting, not hardware."""
    counts: Dict[Tuple[str, str], int] = {}
    for device in devices:
        if not device.virtual_function:
            key = ("" if device.numa_node is None else str(device.numa_node), "%s:%s" % (device.vendor, device.device))
            counts[key] = counts.get(key, 0) + 1
    return [(node, name, count) for (node, name), count in sorted(counts.items())]
