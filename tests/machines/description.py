"""The description of a machine: its schema, its defaults, and the sentence that a wrong one gets.

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

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class DescriptionError(ValueError):
    """A machine description that can't be built: one sentence."""


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
GPT_TYPES = {"efi": "c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "boot": "bc13c2ff-59e6-4262-a352-b275fd6f7172",
             "root": "0fc63daf-8483-4772-8e79-3d69d8477de4", "swap": "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"}
ITEM_KEYS: dict[str, dict[str, Any]] = {
    "numa.nodes": {"id": None, "cores": 0, "memory": "0KiB", "gpu": None},
    "pci": {"root": None, "numa_node": -1, "switch": False, "devices": ()},
    "pci.devices": {"device": None, "count": 1, "vectors": None, "virtual_functions": 0, "driver": "default"},
    "swaps": {"path": None, "type": "partition", "size_kib": None, "used_kib": 0, "priority": -2},
    "processes": {"name": None, "cgroup": None},
}


def known(where: str, given: Any, known: Iterable[str]) -> None:
    """Refuse keys that the schema doesn't have, naming the nearest one."""
    names = sorted(known)
    if not isinstance(given, dict):
        raise DescriptionError(f"{where} is {given!r}; it must be a mapping.")
    for key in given:
        if key not in names:
            raise DescriptionError(f"{where} has no key {key!r}; {nearest(str(key), names)}.")


def nearest(given: str, names: Iterable[str]) -> str:
    """The end of a sentence about an unknown name."""
    near = difflib.get_close_matches(given, names, n=1)
    return f"the nearest one is {near[0]!r}" if near else f"there are {', '.join(sorted(names))}"


def item_of(where: str, given: dict[str, Any]) -> dict[str, Any]:
    """One element of a list of mappings, completed with its defaults; a default of None means: must be given."""
    defaults = ITEM_KEYS[where]
    known(where, given, defaults)
    item = {**defaults, **given}
    for key, default in defaults.items():
        if default is None and item[key] is None and key not in ("gpu", "vectors"):
            raise DescriptionError(f"An element of {where} lacks {key!r}.")
    return item


def complete(description: dict[str, Any]) -> dict[str, Any]:
    """The description with every default filled in; raises DescriptionError for what the schema doesn't know."""
    known("The description", description, DEFAULTS)
    full: dict[str, Any] = {}
    for key, default in DEFAULTS.items():
        given = description.get(key, default)
        if isinstance(default, dict) and key not in FREE and not (given is None and key in OPTIONAL):
            known(key, given, default)
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
