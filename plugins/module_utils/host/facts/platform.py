# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Architecture, page size, kernel release and CPU vendor. On a live node the kernel is asked, elsewhere the root's files are evidence."""

from __future__ import annotations

import os
from typing import Optional, Sequence

from ...core.platform import HEAD_BYTES, architecture_of_cpuinfo, architecture_of_elf, architecture_of_release, page_size
from ..root import Root
from .values import number, word

# The first of these that is there is a program of the root's own architecture.
_PROGRAMS = ("/sbin/init", "/bin/sh", "/usr/lib/systemd/systemd", "/usr/bin/env")
_ELF_HEADER = 20


def architecture(root: Root, cpuinfo: str, release: str) -> str:
    """The name that `uname -m` gives, "unknown" when nothing in the root tells."""
    if root.is_live:
        return os.uname().machine
    for path in _PROGRAMS:
        header = root.read(path, limit=_ELF_HEADER)
        found = architecture_of_elf(header.encode("utf-8", "surrogateescape")) if header else None
        if found:
            return found
    return architecture_of_release(release) or architecture_of_cpuinfo(cpuinfo) or _architecture_of_sysfs(root) or "unknown"


def _architecture_of_sysfs(root: Root) -> Optional[str]:
    """Folders and files that only one architecture's kernel makes."""
    cpu = "/sys/devices/system/cpu"
    for path, name in ((cpu + "/dispatching", "s390x"), (cpu + "/aarch32_el0", "aarch64"), (cpu + "/microcode", "x86_64")):
        if root.exists(path):
            return name
    return None


def page_bytes(root: Root, architecture: str, release: str, hugepage_sizes: Sequence[int]) -> int:
    """The size of a base page in bytes. The evidence is read on a live node too, so that a capture of it holds it."""
    pmd = number(root, "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
    return os.sysconf("SC_PAGE_SIZE") if root.is_live else page_size(architecture, release, pmd, hugepage_sizes)


def kernel_release(root: Root) -> str:
    """The running kernel's release; "" for an image that never ran."""
    release = word(root, "/proc/sys/kernel/osrelease")
    if release is None:
        words = (root.read("/proc/version") or "").split()
        release = words[2] if len(words) > 2 and words[:2] == ["Linux", "version"] else ""
    return release


def cpuinfo_head(root: Root) -> str:
    """The first CPU's record. The whole file takes long to make on a large machine, and nothing else of it is needed."""
    return root.read("/proc/cpuinfo", limit=HEAD_BYTES) or ""
