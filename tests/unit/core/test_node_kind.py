"""Node kinds rest on what a node has, and on evidence that is recorded."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.node_kind import RawNode, device_memory_platform, with_kinds

GRACE = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\n"
VERA = "processor\t: 0\nCPU implementer\t: 0x4e\nCPU architecture: 8\nCPU part\t: 0x010\n"
ALTRA = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n"
POWER9 = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"
EPYC = "processor\t: 0\nvendor_id\t: AuthenticAMD\n"
GIB = 1 << 30

CPUS, NONE = CpuSet.parse("0-3"), CpuSet()


def kinds(nodes: list[RawNode], claims: dict[int, str] | None = None, platform: str = "") -> dict[int, str]:
    return {node.id: node.kind for node in with_kinds(nodes, claims or {}, platform)}


@pytest.mark.parametrize(
    "cpus,memory,kind",
    [(CPUS, GIB, "cpu_memory"), (CPUS, 0, "cpu_only"), (CPUS, None, "cpu_memory"), (NONE, GIB, "memory_only"), (NONE, 0, "empty")],
)
def test_kind_by_content(cpus: CpuSet, memory: int | None, kind: str) -> None:
    (node,) = with_kinds([RawNode(7, cpus, memory)], {}, "")
    assert node.kind == kind and node.id == 7 and node.kind_evidence


@pytest.mark.parametrize(
    "cpuinfo,nvidia,platform",
    [
        (GRACE, True, "Grace"),
        (VERA, True, "Grace"),
        (POWER9, True, "POWER9"),
        (ALTRA, True, ""),
        (EPYC, True, ""),
        (GRACE, False, ""),
        (POWER9, False, ""),
    ],
)
def test_platforms_whose_gpus_have_numa_nodes(cpuinfo: str, nvidia: bool, platform: str) -> None:
    assert device_memory_platform(cpuinfo, nvidia) == platform


def test_what_the_driver_says_comes_first() -> None:  # H24
    nodes = [RawNode(0, CPUS, GIB), RawNode(1, NONE, 96 * GIB), RawNode(2, NONE, 0), RawNode(9, NONE, 64 * GIB)]
    claimed = with_kinds(nodes, {1: "0009:01:00.0"}, "Grace")
    assert [node.kind for node in claimed] == ["cpu_memory", "device_memory", "empty", "memory_only"]
    assert claimed[1].kind_evidence == "numa_status of GPU 0009:01:00.0 names this node"


def test_without_a_driver_the_platform_decides() -> None:
    nodes = [RawNode(0, CPUS, GIB), RawNode(252, NONE, 16 * GIB), RawNode(253, NONE, 0)]
    assert kinds(nodes, platform="POWER9") == {0: "cpu_memory", 252: "device_memory", 253: "empty"}
    assert kinds(nodes) == {0: "cpu_memory", 252: "memory_only", 253: "empty"}


def test_a_node_with_cpus_is_never_device_memory() -> None:
    assert kinds([RawNode(0, CPUS, GIB)], {0: "0000:01:00.0"}, "Grace") == {0: "cpu_memory"}
