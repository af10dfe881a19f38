"""The reader against lstopo 2.9.0 and lscpu 2.38.1 on every captured machine.

Every answer is compared. Where one of the tools differs from us, DIFFERENCES says who is right and why; a row that no longer
differs fails too, so the table can neither hide a fault nor grow stale.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from captures.unpack import CAPTURES, names, unpacked

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology

pytestmark = pytest.mark.captures

LSTOPO, LSCPU = "lstopo", "lscpu"


class Row(NamedTuple):
    """A difference: in which captures, of which tool, in which fields, who is right, and why."""

    captures: str
    tool: str
    fields: str
    right: str
    why: str


DIFFERENCES = (
    Row("hwloc-old.32amd64-4s2n4c-cgroup hwloc.32amd64-4s2n4c-cgroup2", LSTOPO, "cpus cores packages l3 numa nodes", "we",
        "lstopo shows only CPUs 0-5 and nodes 0-5, which the cgroup of the captured process allows; /sys/.../cpu/online is 0-31"),
    Row("hwloc.16amd64-4n4c-cgroup-distance-merge", LSTOPO, "cpus cores packages l3 numa nodes", "we",
        "the same: a cgroup of CPUs 0-3 and nodes 2-3; online is 0-15, and four nodes have a folder"),
    Row("hwloc-x86+linux.64amd64-4p2n4ca2co hwloc.64amd64-4s2n4ca2co", LSTOPO, "cores", "we and lscpu",
        "Bulldozer: the two integer cores of a module are thread_siblings of each other (cputopology.rst: threads of one core); lstopo "
        "splits them because their core_id differs"),
    Row("hwloc-old.2s390-2c", LSTOPO, "cores", "we",
        "that kernel shows no thread siblings; lstopo and lscpu then show no core at all, but each CPU runs on one: a plan needs it"),
    Row("hwloc.40intel64-4n10c+pci-conflicts", LSTOPO, "packages l3", "we",
        "two mask files were edited upstream (core_siblings of CPU 3, index3/shared_cpu_map of CPU 2, both 0000000f); lstopo drops the "
        "sets that overlap. The list files beside them and the cpumaps of the NUMA nodes agree with us"),
    Row("hwloc.40intel64-4n10c+pci-conflicts", LSCPU, "packages l3", "we", "the same; lscpu makes a fifth set of the CPUs that conflict"),
    Row("hwloc.8em64t-2s2ca2c-buggynuma", LSTOPO, "numa nodes", "we",
        "all eight nodes claim all CPUs, and each has a link to one, by which we and kubelet go; lstopo gives the first all of them and "
        "leaves out the other seven, whose 2 GiB each are in MemTotal"),
    Row("hwloc.8em64t-2s2ca2c-buggynuma", LSCPU, "numa", "we", "the same; lscpu reads no links"),
    Row("hwloc.nvidiagpunumanodes", LSTOPO, "nodes", "both",
        "nodes 250-255 are memory of the GPUs (numa_status), which lstopo hides unless asked; our kind for them is device_memory"),
    Row("hwloc-x86+linux.5intel64-hybrid-lakefield", LSCPU, "l3", "we and lstopo",
        "index3/shared_cpu_list is 0-4 on every CPU; lscpu prints one column fewer for CPU 4, so the reference has no L3 for it"),
    Row("lscpu.arm-A510-A710-A715-X3", LSCPU, "cores packages", "we and lstopo",
        "lscpu prints one socket, and core_ids that repeat in each package; core_cpus_list has one CPU each, package_cpus_list 0-2, 3-6 "
        "and 7"),
    Row("libvirt.linux-ppc64-deconf-cpus libvirt.linux-ppc64-subcores1 libvirt.linux-ppc64-subcores2 libvirt.linux-x86_64-test6", LSCPU,
        "cpus numa", "we", "lscpu needed stub files here and took all present CPUs; the online file names fewer"),
    Row("hwloc-old.2s390-2c", LSCPU, "cores packages numa", "we",
        "without thread siblings lscpu prints neither core nor package, though core_siblings has the package, which lstopo shows too"),
    Row("ghw.linux-s390x-snapshot", LSCPU, "cores packages numa", "we and lstopo",
        "lscpu needed stub files here and the reference has no such columns; over the files as they are it prints what we read"),
    Row("libvirt.caps-linux-basic libvirt.caps-linux-caches libvirt.caps-linux-resctrl libvirt.caps-linux-resctrl-cdp "
        "libvirt.caps-linux-resctrl-cmt libvirt.caps-linux-resctrl-fake-feature libvirt.caps-linux-resctrl-skx "
        "libvirt.caps-linux-resctrl-skx-twocaches libvirt.linux-aarch64-f21-mustang libvirt.linux-aarch64-rhel74-moonshot "
        "libvirt.linux-armv6l-raspberrypi libvirt.linux-ppc-test1 libvirt.linux-ppc64-deconf-cpus libvirt.linux-ppc64-subcores1 "
        "libvirt.linux-ppc64-subcores2 libvirt.linux-s390x-with-frequency libvirt.linux-x86_64-test1 libvirt.linux-x86_64-test2 "
        "libvirt.linux-x86_64-test5 libvirt.linux-x86_64-test6", LSCPU, "cores packages", "we",
        "the capture has the *_list files only, and lscpu reads the masks (thread_siblings, core_siblings): it printed none"),
    Row("libvirt.linux-x86_64-test4", LSCPU, "cores packages", "we",
        "the capture has no sibling files; core_id is unique in each package, and lscpu reads no ids where masks are missing"),
    Row("libvirt.linux-x86_64-test3 libvirt.linux-x86_64-test7", LSCPU, "cores packages", "we",
        "the same on Magny-Cours, whose two dies per package repeat core ids; /proc/cpuinfo has as many siblings as cpu cores: no second "
        "threads"),
    Row("hwloc.20s390-2g6s4c hwloc.2arm-2c hwloc.2i386-2t-hugepagesizecount libvirt.linux-aarch64-f21-mustang "
        "libvirt.linux-armv6l-raspberrypi libvirt.linux-s390x-with-frequency libvirt.linux-x86_64-test5 lscpu.arm-A510-A710-A715-X3 "
        "lscpu.armv7 lscpu.ppc-qemu lscpu.s390-kvm lscpu.s390-zvm lscpu.sparc64", LSCPU, "numa", "we and lstopo",
        "a kernel without NUMA support has no node folder: that is one node 0 with all CPUs, as lstopo shows it; lscpu prints none"),
)  # fmt: skip

TABLE = {(name, row.tool, field): row for row in DIFFERENCES for name in row.captures.split() for field in row.fields.split()}


# What no tool confirms: cores and packages by number x CPUs, worked out from the files by hand.
ALONE = {
    "hwloc-old.2s390-2c": ("2x1", "1x2"),
    "hwloc.40intel64-4n10c+pci-conflicts": ("40x1", "4x10"),
    "libvirt.caps-linux-basic": ("16x1", "4x4"),
    "libvirt.caps-linux-caches": ("4x2", "1x8"),
    "libvirt.caps-linux-resctrl": ("12x1", "2x6"),
    "libvirt.caps-linux-resctrl-cdp": ("12x1", "2x6"),
    "libvirt.caps-linux-resctrl-cmt": ("12x1", "2x6"),
    "libvirt.caps-linux-resctrl-fake-feature": ("12x1", "2x6"),
    "libvirt.linux-aarch64-f21-mustang": ("8x1", "4x2"),
    "libvirt.linux-aarch64-rhel74-moonshot": ("8x1", "1x8"),
    "libvirt.linux-ppc-test1": ("2x1", "1x2"),
    "libvirt.linux-ppc64-deconf-cpus": ("10x1", "2x2 2x3"),
    "libvirt.linux-ppc64-subcores1": ("20x1", "4x5"),
    "libvirt.linux-ppc64-subcores2": ("8x1", "3x1 1x5"),
    "libvirt.linux-s390x-with-frequency": ("4x2", "1x8"),
    "libvirt.linux-x86_64-test1": ("2x1", "1x2"),
    "libvirt.linux-x86_64-test2": ("2x1", "1x2"),
    "libvirt.linux-x86_64-test3": ("48x1", "4x12"),
    "libvirt.linux-x86_64-test4": ("16x1", "2x8"),
    "libvirt.linux-x86_64-test5": ("4x1", "1x4"),
    "libvirt.linux-x86_64-test6": ("2x1 2x2", "1x6"),
    "libvirt.linux-x86_64-test7": ("24x1", "2x12"),
}


def read(name: str) -> Topology:
    """The facts of a capture, without interrupts."""
    root = Root(str(unpacked(name)))
    return read_topology(root, Command(root), ["pci", "tuning", "boot", "kubelet", "software"])


def ours(topology: Topology, tool: str) -> dict[str, Any]:
    """Our answers in the terms of a tool. lscpu names only nodes with CPUs and no memory; lstopo adds nodes, by memory."""
    answer: dict[str, Any] = {
        "cpus": list(topology.cpus.online),
        "cores": sorted(list(core) for core in topology.cores),
        "packages": sorted(list(package.cpus) for package in topology.packages),
        "l3": sorted(list(group.cpus) for group in topology.l3_groups),
        "numa": {node.id: list(node.cpus) for node in topology.numa_nodes if node.cpus},
    }
    if tool == LSTOPO:
        answer["nodes"] = {node.id: node.memory_bytes for node in topology.numa_nodes}
    return answer


def theirs(answer: dict[str, Any], tool: str, with_cpus: set[int]) -> dict[str, Any]:
    """A tool's answers, sorted. lstopo gives a node without CPUs those that are near it; only the CPUs of the others are compared."""
    numa = {int(node): value for node, value in answer["numa"].items()}
    found: dict[str, Any] = {key: sorted(answer.get(key, [])) for key in ("cores", "packages", "l3")}
    if tool == LSTOPO:
        found["cpus"] = answer["pus"]
        found["numa"] = {node: value["cpus"] for node, value in numa.items() if node in with_cpus}
        found["nodes"] = {node: value["memory"] for node, value in numa.items()}
    else:
        found["cpus"] = answer["cpus"]
        found["numa"] = numa
    return found


@pytest.mark.parametrize("name", names())
def test_every_answer_is_the_references_or_explained(name: str) -> None:
    expected = json.loads((CAPTURES / f"{name}.expect.json").read_text(encoding="utf-8"))
    topology = read(name)
    compared = 0
    for key, tool in (("lstopo_2.9.0", LSTOPO), ("lscpu_2.38.1", LSCPU)):
        if key not in expected:
            continue
        we = ours(topology, tool)
        they = theirs(expected[key], tool, set(we["numa"]))
        for field, value in we.items():
            compared += 1
            row = TABLE.get((name, tool, field))
            if row is None:
                assert value == they[field], f"{tool} says otherwise about {field}"
            else:
                assert value != they[field], f"{tool} agrees about {field}: take the row out ({row.why})"
    assert compared >= 5


@pytest.mark.parametrize("name", ALONE)
def test_where_no_tool_agrees_the_files_decide(name: str) -> None:
    topology = read(name)

    def shape(groups: Iterable[CpuSet]) -> str:
        return " ".join(f"{count}x{size}" for size, count in sorted(Counter(map(len, groups)).items()))

    assert (shape(topology.cores), shape(package.cpus for package in topology.packages)) == ALONE[name]


@pytest.mark.parametrize("name", names())
def test_the_facts_of_a_machine_hold_together(name: str) -> None:
    topology = read(name)
    online = topology.cpus.online
    assert online and online <= topology.cpus.present
    for groups in (
        topology.cores,
        [p.cpus for p in topology.packages],
        [g.cpus for g in topology.l3_groups],
        [n.cpus for n in topology.numa_nodes],
    ):
        assert sum(map(len, groups)) == len(set().union(*groups)), "a CPU is in two groups"
        assert all(group <= online for group in groups)
    assert set().union(*topology.cores) == set(online)
    assert topology.page_size in (4096, 8192, 16384, 65536)
    assert not topology.gaps


def test_every_capture_of_the_table_exists() -> None:
    assert len(names()) == 79 or not CAPTURES.is_dir()
    assert {name for name, _tool, _field in TABLE} <= set(names())


# Architecture, and GPUs, NICs, NVMe drives counted by hand from the class, vendor and device of every PCI function.
MACHINES = {
    "ghw.linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d": ("x86_64", 0, 1, 1),  # its GPU is Iris Xe, part of the CPU
    "ghw.linux-amd64-61797caf7c0b6bca1725ad7975ed4773": ("x86_64", 1, 4, 0),
    "ghw.linux-amd64-accel-nvidia": ("x86_64", 1, 1, 0),  # virtio graphics beside a P100
    "ghw.linux-amd64-accel": ("x86_64", 0, 1, 0),  # virtio graphics, and QEMU's test device in the accelerators' class
    "ghw.linux-arm64-c288e0776090cd558ef793b2a4e61939": ("aarch64", 0, 1, 1),
    "ghw.linux-s390x-snapshot": ("s390x", 0, 0, 0),
    "hwloc-old.24em64t-2n6c2t+2mic.olddriver": ("x86_64", 0, 2, 0),  # Xeon Phi is a co-processor, Matrox a BMC's
    "hwloc.32em64t-2n8c+dax+nvme+mic+dimms": ("x86_64", 0, 3, 1),  # ASPEED
    "hwloc.nvidiagpunumanodes": ("ppc64le", 6, 0, 0),
    "lscpu.sparc64": ("sparc64", 0, 0, 0),
    "lscpu.rv64-visionfive2": ("riscv64", 0, 0, 0),
    "lscpu.loongarch-loongson_3a5000_hv": ("loongarch64", 0, 0, 0),
    "lscpu.ppc64-POWER7": ("ppc64", 0, 0, 0),
    "ppc.master.internal": ("x86_64", 0, 10, 4),  # Matrox
    "ppc.worker1.internal": ("x86_64", 0, 6, 1),
}


@pytest.mark.parametrize("name", MACHINES)
def test_devices_and_architecture(name: str) -> None:
    topology = read(name)
    assert (topology.architecture, len(topology.gpus), len(topology.nics), len(topology.nvmes)) == MACHINES[name]


def test_gpu_memory_is_told_by_the_driver(tmp_path: Path) -> None:  # H24
    kinds = {node.id: (node.kind, node.kind_evidence) for node in read("hwloc.nvidiagpunumanodes").numa_nodes}
    assert kinds[0][0] == kinds[8][0] == "cpu_memory"
    assert kinds[255] == ("device_memory", "numa_status of GPU 0004:05:00.0 names this node")
    assert {kinds[id][0] for id in range(250, 256)} == {"device_memory"}


def test_memory_without_cpus_is_the_hosts_where_no_gpu_claims_it() -> None:
    assert [node.kind for node in read("nri.sample2").numa_nodes] == ["cpu_memory"] * 4 + ["memory_only"] * 4


def test_numa_node_is_never_a_guess() -> None:  # H23
    unknown = read("hwloc.40intel64-2g2n4c+pcilocality")  # four nodes, every device says -1
    assert len(unknown.numa_nodes) == 4 and {nic.numa_node for nic in unknown.nics} == {None}
    single = read("ghw.linux-amd64-accel-nvidia")  # one node, the GPU says -1
    assert [gpu.numa_node for gpu in single.gpus] == [0]
    by_cpus = read("hwloc.nvidiagpunumanodes")  # no numa_node file, local_cpus lie on one node
    assert [gpu.numa_node for gpu in by_cpus.gpus] == [0, 0, 0, 8, 8, 8]


def test_interrupts_of_a_real_machine() -> None:
    root = Root(str(unpacked("ppc.master.internal")))
    topology = read_topology(root, Command(root), ["interrupts"])
    of = {device.device: device for device in topology.interrupts}
    nvme = of["0000:b1:00.0"]
    assert nvme.kind == "nvme" and [i.action for i in nvme.interrupts[:3]] == ["nvme0q0", "nvme0q1", "nvme0q2"]
    assert {device.kind for device in topology.interrupts} == {"nic", "nvme", "other"}
    assert sum(len(device.interrupts) for device in topology.interrupts) == 1857
    assert all(i.affinity and i.effective_affinity for device in topology.interrupts for i in device.interrupts)
    per_interrupt = [path for path in root.opened if path.startswith("/proc/irq/")]
    assert len(per_interrupt) == 2 * 1857


@pytest.mark.parametrize(
    "name", ["ppc.master.internal", "hwloc.nvidiagpunumanodes", "nri.4s-nosnc", "hwloc.32em64t-2n8c+dax+nvme+mic+dimms"]
)
def test_each_file_is_opened_once(name: str) -> None:
    root = Root(str(unpacked(name)))
    read_topology(root, Command(root))
    kernel = [path for path in root.opened if path.startswith(("/sys/", "/proc/"))]
    assert len(kernel) == len(set(kernel))
