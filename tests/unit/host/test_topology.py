"""The reader on roots that lack, garble or hide something, and on what only a few nodes have."""

from __future__ import annotations

import gzip
import io
import os
import shlex
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import from_json, to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput, UnreadableRoot
from ansible_collections.gpufleet.node.plugins.module_utils.core.interrupts import Interrupt
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Kubelet, Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.capture import RecordingRoot, capture
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import SUBSETS, read_topology
from machines.build import build, load

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def read(root: Path, *subsets: str) -> Topology:
    """The facts of a root; all subsets when none is named."""
    node = Root(str(root))
    return read_topology(node, Command(node), subsets or SUBSETS)


class Refusing(Root):
    """A root as a user without privileges sees it: these paths may not be read."""

    def __init__(self, path: str, *refused: str) -> None:
        super().__init__(path)
        self.refused = refused

    def read(self, path: str, limit: int = 0) -> str | None:
        if path.startswith(self.refused):
            raise UnreadableRoot(f"{path} can't be read: permission denied.", "Run as root (become: true).")
        return super().read(path, limit)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three machines of the fleet that look as different as they come, built once."""
    folder = tmp_path_factory.mktemp("fleet")
    return {name: build(load(name), folder / name) for name in ("nosmt", "halfcores", "cloudvm", "oddeven", "gracehopper")}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A root with four CPUs, two threads each, and nothing else."""
    files = {f"{CPU}/online": "0-3\n", f"{CPU}/present": "0-3\n"}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu % 2},{cpu % 2 + 2}\n"
        files[f"{CPU}/cpu{cpu}/topology/core_siblings_list"] = "0-3\n"
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "0\n"
    write(tmp_path, files)
    return tmp_path


def write(root: Path, files: dict[str, str]) -> None:
    """Put files below a root."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def pci(root: Path, address: str, pci_class: str, ids: str, files: dict[str, str]) -> Path:
    """Put a PCI function below a root, with further files in its folder."""
    vendor, _colon, device = ids.partition(":")
    files = {"class": f"0x{pci_class}\n", "vendor": f"0x{vendor}\n", "device": f"0x{device}\n", **files}
    write(root, {f"sys/bus/pci/devices/{address}/{name}": text for name, text in files.items()})
    return root / "sys/bus/pci/devices" / address


def cores(topology: Topology) -> list[str]:
    return [core.to_list() for core in topology.cores]


def test_json_and_back(fleet: dict[str, Path]) -> None:
    for root in fleet.values():
        topology = read(root)
        assert from_json(Topology, to_json(topology)) == topology


def test_what_is_not_a_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRoot, match="has neither /sys/devices/system/cpu nor /proc/cpuinfo"):
        read(tmp_path)


def test_proc_cpuinfo_alone_is_enough(tmp_path: Path) -> None:
    write(
        tmp_path, {"proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\n\nprocessor\t: 1\n", "proc/meminfo": "MemTotal:  2048 kB\n"}
    )
    topology = read(tmp_path)
    assert cores(topology) == ["0", "1"] and topology.memory_bytes == 2 << 20 and topology.architecture == "x86_64"
    (node,) = topology.numa_nodes
    assert (node.id, node.kind, node.cpus.to_list(), node.distances, node.memory_bytes) == (0, "cpu_memory", "0-1", {0: 10}, 2 << 20)


def test_an_unknown_subset_is_refused(tiny: Path) -> None:
    with pytest.raises(InvalidInput, match='Did you mean "interrupts"'):
        read(tiny, "interupts")


def test_subsets_cost_nothing_when_left_out(fleet: dict[str, Path]) -> None:
    node = Root(str(fleet["nosmt"]))
    topology = read_topology(node, Command(node), [])
    assert topology.gathered == ("cpu", "numa") and topology.fingerprint == ""
    assert not any("/bus/pci/" in path or "/irq/" in path or path.startswith(("/etc", "/boot")) for path in node.opened)


@pytest.mark.parametrize(
    "path,text",
    [
        (f"{CPU}/online", "0-"),
        (f"{CPU}/online", "3-0\n"),
        (f"{CPU}/cpu0/topology/thread_siblings_list", "0,x\n"),
        (f"{CPU}/cpu0/topology/physical_package_id", "zero\n"),
        (f"{NODE}/node0/distance", "10 2"),
        (f"{NODE}/node0/cpulist", "0-3-5\n"),
    ],
)
def test_a_damaged_file_is_one_sentence(tiny: Path, path: str, text: str) -> None:
    write(tiny, {f"{NODE}/node0/cpulist": "0-3\n", f"{NODE}/node0/distance": "10\n", f"{NODE}/node1/cpulist": "\n"})
    write(tiny, {f"{NODE}/node0/distance": "10 20\n", f"{NODE}/node1/distance": "20 10\n", path: text})
    if path.endswith("distance"):
        write(tiny, {path: "10\n"})
    with pytest.raises(UnreadableRoot, match=r"can't be parsed\. The file is damaged or truncated") as refusal:
        read(tiny)
    assert f"/{path}" in str(refusal.value) and str(refusal.value).count("\n") == 0


def test_offline_cpus_have_no_topology(tiny: Path) -> None:  # A30
    write(
        tiny,
        {
            f"{CPU}/online": "0,2-3\n",
            f"{CPU}/cpu3/topology/thread_siblings_list": "3\n",
            f"{CPU}/cpu3/topology/core_siblings_list": "0,2-3\n",
        },
    )
    shutil.rmtree(tiny / CPU / "cpu1" / "topology")
    topology = read(tiny)
    assert cores(topology) == ["0,2", "3"] and topology.cpus.offline.to_list() == "1" and topology.threads_per_core == 2


def test_without_an_online_file_the_cpus_say(tiny: Path) -> None:  # A30: and cpu0 says nothing where it can't be unplugged
    (tiny / CPU / "online").unlink()
    write(tiny, {f"{CPU}/cpu1/online": "0\n", f"{CPU}/cpu2/online": "1\n", f"{CPU}/cpu3/online": "1\n"})
    assert read(tiny).cpus.online.to_list() == "0,2-3"


def test_masks_where_there_are_no_lists(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            f"{CPU}/present": "0-63\n",
            f"{CPU}/online": "0-63\n",
            f"{NODE}/node0/cpumap": "00000000,ffffffff\n",
            f"{NODE}/node4/cpumap": "ffffffff,00000000\n",
        },
    )
    for cpu in range(64):
        write(tmp_path, {f"{CPU}/cpu{cpu}/topology/thread_siblings": f"{1 << cpu % 32:08x},{1 << cpu % 32:08x}\n"})
    topology = read(tmp_path)
    assert cores(topology)[:2] == ["0,32", "1,33"] and len(topology.cores) == 32
    assert {node.id: node.cpus.to_list() for node in topology.numa_nodes} == {0: "0-31", 4: "32-63"}


def test_equal_core_ids_on_two_packages_are_two_cores(tmp_path: Path) -> None:
    write(tmp_path, {f"{CPU}/present": "0-3\n", f"{CPU}/online": "0-3\n"})
    for cpu, package in enumerate((0, 0, 1, 1)):
        write(tmp_path, {f"{CPU}/cpu{cpu}/topology/core_id": "0\n", f"{CPU}/cpu{cpu}/topology/physical_package_id": f"{package}\n"})
    topology = read(tmp_path)
    assert cores(topology) == ["0-1", "2-3"] and [package.id for package in topology.packages] == [0, 1]


def test_the_l3_may_have_another_index_or_be_missing(tiny: Path) -> None:
    for cpu, index, shared in ((0, 3, "0,2"), (1, 2, "1"), (2, 3, "0,2")):  # CPU 3 has an L2 at most
        cache = f"{CPU}/cpu{cpu}/cache/index{index}"
        write(tiny, {f"{cache}/level": "3\n", f"{cache}/shared_cpu_list": f"{shared}\n", f"{cache}/size": "16M\n"})
    write(tiny, {f"{CPU}/cpu3/cache/index3/level": "2\n"})
    assert [(group.cpus.to_list(), group.size_bytes) for group in read(tiny).l3_groups] == [("0,2", 16 << 20), ("1", 16 << 20)]


def test_a_wide_domain_and_a_device_without_a_node(tiny: Path) -> None:
    write(tiny, {f"{NODE}/node0/cpulist": "0-1\n", f"{NODE}/node1/cpulist": "2-3\n"})
    files = {"numa_node": "-1\n", "local_cpulist": "0-3\n", "nvme/nvme7/address": ""}
    place = pci(tiny, "10000:01:00.0", "010802", "8086:0a54", files)
    real = tiny / "sys/devices/pci10000:00/10000:00:02.0/10000:01:00.0"
    real.parent.mkdir(parents=True)
    place.rename(real)
    os.symlink("../../../devices/pci10000:00/10000:00:02.0/10000:01:00.0", place)
    (drive,) = read(tiny).nvmes
    assert (drive.address, drive.pci_root, drive.numa_node) == ("10000:01:00.0", "pci10000:00", None)
    assert (drive.name, drive.driver, drive.local_cpus.to_list()) == ("nvme7", None, "0-3")


def test_graphics_of_an_amd_cpu_are_told_by_the_other_functions_of_the_slot(tiny: Path) -> None:
    for slot, other in (("0000:04:00", "1022"), ("0000:0a:00", "1002")):
        pci(tiny, f"{slot}.0", "030000", "1002:1638", {})
        pci(tiny, f"{slot}.1", "040300", "1002:1637", {})
        pci(tiny, f"{slot}.2", "108000", f"{other}:15df", {})
    assert [gpu.address for gpu in read(tiny).gpus] == ["0000:0a:00.0"]


def test_what_may_not_be_read_is_a_gap_and_not_gathered(fleet: dict[str, Path]) -> None:
    node = Refusing(str(fleet["gracehopper"]), "/var/lib/kubelet", "/boot/config-")
    topology = read_topology(node, Command(node))
    assert topology.kubelet is None and "kubelet" not in topology.gathered and "boot" in topology.gathered
    assert topology.boot.loader == "grub" and topology.boot.kernel_config == {}
    assert [gap.split(" ")[0] for gap in topology.gaps] == ["/boot/config-6.8.0-1028-nvidia", "/var/lib/kubelet/kubeadm-flags.env"]


def test_kinds_of_nodes_need_no_subset(fleet: dict[str, Path]) -> None:
    node = Root(str(fleet["gracehopper"]))
    topology = read_topology(node, Command(node), [])
    assert [n.kind for n in topology.numa_nodes][:3] == ["cpu_memory", "device_memory", "empty"] and topology.gpus == ()


def test_virtio_interfaces_lie_one_folder_down(tiny: Path) -> None:
    device = pci(tiny, "0000:00:03.0", "020000", "1af4:1041", {"virtio0/net/ens3/speed": "-1\n"})
    os.symlink("../../../bus/pci/drivers/virtio-pci", device / "driver")
    (nic,) = read(tiny).nics
    assert (nic.name, nic.speed_mbps, nic.driver) == ("ens3", None, "virtio-pci")


def test_gpus_of_the_nvidia_driver(tiny: Path) -> None:
    for number, uuid in ((1, "GPU-0f5e-1a"), (2, "GPU-????????-????")):  # the second isn't initialised
        pci(tiny, f"0000:0{number}:00.0", "030200", "10de:2330", {})
        text = f"Model: \t\t NVIDIA\nGPU UUID: \t {uuid}\nBus Type: \t PCIe\n"
        write(tiny, {f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information": text})
    assert [(gpu.uuid, gpu.index) for gpu in read(tiny).gpus] == [("GPU-0f5e-1a", None), (None, None)]


SMI = """#!/bin/sh
[ "$*" = "--query-gpu=index,uuid,pci.bus_id --format=csv,noheader" ] || exit 2
printf '%%s\\n' %s
exit %d
"""
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        # Its index isn't the order of addresses, its domain has eight digits, its letters are large.
        (0, ["1, GPU-aa-1, 00000000:01:00.0", "0, GPU-AA-0, 00010000:0A:00.0"], [(1, "GPU-aa-1"), (0, "GPU-AA-0")]),
        (0, ["0, [N/A], 00000000:01:00.0", "[N/A], GPU-b, [N/A]"], [(0, "GPU-0f5e-1a"), (None, None)]),
        (0, ["Unable to determine the device handle for GPU0000:01:00.0: Unknown Error", "", "No devices were found"], None),
        (0, ["0, GPU-aa, 00000000:01:00.0, more", "x, GPU-aa, 00000000:01:00.0", "0, GPU-aa, zz:01:00.0"], None),
        (9, [NO_DRIVER], None),
        (14, ["WARNING: infoROM is corrupted at gpu 00000000:01:00.0", "0, GPU-aa-1, 00000000:01:00.0"], None),
    ],
)  # fmt: skip
def test_what_nvidia_smi_says(tiny: Path, monkeypatch: pytest.MonkeyPatch, status: int, said: list[str], expected: Any) -> None:
    for address in ("0000:01:00.0", "10000:0a:00.0"):
        pci(tiny, address, "030200", "10de:2330", {})
    write(tiny, {"proc/driver/nvidia/gpus/0000:01:00.0/information": "GPU UUID: \t GPU-0f5e-1a\n"})
    program = tiny / "opt/nvidia-smi"
    write(tiny, {"opt/nvidia-smi": SMI % (shlex.join(said), status)})
    program.chmod(0o755)
    monkeypatch.setattr("ansible_collections.gpufleet.node.plugins.module_utils.host.command._PATH", f"{program.parent}:/usr/bin:/bin")
    node = Root(str(tiny))
    command = Command(node)
    command.live = True
    found = [(gpu.index, gpu.uuid) for gpu in read_topology(node, command, ("pci",)).gpus]
    assert found == (expected or [(None, "GPU-0f5e-1a"), (None, None)])


def test_the_user_may_name_the_gpus(tiny: Path) -> None:
    pci(tiny, "0000:01:00.0", "030200", "10de:2330", {})
    pci(tiny, "0000:02:00.0", "0b4000", "8086:225c", {})
    node = Root(str(tiny))
    topology = read_topology(node, Command(node), ["pci"], ("8086:*",))
    assert [gpu.address for gpu in topology.gpus] == ["0000:02:00.0"]


def test_a_wired_interrupt_counts_when_somebody_uses_it(tiny: Path) -> None:
    pci(tiny, "0000:00:03.0", "020000", "8086:100e", {"irq": "11\n"})
    pci(tiny, "0000:00:04.0", "020000", "8086:100e", {"irq": "10\n"})
    counts = " %10d" % 5 * 4
    lines = (f"  10:{counts}   IO-APIC   10-fasteoi\n", f"  11:{counts}   IO-APIC   11-fasteoi   eth0\n")
    text = "           CPU0       CPU1       CPU2       CPU3\n" + "".join(lines)
    write(tiny, {"proc/interrupts": text, "proc/irq/11/smp_affinity_list": "0-3\n"})
    (nic,) = read(tiny).interrupts
    assert (nic.device, nic.kind) == ("0000:00:03.0", "nic")
    assert nic.interrupts == (Interrupt(11, CpuSet.parse("0-3"), None, "eth0"),)


def test_msi_without_a_name_is_found_in_the_devices_folder(tiny: Path) -> None:
    pci(tiny, "0000:00:04.0", "010802", "144d:a80a", {"irq": "30\n", "msi_irqs/40": "msix\n", "msi_irqs/9": "msix\n"})
    (nvme,) = read(tiny).interrupts
    assert [interrupt.irq for interrupt in nvme.interrupts] == [9, 40]


def test_kernels_that_can_be_asked_for_their_configuration(tiny: Path) -> None:
    write(tiny, {"proc/version": "Linux version 6.1.9 (x@y) (gcc) #1 SMP\n"})
    (tiny / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_NO_HZ_FULL=y\n"))
    boot = read(tiny).boot
    assert (boot.loader, boot.kernel_release, boot.kernel_config["NO_HZ_FULL"], boot.kernel_config["NUMA"]) == ("unknown", None, "y", "n")
    (tiny / "proc/config.gz").write_bytes(gzip.compress(b"CONFIG_NO_HZ_FULL=y\n" * 100)[:40])
    damaged = read(tiny)
    assert damaged.boot.kernel_config == {} and damaged.gaps == ("/proc/config.gz is damaged.",)


def test_the_saved_entry_boots_not_the_newest(fleet: dict[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "nosmt"
    shutil.copytree(fleet["nosmt"], root, symlinks=True)
    entries = root / "boot/loader/entries"
    (entries / "id-6.12.0-1.el10.x86_64.conf").write_text("title x\nlinux /vmlinuz-6.12.0-1.el10.x86_64\noptions ro\n")
    assert read(root).boot.kernel_release == "5.14.0-570.12.1.el9_6.x86_64"
    grubenv = root / "boot/grub2/grubenv"
    grubenv.write_text("saved_entry=id-6.12.0-1.el10.x86_64\n")
    assert read(root).boot.kernel_release == "6.12.0-1.el10.x86_64"
    grubenv.unlink()
    assert read(root).boot.kernel_release == "6.12.0-1.el10.x86_64"


LOADERS = {"nosmt": "bls", "oddeven": "ostree", "gracehopper": "grub", "cloudvm": "grub", "halfcores": "grub"}


@pytest.mark.parametrize("name", LOADERS)
def test_boot_of_the_fleet(fleet: dict[str, Path], name: str) -> None:
    boot = read(fleet[name]).boot
    assert boot.loader == LOADERS[name]
    assert boot.kernel_release == load(name)["kernel"]["release"]
    assert boot.kernel_config["NO_HZ_FULL"] == ("y" if load(name)["kernel"].get("no_hz_full", True) else "n")


def test_kubelets_of_the_fleet(fleet: dict[str, Path]) -> None:
    assert read(fleet["halfcores"]).kubelet == Kubelet(
        "rke2", "rke2-agent.service", "1.30.14", None, "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
        exec_start="/usr/local/bin/rke2 agent",
    )  # fmt: skip
    assert read(fleet["cloudvm"]).kubelet == Kubelet(
        "k3s", "k3s-agent.service", None, None, "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d", exec_start="/usr/local/bin/k3s agent"
    )
    kubelet = read(fleet["gracehopper"]).kubelet
    assert kubelet and (kubelet.distribution, kubelet.version, kubelet.config_file, kubelet.config_dir) == (
        "kubeadm",
        "1.33.5",
        "/var/lib/kubelet/config.yaml",
        None,
    )


def test_a_kubelet_of_kubespray(tiny: Path) -> None:
    unit = "[Service]\nEnvironmentFile=-/etc/kubernetes/kubelet.env\nExecStart=/usr/local/bin/kubelet \\\n $LEVEL \\\n $KUBELET_ARGS\n"
    variables = 'LEVEL="--v=2"\nKUBELET_ARGS="--config=/etc/kubernetes/kubelet-config.yaml \\\n--root-dir=/data/kubelet"\n'
    write(tiny, {"etc/systemd/system/kubelet.service": unit, "etc/kubernetes/kubelet.env": variables})
    expected = Kubelet("kubespray", "kubelet.service", None, "/etc/kubernetes/kubelet-config.yaml", None, "/data/kubelet", {"v": "2"},
                       "/usr/local/bin/kubelet   $LEVEL   $KUBELET_ARGS")  # fmt: skip
    assert read(tiny).kubelet == expected


@pytest.mark.parametrize(
    "status,version", [("install ok installed", "1.34.1"), ("hold ok installed", "1.34.1"), ("deinstall ok config-files", None)]
)
def test_the_package_database_tells_the_version(tiny: Path, status: str, version: str | None) -> None:
    packages = [
        ("kubeadm", "install ok installed", "1.29.0-1"),
        ("kubelet", status, "1.34.1-1.1"),
        ("zlib", "install ok installed", "1.3.0-1"),
    ]
    database = "\n".join(f"Package: {name}\nStatus: {state}\nSection: admin\nVersion: {number}\n" for name, state, number in packages)
    write(tiny, {"usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n", "var/lib/dpkg/status": database})
    kubelet = read(tiny).kubelet
    assert kubelet and (kubelet.distribution, kubelet.version) == ("plain", version)


def test_the_unit_that_starts_at_boot_counts(tiny: Path) -> None:
    folder, wants = "usr/local/lib/systemd/system", tiny / "etc/systemd/system/multi-user.target.wants"
    write(tiny, {f"{folder}/rke2-{kind}.service": f"[Service]\nExecStart=/usr/local/bin/rke2 {kind}\n" for kind in ("agent", "server")})
    wants.mkdir(parents=True)
    os.symlink(f"/{folder}/rke2-server.service", wants / "rke2-server.service")
    kubelet = read(tiny).kubelet
    assert kubelet and kubelet.unit == "rke2-server.service"


KUBEADM_DROP_IN = """\
[Service]
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_EXTRA_ARGS
"""


def test_our_part_of_kubelets_unit_is_not_its_own(tiny: Path) -> None:
    """Else a plan without the folder would take the folder for kubelet's own, and never leave it."""
    folder = "etc/systemd/system/kubelet.service.d"
    ours = "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS --config-dir=/etc/kubernetes/kubelet.conf.d\n"
    write(tiny, {"usr/lib/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet\n",
                 "usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": KUBEADM_DROP_IN,
                 "etc/default/kubelet": "KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1\n",
                 folder + "/zz-gpufleet-config-dir.conf": ours})  # fmt: skip
    kubelet = read(tiny).kubelet
    assert kubelet and (kubelet.config_dir, kubelet.distribution, kubelet.flags) == (None, "kubeadm", {"node-ip": "10.0.0.1"})
    assert kubelet.exec_start == "/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_EXTRA_ARGS"


@pytest.mark.parametrize(
    ("flags", "main", "drop_in", "endpoint"),
    [("", "containerRuntimeEndpoint: unix:///run/crio/crio.sock\n", "", "unix:///run/crio/crio.sock"),
     ("", 'containerRuntimeEndpoint: "a" # x\n', "containerRuntimeEndpoint: b\n", "b"),
     ("", '{"containerRuntimeEndpoint": "a"}', 'containerRuntimeEndpoint: ""\n', "a"),
     ("--container-runtime-endpoint=c", "containerRuntimeEndpoint: a\n", "containerRuntimeEndpoint: b\n", "c"),
     ("", "# containerRuntimeEndpoint: a\n", "", ""),
     ("", "containerRuntimeEndpoint: &a b\n", "", ""),
     ("", "maxPods: 9\n", "", "")],
)  # fmt: skip
def test_the_container_runtime_of_a_kubelet(tiny: Path, flags: str, main: str, drop_in: str, endpoint: str) -> None:
    started = "[Service]\nExecStart=/usr/bin/kubelet --config=/etc/k.yaml --config-dir=/etc/k.d %s\n" % flags
    write(tiny, {"usr/lib/systemd/system/kubelet.service": started, "etc/k.yaml": main, "etc/k.d/10.conf": drop_in})
    kubelet = read(tiny).kubelet
    assert kubelet and kubelet.runtime_endpoint == endpoint


def test_what_k3s_is_configured_by_has_to_be_read(tiny: Path) -> None:
    write(tiny, {"etc/systemd/system/k3s.service": "[Service]\nExecStart=/usr/local/bin/k3s server\n",
                 "etc/rancher/k3s/config.yaml": "data-dir: /data/k3s\nkubelet-arg: # mine\n- v=3 # mine\n\n# mine\n- x=y\n",
                 "data/k3s/agent/etc/kubelet.conf.d/00.conf": ""})  # fmt: skip
    kubelet = read(tiny).kubelet
    assert kubelet and kubelet.flags == {"v": "3", "x": "y"} and kubelet.config_dir == "/data/k3s/agent/etc/kubelet.conf.d"
    write(tiny, {"etc/rancher/k3s/config.yaml.d/9.yaml": "kubelet-arg: &a [v=3]\n"})
    topology = read(tiny)
    assert "kubelet" not in topology.gathered and "/etc/rancher/k3s/config.yaml.d/9.yaml holds kubelet-arg in a form" in topology.gaps[0]


def test_flags_in_files_that_k3s_adds_up(tiny: Path) -> None:  # A23
    write(tiny, {"etc/systemd/system/k3s.service": "[Service]\nExecStart=/usr/local/bin/k3s server\n",
                 "etc/rancher/k3s/config.yaml": "kubelet-arg:\n- reserved-cpus=0\n",
                 "etc/rancher/k3s/config.yaml.d/10-more.yaml": "kubelet-arg+:\n- v=3\n",
                 "etc/rancher/k3s/config.yaml.d/zz-gpufleet.yaml": "kubelet-arg+:\n- cpu-manager-policy=static\n"})  # fmt: skip
    kubelet = read(tiny).kubelet
    assert kubelet and kubelet.flags == {"reserved-cpus": "0", "v": "3"}


CONTAINERD = {"usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n"}
OLD = {"var/lib/dpkg/status": "Package: containerd.io\nStatus: install ok installed\nVersion: 1.7.24-1~debian\n"}


@pytest.mark.parametrize(
    ("files", "version"),
    [({}, None),
     ({"etc/containerd/config.toml": "version = 3\n"}, "2.0.0"),
     ({"etc/containerd/config.toml": "version = 2\n"}, None),
     (OLD, "1.7.24"),
     ({"var/lib/dpkg/status": "Package: containerd\nStatus: install ok installed\nVersion: 1.6.20~ds1-1+deb12u1\n",
       "etc/containerd/config.toml": "version = 3\n"}, "1.6.20")],
)  # fmt: skip
def test_the_version_of_containerd(tiny: Path, files: dict[str, str], version: str | None) -> None:
    write(tiny, {**CONTAINERD, **files})
    assert read(tiny).software.containerd_version == version


def runtime(name: str, systemd: str, plugin: str = '"io.containerd.grpc.v1.cri"') -> str:
    return "[plugins.%s.containerd.runtimes.%s.options]\n  SystemdCgroup = %s\n" % (plugin, name, systemd)


RUNC, NVIDIA = runtime("runc", "true"), runtime("nvidia", "true")
CRI = '[plugins."io.containerd.grpc.v1.cri"'


@pytest.mark.parametrize(
    ("main", "imported", "systemd"),
    [("", {}, False),
     ("version = 2\n" + RUNC, {}, True),
     ("version = 2\n" + RUNC + runtime("kata", "false"), {}, True),
     ("version = 2\n" + runtime("runc", "false") + NVIDIA, {}, False),
     ("version = 2\n%s.containerd]\ndefault_runtime_name = 'nvidia'\n%s%s" % (CRI, runtime("runc", "false"), NVIDIA), {}, True),
     ("version = 2\n%s.containerd]\ndefault_runtime_name = 'nvidia'\n%s" % (CRI, RUNC), {}, False),
     ("version = 2\n%s.containerd.runtimes.runc]\noptions = {BinaryName = 'x', SystemdCgroup = true}\n" % CRI, {}, True),
     ("version = 2\nplugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.\"runc\".options.SystemdCgroup = true # mine\n", {}, True),
     ("version = 2\n# " + RUNC, {}, False),
     (runtime("runc", "true", "cri"), {}, True),
     (RUNC, {}, False),  # without a version it is of version 1, and containerd doesn't know this plugin
     ("version = 2\nimports = ['/etc/containerd/extra.toml']\n", {"extra.toml": RUNC}, True),
     ("version = 2\nimports = [\n  'extra.toml',  # beside it\n]\n", {"extra.toml": RUNC}, True),
     ("version = 2\nimports = ['/etc/containerd/conf.d/*.toml']\n" + runtime("runc", "false"),
      {"conf.d/10.toml": RUNC, "conf.d/x": runtime("runc", "false")}, True),
     ("version = 2\nimports = ['/etc/containerd/*/*.toml']\n", {"conf.d/10.toml": "imports = ['../a.toml']\n", "a.toml": RUNC}, True),
     ("version = 2\nimports = ['/etc/containerd/config.toml']\n" + RUNC, {}, True),
     ("version = 2\nimports = ['a.toml']\n" + RUNC, {"a.toml": CRI + ".cni]\nbin_dir = '/x'\n"}, False),  # all of a plugin is replaced
     ("version = 2\nimports = ['a.toml']\n" + RUNC, {"a.toml": "[metrics]\naddress = ''\n"}, True),
     ("no toml", {}, False)],
)  # fmt: skip
def test_the_cgroup_driver_of_containerd(tiny: Path, main: str, imported: dict[str, str], systemd: bool) -> None:
    files = {"etc/containerd/" + name: text for name, text in {"config.toml": main, **imported}.items()}
    write(tiny, {**CONTAINERD, **OLD, **files})
    assert read(tiny).software.containerd_systemd_cgroup == systemd
    root = RecordingRoot(str(tiny))  # a capture answers as its node does
    archive = capture(root, lambda node, command: read_topology(node, command) and ())
    with tarfile.open(fileobj=io.BytesIO(archive)) as unpacked:
        unpacked.extractall(tiny / "home", filter="data")
    assert read(tiny / "home").software.containerd_systemd_cgroup == systemd


def test_containerd_2_merges_what_it_imports(tiny: Path) -> None:
    plugin = "'io.containerd.cri.v1.runtime'"
    main = "version = 3\nimports = ['a.toml']\n" + runtime("runc", "true", plugin)
    write(tiny, {**CONTAINERD, "etc/containerd/config.toml": main, "etc/containerd/a.toml": runtime("nvidia", "false", plugin)})
    assert read(tiny).software.containerd_systemd_cgroup


def test_tuned_counts_only_when_it_starts(fleet: dict[str, Path], tmp_path: Path) -> None:
    assert read(fleet["nosmt"]).software.tuned_profile == "throughput-performance"
    root = tmp_path / "nosmt"
    shutil.copytree(fleet["nosmt"], root, symlinks=True)
    os.symlink("/dev/null", root / "etc/systemd/system/tuned.service")
    os.symlink("/dev/null", root / "etc/systemd/system/irqbalance.service")
    software = read(root).software
    assert software.tuned_profile is None
    assert software.irqbalance, "masked by us or not: it is installed, and the facts don't change"


def test_tuning_of_the_fleet(fleet: dict[str, Path]) -> None:
    topology = read(fleet["nosmt"])
    assert topology.cpufreq and topology.cpufreq.governors == ("performance",)
    assert topology.transparent_hugepage and topology.transparent_hugepage.enabled == "always"
    assert "defer+madvise" in topology.transparent_hugepage.defrag_choices  # F1
    assert [swap.path for swap in topology.swaps] == ["/dev/dm-1", "/dev/zram0"]  # F23
    assert read(fleet["cloudvm"]).cpufreq is None  # G2


def test_swap_paths_with_blanks(tiny: Path) -> None:
    write(tiny, {"proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/my\\040swap file 1024 8 -2\n"})
    assert [(swap.path, swap.size_bytes, swap.used_bytes) for swap in read(tiny).swaps] == [("/my swap", 1 << 20, 8192)]


def test_device_memory_without_a_driver(fleet: dict[str, Path], tmp_path: Path) -> None:  # H24
    root = tmp_path / "gracehopper"
    shutil.copytree(fleet["gracehopper"], root, symlinks=True)
    shutil.rmtree(root / "proc/driver/nvidia")
    nodes = read(root).numa_nodes
    assert [node.kind for node in nodes][:3] == ["cpu_memory", "device_memory", "empty"]
    assert nodes[1].kind_evidence == "a node without CPUs on a Grace platform with NVIDIA devices"


def facts_alone(root: Root, command: Command) -> tuple[str, ...]:
    """Read as topology_facts does; no program of ours is among it."""
    read_topology(root, command)
    return ()


def test_a_capture_has_the_same_facts(fleet: dict[str, Path], tmp_path: Path) -> None:  # the hosts of the fleet are called "node"
    for name, root in fleet.items():
        archive = capture(RecordingRoot(str(root)), facts_alone)
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(tmp_path / name, filter="tar")
        original, captured = to_json(read(root)), to_json(read(tmp_path / name))
        assert {key for key in original if original[key] != captured[key]} <= {"gpus", "command_line"}  # UUIDs, unknown arguments
        assert [gpu["address"] for gpu in original["gpus"]] == [gpu["address"] for gpu in captured["gpus"]]


def test_nothing_is_read_twice_and_nothing_written(fleet: dict[str, Path]) -> None:
    for root in fleet.values():
        before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
        node = Root(str(root))
        read_topology(node, Command(node))
        kernel = [path for path in node.opened if path.startswith(("/sys/", "/proc/"))]
        assert len(kernel) == len(set(kernel))
        assert before == {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
