# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a job can ask for: per NUMA node what is left, in whole cores and whole L3 groups, and when kubelet really aligns it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping

from .cpuset import CpuSet
from .notes import Notes
from .partition import Partition
from .topology import NumaNode, Topology

UNCORE_CACHE = "prefer-align-cpus-by-uncorecache"
ACROSS_NUMA = "distribute-cpus-across-numa"


@dataclass(frozen=True)
class Alignment:
    """Whether jobs of the aligned sizes get whole L3 groups, and on what that rests."""

    holds: bool
    condition: str


@dataclass(frozen=True)
class CpusPerGpu:
    """The largest equal share of a NUMA node's available CPUs for each of its GPUs; 0 without GPUs."""

    whole_cores: int = 0
    whole_l3_groups: int = 0


@dataclass(frozen=True)
class Shape:
    """What jobs find on one NUMA node: its L3 groups, those left whole, and their size in CPUs, the commonest where it differs."""

    l3_groups: int
    whole_l3_groups: int
    group_size: int
    same_size_groups: int
    cpus_per_gpu: CpusPerGpu

    @property
    def aligned_job_sizes(self) -> List[int]:
        """CPU counts that are whole L3 groups of this NUMA node."""
        return [self.group_size * count for count in range(1, self.same_size_groups + 1)]


def shape_of(node: NumaNode, topology: Topology, available: CpuSet, gpus: int) -> Shape:
    """The shape of a NUMA node of whose CPUs ``available`` are left, with ``gpus`` GPUs.

    An L3 group counts when all of it lies on this node and is left; a node that is one single group has none to align to.
    """
    here = available & node.cpus
    groups = [group.cpus for group in topology.l3_groups if group.cpus <= node.cpus] if here else []
    whole = [group for group in groups if group <= here] if len(groups) > 1 else []
    size, count = max(Counter(map(len, whole)).items(), key=lambda item: (item[1], item[0])) if whole else (0, 0)
    cores = sum(1 for core in topology.cores if core <= here and len(core) == topology.threads_per_core) if here else 0
    share = CpusPerGpu(cores // gpus * topology.threads_per_core, count // gpus * size) if gpus else CpusPerGpu()
    return Shape(len(groups), len(whole), size, count, share)


def sizes_across(shapes: List[Shape]) -> List[int]:
    """CPU counts that are the same number of whole L3 groups on every NUMA node with CPUs; none on a single node or for unequal groups."""
    sizes = {shape.group_size for shape in shapes}
    if len(shapes) < 2 or len(sizes) != 1 or 0 in sizes:
        return []
    step = sizes.pop() * len(shapes)
    return [step * count for count in range(1, min(shape.same_size_groups for shape in shapes) + 1)]


def alignment(
    topology: Topology, cpus: Partition, shapes: Mapping[int, Shape], options: Mapping[str, str], static: bool, notes: Notes
) -> Alignment:
    """Whether kubelet gives whole L3 groups to jobs of the aligned sizes. ``options`` are its CPU manager policy options.

    kubelet's packed allocation takes free cores in ascending order: where a reserved core breaks the first L3 group it starts inside it,
    and every multiple of a group straddles two. Source: pkg/kubelet/cm/cpumanager/cpu_assignment.go.
    """
    if all(shape.l3_groups < 2 for shape in shapes.values()):
        sentence = (
            "Each NUMA node is one L3 group (or its kernel shows none): any job on one node shares its cache, there is nothing to align to."
        )
        notes.info("one_l3_group_per_numa_node", sentence)
        return Alignment(True, sentence)
    if not static:
        return Alignment(
            False, "No static CPU manager allocates CPUs here: a size is aligned when whoever places the job gives it whole L3 groups."
        )
    multiples = _join(sorted({shape.group_size for shape in shapes.values() if shape.group_size}))
    if not multiples:
        return Alignment(False, "The reserved CPUs break every L3 group: no size is aligned.")
    if options.get(UNCORE_CACHE) == "true":
        return Alignment(True, "By %s, as long as whole L3 groups are free and jobs ask for multiples of %s." % (UNCORE_CACHE, multiples))
    broken = _broken_groups(topology, cpus)
    if not broken:
        return Alignment(
            True,
            "The reserved CPUs are whole L3 groups: packed allocation stays aligned while every job asks for multiples of %s." % multiples,
        )
    sentence = (
        "The reserved cores break the first L3 group of NUMA nodes %s: kubelet's packed allocation starts inside it, "
        "so no multiple of %s is aligned. "
        "Set gpufleet_reserved_whole_l3, or the option %s, which excludes %s."
    ) % (_join(broken), multiples, UNCORE_CACHE, ACROSS_NUMA)
    notes.warning("l3_alignment", sentence, broken_l3_groups=broken)
    return Alignment(False, sentence)


def _broken_groups(topology: Topology, cpus: Partition) -> Dict[int, List[str]]:
    """L3 groups of which a part is reserved, by NUMA node."""
    broken: Dict[int, List[str]] = {}
    for group in topology.l3_groups:
        if not group.cpus.isdisjoint(cpus.reserved) and not group.cpus <= cpus.reserved:
            node = topology.node_of(group.cpus.first)
            broken.setdefault(node.id if node else 0, []).append(group.cpus.to_list())
    return broken


def _join(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
