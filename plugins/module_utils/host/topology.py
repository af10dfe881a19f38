# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read the Topology of a root: one pass, each file at most once, only files that the facts are made of."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Sequence, Set

from ..core.devices import shared_roots
from ..core.errors import UnreadableRoot, unknown_name
from ..core.fingerprint import fingerprint
from ..core.kinds import GPU, NIC, NVME
from ..core.kubelet_view import cores_by_id
from ..core.node_kind import device_memory_platform, with_kinds
from ..core.platform import cpu_vendor
from ..core.topology import Topology
from .command import Command
from .facts import numa, pci, platform
from .facts.boot import read_boot
from .facts.cpus import read_cpus
from .facts.interrupts import read_interrupts
from .facts.kubelet import read_kubelet
from .facts.software import read_software
from .facts.tuning import read_cpufreq, read_swaps, read_transparent_hugepage
from .facts.values import kilobytes, word
from .root import Root

# Subsets that may be left out. CPUs, NUMA nodes, memory, platform and command line are always read.
SUBSETS = ("pci", "interrupts", "boot", "kubelet", "software", "tuning")
ALWAYS = ("cpu", "numa")


def read_topology(root: Root, command: Command, subsets: Iterable[str] = SUBSETS, gpu_match: Sequence[str] = ()) -> Topology:
    """The facts of the root. ``gpu_match`` replaces the rules for what a GPU is (core/devices.py).

    :raises UnreadableRoot: it isn't a node's root, or what CPUs and NUMA nodes are read from is damaged
    :raises InvalidInput: an unknown subset
    """
    wanted = set(subsets)
    for name in wanted - set(SUBSETS) - set(ALWAYS):
        raise unknown_name("subset of facts", name, (*SUBSETS, *ALWAYS))
    wanted |= {"pci"} if "interrupts" in wanted else set()

    cpus = read_cpus(root)
    cpuinfo = platform.cpuinfo_head(root)
    memory_bytes = kilobytes(root.read("/proc/meminfo") or "", "MemTotal")
    node_ids = numa.node_ids(root)
    raw_nodes = numa.read_nodes(root, node_ids, cpus.cpus.online, memory_bytes)
    # Memory without CPUs may be a GPU's: then the devices are looked at whether they are asked for or not.
    scan = pci.scan(root, gpu_match) if "pci" in wanted or any(n.memory_bytes and not n.cpus for n in raw_nodes) else pci.NOTHING
    nodes = with_kinds(raw_nodes, scan.gpu_nodes, device_memory_platform(cpuinfo, scan.nvidia))
    release = platform.kernel_release(root)
    architecture = platform.architecture(root, cpuinfo, release)
    hugepage_sizes = numa.hugepage_sizes(root, nodes)
    topology = Topology(
        architecture=architecture,
        page_size=platform.page_bytes(root, architecture, release, hugepage_sizes),
        kernel_release=release,
        cpu_vendor=cpu_vendor(cpuinfo),
        cpus=cpus.cpus,
        threads_per_core=cpus.threads_per_core,
        cores=cpus.cores,
        packages=cpus.packages,
        l3_groups=cpus.l3_groups,
        numa_nodes=nodes,
        has_numa=bool(node_ids),
        kubelet_cores=cores_by_id(cpus.cores, cpus.packages, [node.cpus for node in nodes] if node_ids else None, cpus.core_ids)
        if architecture != "s390x"  # kubelet tells cores by book and drawer there, too
        else None,
        memory_bytes=memory_bytes or sum(node.memory_bytes for node in nodes),
        hugepage_sizes=hugepage_sizes,
        command_line=word(root, "/proc/cmdline") or "",
        gathered=(*ALWAYS, *(name for name in SUBSETS if name in wanted)),
    )
    if "pci" in wanted:
        found = pci.devices(root, command, scan, nodes)
        topology = topology.replace(gpus=found[GPU], nics=found[NIC], nvmes=found[NVME], shared_roots=shared_roots(found[GPU], found[NVME]))
        topology = topology.replace(fingerprint=fingerprint(topology))
    if "interrupts" in wanted:
        topology = topology.replace(interrupts=read_interrupts(root, scan.kinds))
    return _with_files(topology, root, command, wanted)


def _with_files(topology: Topology, root: Root, command: Command, wanted: Set[str]) -> Topology:
    """The topology with what the node's files say. A subset that may not be read counts as not gathered, and a gap says why."""
    gaps: List[str] = []
    readers: Dict[str, Callable[[], Dict[str, Any]]] = {
        "boot": lambda: {"boot": read_boot(root, topology.kernel_release, gaps)},
        "kubelet": lambda: {"kubelet": read_kubelet(root, command)},
        "software": lambda: {"software": read_software(root, command)},
        "tuning": lambda: {
            "cpufreq": read_cpufreq(root),
            "transparent_hugepage": read_transparent_hugepage(root),
            "swaps": read_swaps(root),
        },
    }
    found: Dict[str, Any] = {}
    refused = []
    for name in readers:
        if name in wanted:
            try:
                found.update(readers[name]())
            except UnreadableRoot as problem:
                gaps.append(problem.problem)
                refused.append(name)
    gathered = tuple(name for name in topology.gathered if name not in refused)
    return topology.replace(gathered=gathered, gaps=tuple(gaps), **found)
