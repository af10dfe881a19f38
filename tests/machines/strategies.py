"""Generated machine descriptions: shapes that nobody has captured, for property tests."""
from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from machines.description import cpulist
from machines.machine import Machine


@st.composite
def descriptions(draw: st.DrawFn, *, devices: bool = True, offline: bool = True) -> dict[str, Any]:
    """A small machine of any SMT width, package and node count and CPU numbering, with sparse node ids, nodes without CPUs or
    memory, caches of any width, and (on request) offline CPUs, half cores and PCI devices whose node may be unknown."""
    packages, threads = draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 4, 8)))
    nodes_per_package = draw(st.integers(1, 3))
    cores = nodes_per_package * draw(st.integers(1, 4))
    cpu: dict[str, Any] = {"packages": packages, "cores": cores, "threads": threads,
                           "numbering": draw(st.sampled_from(("linear", "interleaved", "adjacent")))}
    if cpu["numbering"] == "adjacent" and draw(st.booleans()):
        cpu["package_stride"] = cores * threads + draw(st.integers(0, 40))
    if draw(st.booleans()):
        cpu["package_ids"] = sorted(draw(st.sets(st.integers(0, 40), min_size=packages, max_size=packages)))
    with_cpus = packages * nodes_per_package
    ids = sorted(draw(st.sets(st.integers(0, 255), min_size=with_cpus, max_size=with_cpus + 3)))
    memory = [f"{draw(st.integers(1, 64))}GiB"] + [f"{draw(st.integers(0, 64))}GiB" for unused in ids[1:]]
    nodes = [{"id": id_, "cores": cores // nodes_per_package if number < with_cpus else 0, "memory": size}
             for number, (id_, size) in enumerate(zip(ids, memory))]
    description: dict[str, Any] = {
        "cpu": cpu, "numa": {"nodes": nodes},
        "caches": {"l3_cores": draw(st.integers(0, cores)), "l2_cores": draw(st.integers(1, cores))},
        "cpufreq": draw(st.sampled_from((None, {"share": "cpu"}, {"share": "core"}))),
    }
    if devices:
        places = st.sampled_from([-1, *(node["id"] for node in nodes[:with_cpus])])
        models = st.sampled_from(("nvidia-h100", "amd-mi300x", "connectx-7", "i350", "nvme", "aspeed-vga", "nvswitch"))
        description["pci"] = [
            {"root": f"{domain:04x}:00", "numa_node": draw(places), "switch": draw(st.booleans()),
             "devices": draw(st.lists(models, max_size=3))}
            for domain in range(draw(st.integers(0, 3)))]
    if offline:
        present = sorted(Machine(description).present)
        off = draw(st.sets(st.sampled_from(present[1:]), max_size=len(present) // 2)) if len(present) > 1 else set()
        cpu["offline"] = cpulist(off)
    return description
