# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which boot loader a node has, its entries, and the kernel that boots next. Apart from boot.py: the facts need nothing else of it."""

from __future__ import annotations

import re
from typing import Dict, Optional

from ..core.kernel_config import newest
from ..core.loader import BLS, GRUB, GRUB_DEFAULTS, KERNEL_CMDLINE, KERNEL_INSTALL, OSTREE, UNKNOWN, enables_blscfg
from .root import Root

# The folders that hold boot loader entries, by who mounts the EFI system partition where. Only the first that has any counts.
_ENTRIES = ("/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries")
# Never the files below /boot/efi/EFI: from Red Hat 9 on those are stubs that lead to this one.
_GRUB_CONFIGS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
GRUBENV = "/boot/grub2/grubenv"
MODULES = ("/usr/lib/modules", "/lib/modules")

_IMAGE = re.compile(r"vmlinu[xz]-(\d\S*)\Z")  # not vmlinuz-0-rescue-…: see _IS_RESCUE
_IS_RESCUE = re.compile(r"0-rescue")
_LINUX = re.compile(r"^linux\s+(\S+)", re.MULTILINE)
_SAVED = re.compile(r"^saved_entry=(\S+)", re.MULTILINE)


def loader(root: Root) -> str:
    """How the node gets its kernel command line: grub, bls, ostree, kernel_cmdline or unknown."""
    if root.exists("/run/ostree-booted") or root.exists("/ostree/repo"):
        return OSTREE
    defaults = root.read(GRUB_DEFAULTS)
    if defaults is not None:
        said = enables_blscfg(defaults)
        # Not said: then grub.cfg says it. It is read only when it has to be, since on many nodes root alone may.
        blscfg = said or (said is None and entries(root) and "blscfg" in (root.read(grub_config(root)) or ""))
        return BLS if blscfg else GRUB
    return KERNEL_INSTALL if root.exists(KERNEL_CMDLINE) else UNKNOWN


def grub_config(root: Root) -> str:
    """The path of GRUB's generated configuration."""
    return next((path for path in _GRUB_CONFIGS if root.exists(path)), _GRUB_CONFIGS[0])


def entries(root: Root) -> Dict[str, str]:
    """Path to text of the boot loader entries."""
    for folder in _ENTRIES:
        paths = ["%s/%s" % (folder, name) for name in root.names(folder) if name.endswith(".conf")]
        found = {path: text for path in paths for text in [root.read(path)] if text is not None and "linux" in text}
        if found:
            return found
    return {}


def next_release(root: Root, kind: str) -> Optional[str]:
    """The release that boots next: of the saved boot loader entry, else the newest that has an entry, an image or modules."""
    if kind in (BLS, OSTREE):
        found = {path.rpartition("/")[2][: -len(".conf")]: text for path, text in entries(root).items()}
        saved = _SAVED.search(root.read(GRUBENV) or "")
        chosen = [found[saved.group(1)]] if saved and saved.group(1) in found else found.values()
        images = [match.group(1).rpartition("/")[2] for match in map(_LINUX.search, chosen) if match]
    else:
        images = root.names("/boot")
    releases = [match.group(1) for match in map(_IMAGE.match, images) if match and not _IS_RESCUE.match(match.group(1))]
    if not releases:
        releases = next(filter(None, map(root.names, MODULES)), [])
    return newest(releases)
