# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which PCI functions are GPUs, NICs and NVMe drives, by class and vendor (PCI Code and ID Assignment Specification; pci.ids)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, List, Optional, Sequence, Tuple

from .cpuset import CpuSet
from .errors import InvalidInput
from .kinds import GPU, NIC, NVME, OTHER
from .topology import Device, NumaNode, SharedRoot

NVIDIA, AMD, INTEL, AMD_CPU = "10de", "1002", "8086", "1022"

# VGA, 3D and other display controllers, and processing accelerators (what MI300X is).
_DISPLAY = ("0300", "0302", "0380")
_GPU_CLASSES = (*_DISPLAY, "1200")

# Server graphics of ATI's: Rage XL, RN50/ES1000.
_ATI_BMC = ("4752", "515e", "5969")

_PATTERN = re.compile(r"(?:class:([0-9a-f]{2,6})|([0-9a-f]{4}):([0-9a-f]{4}|\*))\Z")


@dataclass(frozen=True)
class PciFunction:
    """A PCI function as sysfs shows it. ``pci_class`` has 6 hexadecimal digits, ``vendor`` and ``device`` 4, or none when not shown.

    ``slot_vendors`` are the vendors of the other functions in the same slot, asked for only where they decide.
    """

    address: str
    pci_class: str
    vendor: str
    device: str
    slot_vendors: Tuple[str, ...] = ()


def kind_of_class(pci_class: str) -> str:
    """The kind that a class may be: gpu (may still be something else), nic, nvme or other."""
    if pci_class[:4] in _GPU_CLASSES:
        return GPU
    if pci_class[:2] == "02":
        return NIC
    return NVME if pci_class[:4] == "0108" else OTHER


def is_gpu(function: PciFunction, match: Sequence[str] = ()) -> bool:
    """True for a GPU that jobs run on. ``match``, when given, replaces the rules: patterns as ``check_gpu_match`` takes them."""
    if match:
        return any(_matches(function, pattern) for pattern in match)
    return kind_of_class(function.pci_class) == GPU and function.vendor in (NVIDIA, AMD, INTEL) and not is_host_graphics(function)


def is_host_graphics(function: PciFunction) -> bool:
    """True for graphics that are part of the CPU or of the board: they drive a console, no job.

    Intel's is always device 2 of bus 0. AMD's shares its slot with functions of the CPU's vendor id (security processor, USB), or is
    device 1 of bus 0 on older ones; a card's functions all carry the GPU's. MI300A is a processing accelerator, so it isn't meant.
    """
    if function.pci_class[:4] not in _DISPLAY:
        return False
    place = function.address.partition(":")[2]
    if function.vendor == INTEL:
        return place.startswith("00:02.")
    if function.vendor == AMD:
        return place.startswith("00:01.") or AMD_CPU in function.slot_vendors or function.device in _ATI_BMC
    return False


def check_gpu_match(patterns: Iterable[str]) -> Tuple[str, ...]:
    """The patterns in lower case: "10de:2330" (vendor:device), "10de:*" (vendor) or "class:0302" (the class begins so).

    :raises InvalidInput: any other form
    """
    found = []
    for pattern in patterns:
        text = pattern.strip().lower()
        if not _PATTERN.match(text):
            raise InvalidInput('"%s" is no pattern for a GPU.' % pattern, 'Write "10de:2330", "10de:*" or "class:0302".')
        found.append(text)
    return tuple(found)


def _matches(function: PciFunction, pattern: str) -> bool:
    match = _PATTERN.match(pattern)
    if not match:
        return False
    if match.group(1):
        return function.pci_class.startswith(match.group(1))
    return function.vendor == match.group(2) and match.group(3) in ("*", function.device)


def numa_node_of(said: Optional[int], local_cpus: CpuSet, nodes: Sequence[NumaNode]) -> Optional[int]:
    """A device's NUMA node. ``said`` is its numa_node file: -1 means that the firmware doesn't say, None that there is no such file.

    On a machine with one node it can only be that one. Without the file its local CPUs tell, if they lie on one node. Else it is unknown.
    """
    if said is not None and said >= 0:
        return said
    if len(nodes) == 1:
        return nodes[0].id
    if said is None and local_cpus:
        on = [node.id for node in nodes if local_cpus <= node.cpus]
        return on[0] if len(on) == 1 else None
    return None


def shared_roots(gpus: Sequence[Device], nvmes: Sequence[Device]) -> Tuple[SharedRoot, ...]:
    """The PCI roots with both GPUs and NVMe drives below them, in order."""
    found: List[SharedRoot] = []
    for pci_root in sorted({device.pci_root for device in gpus} & {device.pci_root for device in nvmes}):
        members = [tuple(device.address for device in devices if device.pci_root == pci_root) for devices in (gpus, nvmes)]
        found.append(SharedRoot(pci_root, members[0], members[1]))
    return tuple(found)


def address_key(address: str) -> Tuple[int, ...]:
    """A sort key: PCI addresses by number, domains of any width ("10000:e1:00.0")."""
    return tuple(int(part, 16) for part in re.split("[:.]", address))
