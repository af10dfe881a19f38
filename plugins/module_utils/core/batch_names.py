# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names of the batch concern's own units and files, and what it wants of a node that has no services: most have none, so that this is all
they load.
"""

from __future__ import annotations

import posixpath
from typing import Any, Iterable, List, Mapping

from .batch_follow import SLICE
from .change import IN_PLACE, Artifact, File, Observation, always
from .systemd import MARK

PARENT, PINNED_SLICE = "gpufleet.slice", "gpufleet_pinned.slice"
FOLLOW, FOLLOW_PATH, FOLLOW_TIMER = ("gpufleet-batch-cpus." + suffix for suffix in ("service", "path", "timer"))
OWN_UNITS = (PARENT, SLICE, PINNED_SLICE, FOLLOW, FOLLOW_PATH, FOLLOW_TIMER)
PROGRAM = "/usr/local/lib/gpufleet/batch_cpus.pyz"
# The second line of every unit of a service, by which a later run knows that it may take it away.
SERVICE_MARK = MARK + "# From gpufleet_batch_services or gpufleet_pinned_services.\n"
WANTED_BY = {"service": "multi-user.target", "path": "multi-user.target", "timer": "timers.target"}
# Below kubelet's root folder, where localhostProfile names are looked up.
SECCOMP_PROFILE = "seccomp/gpufleet/numa.json"

_OF_NO_SERVICE = {"architecture", "launcher", "install_allocators", "seccomp"}


def has_services(section: Mapping[str, Any]) -> bool:
    """Whether the plan's section ``units`` wants more than the profile for pods."""
    return not {key for key, value in (section.get("units") or {}).items() if value} <= _OF_NO_SERVICE


def seccomp_paths(section: Mapping[str, Any]) -> List[str]:
    """Where the profile for pods is to be, and where it is on most nodes."""
    wanted = str((section.get("units") or {}).get("seccomp") or "")
    return [*([wanted] if wanted else []), posixpath.join("/var/lib/kubelet", SECCOMP_PROFILE)]


def without_services(section: Mapping[str, Any], profiles: Iterable[str]) -> List[Artifact]:
    """What must hold where there are no services and nothing is left of former ones; ``profiles`` as ``seccomp_profiles`` takes them."""
    units = section.get("units") or {}
    nothing = Observation("batch and pinned services", IN_PLACE, "there are none")
    return [nothing, *seccomp_profiles(str(units.get("architecture", "")), str(units.get("seccomp", "")), profiles)]


def seccomp_profiles(architecture: str, wanted: str, paths: Iterable[str]) -> List[Artifact]:
    """The profile for pods at the path ``wanted`` ("" for none), and nowhere else of ``paths``, which name each file once."""
    found: List[Artifact] = []
    for path in sorted({*paths, *filter(None, [wanted])}):
        text = None
        if path == wanted:
            from .seccomp import profile_text

            text = profile_text(architecture)
        found.append(File("seccomp profile for pods", path, always(text)))
    return found
