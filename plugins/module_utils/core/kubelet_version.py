# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's versions, as far as its tables are known here."""

from __future__ import annotations

import re
from typing import Optional

from .errors import InvalidInput
from .kubelet_fields import DROP_IN_MINOR
from .kubelet_tables import NEWEST_MINOR, OLDEST_MINOR


def reads_drop_ins(folder: Optional[str], version: Optional[str]) -> bool:
    """Whether a kubelet with this folder gets a drop-in of ours: before 1.32 it lost values of other files when it merged them."""
    return bool(folder) and (not version or minor_of(version) >= DROP_IN_MINOR)


def minor_of(version: str) -> int:
    """The minor of a version like "1.34.4" or "v1.34.4+k3s1", no newer than the newest known.

    :raises InvalidInput: no version, or older than the rules here
    """
    match = re.match(r"v?1\.(\d+)", version)
    if not match:
        raise InvalidInput('"%s" is not a kubelet version.' % version, 'Give gpufleet_kubelet_version like "1.34.4".')
    minor = int(match.group(1))
    if minor < OLDEST_MINOR:
        raise InvalidInput(
            "kubelet %s is older than 1.%d, the oldest that is known here." % (version, OLDEST_MINOR),
            "Upgrade it, or set gpufleet_kubelet_manage: false.",
        )
    return min(minor, NEWEST_MINOR)
