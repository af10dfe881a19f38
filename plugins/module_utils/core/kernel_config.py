# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The build configuration of a kernel, its version, and which of several installed kernels is the newest."""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Optional, Tuple, Union

Version = Tuple[int, int]

# What a plan may ask of a kernel.
SYMBOLS = (
    "CPU_FREQ_GOV_PERFORMANCE", "CPU_ISOLATION", "CPUSETS", "HUGETLBFS", "HZ", "INTEL_IDLE", "NO_HZ_FULL", "NUMA", "NUMA_BALANCING",
    "PREEMPT_RT", "RCU_NOCB_CPU", "TRANSPARENT_HUGEPAGE",
)  # fmt: skip
_LINE = re.compile(r"^CONFIG_(%s)=\"?([^\"\n]*)\"?$" % "|".join(SYMBOLS), re.MULTILINE)


def parse_config(text: str) -> Dict[str, str]:
    """The values of our symbols; one that is "not set" or isn't known to that kernel is "n". {} for a text without any symbol."""
    if "CONFIG_" not in text:
        return {}
    return {**dict.fromkeys(SYMBOLS, "n"), **dict(_LINE.findall(text))}


def kernel_version(release: str) -> Version:
    """(major, minor) of a release like "6.8.0-60-generic"; (0, 0) when it is no release."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def newest(releases: Iterable[str]) -> Optional[str]:
    """The release with the highest version, numbers compared as numbers ("5.14.0-503" > "5.14.0-70"); None when there is none."""
    return max(releases, key=_version, default=None)


def _version(release: str) -> List[Tuple[bool, Union[int, str]]]:
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in re.findall(r"\d+|[A-Za-z]+", release)]
