"""Architecture, page size and CPU vendor from a root that may be another machine's."""

from __future__ import annotations

import struct

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.platform import (
    architecture_of_cpuinfo,
    architecture_of_elf,
    architecture_of_release,
    cpu_vendor,
    page_size,
)


def elf(machine: int, wide: int = 2, order: int = 1) -> bytes:
    return b"\x7fELF" + bytes((wide, order)) + bytes(10) + struct.pack("<HH" if order == 1 else ">HH", 2, machine)


@pytest.mark.parametrize(
    "header,name",
    [(elf(62), "x86_64"), (elf(183), "aarch64"), (elf(21), "ppc64le"), (elf(21, order=2), "ppc64"), (elf(22, order=2), "s390x"),
     (elf(3, wide=1), "i686"), (elf(999), None), (b"#!/bin/sh\nexec /sbin/init\n", None), (b"\x7fELF", None), (b"", None)],
)  # fmt: skip
def test_elf_headers(header: bytes, name: str | None) -> None:
    assert architecture_of_elf(header) == name


@pytest.mark.parametrize(
    "release,name",
    [("5.14.0-427.el9.x86_64", "x86_64"), ("5.14.0-570.12.1.el9_6.aarch64+64k", "aarch64"), ("6.8.0-60-generic", None), ("", None)],
)
def test_releases_that_name_the_architecture(release: str, name: str | None) -> None:
    assert architecture_of_release(release) == name


@pytest.mark.parametrize(
    "text,name,vendor",
    [
        ("vendor_id\t: GenuineIntel\nflags\t\t: fpu vme lm sse2\n", "x86_64", "GenuineIntel"),
        ("vendor_id\t: AuthenticAMD\n", "x86_64", "AuthenticAMD"),
        ("processor : 0\nCPU implementer : 0x41\nCPU architecture: 8\n", "aarch64", "ARM"),
        ("processor : 0\nCPU implementer : 0xc0\nCPU architecture: 8\n", "aarch64", "Ampere"),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "ppc64le", "IBM"),
        ("vendor_id       : IBM/S390\n# processors    : 4\n", "s390x", "IBM"),
        ("hart : 0\nisa : rv64imafdc\n", "riscv64", ""),
        ("nothing known", None, ""),
    ],
)
def test_cpuinfo(text: str, name: str | None, vendor: str) -> None:
    assert (architecture_of_cpuinfo(text), cpu_vendor(text)) == (name, vendor)


MIB = 1 << 20


@pytest.mark.parametrize(
    "architecture,release,pmd,sizes,size",
    [
        ("x86_64", "6.8.0-60-generic", 2 * MIB, (2 * MIB, 1024 * MIB), 4096),
        ("s390x", "", None, (MIB,), 4096),
        ("aarch64", "6.8.0", 2 * MIB, (), 4096),
        ("aarch64", "6.8.0", 32 * MIB, (), 16384),
        ("aarch64", "6.8.0", 512 * MIB, (), 65536),
        ("aarch64", "5.14.0-570.el9.aarch64+64k", None, (), 65536),
        ("aarch64", "6.11.0-1013-nvidia-64k", None, (), 65536),
        ("aarch64", "6.8.0", None, (2 * MIB, 512 * MIB, 16384 * MIB), 65536),
        ("aarch64", "6.8.0", None, (64 << 10, 2 * MIB, 32 * MIB, 1024 * MIB), 4096),
        ("aarch64", "6.8.0", None, (2 * MIB, 32 * MIB, 1024 * MIB), 16384),
        ("ppc64le", "4.18.0-553.el8_10.ppc64le", 2 * MIB, (2 * MIB,), 65536),  # a POWER PMD says nothing about the base page
        ("ppc64le", "6.1.0-4k", None, (), 4096),
    ],
)
def test_page_size(architecture: str, release: str, pmd: int | None, sizes: tuple[int, ...], size: int) -> None:
    assert page_size(architecture, release, pmd, sizes) == size
