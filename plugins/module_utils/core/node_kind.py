# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What kind a NUMA node is, and on which evidence: by what it has, never by its number."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Sequence, Tuple

from .cpuset import CpuSet
from .topology import CPU_MEMORY, CPU_ONLY, DEVICE_MEMORY, EMPTY, MEMORY_ONLY, HugepagePool, NumaNode


@dataclass(frozen=True)
class RawNode:
    """A NUMA node before its kind is known. ``memory_bytes`` None: the root has no meminfo for it."""

    id: int
    cpus: CpuSet
    memory_bytes: Optional[int]
    distances: Dict[int, int] = field(default_factory=dict)
    hugepages: Dict[int, HugepagePool] = field(default_factory=dict)


def with_kinds(nodes: Sequence[RawNode], gpu_nodes: Mapping[int, str], device_memory_platform: str) -> Tuple[NumaNode, ...]:
    """The nodes with their kinds.

    ``gpu_nodes`` maps a node id to the GPU whose driver says that the node is its memory (/proc/driver/nvidia/gpus/*/numa_status).
    ``device_memory_platform`` names a platform whose CPU-less nodes are GPU memory ("Grace", "POWER9"), "" elsewhere; it decides only
    where no driver says.
    """
    return tuple(_with_kind(node, gpu_nodes, device_memory_platform) for node in nodes)


def _with_kind(node: RawNode, gpu_nodes: Mapping[int, str], platform: str) -> NumaNode:
    kind, evidence = _kind(node, gpu_nodes, platform)
    return NumaNode(node.id, kind, node.cpus, node.memory_bytes or 0, node.distances, node.hugepages, evidence)


def _kind(node: RawNode, gpu_nodes: Mapping[int, str], platform: str) -> Tuple[str, str]:
    if node.cpus:
        if node.memory_bytes is None:
            return CPU_MEMORY, "has online CPUs; the root has no meminfo of it, so memory is assumed"
        return (CPU_MEMORY, "has online CPUs and memory") if node.memory_bytes else (CPU_ONLY, "has online CPUs, MemTotal is 0")
    if not node.memory_bytes:
        return EMPTY, "has neither online CPUs nor memory"
    if node.id in gpu_nodes:
        return DEVICE_MEMORY, "numa_status of GPU %s names this node" % gpu_nodes[node.id]
    if platform and not gpu_nodes:
        return DEVICE_MEMORY, "a node without CPUs on a %s platform with NVIDIA devices" % platform
    return MEMORY_ONLY, "has memory and no online CPUs, and no GPU claims it"


def device_memory_platform(cpu: str, nvidia: bool) -> str:
    """The name of the platform, from the head of /proc/cpuinfo, if its GPUs' memory appears as NUMA nodes; "" elsewhere.

    Grace is Arm's Neoverse V2 (implementer 0x41, part 0xd4f) or a CPU of NVIDIA's own (implementer 0x4e, MIDR_EL1); without an NVIDIA
    device neither it nor POWER9 says anything about a CPU-less node.
    """
    fields = dict(_fields(cpu))
    implementer, part = fields.get("CPU implementer", ""), fields.get("CPU part", "")
    if not nvidia:
        return ""
    if implementer == "0x4e" or (implementer, part) == ("0x41", "0xd4f"):
        return "Grace"
    return "POWER9" if fields.get("cpu", "").startswith("POWER9") else ""


def _fields(text: str) -> Sequence[Tuple[str, str]]:
    pairs = (line.partition(":") for line in text.splitlines())
    return [(key.strip(), value.strip()) for key, _colon, value in pairs]
