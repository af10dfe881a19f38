"""Writes the files of a machine as its kernel and its distribution have them: /sys, /proc, /etc, /boot."""
from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from machines.description import GPT_TYPES, cpulist, cpumask, item_of, parse_cpulist, size_bytes
from machines.machine import Device, Machine


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
        handle = os.open(self._place(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            while data:
                data = data[os.write(handle, data):]
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


def write(machine: Machine, root: Path) -> None:
    """Write every file of the machine below an empty folder."""
    tree = Tree(root)
    for part in (_write_cpus, _write_cpufreq, _write_nodes, _write_memory, _write_pci, _write_interrupts, _write_proc,
                 _write_sysctl, _write_processes, _write_disk, write_layers):
        part(machine, tree)


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
    result: list[list[dict[str, object]]] = [[] for unused in machine.cores]
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
        for cpu in cpus:
            tree.link(f"{folder}/cpu{cpu}", f"../../cpu/cpu{cpu}")
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
    swap = sum(item_of("swaps", item)["size_kib"] for item in machine.description["swaps"])
    counts = {"MemTotal": total, "MemFree": total * 15 // 16, "MemAvailable": total * 15 // 16, "Buffers": 0, "Cached": 0, "SwapCached": 0,
              "SwapTotal": swap, "SwapFree": swap, "Dirty": 0, "Writeback": 0, "AnonHugePages": 0}
    pages = {"HugePages_Total": pool, "HugePages_Free": pool, "HugePages_Rsvd": 0, "HugePages_Surp": 0}
    lines = [f"{name + ':':<15}{value:9} kB" for name, value in counts.items()]
    lines += [f"{name + ':':<15}{value:9}" for name, value in pages.items()]
    tree.write("proc/meminfo", "\n".join([*lines, f"{'Hugepagesize:':<15}{huge:9} kB", f"{'Hugetlb:':<15}{pool * huge:9} kB"]))
    swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"
    for item in (item_of("swaps", item) for item in machine.description["swaps"]):
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
    daemons = [{"name": "systemd", "cgroup": "/init.scope"}, *(item_of("processes", item) for item in machine.description["processes"])]
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


GRUBENV_BYTES = 1024  # GRUB refuses an environment block of another size


def write_layers(machine: Machine, tree: Tree) -> None:
    """The files of the distribution and its daemons alone."""
    for path, content in machine.files.items():
        if isinstance(content, dict):
            tree.link(path, content["link"])
        else:
            if path.endswith("/grubenv"):
                content = content.rstrip("#\n") + "\n"
                content += "#" * (GRUBENV_BYTES - len(content))
            tree.write(path, content.encode(), 0o755 if content.startswith("#!") else 0o644)
