"""What is a GPU, a NIC, an NVMe drive."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.devices import (
    PciFunction,
    address_key,
    check_gpu_match,
    is_gpu,
    kind_of_class,
    numa_node_of,
    shared_roots,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Device, NumaNode, SharedRoot

# address, class, vendor:device, vendors of the other functions in the slot, GPU?
FUNCTIONS = {
    "H100": ("0000:19:00.0", "030200", "10de:2330", (), True),
    "GeForce with its audio function": ("0000:01:00.0", "030000", "10de:2684", ("10de",), True),
    "GB200 in a domain of its own": ("0008:01:00.0", "030200", "10de:2941", (), True),
    "MI300X is a processing accelerator": ("0000:05:00.0", "120000", "1002:74a1", (), True),
    "MI210 is a display controller": ("0000:43:00.0", "038000", "1002:740f", (), True),
    "Radeon card with audio and USB": ("0000:0a:00.0", "030000", "1002:73bf", ("1002", "1002", "1002"), True),
    "Data Center GPU Max": ("0000:3a:00.0", "038000", "8086:0bd5", (), True),
    "Arc": ("0000:03:00.0", "030000", "8086:56a0", (), True),
    "Intel's CPU graphics": ("0000:00:02.0", "030000", "8086:46a6", (), False),
    "a virtual function of Intel's CPU graphics": ("0000:00:02.1", "030000", "8086:a7a0", (), False),
    "AMD's CPU graphics beside the security processor and USB": ("0000:04:00.0", "030000", "1002:1638", ("1002", "1022", "1022"), False),
    "AMD's CPU graphics of the older kind": ("0000:00:01.0", "030000", "1002:9874", (), False),
    "ES1000 on a server board": ("0000:01:03.0", "030000", "1002:515e", (), False),
    "NVSwitch": ("0000:07:00.0", "068000", "10de:22a3", (), False),
    "GPU audio": ("0000:01:00.1", "040300", "10de:22ba", ("10de",), False),
    "ASPEED": ("0000:04:00.0", "030000", "1a03:2000", (), False),
    "Matrox": ("0000:03:00.0", "030000", "102b:0536", (), False),
    "virtio": ("0000:00:01.0", "030000", "1af4:1050", (), False),
    "QXL": ("0000:00:01.0", "030000", "1b36:0100", (), False),
    "bochs": ("0000:00:01.0", "030000", "1234:1111", (), False),
    "cirrus": ("0000:00:02.0", "030000", "1013:00b8", (), False),
    "VMware": ("0000:00:0f.0", "030000", "15ad:0405", (), False),
    "Xeon Phi is a co-processor": ("0000:02:00.0", "0b4000", "8086:225c", (), False),
    "QEMU's test device in the accelerators' class": ("0000:00:04.0", "120000", "1b36:0005", (), False),
}


def function(name: str) -> PciFunction:
    address, pci_class, ids, slot, _gpu = FUNCTIONS[name]
    vendor, _colon, device = ids.partition(":")
    return PciFunction(address, pci_class, vendor, device, slot)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gpu_or_not(name: str) -> None:
    assert is_gpu(function(name)) is FUNCTIONS[name][-1]


def test_the_user_may_say_what_a_gpu_is() -> None:
    intel = {name for name, row in FUNCTIONS.items() if row[2].startswith("8086")}
    accelerators = {name for name, row in FUNCTIONS.items() if row[1].startswith("12")}
    cases = ((["10de:2330"], {"H100"}), (["8086:*"], intel), (["class:12", "1A03:2000"], accelerators | {"ASPEED"}))
    for patterns, gpus in cases:
        match = check_gpu_match(patterns)
        assert {name for name in FUNCTIONS if is_gpu(function(name), match)} == gpus


@pytest.mark.parametrize("pattern", ["H100", "10de", "10de:", "10de:23", "class:", "class:3", "0x10de:0x2330", "nvidia:*"])
def test_a_pattern_that_cannot_match_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="is no pattern for a GPU"):
        check_gpu_match([pattern])


@pytest.mark.parametrize(
    "pci_class,kind",
    [
        ("020000", "nic"),
        ("020700", "nic"),
        ("028000", "nic"),
        ("010802", "nvme"),
        ("010601", "other"),
        ("060400", "other"),
        ("068000", "other"),
    ],
)
def test_kinds_by_class(pci_class: str, kind: str) -> None:
    assert kind_of_class(pci_class) == kind


ONE = (NumaNode(3, "cpu_memory", CpuSet.parse("0-3")),)
TWO = (NumaNode(0, "cpu_memory", CpuSet.parse("0-3")), NumaNode(1, "cpu_memory", CpuSet.parse("4-7")))


@pytest.mark.parametrize(
    "said,local,nodes,node",
    [
        (1, "4-7", TWO, 1),
        (-1, "0-7", TWO, None),  # H23
        (-1, "0-3", TWO, None),
        (-1, "0-3", ONE, 3),
        (None, "4-7", TWO, 1),
        (None, "0-7", TWO, None),
        (None, "", TWO, None),
        (None, "", ONE, 3),
        (250, "", TWO, 250),
    ],
)
def test_numa_node_of_a_device(said: int | None, local: str, nodes: tuple[NumaNode, ...], node: int | None) -> None:
    assert numa_node_of(said, CpuSet.parse(local), nodes) == node


def test_shared_roots() -> None:
    def device(address: str, pci_root: str) -> Device:
        return Device(address, "10de", "2330", "030200", pci_root)

    gpus = [device("0000:02:00.0", "pci0000:00"), device("0000:82:00.0", "pci0000:80")]
    nvmes = [device("0000:83:00.0", "pci0000:80"), device("0000:c1:00.0", "pci0000:c0"), device("0000:84:00.0", "pci0000:80")]
    assert shared_roots(gpus, nvmes) == (SharedRoot("pci0000:80", ("0000:82:00.0",), ("0000:83:00.0", "0000:84:00.0")),)


def test_addresses_sort_by_number() -> None:
    addresses = ["10000:01:00.0", "0000:0a:00.0", "0000:02:00.1", "ffff:00:00.0", "0000:02:00.0"]
    assert sorted(addresses, key=address_key) == ["0000:02:00.0", "0000:02:00.1", "0000:0a:00.0", "ffff:00:00.0", "10000:01:00.0"]
