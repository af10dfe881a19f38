"""The example fleet: what the builder writes is what the real lscpu and lstopo read, and what the description says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from machines.build import DescriptionError, Machine, build, expected, load, names
from machines.description import HERE, complete, cpulist, cpumask, parse_cpulist
from machines.scratch import scratch
from machines.strategies import descriptions

LSCPU, LSTOPO = shutil.which("lscpu"), shutil.which("lstopo-no-graphics")


def sets(groups: Iterable[Iterable[int]]) -> list[str]:
    """Sets of CPUs as cpulists, by their first CPU."""
    return [cpulist(group) for group in sorted(map(set, groups), key=min)]


def lscpu(root: Path) -> dict[str, list[str]]:
    """What lscpu says: cores, packages, NUMA nodes with CPUs and L3 groups as cpulists of online CPUs."""
    command = ["lscpu", "--sysroot", str(root), "--online", "-p=CPU,CORE,SOCKET,NODE,CACHE"]
    output = subprocess.run(command, check=True, capture_output=True, text=True)
    groups: dict[str, dict[str, set[int]]] = {key: defaultdict(set) for key in ("cores", "packages", "numa_nodes", "l3_groups")}
    for line in output.stdout.splitlines():
        if not line.startswith("#"):
            cpu, core, package, node, _blank, _l1d, _l1i, _l2, *l3 = line.split(",")
            for key, value in zip(groups, (core, package, node, *l3)):
                if value:
                    groups[key][value].add(int(cpu))
    return {key: sets(members.values()) for key, members in groups.items()}


def lstopo(root: Path, **environment: str) -> ElementTree.Element:
    """The topology that lstopo sees, as XML."""
    command = ["lstopo-no-graphics", "--input", str(root), "--if", "fsroot", "--whole-io", "--of", "xml", "-"]
    output = subprocess.run(command, check=True, capture_output=True, env={**os.environ, "HWLOC_HIDE_ERRORS": "2", **environment})
    return ElementTree.fromstring(output.stdout)


def below(element: ElementTree.Element, kind: str) -> Iterator[ElementTree.Element]:
    return (item for item in element.iter("object") if item.get("type") == kind)


def pus(element: ElementTree.Element) -> set[int]:
    return {int(item.get("os_index", "")) for item in below(element, "PU")}


def summary(description: dict[str, Any]) -> dict[str, list[str]]:
    """The part of the answers that lscpu can give."""
    facts = expected(description)
    return {"cores": facts["cores"], "packages": sets(parse_cpulist(p["cpus"]) for p in facts["packages"]),
            "numa_nodes": sets(filter(None, (parse_cpulist(node["cpus"]) for node in facts["numa_nodes"]))),
            "l3_groups": [group["cpus"] for group in facts["l3_groups"]]}


@pytest.mark.skipif(not LSCPU, reason="lscpu isn't installed")
def test_lscpu_reads_what_the_description_says(machine: tuple[str, Path]) -> None:
    name, root = machine
    assert lscpu(root) == summary(load(name))


@pytest.mark.skipif(not LSTOPO, reason="lstopo isn't installed")
def test_lstopo_reads_what_the_description_says(machine: tuple[str, Path]) -> None:
    name, root = machine
    facts = expected(load(name))
    tree = lstopo(root, HWLOC_KEEP_NVIDIA_GPU_NUMA_NODES="1")
    assert sets(map(pus, below(tree, "Core"))) == facts["cores"]
    assert {int(p.get("os_index", "")): cpulist(pus(p)) for p in below(tree, "Package")} == {p["id"]: p["cpus"] for p in facts["packages"]}
    assert sets(map(pus, below(tree, "L3Cache"))) == [group["cpus"] for group in facts["l3_groups"]]
    assert {int(node.get("os_index", "")): int(node.get("local_memory", 0)) for node in below(tree, "NUMANode")} == {
        node["id"]: node["memory_bytes"] for node in facts["numa_nodes"]}
    domain = {item.get("pci_busid") for item in below(tree, "PCIDev")}
    assert domain >= {device["address"] for kind in ("gpus", "nics", "nvmes") for device in facts[kind]}


@pytest.mark.skipif(not LSTOPO, reason="lstopo isn't installed")
@pytest.mark.parametrize("name", ["gracehopper", "power9"])
def test_lstopo_takes_the_memory_of_gpus_for_theirs(name: str, tmp_path: Path) -> None:
    """hwloc leaves GPU memory nodes out when numa_status tells it which they are: the format is the driver's.  # H24"""
    tree = lstopo(build(load(name), tmp_path / name))
    seen = {int(node.get("os_index", "")) for node in below(tree, "NUMANode")}
    assert seen == {node["id"] for node in expected(load(name))["numa_nodes"] if node["kind"] != "device_memory"}


def test_interrupts_agree_with_devices(machine: tuple[str, Path]) -> None:
    """One column per online CPU; every interrupt of a device has a row that names it and a folder in /proc/irq."""
    name, root = machine
    facts = expected(load(name))
    header, *lines = (root / "proc/interrupts").read_text().splitlines()
    assert header.split() == [f"CPU{cpu}" for cpu in sorted(parse_cpulist(facts["cpus"]["online"]))]
    rows = {label.strip(): rest.split() for label, unused, rest in (line.partition(":") for line in lines)}
    assert all(len(rest) > len(header.split()) for label, rest in rows.items() if label.isdigit())
    for address, irqs in facts["interrupts"].items():
        device = root / "sys/bus/pci/devices" / address
        assert sorted(int(path.name) for path in (device / "msi_irqs").iterdir()) == irqs
        for irq in irqs:
            affinity = parse_cpulist((root / f"proc/irq/{irq}/smp_affinity_list").read_text().strip())
            mask = (root / f"proc/irq/{irq}/smp_affinity").read_text().strip()
            effective = parse_cpulist((root / f"proc/irq/{irq}/effective_affinity_list").read_text().strip())
            assert int(mask.replace(",", ""), 16) == sum(1 << cpu for cpu in affinity)
            assert str(irq) in rows
            assert effective <= parse_cpulist(facts["cpus"]["online"])


def test_links_stay_inside_the_root(machine: tuple[str, Path]) -> None:
    """The kernel's links are relative; the absolute ones of /etc mean a path below the root. Each leads to something there."""
    _name, root = machine
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, entry) for entry in folders + files if Path(folder, entry).is_symlink()):
            target = os.readlink(path)
            inside = root / target.lstrip("/") if target.startswith("/") else path.parent / target
            assert not (target.startswith("/") and path.is_relative_to(root / "sys")), path
            assert Path(os.path.normpath(inside)).is_relative_to(root), path
            assert inside.exists(), f"{path} -> {target}"


def test_boot_files_lead_to_the_running_command_line(machine: tuple[str, Path]) -> None:
    """The command line in /proc/cmdline is the one that the boot files of the machine give."""
    name, root = machine
    boot = [path.read_text() for pattern in ("boot/grub/grub.cfg", "boot/loader/entries/*.conf", "boot/grub2/grubenv")
            for path in root.glob(pattern)]
    ours = [token for token in expected(load(name))["command_line"].split() if not token.startswith(("BOOT_IMAGE=", "root=PARTUUID"))]
    cloud = [path.read_text() for path in root.glob("etc/default/grub.d/*.cfg")]
    written = set(re.split(r'[\s"]+', " ".join(boot + cloud).replace("kernelopts=", "")))
    assert [token for token in ours if token not in written and not token.startswith("nvme_core.")] == []


FLEET = {
    # numbers of the shapes, independent of the descriptions' arithmetic
    "reference": (384, 192, 24, {0: "0-95,192-287", 1: "96-191,288-383"}, [0, 0, 0, 0, 1, 1, 1, 1]),
    "nps4": (128, 64, 8, {0: "0-15,64-79", 1: "16-31,80-95", 2: "32-47,96-111", 3: "48-63,112-127"}, [3, 2, 1, 0, 0]),
    "nosmt": (96, 96, 16, {0: "0-47", 1: "48-95"}, [0, 0, 0, 0, 1, 1, 1, 1]),
    "oddeven": (160, 80, 2, {0: cpulist(range(0, 160, 2)), 1: cpulist(range(1, 160, 2))}, [0, 0, 1, 1]),
    "gracehopper": (72, 72, 1, {0: "0-71", **dict.fromkeys(range(1, 9), "")}, [0]),
    "gb200": (144, 144, 2, {0: "0-71", 1: "72-143", **dict.fromkeys(range(2, 34), "")}, [0, 0, 1, 1]),
    "arm64k": (128, 128, 0, {0: "0-63", 1: "64-127"}, [0, 0, 1, 1]),
    "power9": (160, 40, 20, {0: "0-79", 8: "88-167", **dict.fromkeys(range(252, 256), "")}, [0, 0, 8, 8]),
    "cloudvm": (16, 8, 1, {0: "0-15"}, [0]),
    "halfcores": (26, 15, 8, {0: "0-4,6-7,16-19", 1: "8-15,24-30"}, [0, 1]),
}


@pytest.mark.parametrize("name", names())
def test_fleet_has_the_shapes_it_promises(name: str) -> None:
    facts = expected(load(name))
    cpus, cores, groups, nodes, gpus = FLEET[name]
    assert len(parse_cpulist(facts["cpus"]["online"])) == cpus
    assert (len(facts["cores"]), len(facts["l3_groups"])) == (cores, groups)
    assert {node["id"]: node["cpus"] for node in facts["numa_nodes"]} == nodes
    assert [gpu["numa_node"] for gpu in facts["gpus"]] == gpus


def test_node_kinds() -> None:
    kinds = {name: {node["id"]: node["kind"] for node in expected(load(name))["numa_nodes"]} for name in ("gracehopper", "gb200", "power9")}
    assert kinds["gracehopper"] == {0: "cpu_memory", 1: "device_memory", **dict.fromkeys(range(2, 9), "empty")}
    assert [id_ for id_, kind in kinds["gb200"].items() if kind == "device_memory"] == [2, 10, 18, 26]
    assert [id_ for id_, kind in kinds["power9"].items() if kind == "device_memory"] == [252, 253, 254, 255]


def test_offline_cpus_have_no_topology_and_the_boot_cpu_no_switch(tmp_path: Path) -> None:  # A30
    cpu = build(load("halfcores"), tmp_path / "root") / "sys/devices/system/cpu"
    assert not (cpu / "cpu0/online").exists()
    assert (cpu / "cpu5/online").read_text() == "0\n"
    assert not (cpu / "cpu5/topology").exists()
    assert (cpu / "cpu4/topology/thread_siblings_list").read_text() == "4\n"
    assert (cpu / "offline").read_text() == "5,20-23,31-63\n"
    assert (cpu / "isolated").read_text() == "\n"


@pytest.mark.skipif(not LSCPU, reason="lscpu isn't installed")
@settings(max_examples=20)
@given(descriptions(devices=False))
def test_lscpu_reads_generated_machines(description: dict[str, Any]) -> None:
    with scratch() as folder:
        seen = lscpu(build(description, folder))
    assert {key: seen[key] for key in ("cores", "packages", "numa_nodes")} == {
        key: value for key, value in summary(description).items() if key != "l3_groups"}


@given(descriptions())
def test_answers_partition_the_online_cpus(description: dict[str, Any]) -> None:
    facts = expected(description)
    online = parse_cpulist(facts["cpus"]["online"])
    for groups in (facts["cores"], [p["cpus"] for p in facts["packages"]], [node["cpus"] for node in facts["numa_nodes"]]):
        members = [cpu for group in groups for cpu in parse_cpulist(group)]
        assert len(members) == len(set(members))
        assert set(members) == online
    irqs = [irq for device in facts["interrupts"].values() for irq in device]
    assert len(irqs) == len(set(irqs))
    addresses = [device.address for device in Machine(description).devices]
    assert len(addresses) == len(set(addresses))


def test_kernel_formats() -> None:
    assert cpumask({0, 33}, 40) == "02,00000001"
    assert cpumask({0, 2}, 3) == "5"
    assert cpumask(range(112), 112) == "ffff,ffffffff,ffffffff,ffffffff"
    assert cpulist([]) == ""
    assert cpulist([3, 0, 1, 8]) == "0-1,3,8"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cpus": {}}, "The description has no key 'cpus'; the nearest one is 'cpu'."),
    ({"cpu": {"core": 4}}, "cpu has no key 'core'; the nearest one is 'cores'."),
    ({"cpu": []}, "cpu is []; it must be a mapping."),
    ({"cpu": {"cores": 0}}, "cpu.cores is 0; it must be a whole number of at least 1."),
    ({"cpu": {"numbering": "odd"}}, "cpu.numbering is 'odd'; it must be one of linear, interleaved, adjacent."),
    ({"cpu": {"offline": "3-1"}}, "The cpulist '3-1' is malformed at '3-1'."),
    ({"cpu": {"offline": "9"}}, "cpu.offline '9' names CPUs that aren't present (0-3)."),
    ({"cpu": {"offline": "0-3"}}, "cpu.offline '0-3' leaves no CPU online."),
    ({"cpu": {"possible": "0-1"}}, "cpu.possible '0-1' doesn't contain all present CPUs (0-3)."),
    ({"cpu": {"package_ids": [0, 8]}}, "cpu.package_ids names 2 packages, but cpu.packages is 1."),
    ({"cpu": {"package_stride": 2}}, "cpu.package_stride 2 is less than the 4 CPUs of a package."),
    ({"architecture": "arm64"}, "architecture is 'arm64'; it must be one of x86_64, aarch64, ppc64le."),
    ({"page_size": "4k"}, "page_size is '4k'; it must be a whole number."),
    ({"numa": {"nodes": [{"id": 0, "cores": 3}]}}, "numa.nodes have 3 cores together, but the machine has 4."),
    ({"numa": {"nodes": [{"cores": 4}]}}, "An element of numa.nodes lacks 'id'."),
    ({"numa": {"nodes": [{"id": 0, "cores": 4}, {"id": 0}]}}, "Two elements of numa.nodes have the same id."),
    ({"numa": {"nodes": [{"id": 0, "cores": 4, "memory": "8G"}]}}, "The size '8G' isn't a whole number followed by KiB, MiB, GiB or TiB."),
    ({"numa": {"distances": [[10, 20]]}}, "numa.distances isn't a table of 1 rows of 1 numbers."),
    ({"pci": [{"root": "pci0"}]}, "The PCI root 'pci0' isn't a domain and a bus such as '0000:20'."),
    ({"pci": [{"root": "0000:00", "numa_node": 7}]}, "The PCI root 0000:00 is on NUMA node 7, which numa.nodes doesn't have."),
    ({"pci": [{"root": "0000:00", "devices": ["nvidia-h10"]}]}, "There is no device 'nvidia-h10'; the nearest one is 'nvidia-h100'."),
    ({"pci": [{"root": "0000:00", "devices": [{"device": "nvme", "virtual_functions": 2}]}]},
     "The device 'nvme' has no virtual functions."),
    ({"layers": ["ubunto"]}, "There is no layer 'ubunto'; the nearest one is 'ubuntu'."),
    ({"layers": ["kubeadm"]}, "A layer asks for @kubelet_version@, which variables doesn't have."),
    ({"disk": {"partitions": ["home"]}}, "disk.partitions ['home'] must contain 'root' and nothing but efi, boot, root, swap."),
]


@pytest.mark.parametrize(("description", "sentence"), WRONG, ids=[sentence[:40] for unused, sentence in WRONG])
def test_wrong_descriptions_get_one_sentence(description: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(DescriptionError) as error:
        expected(description)
        build(description, tmp_path / "root")
    assert str(error.value) == sentence
    assert not (tmp_path / "root").exists()


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(DescriptionError, match="exists and isn't an empty folder"):
        build({}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_kernel_without_numa_has_no_nodes(tmp_path: Path) -> None:  # I9
    description = {"numa": {"nodes": []}, "pci": [{"root": "0000:00", "devices": ["nvidia-t4"]}]}
    root = build(description, tmp_path / "root")
    assert not (root / "sys/devices/system/node").exists()
    assert [(node["id"], node["cpus"], node["memory_bytes"]) for node in expected(description)["numa_nodes"]] == [(0, "0-3", 8 << 30)]
    assert [gpu["numa_node"] for gpu in expected(description)["gpus"]] == [0]


def test_defaults_are_a_machine(tmp_path: Path) -> None:
    assert complete({})["cpu"]["cores"] == 4
    assert (build({}, tmp_path / "root") / "sys/devices/system/cpu/online").read_text() == "0-3\n"


def test_command_line(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, str(HERE / "build.py"), *arguments], capture_output=True, text=True, check=False)

    assert [line.split()[0] for line in run("--list").stdout.splitlines()] == names()
    assert run("cloudvm", str(tmp_path / "root")).returncode == 0
    assert (tmp_path / "root/proc/interrupts").is_file()
    wrong = run("cloudvn", str(tmp_path / "other"))
    assert (wrong.returncode, wrong.stderr) == (1, "There is no machine 'cloudvn'; the nearest one is 'cloudvm'.\n")
