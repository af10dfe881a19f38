# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which Python a unit of ours runs its program with."""

from __future__ import annotations

import re
import sys
from typing import List, Tuple

from .root import Root

_OLDEST_PYTHON = (3, 9)


def interpreter(root: Root) -> str:
    """The node's own Python that is new enough, by the version in the name that python3 leads to; on a live node else the one at work."""
    found: List[Tuple[Tuple[int, int], str]] = []
    for name in root.names("/usr/bin"):
        version = re.match(r"python3(?:\.(\d+))?\Z", name)
        target = re.search(r"/python3\.(\d+)\Z", root.resolve("/usr/bin/" + name) or "") if version else None
        if version and target and (3, int(target.group(1))) >= _OLDEST_PYTHON:
            # Plain python3 first: it survives an upgrade of the distribution.
            found.append(((0 if version.group(1) is None else 1, -int(target.group(1))), "/usr/bin/" + name))
    if found:
        return min(found)[1]
    return sys.executable if root.is_live and sys.executable else "/usr/bin/python3"
