"""What a description means: the kinds of devices, the machine with its cores, nodes and interrupts, and what a reader must find."""
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from machines.description import DEFAULTS, HERE, DescriptionError, complete, cpulist, item_of, known, nearest, parse_cpulist, size_bytes


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
        self.files = layer_files(self)

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
        items = [item_of("numa.nodes", node) for node in self.description["numa"]["nodes"]]
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
        known("numa.distances", table, DEFAULTS["numa"]["distances"])

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
        for entry in (item_of("pci", item) for item in self.description["pci"]):
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
                item = item_of("pci.devices", {"device": item} if isinstance(item, str) else item)
                if item["device"] not in DEVICES:
                    raise DescriptionError(f"There is no device {item['device']!r}; {nearest(str(item['device']), DEVICES)}.")
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


def kernel_config(machine: Machine) -> str:
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


def layer_files(machine: Machine) -> dict[str, Any]:
    """/etc, /boot and the rest of the distribution: the files of each layer, later ones over earlier ones, placeholders filled in."""
    kernel = machine.description["kernel"]
    variables = {"release": kernel["release"], "command_line": kernel["command_line"], "architecture": machine.architecture,
                 "debian_architecture": {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}[machine.architecture],
                 "kernel_config": kernel_config(machine), **machine.description["variables"]}
    files: dict[str, Any] = {}
    for name in machine.description["layers"]:
        layer = HERE / "layers" / f"{name}.yml"
        if not layer.is_file():
            layers = [path.stem for path in layer.parent.glob("*.yml")]
            raise DescriptionError(f"There is no layer {name!r}; {nearest(str(name), layers)}.")
        files |= yaml.safe_load(layer.read_text(encoding="utf-8"))

    def fill(text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if match[1] not in variables:
                raise DescriptionError(f"A layer asks for @{match[1]}@, which variables doesn't have.")
            return str(variables[match[1]])
        return re.sub(r"@([a-z_]+)@", value, text)

    return {fill(path): {"link": fill(content["link"])} if isinstance(content, dict) else fill(content)
            for path, content in (files | machine.description["files"]).items() if content is not None}


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
                 "speed_mbps": dev.model.speed_mbit or None, "vectors": dev.model.vectors if dev.driver else 0}
                for dev in sorted(machine.devices, key=lambda dev: dev.address) if dev.model.kind == kind]

    def sets(groups: Iterable[Iterable[Core]]) -> list[set[int]]:
        return sorted(filter(None, (machine.cpus(group) for group in groups)), key=min)

    packages = [(id_, machine.cpus(core for core in machine.cores if core.package == p)) for p, id_ in enumerate(machine.package_ids)]
    packages = sorted(((id_, cpus) for id_, cpus in packages if cpus), key=lambda package: min(package[1]))
    l3_groups = sorted(enumerate(map(machine.cpus, machine.groups(caches["l3_cores"]))), key=lambda group: min(group[1], default=0))
    return {
        "architecture": machine.architecture, "page_size": machine.page_size, "kernel_release": machine.description["kernel"]["release"],
        "command_line": machine.description["kernel"]["command_line"],
        "cpus": {"possible": cpulist(machine.possible), "present": cpulist(machine.present), "online": cpulist(machine.online),
                 "offline": cpulist(machine.present - machine.online), "isolated": machine.description["cpu"]["isolated"]},
        "threads_per_core": max(len(machine.cpus([core])) for core in machine.cores),
        "cores": [cpulist(cpus) for cpus in sets([core] for core in machine.cores)],
        "packages": [{"id": id_, "cpus": cpulist(cpus)} for id_, cpus in packages],
        "l3_groups": [{"cpus": cpulist(cpus), "size_bytes": size_bytes(caches["l3"]),
                       "id": number if machine.architecture == "x86_64" else None} for number, cpus in l3_groups if cpus],
        "numa_nodes": [{"id": node.id, "kind": machine.kind(node), "cpus": cpulist(machine.cpus(node.cores)), "memory_bytes": node.memory,
                        "distances": {other.id: distance for other, distance in zip(nodes, row)}}
                       for node, row in zip(nodes, distances)],
        "gpus": devices("gpu"), "nics": devices("nic"), "nvmes": devices("nvme"),
        "interrupts": {dev.address: dev.irqs for dev in machine.devices if dev.irqs},
    }
