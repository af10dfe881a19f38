"""Topologies without a machine: `make_topology` for a test that wants one shape, `topologies` for a property that holds for all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet, union
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import (
    CPU_MEMORY,
    CPU_ONLY,
    MEMORY_ONLY,
    Boot,
    Cpufreq,
    Cpus,
    Device,
    Kubelet,
    L3Group,
    NumaNode,
    Package,
    Topology,
    TransparentHugepage,
)

GIB = 1 << 30

KUBEADM = Kubelet("kubeadm", "kubelet.service", "1.34.4", config_file="/var/lib/kubelet/config.yaml")


def device(address: str, numa_node: int | None, **more: Any) -> Device:
    """A PCI device; a GPU unless `more` says otherwise."""
    values = {"vendor": "10de", "device": "2330", "pci_class": "030200", "pci_root": address.rpartition(":")[0]}
    return Device(address=address, numa_node=numa_node, **{**values, **more})


def numbered(packages: int, cores: int, threads: int, numbering: str) -> list[list[list[int]]]:
    """CPU numbers by package, core and thread. linear: first threads of all cores, then second threads; interleaved: like linear,
    neighbours on different packages; adjacent: the threads of a core are neighbours."""
    count = packages * cores
    number = {
        "linear": lambda package, core, thread: thread * count + package * cores + core,
        "interleaved": lambda package, core, thread: thread * count + core * packages + package,
        "adjacent": lambda package, core, thread: (package * cores + core) * threads + thread,
    }[numbering]
    return [[[number(package, core, thread) for thread in range(threads)] for core in range(cores)] for package in range(packages)]


def make_topology(
    *,
    packages: int = 2,
    cores: int = 8,
    threads: int = 2,
    nodes_per_package: int = 1,
    l3_cores: int = 4,
    numbering: str = "linear",
    gap: int = 0,
    offline: Sequence[int] = (),
    node_ids: Sequence[int] | None = None,
    memory: int | Sequence[int] = 64 * GIB,
    extra_nodes: Sequence[NumaNode] = (),
    gpus_per_node: int = 0,
    kubelet: Kubelet | None = KUBEADM,
    **more: Any,
) -> Topology:
    """A machine: `cores` of one package, divided over its NUMA nodes, `l3_cores` sharing a cache (0: no L3). `gap` CPU numbers are left
    out between packages. `memory` in bytes per NUMA node with CPUs; 0 makes it CPU-only."""
    gone = CpuSet(offline)
    raw = numbered(packages, cores, threads, numbering)
    if gap and numbering == "adjacent":
        raw = [[[cpu + number * gap for cpu in core] for core in package] for number, package in enumerate(raw)]
    all_cores = [[CpuSet(core) for core in package] for package in raw]
    live = [[core - gone for core in package] for package in all_cores]
    present = union(itertools.chain(*all_cores))
    nodes, size = [], cores // nodes_per_package
    for package in live:
        starts = [number * size for number in range(nodes_per_package)]
        nodes += [union(package[start:end]) for start, end in zip(starts, [*starts[1:], cores])]
    ids = list(node_ids) if node_ids is not None else list(range(len(nodes)))
    sizes = [memory] * len(nodes) if isinstance(memory, int) else list(memory)
    groups = [union(package[i : i + l3_cores]) for package in live for i in range(0, cores, l3_cores)] if l3_cores else []
    numa = [
        NumaNode(
            id_,
            CPU_MEMORY if cpus and size_ else CPU_ONLY if cpus else MEMORY_ONLY,
            cpus,
            size_,
            {other: 10 if other == id_ else 21 for other in ids},
        )
        for id_, cpus, size_ in zip(ids, nodes, sizes)
    ]
    gpus = tuple(device(f"{id_:04x}:{index:02x}:00.0", id_) for id_ in ids for index in range(gpus_per_node))
    values: dict[str, Any] = {
        "architecture": "x86_64",
        "page_size": 4096,
        "kernel_release": "6.8.0-60-generic",
        "cpu_vendor": "AuthenticAMD",
        "cpus": Cpus(present - gone, present, gone & present),
        "threads_per_core": max(len(core) for package in live for core in package),
        "cores": tuple(sorted((core for package in live for core in package if core), key=lambda core: core.first)),
        "packages": tuple(Package(number, union(package)) for number, package in enumerate(live)),
        "l3_groups": tuple(
            sorted((L3Group(group, 32 << 20, number) for number, group in enumerate(groups) if group), key=lambda group: group.cpus.first)
        ),
        "numa_nodes": tuple(sorted([*numa, *extra_nodes], key=lambda node: node.id)),
        "memory_bytes": sum(sizes),
        "hugepage_sizes": (2 << 20, 1 << 30),
        "gpus": gpus,
        "boot": Boot("grub", "6.8.0-60-generic", {"CPU_ISOLATION": "y", "NO_HZ_FULL": "y", "RCU_NOCB_CPU": "y"}),
        "kubelet": kubelet,
        "cpufreq": Cpufreq("acpi-cpufreq", ("performance", "schedutil"), ("schedutil",)),
        "transparent_hugepage": TransparentHugepage(
            "madvise", "madvise", ("always", "madvise", "never"), ("always", "defer", "defer+madvise", "madvise", "never")
        ),
    }
    return Topology(**{**values, **more})


def reference(**more: Any) -> Topology:
    """The reference machine's CPUs and memory: 2 x 96 cores x 2 threads, 8 cores for each L3 cache, 4 GPUs for each NUMA node."""
    return make_topology(**{"packages": 2, "cores": 96, "l3_cores": 8, "memory": 1132 * GIB, "gpus_per_node": 4, **more})


@st.composite
def topologies(draw: st.DrawFn, **fixed: Any) -> Topology:
    """Any SMT width, package and node count, numbering (with holes), cache width, sparse node ids; offline CPUs, half cores, nodes
    without memory or without CPUs."""
    packages, threads = draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 4, 8)))
    nodes_per_package = draw(st.integers(1, 4))
    cores = nodes_per_package * draw(st.integers(1, 5)) + draw(st.integers(0, 2))
    total = packages * cores * threads
    count = packages * nodes_per_package
    ids = sorted(draw(st.sets(st.integers(0, 255), min_size=count + 2, max_size=count + 2)))
    extra = [NumaNode(id_, MEMORY_ONLY, CpuSet(), 16 * GIB) for id_ in ids[count : count + draw(st.integers(0, 2))]]
    return make_topology(
        packages=packages,
        cores=cores,
        threads=threads,
        nodes_per_package=nodes_per_package,
        l3_cores=draw(st.integers(0, cores)),
        numbering=draw(st.sampled_from(("linear", "interleaved", "adjacent"))),
        gap=draw(st.integers(0, 9)),
        offline=sorted(draw(st.sets(st.integers(0, total - 1), max_size=total - 1))),
        node_ids=ids[:count],
        memory=[GIB] + [draw(st.sampled_from((0, GIB, 64 * GIB))) for unused in range(count - 1)],
        extra_nodes=extra,
        gpus_per_node=draw(st.integers(0, 2)),
        **fixed,
    )
