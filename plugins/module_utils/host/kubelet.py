# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node has of the kubelet concern: kubelet's configuration files, its state files, and since when it runs."""

from __future__ import annotations

import os
import posixpath
import re
from typing import List

from ..core import kubelet
from ..core.kubelet import DROP_IN, KNOWN_FOLDERS, Reading
from .command import Command
from .concern import Concern, Section
from .root import Root
from .store import Store

# The mark stands in the first line of a file that holds our keys.
_MARK_WITHIN = 200

STATE_FILES = ("cpu_manager_state", "memory_manager_state")


def read(root: Root, command: Command, section: Section) -> Reading:
    """What kubelet reads and remembers.

    :raises UnreadableRoot: a file is there and can't be read
    :raises InvalidInput: the section isn't what the plan holds
    """
    wanted = section["kubelet"] or {}
    kubelet.check_section(wanted)
    folder = wanted.get("config_dir") or ""
    main_file = kubelet.main_of(wanted)
    state_folder = wanted.get("root_dir") or "/var/lib/kubelet"
    own = kubelet.place(wanted)
    candidates = [posixpath.join(known, DROP_IN) for known in (*KNOWN_FOLDERS, *([folder] if folder not in KNOWN_FOLDERS else [])) if known]
    others = [name for name in root.names(folder) if name.endswith(".conf") and name != DROP_IN] if folder else []
    states = {name: root.read(posixpath.join(state_folder, name)) for name in STATE_FILES}
    return Reading(
        main=root.read(main_file) if main_file else None,
        drop_ins={path: root.read(path) or "" for path in (posixpath.join(folder, name) for name in others)},
        ours=tuple(path for path in candidates if root.exists(path)),
        merged=tuple(path for path in Store(root).files if path != main_file and _holds_our_keys(root, path)),
        states={name: text for name, text in states.items() if text is not None},
        own_text=root.read(own),
        stale=bool(wanted) and _stale(root, command, wanted["unit"], [own]),
    )


def _holds_our_keys(root: Root, path: str) -> bool:
    return kubelet.MARK in (root.read(path, limit=_MARK_WITHIN) or "")


def _stale(root: Root, command: Command, unit: str, paths: List[str]) -> bool:
    """Whether the unit has been running since before one of the files was last written. Never off a live root: nothing runs there."""
    pid = (command.query(("systemctl", "show", "-p", "MainPID", "--value", unit)) or "0").strip()
    process, booted = root.read("/proc/%s/stat" % pid), re.search(r"^btime (\d+)$", root.read("/proc/stat") or "", re.MULTILINE)
    if pid in ("", "0") or process is None or booted is None:
        return False
    # Field 22, counted behind the command's name, which may hold blanks: the start in clock ticks after the boot.
    ticks = int(process.rpartition(")")[2].split()[19])
    started = int(booted.group(1)) + ticks / os.sysconf("SC_CLK_TCK")
    return any(os.stat(root.local(path)).st_mtime > started for path in paths if root.exists(path))


CONCERN = Concern("kubelet", ("kubelet",), read, kubelet.artifacts)
