# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node has of the kubelet concern: kubelet's configuration files, its state files, and since when it runs."""

from __future__ import annotations

import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING, Dict, Optional, Sequence

from ..core import kubelet
from ..core.kubelet import DROP_IN, KNOWN_FOLDERS, Reading
from ..core.kubelet_fields import ARGUMENTS, EMBEDDED
from ..core.kubelet_rules import KUBELET_SYSCTLS
from ..core.kubelet_tables import NEWEST_MINOR
from ..core.kubelet_version import minor_of
from .bundle import bundle
from .command import Command
from .concern import Concern, Section
from .interpreter import interpreter
from .kubelet_files import drop_ins, rancher_files
from .root import Root
from .store import WRITTEN, Store
from .written import started_before

if TYPE_CHECKING:  # so that Ansible sends it along; here it isn't loaded
    from . import kubelet_state_program  # noqa: F401

_BOOT_PROGRAM = __name__ + "_state_program"
# Where one of these is, kubelet may demand values of the kernel.
_PROTECTS, _PROTECTS_FLAG = "protectKernelDefaults", "protect-kernel-defaults"
# The mark stands in the first line of a file that holds our keys.
_MARK_WITHIN = 200

STATE_FILES = ("cpu_manager_state", "memory_manager_state")
# There while a run of ours has kubelet stopped.
STOPPED_NOTE = "/run/gpufleet/kubelet.stopped"
# Units at work, or trying to: one that somebody stopped isn't started by us.
_AT_WORK = ("active", "activating", "deactivating", "failed", "reloading")


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
    known = [posixpath.join(known, DROP_IN) for known in KNOWN_FOLDERS]
    named = [*kubelet.at_start(wanted), *filter(None, [wanted.get("patches")])]
    store = Store(root)
    paths = root.once([*named, *known, *store.files])
    heads = {path: root.read(path, limit=_MARK_WITHIN) for path in paths}
    states = {name: root.read(posixpath.join(state_folder, name)) for name in STATE_FILES}
    reading = Reading(
        main=root.read(main_file) if main_file else None,
        drop_ins={path: text for path, text in drop_ins(root, folder).items() if path != posixpath.join(folder, DROP_IN)},
        ours=tuple(path for path, head in heads.items() if head is not None and (path in known or kubelet.is_ours(path, head))),
        merged=tuple(path for path, head in heads.items() if path != main_file and kubelet.MARK in (head or "")),
        states={name: text for name, text in states.items() if text is not None},
        texts={path: root.read(path) for path in kubelet.at_start(wanted)},
        arguments=_arguments(root, wanted.get("distribution")),
    )
    if _PROTECTS in "%s%s" % (reading.main, list(reading.drop_ins.values())) or _PROTECTS_FLAG in wanted.get("flags", ()):
        reading = replace(reading, sysctls=_sysctls(root))
    histories = _histories(root, store, [*reading.merged, *([main_file] if main_file else [])])
    merged = dict.fromkeys((*reading.merged, *(path for path in histories if path != main_file)))
    reading = replace(reading, histories=histories, merged=tuple(merged))
    return _with_state(root, command, wanted, reading) if wanted else reading


def _histories(root: Root, store: Store, paths: Sequence[str]) -> Dict[str, kubelet.History]:
    """What is known of these files, and of others that our keys were merged into, whatever became of them since."""
    names, found = {root.resolve(path): path for path in paths}, {}
    for path, known in store.files.items():
        if "sha256" not in (known["original"] or {}):
            continue
        if path in names or kubelet.MARK in (root.read(WRITTEN + path, limit=_MARK_WITHIN) or ""):
            found[names.get(path, path)] = kubelet.History(store.original_text(path), store.written_text(path))
    return found


def _with_state(root: Root, command: Command, wanted: Section, reading: Reading) -> Reading:
    """What concerns a kubelet that is to be configured: whether it runs, and its state files."""
    shown = command.query(("systemctl", "show", "--property=ActiveState,MainPID", wanted["unit"])) or ""
    unit = dict(line.partition("=")[::2] for line in shown.splitlines())
    configured = reading.main is not None or not kubelet.main_of(wanted)
    at_work = unit.get("ActiveState") in _AT_WORK or root.exists(STOPPED_NOTE)
    reading = replace(
        reading,
        stale=any(started_before(root, unit.get("MainPID", "0"), path) for path in reading.texts),
        restarts=wanted["restart"] == "when_needed" and configured and at_work,
        program=bundle(_BOOT_PROGRAM).decode("utf-8", "surrogateescape"),
        interpreter=interpreter(root),
    )
    if not reading.states:
        return reading
    from .kubelet_state import in_use, read_machine  # only nodes with kubelet at work pay for it

    minor = minor_of(wanted["version"]) if wanted["version"] else NEWEST_MINOR
    return replace(reading, machine=read_machine(root), users=tuple(in_use(root, reading.states, minor)) if command.live else ())


def _arguments(root: Root, distribution: Optional[str]) -> Dict[str, str]:
    if distribution not in EMBEDDED:
        return {}
    return {path: text for path, text in rancher_files(root, distribution).items() if path != ARGUMENTS % distribution}


def _sysctls(root: Root) -> Dict[str, str]:
    """The kernel's values of what kubelet sets or demands, as far as they can be read."""
    found = {name: root.read("/proc/sys/" + name.replace(".", "/")) for name in KUBELET_SYSCTLS}
    return {name: value for name, value in found.items() if value is not None}


CONCERN = Concern("kubelet", ("kubelet",), read, kubelet.artifacts)
