# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node with batch or pinned services has of them: what the running ones have read, kubelet's state, the allocators' libraries."""

from __future__ import annotations

from typing import FrozenSet, Mapping, Optional, Sequence, Tuple

from ..core import batch_units, units
from ..core.allocators import library_path
from ..core.batch_names import FOLLOW_PATH
from ..core.systemd import UNIT_FOLDER
from . import batch_program
from .bundle import bundle
from .command import Command
from .concern import Section
from .interpreter import interpreter
from .root import Root
from .systemd import reload_is_hazard, runs_systemd
from .written import started_before

_CGROUPS = "/sys/fs/cgroup"


def read(root: Root, command: Command, section: Section, services: Mapping[str, str], profiles: Sequence[str]) -> units.Reading:
    """What the wanted units need to know. ``services``: texts of an earlier run's units, ``profiles``: where profiles for pods may be."""
    wanted = batch_units.parse(section)
    family = "debian" if root.exists("/usr/bin/dpkg") or root.exists("/var/lib/dpkg") else "redhat"
    paths = {library_path(service.allocator, wanted.architecture, family) for service in wanted.all if service.allocator}
    running = _running(command, [service.unit for service in wanted.all if service.unit in services])
    follows = wanted.slice is not None and wanted.slice.follows_kubelet
    return units.Reading(
        program=bundle(batch_program.__name__).decode("utf-8", "surrogateescape") if follows else "",
        interpreter=interpreter(root) if follows else "",
        services=services,
        follows=root.exists("%s/%s" % (UNIT_FOLDER, FOLLOW_PATH)),
        family=family,
        libraries=frozenset(path for path in paths if root.exists(path)),
        unified=not root.is_live or root.exists(_CGROUPS + "/cgroup.controllers"),
        systemd=runs_systemd(root),
        reload_hazard=reload_is_hazard(root),
        state=root.read(wanted.slice.state_file) if wanted.slice and follows else None,
        running=frozenset(running),
        stale=_stale(root, running),
        seccomp=tuple(profiles),
        kubepods_weight=_weight(root) if wanted.services else None,
    )


def _running(command: Command, names: Sequence[str]) -> Mapping[str, int]:
    """Main processes of those that run, by unit."""
    shown = command.query(("systemctl", "show", "--property=MainPID", "--value", "--", *names)) if names else None
    pids = [line for line in (shown or "").split("\n") if line]
    return {name: int(pid) for name, pid in zip(names, pids) if pid.isdigit() and pid != "0"}


def _stale(root: Root, running: Mapping[str, int]) -> FrozenSet[str]:
    """Services whose process is older than their unit file."""
    return frozenset(name for name, pid in running.items() if started_before(root, str(pid), "%s/%s" % (UNIT_FOLDER, name)))


def _weight(root: Root) -> Optional[int]:
    """cpu.weight of all pods, with either of kubelet's cgroup drivers."""
    folders: Tuple[str, ...] = ("kubepods.slice", "kubepods")
    text = next((text for text in (root.read("%s/%s/cpu.weight" % (_CGROUPS, folder)) for folder in folders) if text), "")
    return int(text) if text.strip().isdigit() else None
