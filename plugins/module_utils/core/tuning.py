# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's tuning: every setting live and persistent, through the mechanism that the system has for it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from . import confine, limits, swap, sysctl, sysfs, tuned
from .change import FOREIGN, Artifact, Observation
from .systemd import RELOAD_HAZARD, Parts, reload_effect

SECTIONS = ("sysctl", "transparent_hugepage", "hugepages", "governor", "swap", "limits", "confine")


class Reading(NamedTuple):
    """What the node has. ``sysctl_files`` as (path, text) in the order they are applied, ``misspelt`` sysctls with what is meant; ``tuned``
    is the active profile's name and settings. ``governor_services`` are enabled units that choose governors too. ``reload_hazard`` is true
    when a daemon-reload could take GPUs from running containers."""

    sysctl_files: Tuple[Tuple[str, str], ...] = ()
    misspelt: Mapping[str, str] = {}
    sysfs: sysfs.SysfsReading = sysfs.SysfsReading()
    swap: swap.SwapReading = swap.SwapReading()
    limits: limits.LimitsReading = limits.LimitsReading()
    confine: confine.ConfineReading = confine.ConfineReading()
    tuned: Optional[Tuple[str, Mapping[str, str]]] = None
    governor_services: Tuple[str, ...] = ()
    reload_hazard: bool = False


_THEMES: Dict[str, Callable[[Any, Reading], Parts]] = {
    "sysctl": lambda wanted, reading: sysctl.artifacts(wanted, reading.sysctl_files, reading.misspelt),
    "transparent_hugepage": lambda wanted, reading: sysfs.transparent_hugepage(wanted, reading.sysfs),
    "hugepages": lambda wanted, reading: sysfs.hugepages(wanted, reading.sysfs),
    "governor": lambda wanted, reading: sysfs.governor(wanted, reading.sysfs),
    "swap": lambda wanted, reading: swap.artifacts(wanted, reading.swap),
    "limits": lambda wanted, reading: limits.artifacts(wanted, reading.limits),
    "confine": lambda wanted, reading: confine.artifacts(wanted, reading.confine),
}


def artifacts(section: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    """Everything the sections want: files first, then systemd reads its own again, then what is live.

    A section that is None is left alone; an empty one takes back what was ours.

    :raises InvalidInput: a value that this node can't take
    """
    given = {name: section.get(name) for name in SECTIONS if section.get(name) is not None}
    parts = [_THEMES[name](wanted, reading) for name, wanted in given.items()]
    units = {name: masked for part in parts for name, masked in part.units.items()}
    return [
        *(artifact for part in parts for artifact in part.files),
        *([reload_effect(units, RELOAD_HAZARD if reading.reload_hazard else "")] if units else []),
        *(artifact for part in parts for artifact in part.live),
        *(tuned.clashes(*reading.tuned, given) if reading.tuned else []),
        *_governor_services(given, reading),
    ]


def _governor_services(given: Mapping[str, Any], reading: Reading) -> List[Observation]:
    if not given.get("governor"):
        return []
    return [
        Observation("governor", FOREIGN, "%s chooses governors too: systemctl disable --now %s." % (unit, unit))
        for unit in reading.governor_services
    ]
