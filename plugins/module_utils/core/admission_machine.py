# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A machine as kubelet's resource managers see it: sets of CPUs and of NUMA nodes as integers, bit n for CPU or node n.

It is made of kubelet's view (kubelet_view). Three things still differ from that: a socket is a package id, averages over the whole
machine ("CPUs per core") stand for the size of every core, socket and cache, and an L3 cache is only told from its neighbours where
it is not the whole NUMA node's. Sources: cadvisor's utils/sysinfo, pkg/kubelet/cm/cpumanager/topology/topology.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Dict, Iterator, List, Mapping, Tuple

from .topology import Topology

Groups = Mapping[int, int]
CoreList = Tuple[Tuple[int, int], ...]  # lowest CPU and all CPUs of each

# int.bit_count came with Python 3.10.
popcount: Callable[[int], int] = getattr(int, "bit_count", None) or (lambda bits: bin(bits).count("1"))


def bits_of(mask: int) -> Iterator[int]:
    """The numbers in a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def lowest(mask: int, count: int) -> int:
    """The ``count`` lowest members of a mask."""
    taken = 0
    while mask and count > 0:
        low = mask & -mask
        taken |= low
        mask ^= low
        count -= 1
    return taken


class KubeletHangs(Exception):
    """kubelet's search doesn't end on this input, or not in practice."""


# Above this number of NUMA nodes kubelet's look at all their subsets takes it minutes, and soon hours.
MAX_NODES = 16


@lru_cache(maxsize=64)
def subsets(mask: int) -> Tuple[int, ...]:
    """All subsets of a mask but the empty one, those with fewer members first.

    :raises KubeletHangs: there are too many
    """
    if popcount(mask) > MAX_NODES:
        raise KubeletHangs("it looks at all subsets of %d NUMA nodes" % popcount(mask))
    found: List[int] = []
    for bit in bits_of(mask):
        found += [1 << bit] + [one | 1 << bit for one in found]
    return tuple(sorted(found, key=lambda one: (popcount(one), one)))


def sums(per_bit: Mapping[int, int], masks: Tuple[int, ...]) -> Dict[int, int]:
    """For each mask the sum of what its members have. ``masks`` are all subsets of a set, smaller ones first."""
    total = {0: 0}
    for mask in masks:
        low = mask & -mask
        total[mask] = total[mask ^ low] + per_bit.get(low.bit_length() - 1, 0)
    return total


@dataclass(frozen=True)
class Cpus:
    """The CPUs. Each group is keyed by kubelet's id: NUMA node, package id, lowest CPU of the core, cache id."""

    all: int
    numa: Groups
    sockets: Groups
    cores: Groups
    caches: Groups
    # averages, rounded down, as kubelet takes them
    per_core: int
    per_socket: int
    per_cache: int
    # the same cores by NUMA node, socket and cache, in ascending order of their ids
    cores_of_numa: Mapping[int, CoreList]
    cores_of_socket: Mapping[int, CoreList]
    cores_of_cache: Mapping[int, CoreList]

    @property
    def numa_above_sockets(self) -> bool:
        """Whether kubelet takes NUMA nodes for the larger unit: as many sockets or more."""
        return len(self.sockets) >= len(self.numa)

    def nodes_of(self, cpus: int) -> int:
        """The NUMA nodes of CPUs, as a mask."""
        return sum(1 << node for node, members in self.numa.items() if members & cpus)

    def in_nodes(self, nodes: int) -> int:
        """The CPUs of NUMA nodes."""
        return sum(self.numa[node] for node in bits_of(nodes) if node in self.numa)

    def sockets_of_nodes(self, nodes: int) -> List[int]:
        """The sockets that have CPUs on these NUMA nodes."""
        cpus = self.in_nodes(nodes)
        return [socket for socket, members in self.sockets.items() if members & cpus]


def cpu_count(topology: Topology) -> int:
    """How many CPUs kubelet counts: without NUMA nodes those that are offline, too."""
    return len(topology.cpus.online if topology.has_numa else topology.cpus.present)


def cpus_of(topology: Topology) -> Cpus:
    """The CPUs of kubelet's view."""
    online = topology.cpus.online.bits
    numa = {node.id: node.cpus.bits for node in topology.numa_nodes if node.cpus}
    sockets: Dict[int, int] = {}
    for package in topology.packages:
        sockets[package.id] = sockets.get(package.id, 0) | package.cpus.bits
    if online and not sockets:
        sockets = {0: online}
    cores = {core.first: core.bits for core in topology.cores}
    ordered = tuple(sorted(cores.items()))
    of_numa, of_socket = (
        {id_: tuple([core for core in ordered if core[1] & members]) for id_, members in groups.items()} for groups in (numa, sockets)
    )
    of_cache = _cores_of_cache(topology, ordered, numa, of_numa, sockets)
    caches = {id_: sum(core for _first, core in members) for id_, members in of_cache.items()}
    count = cpu_count(topology)
    per_core, per_socket, per_cache = (count // max(len(groups), 1) for groups in (cores, sockets, caches))
    return Cpus(online, numa, sockets, cores, caches, per_core, per_socket, per_cache, of_numa, of_socket, of_cache)


def _cores_of_cache(
    topology: Topology, cores: CoreList, numa: Groups, of_numa: Mapping[int, CoreList], sockets: Groups
) -> Dict[int, CoreList]:
    """The cores by cache id. A core counts to its socket where its L3 cache has no number, isn't there or is taken for its NUMA node's:
    cadvisor takes it so when it has as many CPUs as the node would have if each of its cores had this one's threads."""
    node_cores: Dict[int, int] = {}
    for id_, members in of_numa.items():
        cpus, others = numa[id_], ~numa[id_]
        whole = [first for first, core in members if not core & others]
        here = whole if len(whole) == len(members) else [first for first, _core in members if cpus >> first & 1]
        node_cores.update(dict.fromkeys(here, len(whole)))
    firsts = sum([1 << first for first, _core in cores])
    groups: Dict[int, Tuple[int, int]] = {}
    for group in topology.l3_groups:
        if group.id is not None:
            groups.update(dict.fromkeys(bits_of(group.cpus.bits & firsts), (group.id, len(group.cpus))))
    found: Dict[int, List[Tuple[int, int]]] = {}
    for first, core in cores:
        id_, size = groups.get(first, (0, 0))
        if not size or size == node_cores.get(first, 0) * popcount(core):
            id_ = next(socket for socket, members in sockets.items() if members & core)
        found.setdefault(id_, []).append((first, core))
    return {id_: tuple(members) for id_, members in found.items()}
