# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot loader, the kernel to be booted, and how that kernel was built."""

from __future__ import annotations

import re
import zlib
from typing import Dict, List, Optional

from ...core.errors import UnreadableRoot
from ...core.kernel_config import newest, parse_config
from ...core.loader import BLS, OSTREE
from ...core.topology import Boot
from ..loader import GRUBENV, entries, loader
from ..root import Root

_MODULES = ("/usr/lib/modules", "/lib/modules")
_IMAGE = re.compile(r"vmlinu[xz]-(\d\S*)\Z")  # not vmlinuz-0-rescue-…: see _IS_RESCUE
_IS_RESCUE = re.compile(r"0-rescue")
_LINUX = re.compile(r"^linux\s+(\S+)", re.MULTILINE)
_SAVED = re.compile(r"^saved_entry=(\S+)", re.MULTILINE)
_GZIP = 31  # zlib's wbits for a gzip header


def read_boot(root: Root, running: str, gaps: List[str]) -> Boot:
    """How the node boots; ``running`` is the release of the running kernel. What can't be read is added to ``gaps``."""
    kind = loader(root)
    release = _next_release(root, kind)
    return Boot(kind, release, _config(root, release, running, gaps))


def _next_release(root: Root, kind: str) -> Optional[str]:
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
        releases = next(filter(None, map(root.names, _MODULES)), [])
    return newest(releases)


def _config(root: Root, release: Optional[str], running: str, gaps: List[str]) -> Dict[str, str]:
    """The configuration of that kernel, wherever the distribution puts it; the running kernel may carry its own."""
    paths = ["/boot/config-%s" % release, *("%s/%s/config" % (folder, release) for folder in _MODULES)] if release else []
    for path in paths:
        try:
            found = parse_config(root.read(path) or "")
        except UnreadableRoot as problem:
            gaps.append(problem.problem)
            continue
        if found:
            return found
    if release in (None, running):
        packed = (root.read("/proc/config.gz") or "").encode("utf-8", "surrogateescape")
        if packed:
            try:
                return parse_config(zlib.decompress(packed, _GZIP).decode("utf-8", "replace"))
            except zlib.error:
                gaps.append("/proc/config.gz is damaged.")
    return {}
