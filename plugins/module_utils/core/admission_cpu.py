# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which CPUs kubelet's static CPU manager takes out of those that are free. CPUs are masks (bit n = CPU n).

Packed: whole NUMA nodes, sockets, caches (on request) and cores while the request is as large, then single CPUs; each time from where the
fewest are free. Distributed: the smallest number of NUMA nodes that can share the request evenly, so that the rest stays balanced.
Source: pkg/kubelet/cm/cpumanager/cpu_assignment.go, policy_static.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .admission_machine import Cpus, KubeletHangs, bits_of, lowest, popcount, subsets, sums

FULL_CORES, ACROSS_NUMA, BY_SOCKET = "full-pcpus-only", "distribute-cpus-across-numa", "align-by-socket"
ACROSS_CORES, BY_CACHE, STRICT = "distribute-cpus-across-cores", "prefer-align-cpus-by-uncorecache", "strict-cpu-reservation"

SHARES_BY_SOCKET = 37  # since this minor align-by-socket also decides which NUMA nodes share a request, and how evenly


class NotEnoughCpus(Exception):
    """kubelet finds too few CPUs, or loses count of them; the text says which."""


@dataclass(frozen=True)
class Options:
    """The policy's options, and kubelet's minor, on which depends what some of them do."""

    minor: int
    full_cores: bool = False
    across_numa: bool = False
    by_socket: bool = False
    across_cores: bool = False
    by_cache: bool = False
    strict: bool = False


def options_of(configuration: Mapping[str, object], minor: int) -> Options:
    """The options of a KubeletConfiguration."""
    given = configuration.get("cpuManagerPolicyOptions") or {}
    on = {name for name, value in given.items() if str(value) in ("1", "t", "T", "TRUE", "true", "True")}  # type: ignore[attr-defined]
    named = (FULL_CORES, ACROSS_NUMA, BY_SOCKET, ACROSS_CORES, BY_CACHE, STRICT)
    return Options(minor, *(name in on for name in named))


def take(cpus: Cpus, free: int, count: int, options: Options) -> int:
    """``count`` of the free CPUs.

    :raises NotEnoughCpus: there are fewer, or kubelet's count goes wrong
    :raises KubeletHangs: its search never ends
    """
    if options.across_numa:
        return _distributed(cpus, free, count, cpus.per_core if options.full_cores else 1, options)
    return _packed(cpus, free, count, options.across_cores, options.by_cache)


# --- packed -------------------------------------------------------------------------------------------------------------------------------


class _Taking:
    """CPUs being taken: ``free`` shrinks, ``taken`` grows, ``needed`` counts down."""

    def __init__(self, cpus: Cpus, free: int, count: int) -> None:
        self.cpus, self.free, self.needed, self.taken = cpus, free & cpus.all, count, 0

    def take(self, some: int) -> None:
        """Take CPUs. A unit is taken whole even where kubelet only believes that all of it is free; the count goes by its size."""
        self.taken |= some
        self.free &= ~self.taken
        self.needed -= popcount(some)

    def scarce_first(self, groups: Iterable[Tuple[int, int]], within: int) -> List[int]:
        """The ids of groups with free CPUs ``within`` a set: the fewest free ones first, then by id."""
        found = [(popcount(members & self.free), id_) for id_, members in groups if members & self.free & within]
        return [id_ for _count, id_ in sorted(found)]

    def numa_nodes(self) -> List[int]:
        """NUMA nodes with free CPUs, in the order in which they are used up."""
        if self.cpus.numa_above_sockets:
            return self.scarce_first(self.cpus.numa.items(), self.free)
        sockets = self.scarce_first(self.cpus.sockets.items(), self.free)
        return [node for socket in sockets for node in self.scarce_first(self.cpus.numa.items(), self.cpus.sockets[socket])]

    def sockets(self) -> List[int]:
        """Sockets with free CPUs, in the order in which they are used up."""
        if not self.cpus.numa_above_sockets:
            return self.scarce_first(self.cpus.sockets.items(), self.free)
        nodes = self.scarce_first(self.cpus.numa.items(), self.free)
        return [socket for node in nodes for socket in self.scarce_first(self.cpus.sockets.items(), self.cpus.numa[node])]

    def core_groups(self) -> List[Tuple[Tuple[int, int], ...]]:
        """The cores, grouped by the smaller of NUMA node and socket, in the order in which those are used up."""
        if self.cpus.numa_above_sockets:
            return [self.cpus.cores_of_socket[socket] for socket in self.sockets()]
        return [self.cpus.cores_of_numa[node] for node in self.numa_nodes()]

    def caches(self) -> List[int]:
        """Caches with free CPUs, NUMA node after NUMA node."""
        return [cache for node in self.numa_nodes() for cache in self.scarce_first(self.cpus.caches.items(), self.cpus.numa[node])]

    def take_whole(self, ids: Sequence[int], groups: Mapping[int, int], size: Optional[int] = None) -> None:
        """Take groups that are free as a whole (have ``size`` free CPUs; None: all of theirs) while the request is as large."""
        whole = [id_ for id_ in ids if popcount(groups[id_] & self.free) == (popcount(groups[id_]) if size is None else size)]
        for id_ in whole:
            if self.needed >= popcount(groups[id_]):
                self.take(groups[id_])

    def take_nodes_and_sockets(self) -> None:
        """Whole NUMA nodes and whole sockets, the larger unit first."""
        for units in ("numa", "sockets") if self.cpus.numa_above_sockets else ("sockets", "numa"):
            if self.needed < 1:
                return
            if units == "numa":
                self.take_whole(self.numa_nodes(), self.cpus.numa)
            else:
                self.take_whole(self.sockets(), self.cpus.sockets, self.cpus.per_socket)

    def take_caches(self) -> None:
        """Whole caches while the request is as large, then the first cache that has exactly enough whole cores for the rest."""
        caches = self.caches()
        if self.needed >= self.cpus.per_cache:
            self.take_whole(caches, self.cpus.caches)
        for cache in caches:
            if self.needed < 1:
                return
            self.take_part_of(cache)

    def take_part_of(self, cache: int) -> None:
        """The lowest cores of a cache, if they are exactly what is needed."""
        per_core = self.cpus.per_core
        wanted, part = -(-self.needed // per_core), 0
        for _id, core in self.cpus.cores_of_cache[cache]:
            if wanted and core & self.cpus.caches[cache] & self.free:
                part |= core & self.free
                wanted -= 1
        if self.needed % 2 and per_core > 1 and popcount(part) > self.needed:
            part ^= 1 << part.bit_length() - 1
        if popcount(part) == self.needed:
            self.take(part)

    def take_cores(self) -> None:
        """Whole cores while the request is as large."""
        per_core, free = self.cpus.per_core, self.free
        whole = [core for group in self.core_groups() for _id, core in group if popcount(core & free) == per_core]
        for core in whole:
            size = popcount(core)
            if self.needed >= size:
                self.take(core)
            elif self.needed < 1:
                return

    def take_single(self, across_cores: bool) -> None:
        """Single CPUs: of the cores with the fewest free ones, or by number within each socket."""
        for cpu in list(self._single(across_cores)):
            self.take(1 << cpu)
            if self.needed < 1:
                return

    def _single(self, across_cores: bool) -> Iterator[int]:
        if across_cores:
            for socket in self.sockets():
                yield from bits_of(lowest(self.cpus.sockets[socket] & self.free, self.needed))
            return
        for group in self.core_groups():
            cores = dict(group)
            for id_ in self.scarce_first(group, self.free):
                yield from bits_of(cores[id_] & self.free)


def _packed(cpus: Cpus, free: int, count: int, across_cores: bool, by_cache: bool) -> int:
    taking = _Taking(cpus, free, count)
    if count < 1:
        return 0
    if count > popcount(taking.free):
        raise NotEnoughCpus("%d CPUs are free" % popcount(free))
    taking.take_nodes_and_sockets()
    if by_cache and taking.needed > 0:
        taking.take_caches()
    if not across_cores and taking.needed > 0:
        taking.take_cores()
    if taking.needed > 0:
        taking.take_single(across_cores)
    if taking.needed > 0:
        raise NotEnoughCpus("kubelet loses count")
    return taking.taken


# --- distributed --------------------------------------------------------------------------------------------------------------------------


def _distributed(cpus: Cpus, free: int, count: int, group: int, options: Options) -> int:
    """``count`` CPUs in groups of ``group``, the same number from each of as few NUMA nodes as can do that."""
    across_cores = options.across_cores
    if count % group:
        return _packed(cpus, free, count, across_cores, False)
    taking = _Taking(cpus, free, count)
    if count < 1:
        return 0
    if count > popcount(taking.free):
        raise NotEnoughCpus("%d CPUs are free" % popcount(free))
    nodes = taking.numa_nodes()
    available = {node: popcount(cpus.numa[node] & taking.free) for node in nodes}
    by_socket = options.by_socket and options.minor >= SHARES_BY_SOCKET
    fewest, most = _how_many_nodes(cpus, len(available), count, group)
    for size in range(fewest, most + 1):
        found = _best_nodes(cpus, nodes, available, size, count, group, by_socket)
        if found:
            _share(taking, found[0], found[1], count, group, across_cores, options.minor >= SHARES_BY_SOCKET)
            if taking.needed:
                raise NotEnoughCpus("kubelet loses count")
            return taking.taken
    return _packed(cpus, free, count, across_cores, False)


def _how_many_nodes(cpus: Cpus, with_free: int, count: int, group: int) -> Tuple[int, int]:
    groups_per_node = ((popcount(cpus.all) - 1) // group) // len(cpus.numa) + 1
    groups = (count - 1) // group + 1
    return (groups - 1) // groups_per_node + 1, min(groups, with_free)


def _best_nodes(
    cpus: Cpus, nodes: List[int], available: Dict[int, int], size: int, count: int, group: int, by_socket: bool
) -> Optional[Tuple[List[int], List[int]]]:
    """The NUMA nodes that share the request, and those that give the remainder: those that leave what is free most even."""
    best: Optional[_Remembered] = None
    best_rest: Optional[_Remembered] = None
    best_score, best_in_one = float("inf"), False
    for combination in _combinations(nodes, size):
        if best_score == 0 and (not by_socket or best_in_one):
            break
        chosen = combination.now()
        if sum(available[node] for node in chosen) < count or sum(available[node] // group for node in chosen) * group < count:
            continue
        each = count // size // group * group
        if by_socket:
            each = min([each, *(available[node] // group * group for node in chosen)])
        if any(available[node] < each for node in chosen):
            continue
        left = {node: free - each if node in chosen else free for node, free in available.items()}
        score, rest = _best_remainder(left, [node for node in chosen if left[node] >= group], count - each * size, group)
        in_one = by_socket and len(cpus.sockets_of_nodes(sum(1 << node for node in chosen))) <= 1
        better = in_one if by_socket and in_one != best_in_one else score < best_score
        if better:
            best, best_rest, best_score = combination, rest, score
            best_in_one = in_one if by_socket else best_in_one
    return (best.now(), best_rest.now() if best_rest else []) if best else None


def _best_remainder(left: Dict[int, int], givers: List[int], remainder: int, group: int) -> Tuple[float, Optional[_Remembered]]:
    """How even it stays when the givers also give the remainder, and which of them do."""
    if remainder == 0:
        return _spread(left.values()), None
    best_score, best = float("inf"), None
    for size in range(len(givers), 0, -1):
        for combination in _combinations(givers, size):
            chosen = combination.now()
            if sum(left[node] for node in chosen) < remainder:
                continue
            score = _spread(_after(left, chosen, remainder, group).values())
            if score < best_score:
                best_score, best = score, combination
    return best_score, best


def _after(left: Dict[int, int], givers: List[int], remainder: int, group: int) -> Dict[int, int]:
    """What is left after the givers gave one group each in turn."""
    after = dict(left)
    while remainder > 0:
        before = remainder
        for node in givers:
            if remainder and after[node] >= group:
                after[node] -= group
                remainder -= group
        if remainder == before:
            raise KubeletHangs("no NUMA node has a whole group of %d CPUs left" % group)
    return after


def _share(taking: _Taking, nodes: List[int], givers: List[int], count: int, group: int, across_cores: bool, capped: bool) -> None:
    """Take the even shares, then the remainder in turn."""
    numa = taking.cpus.numa
    each = count // len(nodes) // group * group
    if capped:
        each = min([each, *(popcount(numa[node] & taking.free) // group * group for node in nodes)])
    remainder = count - each * len(nodes)
    for node in nodes:
        taking.take(_packed_or_nothing(taking, numa[node] & taking.free, each, across_cores))
    while remainder > 0:
        before = remainder
        for node in givers:
            if remainder and popcount(numa[node] & taking.free) >= group:
                taking.take(_packed_or_nothing(taking, numa[node] & taking.free, group, across_cores))
                remainder -= group
        if remainder == before:
            raise KubeletHangs("no NUMA node has a whole group of %d CPUs left" % group)


def _packed_or_nothing(taking: _Taking, free: int, count: int, across_cores: bool) -> int:
    try:
        return _packed(taking.cpus, free, count, across_cores, False)
    except NotEnoughCpus:
        return 0


def _spread(values: Iterable[int]) -> float:
    """Standard deviation, with kubelet's roundings (half away from zero) to three digits."""
    numbers = list(values)
    mean = _rounded(sum(numbers) / len(numbers))
    total = 0.0
    for number in numbers:
        total += (number - mean) * (number - mean)
    return _rounded(math.sqrt(total / len(numbers)))


def _rounded(value: float) -> float:
    return int(value * 1000 + 0.5) / 1000


class _Remembered:
    """A combination that kubelet remembers. From the fourth member on it may change under its hands: the slices of successive
    combinations share their memory where Go's append had room, so what is remembered is what was written there last."""

    __slots__ = ("_memory", "_size")

    def __init__(self, memory: List[int], size: int) -> None:
        self._memory, self._size = memory, size

    def now(self) -> List[int]:
        """The members as they stand in memory now."""
        return self._memory[: self._size]


_GROWS_AT = (0, 1, 2, 4, 8, 16, 32)  # lengths at which Go's append moves a slice of integers to new memory


def _combinations(members: Sequence[int], size: int) -> Iterator[_Remembered]:
    """All combinations of ``size`` members in order of their positions, in memory shared as kubelet's are."""
    if size < 1:
        return

    def extend(start: int, length: int, memory: List[int]) -> Iterator[_Remembered]:
        if length == size:
            yield _Remembered(memory, size)
            return
        for position in range(start, len(members) - (size - length) + 1):
            own = memory[:length] + [0] * max(1, length) if length in _GROWS_AT else memory
            own[length] = members[position]
            yield from extend(position + 1, length + 1, own)

    yield from extend(0, 0, [])


# --- hints --------------------------------------------------------------------------------------------------------------------------------


def hints(cpus: Cpus, free: int, reusable: int, count: int, by_socket: bool) -> Dict[int, bool]:
    """The sets of NUMA nodes that could give ``count`` CPUs, each with whether kubelet prefers it: as few nodes as the empty machine needs
    (with align-by-socket: as few sockets). ``reusable`` CPUs of the pod have to be among them."""
    masks = subsets(sum(1 << node for node in cpus.numa))
    has = sums({node: popcount(members) for node, members in cpus.numa.items()}, masks)
    can = sums({node: popcount(members & (free | reusable)) for node, members in cpus.numa.items()}, masks)
    must = cpus.nodes_of(reusable)
    enough = next((popcount(mask) for mask in masks if has[mask] >= count), len(cpus.numa))
    found = {mask: popcount(mask) == enough for mask in masks if must & ~mask == 0 and can[mask] >= count}
    if by_socket:
        per_socket = len(cpus.numa) // len(cpus.sockets)
        for mask in found if per_socket else ():
            if len(cpus.sockets_of_nodes(mask)) == -(-enough // per_socket):
                found[mask] = True
    return found
