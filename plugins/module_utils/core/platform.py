# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Architecture, page size and CPU vendor from what a root shows of them, without asking the machine that reads it."""

from __future__ import annotations

import re
import struct
from typing import Dict, Optional, Sequence

HEAD_BYTES = 4096  # of /proc/cpuinfo: at least the first CPU's record

# ELF e_machine (elf.h) with class (1: 32 bits, 2: 64) and byte order (1: little, 2: big).
_ELF = {
    (62, 2, 1): "x86_64", (3, 1, 1): "i686", (183, 2, 1): "aarch64", (40, 1, 1): "armv7l", (21, 2, 1): "ppc64le", (21, 2, 2): "ppc64",
    (20, 1, 2): "ppc", (22, 2, 2): "s390x", (243, 2, 1): "riscv64", (258, 2, 1): "loongarch64", (43, 2, 2): "sparc64",
}  # fmt: skip

# Release names end in the architecture on RPM distributions ("5.14.0-427.el9.x86_64").
_RELEASE = re.compile(r"\.(x86_64|aarch64|ppc64le|s390x|riscv64|loongarch64|i686|armv7hl)(?:\+\S+)?\Z")

# What a record of /proc/cpuinfo says on one architecture only, the first that matches counts.
_CPUINFO = (
    (r"^flags\s*:.*\blm\b", "x86_64"),
    (r"^vendor_id\s*:\s*IBM/S390", "s390x"),
    (r"^vendor_id\s*:\s*(?:GenuineIntel|AuthenticAMD|HygonGenuine)", "x86_64"),
    (r"^CPU architecture\s*:\s*(?:8|AArch64)", "aarch64"),
    (r"^CPU architecture\s*:\s*[67]", "armv7l"),
    (r"^cpu\s*:\s*POWER(?:[4-7]|8E? \(raw\))", "ppc64"),
    (r"^cpu\s*:\s*POWER", "ppc64le"),
    (r"^cpu\s*:\s*(?:PPC970|Cell)", "ppc64"),
    (r"^cpu\s*:\s*7\d\d", "ppc"),
    (r"^isa\s*:\s*rv64", "riscv64"),
    (r"^(?:CPU Family|system type)\s*:\s*.*[Ll]oongson", "loongarch64"),
    (r"^cpu\s*:\s*.*UltraSparc", "sparc64"),
)

# Arm's implementer codes (MIDR_EL1).
_IMPLEMENTERS = {"0x41": "ARM", "0x42": "Broadcom", "0x43": "Cavium", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA",
                 "0x51": "Qualcomm", "0x61": "Apple", "0xc0": "Ampere"}  # fmt: skip

_DEFAULT_PAGE = {"ppc64le": 65536, "ppc64": 65536, "loongarch64": 16384, "sparc64": 8192}
_BY_PMD = {2 << 20: 4096, 32 << 20: 16384, 512 << 20: 65536}
_FLAVOUR = re.compile(r"[-+.](4|16|64)k(?:[-+.]|\Z)")


def architecture_of_elf(header: bytes) -> Optional[str]:
    """What `uname -m` says where a program with this ELF header runs; None when it isn't one we know."""
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return None
    wide, order = header[4], header[5]
    machine = struct.unpack_from("<H" if order == 1 else ">H", header, 18)[0]
    return _ELF.get((machine, wide, order))


def architecture_of_release(release: str) -> Optional[str]:
    """The architecture in a kernel release name, where the distribution writes it there."""
    match = _RELEASE.search(release)
    return match.group(1) if match else None


def architecture_of_cpuinfo(text: str) -> Optional[str]:
    """The architecture whose kernel writes such a /proc/cpuinfo."""
    return next((name for pattern, name in _CPUINFO if re.search(pattern, text, re.MULTILINE)), None)


def cpu_vendor(cpuinfo: str) -> str:
    """x86-64: vendor_id as the kernel has it (GenuineIntel, AuthenticAMD); arm64: the implementer (ARM, NVIDIA, Ampere …); IBM; or ""."""
    fields: Dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _colon, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    vendor = fields.get("vendor_id")
    if vendor:
        return "IBM" if vendor.startswith("IBM") else vendor
    implementer = fields.get("CPU implementer")
    if implementer:
        return _IMPLEMENTERS.get(implementer, implementer)
    return "IBM" if fields.get("cpu", "").startswith("POWER") else ""


def page_size(architecture: str, release: str, pmd_bytes: Optional[int], hugepage_sizes: Sequence[int]) -> int:
    """The base page of a kernel that doesn't run here, in bytes.

    Evidence in this order: the size of a PMD huge page (a table of 8-byte entries fills one page, so it is page² / 8; not on POWER, whose
    radix tree is cut otherwise); the flavour in the release name ("+64k", "-64k"); the hugepage sizes, which on arm64 follow
    from the base page (Documentation/arch/arm64/hugetlbpage.rst); the default of the architecture.
    """
    fixed = architecture not in ("aarch64", "ppc64le", "ppc64", "loongarch64", "sparc64")
    if fixed:
        return 4096
    if architecture in ("aarch64", "loongarch64") and pmd_bytes in _BY_PMD:
        return _BY_PMD[pmd_bytes]
    flavour = _FLAVOUR.search(release)
    if flavour:
        return int(flavour.group(1)) * 1024
    if architecture == "aarch64":
        if 512 << 20 in hugepage_sizes:
            return 65536
        if 32 << 20 in hugepage_sizes and 64 << 10 not in hugepage_sizes:
            return 16384
    return _DEFAULT_PAGE.get(architecture, 4096)
