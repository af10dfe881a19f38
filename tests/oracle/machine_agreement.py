"""Compare what we take machines for with what kubelet takes them for: all captures, the fleet, and machines with something odd.

    python tests/oracle/machine_agreement.py 37
    python tests/oracle/machine_agreement.py --golden    write kubelet's answers to golden/machines.json.gz; all kubelets have to agree

kubelet's side is cadvisor's own reader and kubelet's topology.Discover on the machine's files. Ours is what configurations and predictions
are held against (core/kubelet_view.py), and beside it the facts. What differs is in a table, with who is right and why; a row
that no longer differs is an error, too. Captures lack links that every kernel has, from a NUMA node to its CPUs: they are added from the
capture's own list of these CPUs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parents[1] / "playbooks" / "collections")]

import cases as generate  # noqa: E402
from captures import unpack  # noqa: E402
from driver import Oracle, Unavailable, versions  # noqa: E402
from driver import build as program  # noqa: E402
from predict import facts  # noqa: E402

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_rules as rules  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.admission_machine import cpu_count, cpus_of  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_plan import machine_section  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_view import as_kubelet  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.host.kubelet_state import read_machine  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root  # noqa: E402
from machines.build import build, load  # noqa: E402
from machines.build import names as fleet  # noqa: E402
from machines.scratch import scratch  # noqa: E402

Json = dict[str, Any]
GOLDEN = HERE / "golden" / "machines.json.gz"
CPU, NODE = "sys/devices/system/cpu", "sys/devices/system/node"


# --- the machines -------------------------------------------------------------------------------------------------------------------------


def captures() -> Iterator[tuple[str, Path]]:
    """The captured machines that are here, by name."""
    for name in unpack.names():
        yield name, unpack.unpacked(name)


def example_fleet(folder: Path) -> Iterator[tuple[str, Path]]:
    """The machines of the example fleet."""
    for name in fleet():
        yield f"fleet: {name}", build(load(name), folder / name)


SMALL: Json = {
    "cpu": {"packages": 2, "cores": 4, "threads": 2},
    "caches": {"l3_cores": 2},
    "cpufreq": None,
    "numa": {"nodes": [{"id": 0, "cores": 4, "memory": "4GiB"}, {"id": 1, "cores": 4, "memory": "8GiB"}]},
    "hugepages": {"2MiB": {0: 3, 1: 5}},
}


def cpu_folders(root: Path) -> dict[int, Path]:
    """The folders of the CPUs that are online."""
    return {int(folder.parent.name[3:]): folder for folder in root.glob(f"{CPU}/cpu[0-9]*/topology")}


def renumber_cores(number: Callable[[int, int], int]) -> Callable[[Path], None]:
    """Other core ids: a function of CPU and core id."""

    def alter(root: Path) -> None:
        for cpu, folder in cpu_folders(root).items():
            (folder / "core_id").write_text(f"{number(cpu, int((folder / 'core_id').read_text()))}\n")

    return alter


def without(*patterns: str) -> Callable[[Path], None]:
    """A root that lacks these files and folders."""

    def alter(root: Path) -> None:
        for path in [path for pattern in patterns for path in root.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    return alter


def one_package_id(root: Path) -> None:
    """All packages call themselves 0."""
    for folder in cpu_folders(root).values():
        (folder / "physical_package_id").write_text("0\n")
    text = (root / "proc/cpuinfo").read_text(encoding="ascii")
    (root / "proc/cpuinfo").write_text(re.sub(r"(?m)^(physical id\s*: ).*", r"\g<1>0", text), encoding="ascii")


def a_cpu_on_two_nodes(root: Path) -> None:
    """A firmware table gives CPU 0 to both NUMA nodes; the kernel links it to its own."""
    (root / NODE / "node1/cpulist").write_text("0,4-7,12-15\n")


NO_NUMA = (NODE, f"{CPU}/cpu*/node*")
ODD: dict[str, tuple[Json, Callable[[Path], None]]] = {
    "no NUMA": (SMALL, without(*NO_NUMA)),
    "no NUMA, CPUs offline": ({**SMALL, "cpu": {**SMALL["cpu"], "offline": "3,9"}}, without(*NO_NUMA)),
    "no NUMA, one package id": (SMALL, lambda root: [alter(root) for alter in (without(*NO_NUMA), one_package_id)]),
    "CPUs offline": ({**SMALL, "cpu": {**SMALL["cpu"], "offline": "3,9"}}, lambda root: None),
    "core ids repeat": (SMALL, renumber_cores(lambda cpu, core: core % 2)),
    "core ids repeat across packages only": (SMALL, renumber_cores(lambda cpu, core: core % 4)),
    "threads have core ids of their own": (SMALL, renumber_cores(lambda cpu, core: cpu)),
    "one package id": (SMALL, one_package_id),
    "no core ids": (SMALL, without(f"{CPU}/cpu*/topology/core_id")),
    "first caches have no number": (SMALL, without(f"{CPU}/cpu*/cache/index0/id")),
    "no cache has a number": (SMALL, without(f"{CPU}/cpu*/cache/index*/id")),
    "no cache has a size": (SMALL, without(f"{CPU}/cpu*/cache/index*/size")),
    "no caches": (SMALL, without(f"{CPU}/cpu*/cache")),
    "a CPU on two nodes": (SMALL, a_cpu_on_two_nodes),
    "no hugepages": (SMALL, without("sys/kernel/mm/hugepages", f"{NODE}/node*/hugepages")),
    "a node without meminfo": (SMALL, without(f"{NODE}/node1/meminfo")),
    "no distances": (SMALL, without(f"{NODE}/node*/distance")),
    "node ids with gaps": (
        {**SMALL, "numa": {"nodes": [{"id": id_, "cores": 4, "memory": "4GiB"} for id_ in (2, 11)]}, "hugepages": {}},
        lambda root: None,
    ),
    "memory without CPUs": (
        {**SMALL, "numa": {"nodes": [*SMALL["numa"]["nodes"], {"id": 2, "memory": "16GiB"}]}, "hugepages": {"2MiB": {0: 1, 2: 7}}},
        lambda root: None,
    ),
    "three threads, one offline": ({**SMALL, "cpu": {"packages": 2, "cores": 4, "threads": 4, "offline": "31"}}, lambda root: None),
    "an L3 cache for each core": ({**SMALL, "caches": {"l3_cores": 1}}, lambda root: None),
}


def odd_machines(folder: Path) -> Iterator[tuple[str, Path]]:
    """Small machines whose kernel shows something in another way."""
    for name, (description, alter) in ODD.items():
        root = build(description, folder / name.replace(" ", "-"))
        alter(root)
        yield f"odd: {name}", root


def random_machines(folder: Path, count: int, seed: int) -> Iterator[tuple[str, Path]]:
    """Random machines, as for decisions."""
    rng = random.Random(seed)
    for number in range(count):
        yield f"random: {seed}.{number}", build(generate.machine(rng), folder / f"random-{number}")


def all_machines(folder: Path) -> Iterator[tuple[str, Path]]:
    """All with a name of their own."""
    yield from captures()
    yield from example_fleet(folder)
    yield from odd_machines(folder)


def as_a_kernel_shows(root: Path, folder: Path) -> Path:
    """The root, or one beside it whose NUMA nodes have links to their CPUs, when the capture left these out or lost where they led."""
    nodes = list(root.glob(f"{NODE}/node[0-9]*"))
    if any(link.resolve().name == link.name for node in nodes for link in node.glob("cpu[0-9]*")) or not nodes:
        return root
    for part in ("proc", "sys/kernel"):
        if (root / part).exists():
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            (folder / part).symlink_to(root / part)
    (folder / NODE).mkdir(parents=True)
    (folder / CPU).symlink_to(root / CPU)
    for node in nodes:
        shown = folder / NODE / node.name
        shown.mkdir()
        for entry in node.iterdir():
            if not entry.is_symlink():
                (shown / entry.name).symlink_to(entry)
        for cpu in listed(node):
            (shown / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")
    return folder


def listed(node: Path) -> CpuSet:
    """The CPUs that a NUMA node's own file names."""
    for name, parse in (("cpulist", CpuSet.parse), ("cpumap", CpuSet.parse_mask)):
        if (node / name).exists():
            return parse((node / name).read_text(encoding="ascii"))
    return CpuSet()


# --- what it is taken for -----------------------------------------------------------------------------------------------------------------


def kubelets(answer: Json) -> Json:
    """kubelet's answer, field by field. Sets of CPUs are cpulists; ``memory`` is null where the capture doesn't have it."""
    info, cpus = answer["machine"], answer["cpus"] or {}
    details = cpus.get("CPUDetails") or {}
    nodes = info["topology"] or []

    def groups(key: str) -> dict[str, str]:
        members: dict[int, list[int]] = {}
        for cpu, place in details.items():
            members.setdefault(place[key], []).append(int(cpu))
        return {str(id_): CpuSet(group).to_list() for id_, group in sorted(members.items())}

    cores = groups("CoreID")
    assert len(cores) == cpus.get("NumCores", 0)
    return {
        "cpus": info["num_cores"],
        "online": CpuSet(map(int, details)).to_list(),
        "sockets": info["num_sockets"],
        "packages": groups("SocketID"),
        "cores": list(cores.values()),
        "caches": groups("UncoreCacheID"),
        "numa": groups("NUMANodeID"),
        "without CPUs": sorted(node["node_id"] for node in nodes if not node["cores"]),
        "memory": None if "memory" in answer.get("unread", {}) else info["memory_capacity"],
        "memory of nodes": {str(node["node_id"]): node["memory"] for node in sorted(nodes, key=lambda node: node["node_id"])},
        "hugepages": pages(info["hugepages"]),
        "hugepages of nodes": {str(node["node_id"]): pages(node["hugepages"]) for node in nodes},
        "distances": {str(node["node_id"]): node["distances"] or [] for node in nodes},
    }


def pages(pools: list[Json] | None) -> dict[str, int]:
    """Pages by size in KiB."""
    return {str(pool["page_size"]): pool["num_pages"] for pool in pools or ()}


def on_the_node(root: Path) -> Json:
    """What the check of kubelet's state files, which runs on the node, holds them against; no memory where no NUMA nodes are shown."""
    machine = read_machine(Root(str(root)))
    if not machine.nodes:
        return {"online": machine.online.to_list()}
    return {
        "online": machine.online.to_list(),
        "memory of nodes": {str(id_): node.memory_bytes for id_, node in machine.nodes.items()},
        "hugepages of nodes": {
            str(id_): {str(size >> 10): pages for size, pages in node.hugepages.items()} for id_, node in machine.nodes.items()
        },
    }


def in_the_plan(topology: Topology) -> Json:
    """What a configuration is held against, on the controller and on the node."""
    pools = {node.id: sum(size * pool.total for size, pool in node.hugepages.items()) for node in topology.numa_nodes}
    machine = rules.machine(machine_section(topology, pools, swap=False))
    return {
        "online": machine.cpus.to_list(),
        "sockets": machine.packages,
        "memory": machine.memory,
        "memory of nodes": {str(id_): memory for id_, (memory, pool) in machine.numa_nodes.items()},
    }


def ours(topology: Topology, whole: Topology) -> Json:
    """The same of our facts, or of our view of what kubelet sees. ``whole``: the facts, for what belongs to no NUMA node."""
    cpus = cpus_of(topology)

    def groups(members: Any) -> dict[str, str]:
        return {str(id_): CpuSet.from_int(mask).to_list() for id_, mask in sorted(members.items())}

    def pools(nodes: Iterable[Any]) -> dict[str, int]:
        total: dict[str, int] = {}
        for node in nodes:
            for size, pool in node.hugepages.items():
                total[str(size >> 10)] = total.get(str(size >> 10), 0) + pool.total
        return total

    return {
        "cpus": cpu_count(topology),
        "online": topology.cpus.online.to_list(),
        "sockets": len({package.id for package in whole.packages}) or 1,
        "packages": groups(cpus.sockets),
        "cores": list(groups(cpus.cores).values()),
        "caches": groups(cpus.caches),
        "numa": groups(cpus.numa),
        "without CPUs": [node.id for node in topology.numa_nodes if not node.cpus],
        "memory": whole.memory_bytes,
        "memory of nodes": {str(node.id): node.memory_bytes for node in topology.numa_nodes},
        "hugepages": {**{str(size >> 10): 0 for size in whole.hugepage_sizes}, **pools(whole.numa_nodes)},
        "hugepages of nodes": {str(node.id): pools([node]) for node in topology.numa_nodes},
        "distances": {str(node.id): [node.distances[other] for other in sorted(node.distances)] for node in topology.numa_nodes},
    }


# --- what differs -------------------------------------------------------------------------------------------------------------------------
class Row(NamedTuple):
    """A difference: between kubelet and what (the view that predictions rest on, or the facts), on which machines, in which fields, who is
    right and why."""

    side: str
    machines: str
    fields: str
    right: str
    why: str


VIEW, FACTS, NODE_CHECK, RULES = "view", "facts", "state files", "rules"
OF_FACTS = ("online", "cores", "caches", "numa", "memory of nodes", "hugepages of nodes")

DIFFERENCES = (
    # The view: what rules and predictions rest on.
    Row(VIEW, "hwloc.20s390-2g6s4c; lscpu.s390-kvm; lscpu.s390-zvm", "cores", "neither",
        "the oracle is a program for x86-64; kubelet for s390x tells cores by book and drawer, too, and we don't say how it does there"),
    Row(VIEW, "hwloc-old.2s390-2c", "online; packages; cores; caches; numa; memory of nodes; hugepages of nodes; distances",
        "kubelet",
        "the same on a kernel that has no core ids either: kubelet finds no CPU. s390x is no platform for predictions"),
    Row(VIEW, "ghw.linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d; ghw.linux-amd64-accel; ghw.linux-amd64-accel-nvidia; "
        "ghw.linux-arm64-c288e0776090cd558ef793b2a4e61939; ghw.linux-s390x-snapshot; hwloc.40intel64-4n10c+pci-conflicts; "
        "libvirt.caps-linux-resctrl; libvirt.caps-linux-resctrl-cdp; libvirt.caps-linux-resctrl-cmt; "
        "libvirt.caps-linux-resctrl-fake-feature; lscpu.vbox-win; nri.2s4n40c; nri.4s-nosnc; nri.desktop; nri.sample1; nri.sample2; "
        "ppc.master.internal; ppc.worker1.internal", "hugepages", "we",
        "the capture has the nodes' pools and lacks /sys/kernel/mm/hugepages with their sum, where kubelet looks for the machine's"),
    Row(VIEW, "hwloc-old.32amd64-4s2n4c-cgroup; hwloc.32amd64-4s2n4c-cgroup2", "hugepages", "kubelet",
        "a kernel that shows the machine's pool and none of its nodes': Linux before 2.6.33, on which no kubelet runs"),
    Row(RULES, "hwloc-old.2s390-2c", "memory of nodes; online", "kubelet", "the same"),
    Row(RULES, "hwloc.2ps3-2t; libvirt.linux-ppc-test1; libvirt.linux-x86_64-test1; odd: no core ids", "sockets", "kubelet",
        "no CPU that kubelet sees, so no package: the plan is refused before it matters"),
    Row(NODE_CHECK, "hwloc-old.2s390-2c; hwloc.2ps3-2t; libvirt.linux-ppc-test1; libvirt.linux-x86_64-test1; odd: no core ids", "online",
        "kubelet", "the same"),
    # The facts, from which the view is made.
    Row(FACTS, "hwloc.20s390-2g6s4c; hwloc.2arm-2c; libvirt.linux-aarch64-f21-mustang; libvirt.linux-armv6l-raspberrypi; "
        "libvirt.linux-s390x-with-frequency; lscpu.arm-A510-A710-A715-X3; lscpu.ppc-qemu; lscpu.rv64-linux; lscpu.s390-kvm; "
        "lscpu.s390-zvm; lscpu.sparc64; hwloc-old.2s390-2c; hwloc.2ps3-2t; odd: no NUMA; odd: no NUMA, CPUs offline",
        "numa; memory of nodes; hugepages of nodes", "we",
        "the kernel shows no NUMA nodes: that is one with all CPUs and all memory, and kubelet makes one of each package, without memory"),
    Row(FACTS, "hwloc.2i386-2t-hugepagesizecount; odd: no NUMA, one package id", "memory of nodes; hugepages of nodes", "we",
        "the same on a machine of one package: its id is the node's by chance"),
    Row(FACTS, "hwloc-x86+linux.64amd64-4p2n4ca2co; hwloc.64amd64-4s2n4ca2co; odd: threads have core ids of their own", "cores", "we",
        "Bulldozer: thread_siblings says that two CPUs are threads of one core; kubelet goes by core_id, which differs"),
    Row(FACTS, "libvirt.linux-x86_64-test7; libvirt.linux-x86_64-with-die; lscpu.sparc64; hwloc.20s390-2g6s4c; lscpu.s390-kvm; "
        "lscpu.s390-zvm; odd: core ids repeat; odd: no NUMA, one package id", "cores", "we",
        "core ids repeat in a package, on its dies or books, and kubelet takes those with the same for one core"),
    Row(FACTS, "odd: core ids repeat; odd: no NUMA, one package id", "caches", "we",
        "it then takes the L3 cache of one of the cores' threads for all"),
    Row(FACTS, "hwloc-old.2s390-2c; hwloc.2ps3-2t", "online; cores; caches", "we",
        "a kernel without core ids and package ids (kubelet doesn't see such CPUs at all)"),
    Row(FACTS, "libvirt.linux-ppc-test1; libvirt.linux-x86_64-test1", "online; cores; caches", "we",
        "no file of the capture says which NUMA node has which CPU; kubelet sees CPUs by their nodes only"),
    Row(FACTS, "odd: no core ids", "online; cores; caches; numa", "we", "kubelet doesn't see CPUs without a core id"),
)  # fmt: skip


def explained(side: str) -> dict[tuple[str, str], Row]:
    """The rows of a side by machine and field."""
    return {(name, field): row for row in DIFFERENCES if row.side == side
            for name in row.machines.split("; ") for field in row.fields.split("; ")}  # fmt: skip


def differences(name: str, root: Path, theirs: Json) -> list[str]:
    """What differs from kubelet's answer and isn't in the table, and what is in the table and doesn't differ."""
    topology, found = facts(root), []
    for side, mine in (
        (VIEW, ours(as_kubelet(topology), topology)),
        (FACTS, ours(topology, topology)),
        (NODE_CHECK, on_the_node(root)),
        (RULES, in_the_plan(topology)),
    ):
        rows = explained(side)
        for field, value in mine.items():
            if (field == "memory" and theirs[field] is None) or (side == FACTS and field not in OF_FACTS):
                continue
            if (value == theirs[field]) == ((name, field) in rows):
                found.append(f"{name}, {side}, {field}: we {value}, kubelet {theirs[field]}")
    return found


def answers(minor: int, places: Iterable[tuple[str, Path]], folder: Path) -> Iterator[tuple[str, Path, Json]]:
    """Machines with what a kubelet takes them for."""
    with Oracle(program(minor)) as oracle:
        for name, root in places:
            shown = as_a_kernel_shows(root, folder / "shown" / name.replace(" ", "-"))
            answer = oracle.ask({"ask": "machine", "root": str(shown)})
            if "error" in answer:
                raise SystemExit(f"{name}: {answer['error']}")
            yield name, root, kubelets(answer)


def compare(minor: int, folder: Path, count: int, seed: int) -> list[str]:
    """What differs on all machines and some random ones, in words."""
    found, number = [], 0
    places = list(all_machines(folder)) + list(random_machines(folder, count, seed))
    for name, root, theirs in answers(minor, places, folder / str(minor)):
        found += differences(name, root, theirs)
        number += 1
    print(f"kubelet 1.{minor}: {number} machines of {len(places)} compared, {len(found)} unexplained differences", flush=True)
    return found


def write_golden(folder: Path) -> None:
    """kubelet's answers for all machines, one for all minors."""
    places = list(all_machines(folder))
    known: Json = {}
    for minor in versions():
        said = {name: theirs for name, unused, theirs in answers(minor, places, folder / str(minor))}
        if known and said != known:
            raise SystemExit(f"kubelet 1.{minor} sees machines otherwise: {[name for name in said if said[name] != known[name]]}")
        known = said
    GOLDEN.write_bytes(gzip.compress(json.dumps({"minors": list(versions()), "machines": known}, sort_keys=True).encode(), mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("minors", nargs="*", type=int, help="of kubelet, like 37; default: all")
    parser.add_argument("--newest", action="store_true", help="the newest minor only")
    parser.add_argument("--golden", action="store_true", help="write kubelet's answers instead of comparing")
    parser.add_argument("--random", type=int, default=40, metavar="N", help="random machines beside the known ones")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = []
    with scratch() as folder:
        if options.golden:
            write_golden(folder)
            return 0
        for number, minor in enumerate([max(versions())] if options.newest else options.minors or versions()):
            found += compare(minor, folder / f"machines-{number}", options.random, options.seed)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as problem:
        sys.exit(f"There is no oracle here: {problem}.")
