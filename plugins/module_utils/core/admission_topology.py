# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What kubelet's topology manager makes of the hints of CPU, memory and device managers: one set of NUMA nodes, and yes or no.

The hints of one resource are {set of NUMA nodes (bit n = node n): whether it is preferred}; {} means that none would do, and a resource
without a preference has no hints at all. A combination of hints is the intersection of its sets; it is preferred when all sets are equal
and preferred. Source: pkg/kubelet/cm/topologymanager/policy.go, numa_info.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .admission_machine import KubeletHangs, bits_of, popcount, subsets

Hints = Mapping[int, bool]

_MAX_COMBINATIONS = 10**10  # kubelet does some millions a second

NONE, BEST_EFFORT, RESTRICTED, SINGLE = "none", "best-effort", "restricted", "single-numa-node"


class BadDistances(Exception):
    """kubelet looks NUMA distances up by node id in a list that is shorter: it crashes."""


@lru_cache(maxsize=64)
def _larger_by_one(nodes: int) -> Tuple[Tuple[int, int], ...]:
    """Each set with each of those that have one more node, node after node."""
    return tuple((mask, mask | 1 << node) for node in bits_of(nodes) for mask in subsets(nodes) if not mask >> node & 1)


@dataclass(frozen=True)
class Affinity:
    """Where a container's resources are to come from: NUMA nodes as a mask, None when it doesn't matter."""

    nodes: Optional[int] = None
    preferred: bool = False


@dataclass(frozen=True)
class Policy:
    """A topology policy on a machine. ``nodes``: all NUMA nodes as a mask. ``distances``: rows of the distance table by node id, given
    when prefer-closest-numa-nodes is on."""

    name: str
    nodes: int
    distances: Optional[Mapping[int, Sequence[int]]] = None

    def merge(self, resources: Sequence[Hints]) -> Tuple[Affinity, bool]:
        """The best combination of the resources' hints, and whether the policy admits it."""
        if self.name == SINGLE:
            best = self._single(resources)
            if best.nodes == self.nodes:
                best = Affinity(None, best.preferred)
        else:
            best = self._best(resources)
        return best, best.preferred or self.name == BEST_EFFORT

    def _single(self, resources: Sequence[Hints]) -> Affinity:
        common = self._common({mask: wanted for mask, wanted in hints.items() if popcount(mask) == 1} for hints in resources)
        return Affinity(min(common), True) if common else Affinity(self.nodes, False)

    def _best(self, resources: Sequence[Hints]) -> Affinity:
        common = self._common(resources)
        if common:
            return Affinity(min(common, key=self._narrow_or_close), True)
        merged = self._intersections([hints for hints in resources if hints])
        if not merged:
            return Affinity(self.nodes, False)
        # The resource that needs the most NUMA nodes says how many are right; fewer are better than more.
        right = max((min(map(popcount, hints)) for hints in resources if hints), default=0)

        def fitness(mask: int) -> Tuple[int, int, Tuple[float, ...]]:
            count = popcount(mask)
            return (0, 0, self._close(mask)) if count == right else (1 + (count > right), abs(count - right), self._close(mask))

        return Affinity(min(merged, key=fitness), False)

    def _intersections(self, resources: Sequence[Hints]) -> List[int]:
        """All sets but the empty one that are the intersection of one hint of each resource, as kubelet finds them by trying all.

        For each set the combinations are counted that have it in common or more, and those with more are taken off again.

        :raises KubeletHangs: kubelet would be at it for hours
        """
        combinations = math.prod(map(len, resources))
        if combinations > _MAX_COMBINATIONS:
            raise KubeletHangs("it compares %.0e combinations of hints" % combinations)
        masks, larger = subsets(self.nodes), _larger_by_one(self.nodes)
        count = dict.fromkeys(masks, 1)
        for hints in resources:
            having = {mask: int(mask in hints) for mask in masks}
            for mask, more in larger:
                having[mask] += having[more]
            count = {mask: count[mask] * having[mask] for mask in masks}
        for mask, more in larger:
            count[mask] -= count[more]
        return [mask for mask in masks if count[mask]]

    def _common(self, resources: Iterable[Hints]) -> List[int]:
        """The sets that every resource prefers; all NUMA nodes when none has hints."""
        common: Optional[List[int]] = None
        for hints in resources:
            common = [mask for mask in (hints if common is None else common) if hints.get(mask)]
        return [self.nodes] if common is None else common

    def _narrow_or_close(self, mask: int) -> Tuple[int, Tuple[float, ...]]:
        return popcount(mask), self._close(mask)

    def _close(self, mask: int) -> Tuple[float, ...]:
        """Among sets of the same size the closest together is best, where that is asked for, and then the lowest numbers."""
        if self.distances is None:
            return (mask,)
        nodes = list(bits_of(mask))
        try:
            return sum(self.distances[one][other] for one in nodes for other in nodes) / len(nodes) ** 2, mask
        except IndexError:
            raise BadDistances("NUMA node ids with gaps") from None


def policy_of(configuration: Mapping[str, object], nodes: int, distances: Mapping[int, Mapping[int, int]]) -> Policy:
    """The topology policy of a KubeletConfiguration. ``distances`` is the distance table by node ids."""
    options: Mapping[str, object] = configuration.get("topologyManagerPolicyOptions") or {}  # type: ignore[assignment]
    name = str(configuration.get("topologyManagerPolicy") or NONE)
    closest = name != SINGLE and str(options.get("prefer-closest-numa-nodes")) in ("1", "t", "T", "TRUE", "true", "True")
    rows: Dict[int, Sequence[int]] = {one: [row[other] for other in sorted(row)] for one, row in distances.items()}
    return Policy(name, nodes, rows if closest else None)
