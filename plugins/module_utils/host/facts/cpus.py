# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CPUs, cores, packages and L3 groups.

Each set is read once, at its first CPU: the kernel shows the same set at every member (drivers/base/topology.c and cacheinfo.c). So a
machine costs one file per core and a few per package and cache, not some per CPU. What is enumerated is the online list, never
the cpuN folders: a folder without topology/ is an offline CPU, and cpu0 has no online file where it can't be unplugged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Tuple

from ...core.cpuset import CpuSet, union
from ...core.errors import UnreadableRoot
from ...core.topology import Cpus, L3Group, Package
from ..root import Root
from .values import cpu_set, first_cpu_set, number, numbered, word

SYSTEM = "/sys/devices/system/cpu"
_THREADS = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
_PACKAGE = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
_SHARED = ("shared_cpu_list", "shared_cpu_map")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class CpuFacts:
    """What the CPU folders say. ``threads_per_core`` is the widest core's. ``core_ids`` are the kernel's numbers of the cores, by CPU:
    empty where it has no such numbers, or none of the packages."""

    cpus: Cpus
    cores: Tuple[CpuSet, ...]
    packages: Tuple[Package, ...]
    l3_groups: Tuple[L3Group, ...]
    threads_per_core: int
    core_ids: Dict[int, int]


def read_cpus(root: Root) -> CpuFacts:
    """The CPUs of the root.

    :raises UnreadableRoot: nothing there says which CPUs exist
    """
    present = _present(root)
    online = cpu_set(root, SYSTEM + "/online")
    if online is None:
        online = CpuSet(cpu for cpu in present if (word(root, "%s/cpu%d/online" % (SYSTEM, cpu)) or "1") == "1")
    present = present | online
    files = next(filter(None, (root.names(_topology(cpu)) for cpu in online)), [])
    cores = tuple(_groups(online, _cores(root, online, files)))
    return CpuFacts(
        Cpus(
            online,
            present,
            present - online,
            isolated=cpu_set(root, SYSTEM + "/isolated") or CpuSet(),
            nohz_full=cpu_set(root, SYSTEM + "/nohz_full") or CpuSet(),
        ),
        cores,
        _packages(root, online, cores, files),
        _l3_groups(root, online),
        max((len(core) for core in cores), default=1),
        _core_ids(root, cores) if {"core_id", "physical_package_id"} <= set(files) else {},
    )


def _present(root: Root) -> CpuSet:
    present = cpu_set(root, SYSTEM + "/present")
    if present is None:
        present = CpuSet(numbered(root.names(SYSTEM), "cpu"))
    if not present:
        present = CpuSet(int(n) for n in re.findall(r"^processor\s*:\s*(\d+)", root.read("/proc/cpuinfo") or "", re.MULTILINE))
    if not present:
        raise UnreadableRoot(
            'The root "%s" has neither %s nor /proc/cpuinfo.' % (root.path, SYSTEM), "Give a folder that holds the node's /proc and /sys."
        )
    return present


def _groups(cpus: CpuSet, group_of: Callable[[int], CpuSet]) -> Iterator[CpuSet]:
    """Split CPUs into groups, ordered by first CPU; ``group_of`` is asked only for CPUs that no earlier answer held."""
    left = cpus
    while left:
        first = left.first
        group = (group_of(first) | CpuSet((first,))) & left
        yield group
        left = left - group


def _topology(cpu: int) -> str:
    return "%s/cpu%d/topology" % (SYSTEM, cpu)


def _cores(root: Root, online: CpuSet, files: List[str]) -> Callable[[int], CpuSet]:
    """A function from a CPU to its thread siblings. ``files`` are the names that this kernel has in a topology folder."""
    name = next((name for name in _THREADS if name in files), None)
    if name is None:
        return _cores_by_id(root, online)
    return lambda cpu: cpu_set(root, _topology(cpu) + "/" + name) or CpuSet()


def _cores_by_id(root: Root, online: CpuSet) -> Callable[[int], CpuSet]:
    """Siblings without sibling files: the same core id on the same package.

    A core id isn't unique on Magny-Cours packages, which hold two dies; /proc/cpuinfo tells those, since it has as many "siblings"
    as "cpu cores" exactly when no core has a second thread.
    """
    info = root.read("/proc/cpuinfo", limit=4096) or ""
    siblings, cores = (re.search(r"^%s\s*:\s*(\d+)" % key, info, re.MULTILINE) for key in ("siblings", "cpu cores"))
    if siblings and cores and siblings.group(1) == cores.group(1):
        return lambda cpu: CpuSet()
    members: Dict[Tuple[Optional[int], Optional[int]], List[int]] = {}
    for cpu in online:
        core = number(root, _topology(cpu) + "/core_id")
        if core is not None:
            members.setdefault((number(root, _topology(cpu) + "/physical_package_id"), core), []).append(cpu)
    core_of = {cpu: CpuSet(cpus) for cpus in members.values() for cpu in cpus}
    return lambda cpu: core_of.get(cpu, CpuSet())


def _core_ids(root: Root, cores: Tuple[CpuSet, ...]) -> Dict[int, int]:
    """The number of each CPU's core. Threads share their core's, but on Bulldozer: all threads of the first core are asked, and one of each
    other core where those agree."""

    def ask(cpus: Iterable[int]) -> Dict[int, int]:
        answers = ((cpu, number(root, _topology(cpu) + "/core_id")) for cpu in cpus)
        return {cpu: id for cpu, id in answers if id is not None}

    first, others = ask(cores[0]), cores[1:]
    if len(set(first.values())) > 1:
        return {**first, **ask(cpu for core in others for cpu in core)}
    asked = {**first, **ask(core.first for core in others)}
    return {cpu: asked[core.first] for core in cores if core.first in asked for cpu in core}


def _packages(root: Root, online: CpuSet, cores: Tuple[CpuSet, ...], files: List[str]) -> Tuple[Package, ...]:
    """The packages by first CPU; none where the kernel shows neither siblings nor ids (Cell)."""

    def package_id(cpu: int) -> int:
        found = number(root, _topology(cpu) + "/physical_package_id")
        return -1 if found is None else found

    name = next((name for name in _PACKAGE if name in files), None)
    if name is not None:
        groups = _groups(online, lambda cpu: cpu_set(root, _topology(cpu) + "/" + name) or CpuSet())
        return tuple(Package(package_id(group.first), group) for group in groups)
    if "physical_package_id" not in files:
        return ()
    members: Dict[int, List[CpuSet]] = {}
    for core in cores:
        members.setdefault(package_id(core.first), []).append(core)
    return tuple(Package(id, union(cpus)) for id, cpus in members.items())


def _l3_groups(root: Root, online: CpuSet) -> Tuple[L3Group, ...]:
    """The L3 caches by first CPU; a CPU without one is in none."""
    found: List[L3Group] = []
    countable: Optional[bool] = None
    left = online
    index: Optional[int] = 3
    while left:
        cpu = left.first
        index = _l3_index(root, cpu, index)
        shared = CpuSet((cpu,))
        if index is not None:
            cache = "%s/cpu%d/cache/index%d" % (SYSTEM, cpu, index)
            shared = (first_cpu_set(root, cache, _SHARED) or CpuSet()) & online | shared
            size = _size(root, cache + "/size")
            if countable is None:
                countable = size is not None and _lower_caches_count(root, cpu, index)
            found.append(L3Group(shared, size, number(root, cache + "/id") if countable else None))
        left = left - shared
    return tuple(found)


def _lower_caches_count(root: Root, cpu: int, l3: int) -> bool:
    """Whether all other caches of the CPU have number and size: kubelet gives up on a machine's caches at the first that lacks one."""
    cache = "%s/cpu%d/cache" % (SYSTEM, cpu)
    indexes = [index for index in numbered(root.names(cache), "index") if index != l3]
    return all(root.read("%s/index%d/%s" % (cache, index, name)) for index in indexes for name in ("id", "size"))


def _l3_index(root: Root, cpu: int, guess: Optional[int]) -> Optional[int]:
    """Which cache/indexN of the CPU is its L3. The number differs between kinds of cores, so the guess is checked by its level."""
    cache = "%s/cpu%d/cache" % (SYSTEM, cpu)

    def is_l3(index: int) -> bool:
        return number(root, "%s/index%d/level" % (cache, index)) == 3

    if guess is not None and is_l3(guess):
        return guess
    return next((index for index in numbered(root.names(cache), "index") if index != guess and is_l3(index)), None)


def _size(root: Root, path: str) -> Optional[int]:
    """A cache size like "32768K" in bytes."""
    match = re.match(r"(\d+)([KMG]?)\Z", word(root, path) or "")
    return int(match.group(1)) * _UNITS[match.group(2)] if match else None
