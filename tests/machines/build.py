"""Build the root of an example machine from its description.

A root is a folder that holds the /sys, /proc, /etc and /boot files of a node as its kernel and its distribution would have
them, as far as a reader or a provisioning tool looks at them. The description is the single source: `build` writes the root,
`expected` says what a correct reader must find in it.

    python tests/machines/build.py reference /tmp/reference     build one machine
    python tests/machines/build.py --list                       name them all

The description is a mapping (YAML); every key has a default, so `{}` is a machine too:

summary        one line for people
architecture   x86_64 | aarch64 | ppc64le
page_size      bytes: 4096 or 65536
kernel         release, command_line; no_hz_full: the kernel was built with CONFIG_NO_HZ_FULL; numa_balancing;
               msi_names: device ("IR-PCI-MSIX-0000:01:00.0 0-edge") | shared ("IR-PCI-MSI 524288-edge")
cpu            packages, cores (of one package), threads (of one core);
               numbering: linear (first threads of all cores, then second threads), interleaved (like linear, neighbours on
               different packages) or adjacent (the threads of a core are neighbours);
               package_ids (default 0, 1, …), package_stride (adjacent only: first CPU of package p is p × stride);
               offline, isolated: cpulists; possible: cpulist (default: all present CPUs);
               vendor, family, model, model_name (x86_64), implementer, part, soc_id (aarch64), platform (ppc64le)
caches         l1d, l1i, l2, l3: sizes ("32KiB"); l2_cores, l3_cores: cores that share one (l3_cores 0: no L3)
cpufreq        null, or driver, governors, governor, share (cpu | core: the CPUs of one policy), maximum_khz
numa           nodes: [{id, cores (taken in order, package by package), memory ("512GiB"), gpu (index of the GPU whose memory
               this is)}]; empty: the kernel has no NUMA support, and memory is the whole machine's.
               distances: a matrix, or {near: same package, far: other package, cpuless: either has no CPUs}
hugepages      {"2MiB": {node id: pages}}; the sizes that the kernel offers follow from architecture and page size
transparent_hugepage   enabled, defrag: the selected word
pci            [{root: "0000:20", numa_node (-1: unknown), switch: all devices behind one PCIe switch, devices: [...]}]
               a device is a name of DEVICES or {device, count, vectors, virtual_functions, driver (null: none bound)}
nvidia_driver  version of the loaded driver or null; numa_status: whether it shows /proc/driver/nvidia/gpus/*/numa_status
product        DMI vendor and product name
disk           {name, partitions: [type, …]}: the root disk; types efi, boot, root, swap
swaps          lines of /proc/swaps: [{path, type (file | partition), size_kib, used_kib, priority}]
sysctl         {"vm/swappiness": value}: values that differ from the kernel's defaults
processes      [{name, cgroup}] beside systemd
layers         names of files in layers/: distribution, kubelet, daemons; each maps a path to its content
variables      what the layers' @placeholders@ stand for
files          {path: content}: on top of the layers; null takes a file away
"""
from __future__ import annotations

import argparse
import difflib
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class DescriptionError(ValueError):
    """A machine description that can't be built: one sentence."""


# --- schema ----------------------------------------------------------------------------------------------------------------

DEFAULTS: dict[str, Any] = {
    "summary": "",
    "architecture": "x86_64",
    "page_size": 4096,
    "kernel": {
        "release": "6.8.0-60-generic", "command_line": "BOOT_IMAGE=/boot/vmlinuz ro quiet", "no_hz_full": True,
        "numa_balancing": True, "msi_names": "device",
    },
    "cpu": {
        "packages": 1, "cores": 4, "threads": 1, "numbering": "linear", "package_ids": None, "package_stride": None,
        "offline": "", "isolated": "", "possible": None, "vendor": "AuthenticAMD", "family": 25, "model": 17,
        "model_name": "AMD EPYC Processor", "implementer": "0x41", "part": "0xd0c", "soc_id": None, "platform": "PowerNV",
    },
    "caches": {"l1d": "32KiB", "l1i": "32KiB", "l2": "1MiB", "l3": "32MiB", "l2_cores": 1, "l3_cores": 4},
    "cpufreq": {
        "driver": "acpi-cpufreq", "governors": ["conservative", "ondemand", "userspace", "powersave", "performance", "schedutil"],
        "governor": "schedutil", "share": "cpu", "maximum_khz": 3700000,
    },
    "numa": {"nodes": [{"id": 0, "cores": 4, "memory": "8GiB"}], "distances": {"near": 12, "far": 32, "cpuless": 80}, "memory": "8GiB"},
    "hugepages": {},
    "transparent_hugepage": {"enabled": "madvise", "defrag": "madvise"},
    "pci": [],
    "nvidia_driver": {"version": "570.133.20", "numa_status": False},
    "product": {"vendor": "Example", "name": "Node"},
    "disk": {"name": "sda", "partitions": ["efi", "root"]},
    "swaps": [],
    "sysctl": {},
    "processes": [{"name": "sshd", "cgroup": "/system.slice/ssh.service"}],
    "layers": [],
    "variables": {},
    "files": {},
}
FREE = ("hugepages", "sysctl", "variables", "files")       # mappings whose keys are the user's
KINDS = {dict: "a mapping", list: "a list", str: "text", int: "a whole number"}
OPTIONAL = ("cpufreq", "nvidia_driver")                    # may be null
CHOICES = {
    "architecture": ("x86_64", "aarch64", "ppc64le"), "page_size": (4096, 65536), "cpu.numbering": ("linear", "interleaved", "adjacent"),
    "cpufreq.share": ("cpu", "core"), "kernel.msi_names": ("device", "shared"),
    "transparent_hugepage.enabled": ("always", "madvise", "never"),
    "transparent_hugepage.defrag": ("always", "defer", "defer+madvise", "madvise", "never"),
}
ITEM_KEYS: dict[str, dict[str, Any]] = {
    "numa.nodes": {"id": None, "cores": 0, "memory": "0KiB", "gpu": None},
    "pci": {"root": None, "numa_node": -1, "switch": False, "devices": ()},
    "pci.devices": {"device": None, "count": 1, "vectors": None, "virtual_functions": 0, "driver": "default"},
    "swaps": {"path": None, "type": "partition", "size_kib": None, "used_kib": 0, "priority": -2},
    "processes": {"name": None, "cgroup": None},
}


def _known(where: str, given: Any, known: Iterable[str]) -> None:
    """Refuse keys that the schema doesn't have, naming the nearest one."""
    names = sorted(known)
    if not isinstance(given, dict):
        raise DescriptionError(f"{where} is {given!r}; it must be a mapping.")
    for key in given:
        if key not in names:
            raise DescriptionError(f"{where} has no key {key!r}; {_nearest(str(key), names)}.")


def _nearest(given: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name."""
    near = difflib.get_close_matches(given, names, n=1)
    return f"the nearest one is {near[0]!r}" if near else f"there are {', '.join(sorted(names))}"


def _item(where: str, given: dict[str, Any]) -> dict[str, Any]:
    """One element of a list of mappings, completed with its defaults; a default of None means: must be given."""
    defaults = ITEM_KEYS[where]
    _known(where, given, defaults)
    item = {**defaults, **given}
    for key, default in defaults.items():
        if default is None and item[key] is None and key not in ("gpu", "vectors"):
            raise DescriptionError(f"An element of {where} lacks {key!r}.")
    return item


def complete(description: dict[str, Any]) -> dict[str, Any]:
    """The description with every default filled in; raises DescriptionError for what the schema doesn't know."""
    _known("The description", description, DEFAULTS)
    full: dict[str, Any] = {}
    for key, default in DEFAULTS.items():
        given = description.get(key, default)
        if isinstance(default, dict) and key not in FREE and not (given is None and key in OPTIONAL):
            _known(key, given, default)
            given = {**default, **given}
        elif not (given is None and key in OPTIONAL) and type(given) is not type(default):
            raise DescriptionError(f"{key} is {given!r}; it must be {KINDS[type(default)]}.")
        full[key] = given
    for dotted, words in CHOICES.items():
        section, _dot, key = dotted.partition(".")
        value = full[section][key] if key and full[section] else full[section]
        if value is not None and value not in words:
            raise DescriptionError(f"{dotted} is {value!r}; it must be one of {', '.join(map(str, words))}.")
    partitions = full["disk"]["partitions"]
    if "root" not in partitions or not set(partitions) <= set(GPT_TYPES):
        raise DescriptionError(f"disk.partitions {partitions} must contain 'root' and nothing but {', '.join(GPT_TYPES)}.")
    for key in ("packages", "cores", "threads"):
        if not isinstance(full["cpu"][key], int) or full["cpu"][key] < 1:
            raise DescriptionError(f"cpu.{key} is {full['cpu'][key]!r}; it must be a whole number of at least 1.")
    return full


def size_bytes(text: str) -> int:
    """"512GiB" in bytes."""
    match = re.fullmatch(r"(\d+)([KMGT]iB)", str(text))
    if not match:
        raise DescriptionError(f"The size {text!r} isn't a whole number followed by KiB, MiB, GiB or TiB.")
    return int(match[1]) * UNITS[match[2]]


def parse_cpulist(text: str) -> set[int]:
    """"0-3,8" as a set."""
    cpus: set[int] = set()
    for part in filter(None, str(text).split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise DescriptionError(f"The cpulist {text!r} is malformed at {part!r}.")
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus


def cpulist(cpus: Iterable[int]) -> str:
    """A set of CPUs as the kernel prints it with %*pbl."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in runs)


def cpumask(cpus: Iterable[int], bits: int) -> str:
    """A set of CPUs as the kernel prints it with %*pb: 32-bit words from the highest, the first as wide as nr_cpu_ids needs."""
    value = sum(1 << cpu for cpu in cpus)
    text = f"{value:0{(bits + 3) // 4}x}"
    head = len(text) % 8
    return ",".join(([text[:head]] if head else []) + [text[i:i + 8] for i in range(head, len(text), 8)])


# --- devices ---------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Model:
    """A kind of PCI device: its identity, its driver and the names of its interrupts."""

    kind: str                           # gpu | nic | nvme | other
    vendor: str
    device: str
    pci_class: str
    driver: str | None
    vectors: int                        # message-signalled interrupts
    interrupts: tuple[str, ...] = ()    # names: all but the last for the first vectors, the last for all that follow
    managed: bool = False               # the kernel sets the affinity of the numbered vectors itself
    speed_mbit: int = 0


MLX5 = ("mlx5_async0@pci:{address}", "mlx5_comp{queue}@pci:{address}")
NVME = ("nvme{index}q0", "nvme{index}q{vector}")
DEVICES = {
    "nvidia-h100": Model("gpu", "10de", "2330", "030200", "nvidia", 6, ("nvidia",)),
    "nvidia-h200": Model("gpu", "10de", "2335", "030200", "nvidia", 6, ("nvidia",)),
    "nvidia-a100": Model("gpu", "10de", "20b2", "030200", "nvidia", 6, ("nvidia",)),
    "nvidia-l40s": Model("gpu", "10de", "26b9", "030200", "nvidia", 6, ("nvidia",)),
    "nvidia-t4": Model("gpu", "10de", "1eb8", "030200", "nvidia", 1, ("nvidia",)),
    "nvidia-v100": Model("gpu", "10de", "1db1", "030200", "nvidia", 6, ("nvidia",)),
    "nvidia-gh200": Model("gpu", "10de", "2342", "030200", "nvidia", 6, ("nvidia",)),
    "nvidia-gb200": Model("gpu", "10de", "2941", "030200", "nvidia", 6, ("nvidia",)),
    "amd-mi300x": Model("gpu", "1002", "74a1", "120000", "amdgpu", 4, ("amdgpu",)),
    "nvswitch": Model("other", "10de", "22a3", "068000", "nvidia-nvswitch", 1, ("nvidia-nvswitch",)),
    "connectx-7": Model("nic", "15b3", "1021", "020700", "mlx5_core", 64, MLX5, speed_mbit=400000),
    "connectx-6dx": Model("nic", "15b3", "101d", "020000", "mlx5_core", 64, MLX5, speed_mbit=100000),
    "bluefield-3": Model("nic", "15b3", "a2dc", "020000", "mlx5_core", 128, MLX5, speed_mbit=200000),
    "e810": Model("nic", "8086", "159b", "020000", "ice", 33, ("ice-{address}:misc", "ice-{name}-TxRx-{queue}"), speed_mbit=25000),
    "i350": Model("nic", "8086", "1521", "020000", "igb", 9, ("{name}", "{name}-TxRx-{queue}"), speed_mbit=1000),
    "ena": Model("nic", "1d0f", "ec20", "020000", "ena", 9, ("ena-mgmnt@pci:{address}", "{name}-Tx-Rx-{queue}"), speed_mbit=25000),
    "virtio-net": Model("nic", "1af4", "1041", "020000", "virtio-pci", 3,
                        ("virtio{index}-config", "virtio{index}-input.0", "virtio{index}-output.0")),
    "nvme": Model("nvme", "144d", "a80a", "010802", "nvme", 33, NVME, managed=True),
    "aspeed-vga": Model("other", "1a03", "2000", "030000", "ast", 0),
    "matrox-vga": Model("other", "102b", "0538", "030000", "mgag200", 0),
    "emulated-vga": Model("other", "1234", "1111", "030000", "bochs-drm", 0),
    "ahci": Model("other", "1022", "7901", "010601", "ahci", 1, ("ahci[{address}]",)),
    "xhci": Model("other", "1022", "14c9", "0c0330", "xhci_hcd", 1, ("xhci_hcd",)),
    "virtio-blk": Model("other", "1af4", "1042", "010000", "virtio-pci", 2, ("virtio{index}-config", "virtio{index}-req.0")),
}
VIRTUAL = {"101d": "101e", "1021": "101e", "a2dc": "101e", "159b": "1889", "1521": "1520"}     # device ids of virtual functions
BRIDGE = Model("other", "1022", "14ab", "060400", "pcieport", 1, ("PCIe PME, aerdrv",))
SWITCH_PORT = Model("other", "1000", "c030", "060400", "pcieport", 0)


@dataclass
class Device:
    """A PCI device at its place."""

    address: str
    model: Model
    numa_node: int
    path: str                       # below /sys/devices
    driver: str | None
    name: str = ""                  # network interface or NVMe controller
    index: int = 0
    irqs: list[int] = field(default_factory=list)
    physical_function: str | None = None

    @property
    def root(self) -> str:
        return self.path.partition("/")[0]


@dataclass(frozen=True)
class Interrupt:
    """A message-signalled interrupt: its numbers, its name and where it may and does arrive."""

    irq: int
    hwirq: int
    chip: str
    name: str
    node: int
    affinity: frozenset[int]
    effective: int


# --- machine ---------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Core:
    package: int                    # index, not id
    index: int                      # within the package
    number: int                     # within the machine, package by package
    threads: tuple[int, ...]        # present CPUs


@dataclass(frozen=True)
class Node:
    id: int
    cores: tuple[Core, ...]
    memory: int
    gpu: int | None


class Machine:
    """What a description means: cores, nodes, devices and interrupts, computed once for `build` and `expected`."""

    def __init__(self, description: dict[str, Any]) -> None:
        self.description = complete(description)
        self.architecture: str = self.description["architecture"]
        self.page_size: int = self.description["page_size"]
        cpu = self.description["cpu"]
        self.threads: int = cpu["threads"]
        self.package_ids: list[int] = cpu["package_ids"] or list(range(cpu["packages"]))
        if len(self.package_ids) != cpu["packages"]:
            raise DescriptionError(f"cpu.package_ids names {len(self.package_ids)} packages, but cpu.packages is {cpu['packages']}.")
        self.cores = list(self._cores())
        self.present = {thread for core in self.cores for thread in core.threads}
        offline = parse_cpulist(cpu["offline"])
        if not offline <= self.present:
            raise DescriptionError(f"cpu.offline {cpu['offline']!r} names CPUs that aren't present ({cpulist(self.present)}).")
        self.online = self.present - offline
        if not self.online:
            raise DescriptionError(f"cpu.offline {cpu['offline']!r} leaves no CPU online.")
        self.possible = self.present if cpu["possible"] is None else parse_cpulist(cpu["possible"])
        if not self.possible >= self.present:
            raise DescriptionError(f"cpu.possible {cpu['possible']!r} doesn't contain all present CPUs ({cpulist(self.present)}).")
        self.bits = max(self.possible) + 1
        self.nodes = list(self._nodes())
        self.distances = self._distances()
        self.devices: list[Device] = list(self._devices())
        self.interrupts: list[Interrupt] = list(self._interrupts())
        self.files = _layer_files(self)

    def _cores(self) -> Iterator[Core]:
        cpu = self.description["cpu"]
        packages, cores, threads = cpu["packages"], cpu["cores"], cpu["threads"]
        stride = cpu["package_stride"] or cores * threads
        if stride < cores * threads:
            raise DescriptionError(f"cpu.package_stride {stride} is less than the {cores * threads} CPUs of a package.")
        for number in range(packages * cores):
            package, index = divmod(number, cores)
            first = number if cpu["numbering"] == "linear" else index * packages + package
            if cpu["numbering"] == "adjacent":
                ids = tuple(package * stride + index * threads + t for t in range(threads))
            else:
                ids = tuple(first + t * packages * cores for t in range(threads))
            yield Core(package, index, number, ids)

    def _nodes(self) -> Iterator[Node]:
        items = [_item("numa.nodes", node) for node in self.description["numa"]["nodes"]]
        if len({item["id"] for item in items}) != len(items):
            raise DescriptionError("Two elements of numa.nodes have the same id.")
        total = sum(item["cores"] for item in items)
        if items and total != len(self.cores):
            raise DescriptionError(f"numa.nodes have {total} cores together, but the machine has {len(self.cores)}.")
        taken = 0
        for item in items:
            yield Node(item["id"], tuple(self.cores[taken:taken + item["cores"]]), size_bytes(item["memory"]), item["gpu"])
            taken += item["cores"]

    def cpus(self, cores: Iterable[Core]) -> set[int]:
        """The online CPUs of some cores."""
        return {thread for core in cores for thread in core.threads} & self.online

    def groups(self, cores_per_group: int) -> list[list[Core]]:
        """The cores in runs of `cores_per_group` within each package: those that share a cache."""
        if not cores_per_group:
            return []
        groups: dict[tuple[int, int], list[Core]] = {}
        for core in self.cores:
            groups.setdefault((core.package, core.index // cores_per_group), []).append(core)
        return list(groups.values())

    def node_cpus(self, numa_node: int) -> set[int]:
        """The CPUs that the kernel calls local to a device with this numa_node."""
        return self.online if numa_node < 0 else next(self.cpus(node.cores) for node in self.nodes if node.id == numa_node)

    def _distances(self) -> list[list[int]]:
        """The distance table, row by row in the order of the nodes."""
        table = self.description["numa"]["distances"]
        if isinstance(table, list):
            if [len(row) for row in table] != [len(self.nodes)] * len(self.nodes):
                raise DescriptionError(f"numa.distances isn't a table of {len(self.nodes)} rows of {len(self.nodes)} numbers.")
            return list(table)
        words: dict[str, int] = {**DEFAULTS["numa"]["distances"], **table}
        _known("numa.distances", table, DEFAULTS["numa"]["distances"])

        def distance(a: Node, b: Node) -> int:
            if a.id == b.id:
                return 10
            if not a.cores or not b.cores:
                return words["cpuless"]
            return words["near" if a.cores[0].package == b.cores[0].package else "far"]

        return [[distance(a, b) for b in self.nodes] for a in self.nodes]

    def _devices(self) -> Iterator[Device]:
        counts: dict[str, int] = {}

        def device(path: str, address: str, model: Model, numa_node: int, driver: str | None, parent: str | None = None) -> Device:
            family = model.driver if model.driver == "virtio-pci" else model.kind
            index = counts.get(family, 0)
            counts[family] = index + 1
            name = {"nic": f"{'ib' if model.pci_class == '020700' else 'ens'}{index}", "nvme": f"nvme{index}"}.get(model.kind, "")
            return Device(address, model, numa_node, path, driver, name, index, physical_function=parent)

        node_ids = {node.id for node in self.nodes}
        for entry in (_item("pci", item) for item in self.description["pci"]):
            match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2})", str(entry["root"]))
            if not match:
                raise DescriptionError(f"The PCI root {entry['root']!r} isn't a domain and a bus such as '0000:20'.")
            node = entry["numa_node"]
            if node != -1 and node not in node_ids:
                raise DescriptionError(f"The PCI root {entry['root']} is on NUMA node {node}, which numa.nodes doesn't have.")
            domain, bus = match[1], int(match[2], 16) + 1
            root = f"pci{domain}:{match[2]}"
            slots = []
            for item in entry["devices"]:
                item = _item("pci.devices", {"device": item} if isinstance(item, str) else item)
                if item["device"] not in DEVICES:
                    raise DescriptionError(f"There is no device {item['device']!r}; {_nearest(str(item['device']), DEVICES)}.")
                if item["virtual_functions"] and DEVICES[item["device"]].device not in VIRTUAL:
                    raise DescriptionError(f"The device {item['device']!r} has no virtual functions.")
                slots += [item] * item["count"]
            parent = root
            if entry["switch"] and slots:
                for model, place in ((BRIDGE, f"{domain}:{match[2]}:01.1"), (SWITCH_PORT, f"{domain}:{bus:02x}:00.0")):
                    parent = f"{parent}/{place}"
                    yield device(parent, place, model, node, model.driver)
                bus += 1
            port_bus = bus - 1 if not entry["switch"] else bus
            bus = bus if not entry["switch"] else bus + 1
            for slot, item in enumerate(slots):
                model = DEVICES[item["device"]]
                if item["vectors"] is not None:
                    model = replace(model, vectors=item["vectors"])
                driver = model.driver if item["driver"] == "default" else item["driver"]
                port = f"{domain}:{port_bus:02x}:{slot + 1 if not entry['switch'] else slot:02x}.{0 if entry['switch'] else 1}"
                yield device(f"{parent}/{port}", port, SWITCH_PORT if entry["switch"] else BRIDGE, node, "pcieport")
                address = f"{domain}:{bus:02x}:00.0"
                yield device(f"{parent}/{port}/{address}", address, model, node, driver)
                for function in range(item["virtual_functions"]):
                    virtual = f"{domain}:{bus:02x}:{1 + function // 8:02x}.{function % 8}"
                    few = replace(model, vectors=min(model.vectors, 4), device=VIRTUAL[model.device])
                    yield device(f"{parent}/{port}/{virtual}", virtual, few, node, driver, address)
                bus += 1

    def _interrupts(self) -> Iterator[Interrupt]:
        shared = self.description["kernel"]["msi_names"] == "shared"
        chips = {"x86_64": "IR-PCI-MSI", "aarch64": "ITS-PCI-MSI", "ppc64le": "PNV-PCI-MSI"}[self.architecture]
        everywhere = frozenset(self.possible)
        irq, turn = {"x86_64": 25, "aarch64": 40, "ppc64le": 28}[self.architecture], {-1: 0}
        for dev in self.devices:
            local = sorted(self.node_cpus(dev.numa_node)) or sorted(self.online)
            names = dev.model.interrupts
            for vector in range(dev.model.vectors if dev.driver else 0):
                pattern = names[min(vector, len(names) - 1)]
                name = pattern.format(address=dev.address, index=dev.index, name=dev.name, vector=vector, queue=vector - len(names) + 1)
                managed = dev.model.managed and vector > 0
                if managed:
                    everyone, queues = sorted(self.present), dev.model.vectors - 1
                    affinity = frozenset(everyone[(vector - 1) * len(everyone) // queues:vector * len(everyone) // queues] or everyone[:1])
                    effective = min(affinity & self.online or self.online)
                else:
                    affinity, count = everywhere, turn.get(dev.numa_node, 0)
                    effective, turn[dev.numa_node] = local[count % len(local)], count + 1
                domain, bus, slot, function = (int(part, 16) for part in re.split("[:.]", dev.address))
                whole = domain << 27 | (bus << 8 | slot << 3 | function) << 11
                chip = chips if shared else f"{chips}{'X' if dev.model.vectors > 1 else ''}-{dev.address}"
                yield Interrupt(irq, whole + vector if shared else vector, chip, name, dev.numa_node, affinity, effective)
                dev.irqs.append(irq)
                irq += 1

    def kind(self, node: Node) -> str:
        """What a node is, by what it has: online CPUs, memory, a GPU that the memory belongs to."""
        if self.cpus(node.cores):
            return "cpu_memory" if node.memory else "cpu_only"
        if not node.memory:
            return "empty"
        return "memory_only" if node.gpu is None else "device_memory"

    @property
    def memory(self) -> int:
        return sum(node.memory for node in self.nodes) if self.nodes else size_bytes(self.description["numa"]["memory"])

    @property
    def hugepage_sizes(self) -> list[int]:
        """The huge page sizes in KiB that the kernel has on this architecture with this page size."""
        if self.architecture == "aarch64":
            return [64, 2048, 32768, 1048576] if self.page_size == 4096 else [2048, 524288, 16777216]
        return [2048, 1048576]

    @property
    def pmd_size(self) -> int:
        """The size of a transparent huge page in bytes: what one page-middle-directory entry maps."""
        return 2 << 20 if self.architecture != "aarch64" else self.page_size ** 2 // 8

    def pages(self, kib: int, node: int) -> int:
        """The pages of one huge page size in the pool of a node."""
        return sum(counts.get(node, 0) for size, counts in self.description["hugepages"].items() if size_bytes(size) == kib << 10)


# --- writing ---------------------------------------------------------------------------------------------------------------

class Tree:
    """Writes files below a folder; remembers the folders that it made, since a root has ten thousands of files."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.made: set[str] = set()

    def _place(self, path: str) -> str:
        place = f"{self.directory}/{path.lstrip('/')}"
        parent = place.rpartition("/")[0]
        if parent not in self.made:
            os.makedirs(parent, exist_ok=True)
            self.made.add(parent)
        return place

    def write(self, path: str, content: object, mode: int = 0o644) -> None:
        """A file; text gets the newline that the kernel ends each value with."""
        data = content if isinstance(content, bytes) else f"{content}\n".encode()
        handle = os.open(self._place(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            os.write(handle, data) if len(data) < 1 << 16 else _write_all(handle, data)
        finally:
            os.close(handle)

    def values(self, folder: str, values: dict[str, object]) -> None:
        """Several one-value files in one folder."""
        for name, value in values.items():
            self.write(f"{folder}/{name}", value)

    def link(self, path: str, target: str) -> None:
        os.symlink(target, self._place(path))

    def folder(self, path: str) -> None:
        self._place(f"{path}/x")


def _write_all(handle: int, data: bytes) -> None:
    while data:
        data = data[os.write(handle, data):]


def build(description: dict[str, Any], directory: str | os.PathLike[str]) -> Path:
    """Write the root of the described machine into a new or empty folder and return its path."""
    machine = Machine(description)
    root = Path(directory)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DescriptionError(f"{root} exists and isn't an empty folder.")
    root.mkdir(parents=True, exist_ok=True)
    tree = Tree(root)
    for part in (_write_cpus, _write_cpufreq, _write_nodes, _write_memory, _write_pci, _write_interrupts, _write_proc,
                 _write_sysctl, _write_processes, _write_disk, _write_layers):
        part(machine, tree)
    return root


CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def _write_cpus(machine: Machine, tree: Tree) -> None:
    cpu, kernel = machine.description["cpu"], machine.description["kernel"]
    tree.values(CPU, {
        "possible": cpulist(machine.possible), "present": cpulist(machine.present), "online": cpulist(machine.online),
        "offline": cpulist(machine.possible - machine.online), "isolated": cpulist(parse_cpulist(cpu["isolated"])),
        "kernel_max": {"x86_64": 8191, "aarch64": 511, "ppc64le": 2047}[machine.architecture],
        "smt/active": int(any(len(machine.cpus([core])) > 1 for core in machine.cores)),
        "smt/control": "on" if machine.threads > 1 else "notsupported",
    })
    if kernel["no_hz_full"]:    # the file exists only with CONFIG_NO_HZ_FULL; before the mask is set the kernel prints a null pointer
        nohz = re.search(r"(?:^| )nohz_full=(\S+)", kernel["command_line"])
        tree.write(f"{CPU}/nohz_full", nohz[1] if nohz else "(null)")
    packages = [[core for core in machine.cores if core.package == p] for p in range(cpu["packages"])]
    core_caches = _cache_files(machine)
    node_of = {core.number: node.id for node in machine.nodes for core in node.cores}
    for core in machine.cores:
        threads, package = machine.cpus([core]), machine.cpus(packages[core.package])
        topology: dict[str, object] = {
            "core_id": core.number * machine.threads if machine.architecture == "ppc64le" else core.index,
            "physical_package_id": machine.package_ids[core.package],
            "thread_siblings": cpumask(threads, machine.bits), "thread_siblings_list": cpulist(threads), "core_cpus_list": cpulist(threads),
            "core_siblings": cpumask(package, machine.bits), "core_siblings_list": cpulist(package), "package_cpus_list": cpulist(package)}
        if machine.architecture == "x86_64":
            topology["die_id"] = 0
        for thread in core.threads:
            folder = f"{CPU}/cpu{thread}"
            tree.folder(folder)
            if core.number in node_of:
                tree.link(f"{folder}/node{node_of[core.number]}", f"../../node/node{node_of[core.number]}")
            if thread or machine.architecture != "x86_64":      # x86 can't take the boot CPU offline and has no file for it
                tree.write(f"{folder}/online", int(thread in machine.online))
            if thread in machine.online:                        # an offline CPU has neither topology/ nor cache/
                tree.values(f"{folder}/topology", topology)
                for number, files in enumerate(core_caches[core.number]):
                    tree.values(f"{folder}/cache/index{number}", files)


def _cache_files(machine: Machine) -> list[list[dict[str, object]]]:
    """For every core the contents of cache/index0 to index3."""
    caches = machine.description["caches"]
    result: list[list[dict[str, object]]] = [[] for _ in machine.cores]
    for level, kind, key, shared in ((1, "Data", "l1d", 1), (1, "Instruction", "l1i", 1), (2, "Unified", "l2", caches["l2_cores"]),
                                     (3, "Unified", "l3", caches["l3_cores"])):
        for number, group in enumerate(machine.groups(shared)):
            cpus = machine.cpus(group)
            files: dict[str, object] = {
                "level": level, "type": kind, "size": f"{size_bytes(caches[key]) >> 10}K",
                "shared_cpu_list": cpulist(cpus), "shared_cpu_map": cpumask(cpus, machine.bits)}
            if machine.architecture == "x86_64":
                files["id"] = number
            for core in group:
                result[core.number].append(files)
    return result


def _write_cpufreq(machine: Machine, tree: Tree) -> None:
    """One policy folder per CPU or per core, and a link to it from each online CPU; a policy of offline CPUs reads as EBUSY: no files."""
    policy = machine.description["cpufreq"]
    if policy is None:
        return
    fixed: dict[str, object] = {
        "scaling_driver": policy["driver"], "scaling_governor": policy["governor"],
        "scaling_available_governors": " ".join(policy["governors"]) + " "}
    for core in machine.cores:
        for related in [core.threads] if policy["share"] == "core" else [(thread,) for thread in core.threads]:
            folder = f"{CPU}/cpufreq/policy{related[0]}"
            tree.folder(folder)
            if not set(related) & machine.online:
                continue
            affected = sorted(set(related) & machine.online)
            tree.values(folder, {**fixed, "affected_cpus": " ".join(map(str, affected)), "related_cpus": " ".join(map(str, related))})
            for thread in affected:
                tree.link(f"{CPU}/cpu{thread}/cpufreq", f"../cpufreq/policy{related[0]}")


def _write_nodes(machine: Machine, tree: Tree) -> None:
    if not machine.nodes:
        return
    every = cpulist(node.id for node in machine.nodes)
    tree.values(NODE, {
        "possible": every, "online": every,
        "has_cpu": cpulist(node.id for node in machine.nodes if machine.cpus(node.cores)),
        "has_memory": cpulist(node.id for node in machine.nodes if node.memory),
        "has_normal_memory": cpulist(node.id for node in machine.nodes if node.memory and node.gpu is None)})
    for node, row in zip(machine.nodes, machine.distances):
        cpus = machine.cpus(node.cores)
        folder = f"{NODE}/node{node.id}"
        tree.values(folder, {"cpulist": cpulist(cpus), "cpumap": cpumask(cpus, machine.bits), "distance": " ".join(map(str, row))})
        total, free = node.memory >> 10, node.memory * 15 // 16 >> 10
        lines = {"MemTotal": total, "MemFree": free, "MemUsed": total - free, "SwapCached": 0, "Active": 0, "Inactive": 0,
                 "Unevictable": 0, "Mlocked": 0, "Dirty": 0, "Writeback": 0, "FilePages": 0, "Mapped": 0, "AnonPages": 0, "Shmem": 0,
                 "AnonHugePages": 0}
        pool = machine.pages(machine.pmd_size >> 10, node.id)
        text = "\n".join([f"Node {node.id} {name + ':':<16}{value:8} kB" for name, value in lines.items()]
                         + [f"Node {node.id} {name}:{value:6}" for name, value in
                            {"HugePages_Total": pool, "HugePages_Free": pool, "HugePages_Surp": 0}.items()])
        tree.write(f"{folder}/meminfo", text)
        if node.memory:
            for kib in machine.hugepage_sizes:
                pages = machine.pages(kib, node.id)
                tree.values(f"{folder}/hugepages/hugepages-{kib}kB",
                            {"nr_hugepages": pages, "free_hugepages": pages, "surplus_hugepages": 0})


def _chosen(words: str, word: str) -> str:
    """The kernel's way to show a choice: "always [madvise] never"."""
    return " ".join(f"[{w}]" if w == word else w for w in words.split())


def _write_memory(machine: Machine, tree: Tree) -> None:
    thp = machine.description["transparent_hugepage"]
    tree.values("sys/kernel/mm/transparent_hugepage", {
        "enabled": _chosen("always madvise never", thp["enabled"]),
        "defrag": _chosen("always defer defer+madvise madvise never", thp["defrag"]),
        "shmem_enabled": _chosen("always within_size advise never deny force", "never"),
        "use_zero_page": 1, "hpage_pmd_size": machine.pmd_size,
        "khugepaged/defrag": 1, "khugepaged/pages_to_scan": 4096, "khugepaged/scan_sleep_millisecs": 10000,
        "khugepaged/alloc_sleep_millisecs": 60000, "khugepaged/max_ptes_none": machine.pmd_size // machine.page_size - 1})
    for kib in machine.hugepage_sizes:
        pages = sum(machine.pages(kib, node.id) for node in machine.nodes)
        tree.values(f"sys/kernel/mm/hugepages/hugepages-{kib}kB", {
            "nr_hugepages": pages, "free_hugepages": pages, "resv_hugepages": 0, "surplus_hugepages": 0,
            "nr_overcommit_hugepages": 0, "nr_hugepages_mempolicy": pages})


def _write_pci(machine: Machine, tree: Tree) -> None:
    for dev in machine.devices:
        folder, model = f"sys/devices/{dev.path}", dev.model
        local = machine.node_cpus(dev.numa_node)
        tree.values(folder, {
            "vendor": f"0x{model.vendor}", "device": f"0x{model.device}", "class": f"0x{model.pci_class}",
            "subsystem_vendor": f"0x{model.vendor}", "subsystem_device": "0x0001", "revision": "0x01",
            "numa_node": dev.numa_node, "local_cpulist": cpulist(local), "local_cpus": cpumask(local, machine.bits),
            "irq": dev.irqs[0] if dev.irqs else 0, "enable": int(dev.driver is not None)})
        tree.write(f"{folder}/config", _config_space(machine, dev))
        up = "../" * dev.path.count("/")
        tree.link(f"{folder}/subsystem", f"{up}../../bus/pci")
        tree.link(f"sys/bus/pci/devices/{dev.address}", f"../../../devices/{dev.path}")
        if dev.driver:
            tree.link(f"{folder}/driver", f"{up}../../bus/pci/drivers/{dev.driver}")
            tree.link(f"sys/bus/pci/drivers/{dev.driver}/{dev.address}", f"../../../../devices/{dev.path}")
        for irq in dev.irqs:
            tree.write(f"{folder}/msi_irqs/{irq}", "msix" if model.vectors > 1 else "msi")
        if model.kind == "nic" and dev.driver:
            _write_interface(dev, folder, tree)
        if model.kind == "nvme" and dev.driver:
            tree.values(f"{folder}/nvme/{dev.name}", {
                "model": "EXAMPLE NVME 3840GB", "transport": "pcie", "address": dev.address, "numa_node": dev.numa_node,
                "queue_count": model.vectors, "state": "live"})
            tree.link(f"sys/class/nvme/{dev.name}", f"../../devices/{dev.path}/nvme/{dev.name}")
        functions = [other for other in machine.devices if other.physical_function == dev.address]
        if functions:
            tree.values(folder, {"sriov_totalvfs": 16, "sriov_numvfs": len(functions)})
        for number, function in enumerate(functions):
            tree.link(f"{folder}/virtfn{number}", f"../{function.address}")
            tree.link(f"sys/devices/{function.path}/physfn", f"../{dev.address}")
    tree.folder("sys/bus/pci/devices")
    for root in {dev.root for dev in machine.devices}:
        tree.folder(f"sys/devices/{root}/pci_bus")


def _config_space(machine: Machine, dev: Device) -> bytes:
    """The first 64 bytes of the configuration space: identity and, for a bridge, the buses behind it."""
    model = dev.model
    bridge = model.pci_class == "060400"
    class_and_revision = int(model.pci_class, 16) << 8 | 1
    header = struct.pack("<HHHHIBBBB", int(model.vendor, 16), int(model.device, 16), 6, 0x10, class_and_revision, 16, 0, int(bridge), 0)
    if not bridge:
        return header.ljust(64, b"\0")
    behind = [int(other.address.split(":")[1], 16) for other in machine.devices if other.path.startswith(f"{dev.path}/")]
    buses = (int(dev.address.split(":")[1], 16), min(behind), max(behind))
    return (header + bytes(8) + bytes(buses)).ljust(64, b"\0")


def _write_interface(dev: Device, folder: str, tree: Tree) -> None:
    """The network interface of a NIC, and its RDMA device where the driver has one."""
    virtio = dev.driver == "virtio-pci"
    up = f"{folder}/virtio{dev.index}" if virtio else folder
    queues = max(1, dev.model.vectors - 1)
    infiniband = dev.model.pci_class == "020700"
    tree.values(f"{up}/net/{dev.name}", {
        "address": f"02:00:00:00:{dev.index >> 8:02x}:{dev.index & 255:02x}", "speed": dev.model.speed_mbit or -1, "operstate": "up",
        "mtu": 4092 if infiniband else 1500, "type": 32 if infiniband else 1, "dev_port": 0, "ifindex": dev.index + 2,
        "queues/rx-0/rps_cpus": 0, "queues/tx-0/xps_rxqs": 0, "tx_queue_len": 1000, "carrier": 1, "num_queues": queues})
    below = f"{dev.path}/virtio{dev.index}" if virtio else dev.path
    tree.link(f"{up}/net/{dev.name}/device", f"../../../{below.rpartition('/')[2]}")
    tree.link(f"sys/class/net/{dev.name}", f"../../devices/{below}/net/{dev.name}")
    if dev.driver == "mlx5_core":
        rate = {400000: "400 Gb/sec (4X NDR)", 200000: "200 Gb/sec (4X HDR)", 100000: "100 Gb/sec (4X EDR)"}[dev.model.speed_mbit]
        tree.values(f"{folder}/infiniband/mlx5_{dev.index}/ports/1", {
            "rate": rate, "link_layer": "InfiniBand" if infiniband else "Ethernet", "state": "4: ACTIVE"})


COUNTERS = {
    "x86_64": {"NMI": "Non-maskable interrupts", "LOC": "Local timer interrupts", "SPU": "Spurious interrupts",
               "PMI": "Performance monitoring interrupts", "IWI": "IRQ work interrupts", "RTR": "APIC ICR read retries",
               "RES": "Rescheduling interrupts", "CAL": "Function call interrupts", "TLB": "TLB shootdowns",
               "TRM": "Thermal event interrupts", "THR": "Threshold APIC interrupts", "DFR": "Deferred Error APIC interrupts",
               "MCE": "Machine check exceptions", "MCP": "Machine check polls", "ERR": "", "MIS": "",
               "PIN": "Posted-interrupt notification event", "NPI": "Nested posted-interrupt event",
               "PIW": "Posted-interrupt wakeup event"},
    "aarch64": {"IPI0": "Rescheduling interrupts", "IPI1": "Function call interrupts", "IPI2": "CPU stop interrupts",
                "IPI3": "CPU stop (for crash dump) interrupts", "IPI4": "Timer broadcast interrupts", "IPI5": "IRQ work interrupts",
                "IPI6": "CPU wake-up interrupts", "Err": ""},
    "ppc64le": {"LOC": "Local timer interrupts for timer event device", "BCT": "Broadcast timer interrupts for timer event device",
                "SPU": "Spurious interrupts", "PMI": "Performance monitoring interrupts", "MCE": "Machine check exceptions",
                "NMI": "System Reset interrupts", "DBL": "Doorbell interrupts"},
}
WIRED = {"x86_64": {0: ("IR-IO-APIC", 2, "edge", "timer"), 9: ("IR-IO-APIC", 9, "fasteoi", "acpi")},
         "aarch64": {13: ("GICv3", 27, "Level", "arch_timer"), 14: ("GICv3", 23, "Level", "arm-pmu")},
         "ppc64le": {16: ("XIVE-IPI", 0, "Edge", "IPI")}}


def _write_interrupts(machine: Machine, tree: Tree) -> None:
    """/proc/interrupts with one column per online CPU, and /proc/irq."""
    online, width = sorted(machine.online), 4
    zero = f"{0:10} "
    line = "-{:<8}  {}" if machine.architecture == "x86_64" else " {:<8}  {}"
    rows = [" " * (width + 8) + "".join(f"CPU{cpu:<8}" for cpu in online)]

    def row(irq: int, effective: int, chip: str, hwirq: int, trigger: str, name: str) -> str:
        columns = [zero] * len(online)
        columns[online.index(effective)] = f"{100 + irq:10} "
        return f"{irq:{width}}: {''.join(columns)} {chip:>8} {hwirq:{width}}{line.format(trigger, name)}"

    def folder(irq: int, node: int, affinity: Iterable[int], effective: int) -> None:
        tree.values(f"proc/irq/{irq}", {
            "smp_affinity": cpumask(affinity, machine.bits), "smp_affinity_list": cpulist(affinity),
            "effective_affinity": cpumask([effective], machine.bits), "effective_affinity_list": effective,
            "node": node})

    for irq, (chip, hwirq, trigger, name) in WIRED[machine.architecture].items():
        rows.append(row(irq, online[0], chip, hwirq, trigger, name))
        folder(irq, machine.nodes[0].id if machine.nodes else 0, machine.possible, online[0])
        tree.folder(f"proc/irq/{irq}/{name}")
    for item in machine.interrupts:
        rows.append(row(item.irq, item.effective, item.chip, item.hwirq, "edge" if machine.architecture == "x86_64" else "Edge", item.name))
        folder(item.irq, item.node, item.affinity, item.effective)
    tree.write("proc/irq/default_smp_affinity", cpumask(machine.possible, machine.bits))
    for label, text in COUNTERS[machine.architecture].items():
        rows.append(f"{label:>{width}}: {zero * len(online)}  {text}" if text else f"{label:>{width}}: {0:10}")
    tree.write("proc/interrupts", "\n".join(rows))


def _write_proc(machine: Machine, tree: Tree) -> None:
    kernel, disk = machine.description["kernel"], machine.description["disk"]
    tree.write("proc/cmdline", kernel["command_line"])
    tree.write("proc/version", f"Linux version {kernel['release']} (build@example) (gcc 13.3.0) #1 SMP PREEMPT_DYNAMIC")
    tree.write("proc/cpuinfo", "\n".join(_cpuinfo(machine)))
    huge = machine.pmd_size >> 10
    pool = sum(machine.pages(huge, node.id) for node in machine.nodes)
    total = machine.memory >> 10
    swap = sum(_item("swaps", item)["size_kib"] for item in machine.description["swaps"])
    counts = {"MemTotal": total, "MemFree": total * 15 // 16, "MemAvailable": total * 15 // 16, "Buffers": 0, "Cached": 0, "SwapCached": 0,
              "SwapTotal": swap, "SwapFree": swap, "Dirty": 0, "Writeback": 0, "AnonHugePages": 0}
    pages = {"HugePages_Total": pool, "HugePages_Free": pool, "HugePages_Rsvd": 0, "HugePages_Surp": 0}
    lines = [f"{name + ':':<15}{value:9} kB" for name, value in counts.items()]
    lines += [f"{name + ':':<15}{value:9}" for name, value in pages.items()]
    tree.write("proc/meminfo", "\n".join([*lines, f"{'Hugepagesize:':<15}{huge:9} kB", f"{'Hugetlb:':<15}{pool * huge:9} kB"]))
    swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"
    for item in (_item("swaps", item) for item in machine.description["swaps"]):
        pad = " " * max(1, 40 - len(item["path"]))
        swaps += f"\n{item['path']}{pad}{item['type']}\t{item['size_kib']}\t\t{item['used_kib']}\t\t{item['priority']}"
    tree.write("proc/swaps", swaps)
    root = _partition(disk["name"], 1 + disk["partitions"].index("root"))
    mounts = [f"/dev/{root} / ext4 rw,relatime 0 0", "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0",
              "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0",
              "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime,nsdelegate,memory_recursiveprot 0 0"]
    tree.write("proc/1/mounts", "\n".join(mounts))
    tree.link("proc/mounts", "self/mounts")
    tree.write("proc/self/mounts", "\n".join(mounts))
    kib = machine.page_size >> 10
    tree.write("proc/self/smaps", f"00400000-00410000 r-xp 00000000 103:02 1 /usr/bin/cat\nSize:{64:19} kB\n"
                                  f"KernelPageSize:{kib:9} kB\nMMUPageSize:{kib:12} kB")
    tree.write("proc/self/auxv", struct.pack("<4Q", 6, machine.page_size, 0, 0))      # AT_PAGESZ, AT_NULL
    tree.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc")
    tree.values("sys/devices/virtual/dmi/id", {"sys_vendor": machine.description["product"]["vendor"],
                                               "product_name": machine.description["product"]["name"]})
    tree.link("sys/class/dmi/id", "../../devices/virtual/dmi/id")
    if machine.description["cpu"]["soc_id"]:
        tree.write("sys/devices/soc0/soc_id", machine.description["cpu"]["soc_id"])
        tree.link("sys/bus/soc/devices/soc0", "../../../devices/soc0")
    _write_nvidia(machine, tree)


def uuid(number: int) -> str:
    """The UUID that the driver shows for the GPU with this number."""
    return f"GPU-00000000-0000-4000-8000-{number:012x}"


def _write_nvidia(machine: Machine, tree: Tree) -> None:
    driver = machine.description["nvidia_driver"]
    gpus = [dev for dev in machine.devices if dev.model.kind == "gpu" and dev.driver == "nvidia"]
    if driver is None or not gpus:
        return
    tree.write("sys/module/nvidia/version", driver["version"])
    module = f"NVIDIA UNIX Open Kernel Module for {machine.architecture}"
    tree.write("proc/driver/nvidia/version", f"NVRM version: {module}  {driver['version']}")
    for number, gpu in enumerate(gpus):
        folder = f"proc/driver/nvidia/gpus/{gpu.address}"
        tree.write(f"{folder}/information", f"Model: \t\t NVIDIA GPU\nIRQ:   \t\t {gpu.irqs[0]}\nGPU UUID: \t {uuid(number)}\n"
                                            f"Bus Type: \t PCIe\n"
                                            f"Bus Location: \t {gpu.address}\nDevice Minor: \t {number}")
        for node in machine.nodes:
            if driver["numa_status"] and node.gpu == number and node.memory:
                tree.write(f"{folder}/numa_status", f"Node:      {node.id}\nStatus:    online\nAddress:   {(number + 1) << 42:x}\n"
                                                    f"Size:      {node.memory:x}")


X86_FLAGS = ("fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx pdpe1gb "
             "rdtscp lm constant_tsc rep_good nopl nonstop_tsc cpuid aperfmperf pni ssse3 fma cx16 sse4_1 sse4_2 x2apic movbe popcnt aes "
             "xsave avx f16c rdrand lahf_lm avx2 bmi1 bmi2 invpcid avx512f")


def _cpuinfo(machine: Machine) -> Iterator[str]:
    """/proc/cpuinfo: one block per online CPU, as each architecture has it."""
    cpu, khz = machine.description["cpu"], (machine.description["cpufreq"] or {"maximum_khz": 2400000})["maximum_khz"]
    core_of = {thread: core for core in machine.cores for thread in core.threads}
    packages = {p: [core for core in machine.cores if core.package == p] for p in range(cpu["packages"])}
    siblings = {p: len(machine.cpus(cores)) for p, cores in packages.items()}
    online_cores = {p: sum(bool(machine.cpus([core])) for core in cores) for p, cores in packages.items()}
    for thread in sorted(machine.online):
        core = core_of[thread]
        if machine.architecture == "x86_64":
            rows: dict[str, object] = {
                "processor": thread, "vendor_id": cpu["vendor"], "cpu family": cpu["family"], "model": cpu["model"],
                "model name": cpu["model_name"], "stepping": 1, "cpu MHz": f"{khz / 1000:.3f}", "cache size": "1024 KB",
                "physical id": machine.package_ids[core.package], "siblings": siblings[core.package], "core id": core.index,
                "cpu cores": online_cores[core.package], "apicid": thread, "fpu": "yes", "flags": X86_FLAGS,
                "bogomips": f"{khz / 500:.2f}", "address sizes": "52 bits physical, 57 bits virtual"}
            yield "".join(f"{name}{chr(9) * (2 if len(name) < 8 else 1)}: {value}\n" for name, value in rows.items())
        elif machine.architecture == "aarch64":
            yield (f"processor\t: {thread}\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics sve\n"
                   f"CPU implementer\t: {cpu['implementer']}\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {cpu['part']}\n"
                   f"CPU revision\t: 0\n")
        else:
            yield (f"processor\t: {thread}\ncpu\t\t: POWER9, altivec supported\nclock\t\t: {khz / 1000:.6f}MHz\n"
                   f"revision\t: 2.3 (pvr 004e 1203)\n")
    if machine.architecture == "ppc64le":
        yield (f"timebase\t: 512000000\nplatform\t: {cpu['platform']}\nmodel\t\t: {cpu['model_name']}\n"
               f"machine\t\t: {cpu['platform']} {cpu['model_name']}\nfirmware\t: OPAL\nMMU\t\t: Radix")


SYSCTL: dict[str, object] = {
    "kernel/hostname": "node", "kernel/pid_max": 4194304, "kernel/sched_rt_runtime_us": 950000, "kernel/timer_migration": 1,
    "kernel/nmi_watchdog": 1, "kernel/watchdog": 1, "kernel/hung_task_timeout_secs": 120, "kernel/threads-max": 2061584,
    "vm/swappiness": 60, "vm/dirty_ratio": 20, "vm/dirty_background_ratio": 10, "vm/dirty_bytes": 0, "vm/dirty_background_bytes": 0,
    "vm/dirty_expire_centisecs": 3000, "vm/dirty_writeback_centisecs": 500, "vm/zone_reclaim_mode": 0, "vm/overcommit_memory": 0,
    "vm/max_map_count": 65530, "vm/min_free_kbytes": 90112, "vm/compaction_proactiveness": 20, "vm/stat_interval": 1,
    "vm/nr_overcommit_hugepages": 0, "vm/watermark_scale_factor": 10, "vm/panic_on_oom": 0,
    "net/core/rmem_max": 212992, "net/core/wmem_max": 212992, "net/core/rmem_default": 212992, "net/core/wmem_default": 212992,
    "net/core/netdev_max_backlog": 1000, "net/core/somaxconn": 4096, "net/core/busy_poll": 0, "net/core/busy_read": 0,
    "net/core/default_qdisc": "fq_codel", "net/core/optmem_max": 131072,
    "net/ipv4/tcp_rmem": "4096\t131072\t6291456", "net/ipv4/tcp_wmem": "4096\t16384\t4194304", "net/ipv4/tcp_mem": "188577\t251438\t377154",
    "net/ipv4/ip_forward": 1, "net/ipv4/tcp_congestion_control": "cubic", "net/ipv4/tcp_mtu_probing": 0,
    "fs/file-max": 9223372036854775807, "fs/nr_open": 1073741816, "fs/inotify/max_user_instances": 128, "fs/aio-max-nr": 65536,
}


def _write_sysctl(machine: Machine, tree: Tree) -> None:
    kernel = machine.description["kernel"]
    values = dict(SYSCTL) | {
        "kernel/osrelease": kernel["release"], "kernel/ostype": "Linux", "kernel/watchdog_cpumask": cpulist(machine.possible),
        "vm/nr_hugepages": sum(machine.pages(machine.pmd_size >> 10, node.id) for node in machine.nodes)}
    if kernel["numa_balancing"]:
        values["kernel/numa_balancing"] = int(len(machine.nodes) > 1)
    for key, value in (values | machine.description["sysctl"]).items():
        tree.write(f"proc/sys/{key}", value)


def _write_processes(machine: Machine, tree: Tree) -> None:
    """A few processes with what tells where they run and under which limits."""
    daemons = [{"name": "systemd", "cgroup": "/init.scope"}, *(_item("processes", item) for item in machine.description["processes"])]
    nodes = cpulist(node.id for node in machine.nodes if node.memory) or "0"
    for number, daemon in enumerate(daemons):
        pid = 1 if number == 0 else 900 + number
        tree.values(f"proc/{pid}", {
            "comm": daemon["name"], "cmdline": f"/usr/bin/{daemon['name']}\0".encode(), "cgroup": f"0::{daemon['cgroup']}",
            "status": f"Name:\t{daemon['name']}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t{0 if pid == 1 else 1}\n"
                      f"Cpus_allowed:\t{cpumask(machine.possible, machine.bits)}\nCpus_allowed_list:\t{cpulist(machine.possible)}\n"
                      f"Mems_allowed_list:\t{nodes}",
            "limits": "\n".join(f"{name:<26}{soft:<21}{hard:<21}{unit}" for name, soft, hard, unit in (
                ("Limit", "Soft Limit", "Hard Limit", "Units"), ("Max open files", "1024", "524288", "files"),
                ("Max locked memory", "8388608", "8388608", "bytes")))})


GPT_TYPES = {"efi": "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "boot": "bc13c2ff-59e6-4262-a352-b275fd6f7172",
             "root": "0fc63daf-8483-4772-8e79-3d69d8477de4", "swap": "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"}


def _partition(disk: str, number: int) -> str:
    return f"{disk}p{number}" if disk[-1].isdigit() else f"{disk}{number}"


def _write_disk(machine: Machine, tree: Tree) -> None:
    """The partitions of the root disk, with what udev knows about each: the GPT type that systemd-gpt-auto-generator looks at."""
    disk = machine.description["disk"]
    major = 259 if disk["name"].startswith("nvme") else 8 if disk["name"].startswith("sd") else 252
    block = f"sys/devices/virtual/block/{disk['name']}"
    tree.write(f"{block}/dev", f"{major}:0")
    tree.link(f"sys/class/block/{disk['name']}", f"../../devices/virtual/block/{disk['name']}")
    for number, kind in enumerate(disk["partitions"], start=1):
        name = _partition(disk["name"], number)
        tree.values(f"{block}/{name}", {"partition": number, "dev": f"{major}:{number}", "size": 2097152, "start": 2048 * number})
        tree.link(f"sys/class/block/{name}", f"../../devices/virtual/block/{disk['name']}/{name}")
        tree.link(f"sys/dev/block/{major}:{number}", f"../../devices/virtual/block/{disk['name']}/{name}")
        tree.write(f"run/udev/data/b{major}:{number}", "\n".join((
            f"N:{name}", "E:ID_PART_ENTRY_SCHEME=gpt", f"E:ID_PART_ENTRY_TYPE={GPT_TYPES[kind]}", f"E:ID_PART_ENTRY_NUMBER={number}",
            f"E:ID_FS_TYPE={'swap' if kind == 'swap' else 'ext4'}")))


def _kernel_config(machine: Machine) -> str:
    """The lines of the kernel's build configuration that matter for isolation, NUMA and huge pages."""
    kernel = machine.description["kernel"]
    options = {"CONFIG_SMP": True, "CONFIG_NUMA": bool(machine.nodes), "CONFIG_NUMA_BALANCING": kernel["numa_balancing"],
               "CONFIG_CPUSETS": True, "CONFIG_NO_HZ_COMMON": True, "CONFIG_NO_HZ_FULL": kernel["no_hz_full"],
               "CONFIG_NO_HZ_IDLE": not kernel["no_hz_full"], "CONFIG_CPU_ISOLATION": True,
               "CONFIG_RCU_NOCB_CPU": kernel["no_hz_full"], "CONFIG_HUGETLBFS": True, "CONFIG_HUGETLB_PAGE": True,
               "CONFIG_TRANSPARENT_HUGEPAGE": True, "CONFIG_CPU_FREQ": True, "CONFIG_CPU_FREQ_GOV_PERFORMANCE": True,
               "CONFIG_PREEMPT_RT": False, "CONFIG_GENERIC_IRQ_EFFECTIVE_AFF_MASK": True}
    if machine.architecture == "x86_64":
        options |= {"CONFIG_INTEL_IDLE": True}
    if machine.architecture == "aarch64":
        options |= {"CONFIG_ARM64_4K_PAGES": machine.page_size == 4096, "CONFIG_ARM64_64K_PAGES": machine.page_size == 65536}
    if machine.architecture == "ppc64le":
        options |= {"CONFIG_PPC_64K_PAGES": machine.page_size == 65536}
    return "\n".join([*(f"{name}=y" if on else f"# {name} is not set" for name, on in options.items()), "CONFIG_HZ=250"])


def _layer_files(machine: Machine) -> dict[str, Any]:
    """/etc, /boot and the rest of the distribution: the files of each layer, later ones over earlier ones, placeholders filled in."""
    kernel = machine.description["kernel"]
    variables = {"release": kernel["release"], "command_line": kernel["command_line"], "architecture": machine.architecture,
                 "debian_architecture": {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}[machine.architecture],
                 "kernel_config": _kernel_config(machine), **machine.description["variables"]}
    files: dict[str, Any] = {}
    for name in machine.description["layers"]:
        layer = HERE / "layers" / f"{name}.yml"
        if not layer.is_file():
            layers = [path.stem for path in layer.parent.glob("*.yml")]
            raise DescriptionError(f"There is no layer {name!r}; {_nearest(str(name), layers)}.")
        files |= yaml.safe_load(layer.read_text(encoding="utf-8"))

    def fill(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] not in variables:
                raise DescriptionError(f"A layer asks for @{match[1]}@, which variables doesn't have.")
            return str(variables[match[1]])
        return re.sub(r"@([a-z_]+)@", value, text)

    return {fill(path): {"link": fill(content["link"])} if isinstance(content, dict) else fill(content)
            for path, content in (files | machine.description["files"]).items() if content is not None}


def _write_layers(machine: Machine, tree: Tree) -> None:
    for path, content in machine.files.items():
        if isinstance(content, dict):
            tree.link(path, content["link"])
        else:
            tree.write(path, content.encode(), 0o755 if content.startswith("#!") else 0o644)


# --- what a reader must find -------------------------------------------------------------------------------------------------

def expected(description: dict[str, Any]) -> dict[str, Any]:
    """The answers by construction, in the words of the facts: cpulists as text, sizes in bytes, online CPUs only.

    `numa_node` is what a reader should conclude: -1 is the only node's id on a machine with exactly one NUMA node, else None. A kernel
    without NUMA support has one node 0 with everything.
    """
    machine = Machine(description)
    caches = machine.description["caches"]
    nodes = machine.nodes or [Node(0, tuple(machine.cores), machine.memory, None)]
    distances = machine.distances or [[10]]

    def numa_node(dev: Device) -> int | None:
        if dev.numa_node >= 0:
            return dev.numa_node
        return nodes[0].id if len(nodes) == 1 else None

    def devices(kind: str) -> list[dict[str, Any]]:
        return [{"address": dev.address, "vendor": dev.model.vendor, "device": dev.model.device, "class": dev.model.pci_class,
                 "driver": dev.driver, "numa_node": numa_node(dev), "local_cpus": cpulist(machine.node_cpus(dev.numa_node)),
                 "pci_root": dev.root, "physical_function": dev.physical_function, "name": dev.name or None,
                 "speed_mbps": dev.model.speed_mbit or None}
                for dev in sorted(machine.devices, key=lambda dev: dev.address) if dev.model.kind == kind]

    def sets(groups: Iterable[Iterable[Core]]) -> list[set[int]]:
        return sorted(filter(None, (machine.cpus(group) for group in groups)), key=min)

    packages = [(id_, machine.cpus(core for core in machine.cores if core.package == p)) for p, id_ in enumerate(machine.package_ids)]
    packages = sorted(((id_, cpus) for id_, cpus in packages if cpus), key=lambda package: min(package[1]))
    return {
        "architecture": machine.architecture, "page_size": machine.page_size, "kernel_release": machine.description["kernel"]["release"],
        "command_line": machine.description["kernel"]["command_line"],
        "cpus": {"possible": cpulist(machine.possible), "present": cpulist(machine.present), "online": cpulist(machine.online),
                 "offline": cpulist(machine.present - machine.online), "isolated": machine.description["cpu"]["isolated"]},
        "threads_per_core": max(len(machine.cpus([core])) for core in machine.cores),
        "cores": [cpulist(cpus) for cpus in sets([core] for core in machine.cores)],
        "packages": [{"id": id_, "cpus": cpulist(cpus)} for id_, cpus in packages],
        "l3_groups": [{"cpus": cpulist(cpus), "size_bytes": size_bytes(caches["l3"])} for cpus in sets(machine.groups(caches["l3_cores"]))],
        "numa_nodes": [{"id": node.id, "kind": machine.kind(node), "cpus": cpulist(machine.cpus(node.cores)), "memory_bytes": node.memory,
                        "distances": {other.id: distance for other, distance in zip(nodes, row)}}
                       for node, row in zip(nodes, distances)],
        "gpus": devices("gpu"), "nics": devices("nic"), "nvmes": devices("nvme"),
        "interrupts": {dev.address: dev.irqs for dev in machine.devices if dev.irqs},
    }


# --- the fleet ---------------------------------------------------------------------------------------------------------------

def names() -> list[str]:
    """The machines of the example fleet."""
    return sorted(path.stem for path in HERE.glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    """The description of a machine of the fleet."""
    if name not in names():
        raise DescriptionError(f"There is no machine {name!r}; {_nearest(name, names())}.")
    description: dict[str, Any] = yaml.safe_load((HERE / f"{name}.yml").read_text(encoding="utf-8"))
    return description


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the root of an example machine.")
    parser.add_argument("machine", nargs="?", help="a name that --list shows")
    parser.add_argument("directory", nargs="?", help="a new or empty folder")
    parser.add_argument("--list", action="store_true", help="name the machines, with a line about each")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:12} {load(name)['summary']}" for name in names()))
        return 0
    if not options.machine or not options.directory:
        parser.error("MACHINE and DIR are needed")
    try:
        print(build(load(options.machine), options.directory))
    except DescriptionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
