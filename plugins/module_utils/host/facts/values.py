# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Single values of sysfs and procfs. A file that is absent is None; one that is there and can't be parsed is a damaged root."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from ...core.cpuset import CpuSet
from ...core.errors import InvalidInput, UnreadableRoot
from ..root import Root

PCI_DEVICES = "/sys/bus/pci/devices"

# How names of files with a mask end. Newer kernels have a list of the same set beside each (core_cpus, core_cpus_list).
MASKS = ("_cpus", "_siblings", "_map", "/cpumap")


def damaged(root: Root, path: str, text: str) -> UnreadableRoot:
    """The refusal of a file whose content can't be what a kernel wrote."""
    return UnreadableRoot(
        '%s below the root "%s" holds "%s", which can\'t be parsed.' % (path, root.path, text.strip()[:60]),
        "The file is damaged or truncated: capture the node again.",
    )


def cpu_set(root: Root, path: str) -> Optional[CpuSet]:
    """A file with a cpulist, or with a mask where the name says so."""
    text = root.read(path)
    if text is None:
        return None
    try:
        return CpuSet.parse_mask(text) if path.endswith(MASKS) else CpuSet.parse(text)
    except InvalidInput as problem:
        raise damaged(root, path, text) from problem


def first_cpu_set(root: Root, folder: str, names: Tuple[str, ...]) -> Optional[CpuSet]:
    """The first of some files in a folder that is there: newer and older kernels name the same set differently."""
    for name in names:
        found = cpu_set(root, folder + "/" + name)
        if found is not None:
            return found
    return None


def number(root: Root, path: str) -> Optional[int]:
    """A decimal number, None when the file is absent or empty."""
    text = (root.read(path) or "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError as problem:
        raise damaged(root, path, text) from problem


def word(root: Root, path: str) -> Optional[str]:
    """The text without surrounding blanks, None when the file is absent or empty."""
    return (root.read(path) or "").strip() or None


def numbered(names: List[str], prefix: str) -> List[int]:
    """The numbers n of the names that are prefix + n, ascending."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)\Z")
    return sorted(int(match.group(1)) for match in map(pattern.match, names) if match)


def kilobytes(text: str, key: str) -> Optional[int]:
    """A "key:  123 kB" line of a meminfo file in bytes; None when it isn't there."""
    match = re.search(r"\b%s:\s+(\d+)" % re.escape(key), text)
    return int(match.group(1)) * 1024 if match else None
