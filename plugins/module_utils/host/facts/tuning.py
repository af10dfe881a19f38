# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CPU frequency scaling, transparent hugepages and swap."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from ...core.topology import Cpufreq, Swap, TransparentHugepage
from ..root import Root
from .values import numbered, word

_POLICIES = "/sys/devices/system/cpu/cpufreq"
_THP = "/sys/kernel/mm/transparent_hugepage"


def read_cpufreq(root: Root) -> Optional[Cpufreq]:
    """Driver and governors; None without frequency scaling. A kernel has one driver, so its governors are the same in every policy."""
    policies = ["%s/policy%d/" % (_POLICIES, number) for number in numbered(root.names(_POLICIES), "policy")]
    governors = {governor for governor in (word(root, policy + "scaling_governor") for policy in policies) if governor}
    if not governors:
        return None
    available = (word(root, policies[0] + "scaling_available_governors") or "").split()
    return Cpufreq(word(root, policies[0] + "scaling_driver") or "", tuple(available), tuple(sorted(governors)))


def read_transparent_hugepage(root: Root) -> Optional[TransparentHugepage]:
    """The chosen and offered words; None on a kernel without them."""
    enabled, defrag = (_choice(root.read("%s/%s" % (_THP, name)) or "") for name in ("enabled", "defrag"))
    return TransparentHugepage(enabled[0], defrag[0], enabled[1], defrag[1]) if enabled[1] else None


def _choice(text: str) -> Tuple[str, Tuple[str, ...]]:
    """ "always [madvise] never": the word in brackets, and all of them."""
    chosen = re.search(r"\[([^\]]*)\]", text)
    return chosen.group(1) if chosen else "", tuple(text.replace("[", " ").replace("]", " ").split())


def read_swaps(root: Root) -> Tuple[Swap, ...]:
    """Active swap, from /proc/swaps, whose sizes are KiB and whose blanks in paths are octal escapes."""
    found = []
    for line in (root.read("/proc/swaps") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 5 and fields[2].isdigit() and fields[3].isdigit():
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), fields[0])
            found.append(Swap(path, fields[1], int(fields[2]) * 1024, int(fields[3]) * 1024))
    return tuple(found)
