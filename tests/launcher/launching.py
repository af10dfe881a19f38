"""How the launcher's tests build it, run it, and describe the machines it should decide for."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "roles/launcher/files/numaspread"
PROGRAMS = Path(__file__).parent / "programs"

INTERLEAVE, WEIGHTED, PREFERRED_MANY, BIND, LOCAL = 3, 6, 5, 2, 4
"""The kernel's MPOL_ values, and weighted interleaving as kernels from 6.9 on know it."""

UNSET = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")


def build_launcher(out: Path, compiler: str = "gcc", **variables: str) -> Path:
    """Run the launcher's own Makefile; return the program."""
    settings = [f"{name}={value}" for name, value in {"CC": compiler, "OUT": str(out), **variables}.items()]
    subprocess.run(["make", "--silent", "-C", str(SOURCE), *settings], check=True, capture_output=True, text=True)
    return out / "numaspread"


def build_program(name: str, out: Path, compiler: str = "gcc", *flags: str) -> Path:
    """Compile one of the small C programs beside the tests."""
    program = out / name
    command = [compiler, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE}", *flags, "-o", str(program)]
    subprocess.run([*command, str(PROGRAMS / f"{name}.c")], check=True, capture_output=True, text=True)
    return program


def needs_no_loader(program: Path) -> bool:
    """Whether a 64-bit little-endian ELF program is static: none of its program headers is PT_INTERP."""
    content = program.read_bytes()
    offset, size, number = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    return all(struct.unpack_from("<I", content, offset + index * size)[0] != 3 for index in range(number))


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without anything that the launcher listens to, and with `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMASPREAD_") and name not in UNSET}
    return {**kept, **variables}


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command with its output captured; the exit status is the caller's to look at."""
    options.setdefault("env", environment())
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=120, **options)


def found(*command: object, **options: Any) -> dict[str, Any]:
    """Run a command that ends in the `show` program; return what that found."""
    result = run(*command, **options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def refusals(**errors: int) -> list[str]:
    """Arguments for the `refuse` program: refusals(set_mempolicy=errno.EPERM)."""
    return [f"{call}={error}" for call, error in errors.items()] + ["--"]


SECCOMP = refusals(set_mempolicy=errno.EPERM, get_mempolicy=errno.EPERM)
"""What a container runtime's default profile answers without CAP_SYS_NICE."""


def listed(ids: Iterable[int]) -> str:
    """A set of ids as the kernel writes it: 0-3,8."""
    parts: list[list[int]] = []
    for number in sorted(ids):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def mask_words(ids: Iterable[int], bits: int) -> str:
    """A set of ids as the kernel's comma-separated 32-bit words."""
    value = sum(1 << number for number in ids)
    return ",".join(f"{value >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(-(-bits // 32))))


@dataclass(frozen=True)
class Node:
    """A NUMA node: its CPUs and its memory in GiB."""

    cpus: Sequence[int] = ()
    gib: int = 512


@dataclass(frozen=True)
class Gpu:
    """A GPU: its node as PCI tells it, and its UUID."""

    node: int
    uuid: str = ""
    vendor: str = "0x10de"
    device_class: str = "0x030200"


@dataclass(frozen=True)
class Machine:
    """A machine's nodes and GPUs, and what the process may use of it (None: all)."""

    nodes: Mapping[int, Node]
    gpus: Mapping[str, Gpu] = field(default_factory=dict)
    mems_allowed: Iterable[int] | None = None
    cpus_allowed: Iterable[int] | None = None

    def write(self, root: Path, *, lists: bool = True, driver: bool = True) -> Path:
        """The files of this machine under `root`; without `lists` those of a capture that lacks has_memory and has_cpu."""
        cpus = [cpu for node in self.nodes.values() for cpu in node.cpus]

        def put(path: str, text: str) -> None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")

        nodes = "sys/devices/system/node"
        (root / nodes).mkdir(parents=True)
        for number, node in self.nodes.items():
            put(f"{nodes}/node{number}/cpulist", listed(node.cpus))
            put(f"{nodes}/node{number}/cpumap", mask_words(node.cpus, 512))
            put(f"{nodes}/node{number}/meminfo", f"Node {number} MemTotal:       {node.gib << 20} kB\nNode {number} MemFree:        1 kB")
            put(f"{nodes}/node{number}/distance", " ".join("10" if other == number else "20" for other in sorted(self.nodes)))
        if lists:
            put(f"{nodes}/online", listed(self.nodes))
            put(f"{nodes}/has_memory", listed(number for number, node in self.nodes.items() if node.gib))
            put(f"{nodes}/has_cpu", listed(number for number, node in self.nodes.items() if node.cpus))
        mems = list(self.nodes if self.mems_allowed is None else self.mems_allowed)
        allowed = list(cpus if self.cpus_allowed is None else self.cpus_allowed)
        put(
            "proc/self/status",
            f"Name:\tx\nCpus_allowed:\t{mask_words(allowed, 512)}\nCpus_allowed_list:\t{listed(allowed)}\n"
            f"Mems_allowed:\t{mask_words(mems, 1024)}\nMems_allowed_list:\t{listed(mems)}",
        )
        for minor, (address, gpu) in enumerate(self.gpus.items()):
            device = f"sys/bus/pci/devices/{address}"
            put(f"{device}/numa_node", str(gpu.node))
            put(f"{device}/vendor", gpu.vendor)
            put(f"{device}/class", gpu.device_class)
            if driver and gpu.uuid:
                put(f"proc/driver/nvidia/gpus/{address}/information", f"Model: \t\t X\nGPU UUID: \t {gpu.uuid}\nDevice Minor: \t {minor}")
        return root


def spans(*pairs: tuple[int, int]) -> list[int]:
    """CPUs first to last of every pair."""
    return [cpu for first, last in pairs for cpu in range(first, last + 1)]


TWO_SOCKETS = {0: Node(spans((0, 95), (192, 287)), 1126), 1: Node(spans((96, 191), (288, 383)), 1126)}
GRACE_HOPPER = {0: Node(range(72), 480), 1: Node(gib=96), **{number: Node(gib=0) for number in range(2, 9)}}
GB200 = {0: Node(range(72), 480), 1: Node(range(72, 144), 480), **{n: Node(gib=186 if n in (2, 10, 18, 26) else 0) for n in range(2, 34)}}
POWER9 = {0: Node(range(80), 256), 8: Node(range(80, 160), 256), **{number: Node(gib=16) for number in range(252, 256)}}
EIGHT_GPUS = {
    **{f"0000:{bus}:00.0": Gpu(0, f"GPU-0000000{n}-aaaa") for n, bus in enumerate(("1b", "3d", "4e", "5f"))},
    **{f"0000:{bus}:00.0": Gpu(1, f"GPU-0000000{n + 4}-aaaa") for n, bus in enumerate(("9d", "bd", "cd", "dd"))},
}
