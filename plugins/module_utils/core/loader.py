# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ways in which a node gets its kernel command line (Boot.loader in the facts), and the files that tell them apart."""

from __future__ import annotations

import re
from typing import Optional

GRUB, BLS, OSTREE, KERNEL_INSTALL, UNKNOWN = "grub", "bls", "ostree", "kernel_cmdline", "unknown"

GRUB_DEFAULTS = "/etc/default/grub"
KERNEL_CMDLINE = "/etc/kernel/cmdline"

_ENABLE_BLSCFG = re.compile(r"^[ \t]*(?:export[ \t]+)?GRUB_ENABLE_BLSCFG=(['\"]?)(\w*)\1[ \t]*(?:#.*)?$", re.MULTILINE)


def enables_blscfg(defaults: str) -> Optional[bool]:
    """Whether /etc/default/grub has GRUB take boot loader entries; None when it doesn't say. The last assignment counts."""
    said = [match.group(2) for match in _ENABLE_BLSCFG.finditer(defaults)]
    return said[-1] == "true" if said else None
