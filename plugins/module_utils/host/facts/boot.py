# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot loader, the kernel to be booted, and how that kernel was built."""

from __future__ import annotations

import zlib
from typing import Dict, List, Optional

from ...core.errors import UnreadableRoot
from ...core.kernel_config import parse_config
from ...core.topology import Boot
from ..loader import MODULES, loader, next_release
from ..root import Root

_GZIP = 31  # zlib's wbits for a gzip header


def read_boot(root: Root, running: str, gaps: List[str]) -> Boot:
    """How the node boots; ``running`` is the release of the running kernel. What can't be read is added to ``gaps``."""
    kind = loader(root)
    release = next_release(root, kind)
    return Boot(kind, release, _config(root, release, running, gaps))


def _config(root: Root, release: Optional[str], running: str, gaps: List[str]) -> Dict[str, str]:
    """The configuration of that kernel, wherever the distribution puts it; the running kernel may carry its own."""
    paths = ["/boot/config-%s" % release, *("%s/%s/config" % (folder, release) for folder in MODULES)] if release else []
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
