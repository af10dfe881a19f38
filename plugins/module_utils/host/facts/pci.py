# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPUs, NICs and NVMe drives on PCI. One file per function, its class; the rest only of what a plan is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Optional, Sequence, Set, Tuple

from ...core.cpuset import CpuSet
from ...core.devices import AMD, NVIDIA, PciFunction, address_key, is_gpu, kind_of_class, numa_node_of
from ...core.kinds import GPU, NIC, NVME, OTHER
from ...core.topology import Device, NumaNode
from ..command import Command
from ..root import Root
from .values import PCI_DEVICES, first_cpu_set, number, word

NVIDIA_GPUS = "/proc/driver/nvidia/gpus"
_LOCAL_CPUS = ("local_cpulist", "local_cpus")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\Z")
_PCI_ROOT = re.compile(r"/(pci[0-9a-f]+:[0-9a-f]{2})/")
_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]+)\s*$", re.MULTILINE)
_NUMA_STATUS_NODE = re.compile(r"^Node:\s*(\d+)\s*$", re.MULTILINE)
_QUERY = ("nvidia-smi", "--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader")
# Its domain has eight digits. What a GPU doesn't tell is "[N/A]" or another word in brackets.
_ANSWER = re.compile(r"^(\d+), *(GPU-[0-9a-fA-F-]+|\[.*?\]), *([0-9a-fA-F]+):([0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s*$", re.MULTILINE)


@dataclass(frozen=True)
class PciFacts:
    """What was found. ``kinds`` has every function, by address; ``gpu_nodes`` maps NUMA nodes to the GPU whose memory they are."""

    kinds: Dict[str, str]
    functions: Tuple[PciFunction, ...]
    nvidia: bool
    gpu_nodes: Dict[int, str]


NOTHING = PciFacts({}, (), False, {})


def scan(root: Root, gpu_match: Sequence[str] = ()) -> PciFacts:
    """All PCI functions with their kinds; vendor and device are read only where they decide."""
    driven = {name.lower(): name for name in root.names(NVIDIA_GPUS)}
    addresses = sorted(filter(_ADDRESS.match, root.names(PCI_DEVICES)), key=address_key)
    slots = _slots(addresses)
    kinds: Dict[str, str] = {}
    looked_at: List[PciFunction] = []
    for address in addresses:
        pci_class = _hex(root, address, "class")[:6]
        kinds[address] = kind = kind_of_class(pci_class)
        if kind != OTHER or gpu_match:
            vendor = _hex(root, address, "vendor") or (NVIDIA if address in driven else "")
            rules_decide = vendor == AMD and kind == GPU and not gpu_match
            others = slots[address.rpartition(".")[0]] - {address} if rules_decide else ()
            slot_vendors = tuple(_hex(root, other, "vendor") for other in others)
            function = PciFunction(address, pci_class, vendor, _hex(root, address, "device"), slot_vendors)
            looked_at.append(function)
            if is_gpu(function, gpu_match):
                kinds[address] = GPU
            elif kind == GPU:
                kinds[address] = OTHER
    functions = tuple(function for function in looked_at if kinds[function.address] != OTHER)
    nvidia = bool(driven) or any(function.vendor == NVIDIA for function in looked_at)
    return PciFacts(kinds, functions, nvidia, _gpu_nodes(root, list(driven.values())))


def _gpu_nodes(root: Root, names: Sequence[str]) -> Dict[int, str]:
    """The NUMA nodes that the driver's GPUs call their memory. Where they have none the file says -1."""
    found = {}
    for name in names:
        status = _NUMA_STATUS_NODE.search(root.read("%s/%s/numa_status" % (NVIDIA_GPUS, name)) or "")
        if status:
            found[int(status.group(1))] = name.lower()
    return found


def devices(root: Root, command: Command, facts: PciFacts, nodes: Sequence[NumaNode]) -> Dict[str, Tuple[Device, ...]]:
    """The devices of each kind (gpu, nic, nvme), by ascending address."""
    identity = _nvidia_identity(root, command) if any(f.vendor == NVIDIA for f in facts.functions) else {}
    found: Dict[str, List[Device]] = {GPU: [], NIC: [], NVME: []}
    for function in facts.functions:
        kind = facts.kinds[function.address]
        device = _device(root, function, nodes)
        if kind == GPU:
            index, uuid = identity.get(function.address, (None, None))
            device = replace(device, index=index, uuid=uuid)
        else:
            device = _NAMED[kind](root, device)
        found[kind].append(device)
    return {kind: tuple(members) for kind, members in found.items()}


def _device(root: Root, function: PciFunction, nodes: Sequence[NumaNode]) -> Device:
    folder = "%s/%s" % (PCI_DEVICES, function.address)
    local_cpus = first_cpu_set(root, folder, _LOCAL_CPUS) or CpuSet()
    driver = root.link_target(folder + "/driver")
    return Device(
        function.address,
        function.vendor,
        function.device,
        function.pci_class,
        _pci_root(root, function.address),
        driver=driver.rpartition("/")[2] if driver else None,
        numa_node=numa_node_of(number(root, folder + "/numa_node"), local_cpus, nodes),
        local_cpus=local_cpus,
        vectors=len(message_signalled(root, function.address)),
        virtual_function=root.link_target(folder + "/physfn") is not None,
    )


def message_signalled(root: Root, address: str) -> Set[int]:
    """The numbers of a function's message-signalled interrupts (MSI and MSI-X)."""
    return {int(name) for name in root.names("%s/%s/msi_irqs" % (PCI_DEVICES, address)) if name.isdigit()}


def _pci_root(root: Root, address: str) -> str:
    """The host bridge, like "pci0000:3a", from where the device's folder lies; the device's own bus where that isn't told."""
    match = _PCI_ROOT.search(root.resolve("%s/%s" % (PCI_DEVICES, address)) or "")
    return match.group(1) if match else "pci" + ":".join(address.split(":")[:2])


def _nic(root: Root, device: Device) -> Device:
    """Name and speed of the first interface, which on virtio lies one folder further down. A link that is down has no speed."""
    folder = "%s/%s" % (PCI_DEVICES, device.address)
    net = folder + "/net"
    names = root.names(net)
    if not names and device.driver == "virtio-pci":
        virtio = next((name for name in root.names(folder) if re.match(r"virtio\d+\Z", name)), "")
        net = "%s/%s/net" % (folder, virtio)
        names = root.names(net) if virtio else []
    if not names:
        return device
    speed = number(root, "%s/%s/speed" % (net, names[0]))
    return replace(device, name=names[0], speed_mbps=speed if speed is not None and speed > 0 else None)


def _nvme(root: Root, device: Device) -> Device:
    """The controller's name (the folder was called misc on old kernels)."""
    folder = "%s/%s" % (PCI_DEVICES, device.address)
    name = next((name for part in ("nvme", "misc") for name in root.names("%s/%s" % (folder, part)) if name.startswith("nvme")), None)
    return replace(device, name=name)


_NAMED: Dict[str, Callable[[Root, Device], Device]] = {NIC: _nic, NVME: _nvme}


def _nvidia_identity(root: Root, command: Command) -> Dict[str, Tuple[Optional[int], Optional[str]]]:
    """Index and UUID of NVIDIA GPUs by address: the UUIDs that the driver shows, and what nvidia-smi says where it runs."""
    found: Dict[str, Tuple[Optional[int], Optional[str]]] = {}
    for name in root.names(NVIDIA_GPUS):
        match = _UUID.search(root.read("%s/%s/information" % (NVIDIA_GPUS, name)) or "")
        found[name.lower()] = (None, match.group(1) if match else None)
    for index, uuid, domain, place in _ANSWER.findall(command.query(_QUERY) or ""):
        address = "%04x:%s" % (int(domain, 16), place.lower())
        found[address] = (int(index), uuid if uuid.startswith("GPU-") else found.get(address, (None, None))[1])
    return found


def _slots(addresses: Sequence[str]) -> Dict[str, Set[str]]:
    """The functions of each slot."""
    found: Dict[str, Set[str]] = {}
    for address in addresses:
        found.setdefault(address.rpartition(".")[0], set()).add(address)
    return found


def _hex(root: Root, address: str, name: str) -> str:
    """A value like "0x10de" without its prefix; "" when there is none."""
    text = word(root, "%s/%s/%s" % (PCI_DEVICES, address, name)) or ""
    return text[2:].lower() if text.startswith("0x") else ""
