# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's device manager, by NUMA node and count: which devices of a NUMA node a container gets is chance or the plugin's preference.

A device belongs to a set of NUMA nodes (a mask; 0: its plugin doesn't say). Where kubelet may choose between NUMA nodes, it asks the
plugin, and without an answer takes any: then the counts here are what NVIDIA's plugin prefers (as few NUMA nodes as will do), and not
certain. Source: pkg/kubelet/cm/devicemanager/manager.go, topology_hints.go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Dict, Mapping, Tuple

from .admission_machine import popcount, subsets

Counts = Mapping[int, int]

HINTS_FROM_DEVICE_NODES = 36  # since this minor hints name only NUMA nodes that have devices of the resource


class NoDevices(Exception):
    """There are too few devices; the text says how many."""


@dataclass(frozen=True)
class Grant:
    """Devices by NUMA nodes, and whether kubelet had no choice between NUMA nodes. ``again``: those that init containers had before."""

    counts: Counts
    certain: bool
    again: Counts


def has_affinity(devices: Counts) -> bool:
    """Whether kubelet cares where these devices are: any of them says so."""
    return any(mask and count for mask, count in devices.items())


def hints(devices: Counts, free: Counts, reusable: Counts, count: int, nodes: int, minor: int) -> Dict[int, bool]:
    """The sets of NUMA nodes that could give ``count`` devices, each with whether it is preferred; {} when there are too few.

    ``devices`` are all, healthy or not; ``reusable`` are those of the pod's init containers, which have to be near the set.
    """
    if sum(free.values()) + sum(reusable.values()) < count:
        return {}
    if minor >= HINTS_FROM_DEVICE_NODES:
        with_devices = 0
        for mask in devices:
            with_devices |= mask
        nodes = with_devices & nodes or nodes
    masks = subsets(nodes)
    enough = next((popcount(mask) for mask in masks if _near(devices, mask) >= count), popcount(nodes))
    found = {}
    for mask in masks:
        if all(near & mask for near, many in reusable.items() if near and many):
            own = sum(many for near, many in reusable.items() if near)
            if own + _near(free, mask) >= count:
                found[mask] = popcount(mask) == enough
    return found


def _near(devices: Counts, mask: int) -> int:
    return sum(count for nodes, count in devices.items() if nodes & mask)


def take(devices: Counts, free: Counts, reusable: Counts, count: int, nodes: int) -> Grant:
    """``count`` devices for a container: its init containers' first, then those near ``nodes`` (0: no affinity), then others.

    :raises NoDevices: kubelet refuses the pod
    """
    again, certain = _some(reusable, count)
    needed = count - sum(again.values())
    if needed and sum(free.values()) < needed:
        raise NoDevices("%d more are asked for, %d are free" % (needed, sum(free.values())))
    taken: Counter[int] = Counter(again)
    aligned = {mask: many for mask, many in free.items() if mask & nodes} if has_affinity(devices) else {}
    near, sure = _some(aligned, needed)
    others = {mask: many for mask, many in free.items() if mask not in aligned}
    rest, sure_of_rest = _some(others, needed - sum(near.values()))
    taken.update(near)
    taken.update(rest)
    return Grant(+taken, certain and sure and sure_of_rest, again)


def _some(devices: Counts, count: int) -> Tuple[Dict[int, int], bool]:
    """``count`` of the devices or all of them, from few NUMA nodes: the smallest group that suffices, else the largest first."""
    left = {mask: many for mask, many in devices.items() if many}
    certain = count <= 0 or len(left) <= 1 or sum(left.values()) <= count
    taken: Dict[int, int] = {}
    while left and count > 0:
        enough = [mask for mask in left if left[mask] >= count]
        mask = min(enough, key=lambda one: (left[one], one)) if enough else max(left, key=lambda one: (left[one], -one))
        taken[mask] = min(left.pop(mask), count)
        count -= taken[mask]
    return taken, certain
