# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node as it was before our first run.

The plan of nothing says what takes our part out of each file and out of the running system, and in which order. The store knows what was
there first. Where a path is still as we left it, the original comes back byte for byte; where somebody else changed it since, only our part
goes. Nothing is remembered on the way, and the store is emptied last: a run that was killed is finished by the next one.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ..core.change import (
    COMMAND,
    DRIFT,
    FOREIGN,
    IN_PLACE,
    NOT_APPLICABLE,
    PENDING,
    REBOOT,
    RESTART,
    Effect,
    File,
    Finding,
    KernelValue,
    Link,
    Observation,
    Text,
    summary_diff,
)
from ..core.errors import UnreadableRoot
from ..core.kubelet import CONFIGURATION
from ..core.sysfs import chosen_word
from . import files
from .apply import KINDS, Kind, Node, Outcome, apply, nothing_to_remember
from .concerns import CONCERNS, NOTHING
from .refusals import PATH as REFUSED
from .root import Root
from .store import FOLDER

_RESTART = (
    "kubelet runs with our configuration until it is restarted or the node reboots: drain first, stop it, remove "
    "cpu_manager_state and memory_manager_state where their policy or reserve was ours, start it"
)


@dataclass(frozen=True)
class Restore:
    """A path that is to be as before us. ``take_out`` leaves of its present content what isn't ours, None when all of it is."""

    item: str
    path: str
    take_out: Callable[[Text], Text]
    same: Callable[[Text, Text], bool] = lambda current, wanted: current == wanted


@dataclass(frozen=True)
class FirstValue:
    """A kernel value that is to be as the first run found it."""

    path: str
    value: str


@dataclass
class RolledBack:
    """``outcome`` of every step; ``left`` maps a path that somebody else changed to the difference from its original; ``packages`` were
    installed by us and stay, since others may need them by now."""

    outcome: Outcome
    left: Dict[str, str]
    packages: List[str]


def roll_back(node: Node, check_mode: bool = False) -> RolledBack:
    """Bring the node back to where it was before the first run.

    Everything is read, and every refusal made, before the first write. Where a file is yet to be made anew by a command that waits for the
    node to boot (grub.cfg in an image), the store is kept, so that it is made then.

    :raises GpufleetError: something can't be restored; the store is kept then
    """
    steps = list(_steps(node))
    outcome = apply(steps, node, check_mode, _KINDS)
    left = {finding.path: summary_diff(finding) for finding in outcome.findings if finding.status == FOREIGN and finding.path}
    packages = sorted({name for path, names in node.store.packages.items() if node.root.exists(path) for name in names})
    if not check_mode:
        _remove_folders(node)
        for path in left:
            node.store.keep_original(path)
        if not any(finding.until == COMMAND and _is_file(step) for step, finding in zip(steps, outcome.findings)):
            node.store.forget()
            shutil.rmtree(os.path.dirname(node.root.local(REFUSED)), ignore_errors=True)
    return RolledBack(outcome, left, packages)


def _steps(node: Node) -> Iterator[Any]:
    """What the plan of nothing wants, with originals where there are any; then paths that it doesn't know, then kernel values."""
    covered, configured = set(), False
    for concern in CONCERNS:
        section = {name: NOTHING[name] for name in concern.sections}
        for artifact in concern.artifacts(section, concern.read(node.root, node.command, section)):
            if isinstance(artifact, File) and not artifact.path.startswith(FOLDER):
                path = node.root.resolve(artifact.path) or artifact.path
                covered.add(path)
                configured = configured or (artifact.item == CONFIGURATION and path in node.store.files)
                yield Restore(artifact.item, path, artifact.edit if artifact.ours else _kept(artifact.edit), artifact.same)
            elif isinstance(artifact, Link):
                path = node.root.place(artifact.path)
                covered.add(path)
                yield Restore(artifact.item, path, lambda text: text)
            elif not isinstance(artifact, KernelValue):  # what a value was first stands in the store
                yield artifact
    for path in node.store.files:
        if path not in covered and not path.startswith(node.root.place(FOLDER)):
            yield Restore("file that an earlier plan needed", path, lambda text: text)
    # The kernel refuses 0 for a limit whose twin is set: setting the twin makes it 0.
    for path, value in sorted(node.store.kernel.items(), key=lambda item: (item[1] == "0", item)):
        yield FirstValue(path, value)
    if configured:  # kubelet runs with what it read at its start
        yield Observation("kubelet", PENDING, _RESTART, RESTART)


def _kept(edit: Callable[[Text], Text]) -> Callable[[Text], Text]:
    """An edit of a file whose name isn't ours: it never means to take the file away."""
    return lambda text: text if edit(text) is None else edit(text)


# Paths ------------------------------------------------------------------------------------------------------------------


def _inspect_path(step: Restore, node: Node) -> Finding:
    known = node.store.files.get(step.path)
    if known is None or node.store.foreign(step.path):
        return _inspect_foreign(step, node, known is not None)
    original = known["original"]
    before, after = _shown(step.path, node), _original_shown(step.path, node)
    if node.store.now(step.path) == node.store.first(step.path) and (not original or "link" in original or _as_first(step.path, node)):
        return Finding(step.item, IN_PLACE, step.path)
    return Finding(step.item, DRIFT, step.path, before, after, "is not as before the first run")


def _inspect_foreign(step: Restore, node: Node, known: bool) -> Finding:
    """Only our part is to go. What is left is compared with the original, so that it can be looked at."""
    kept = node.store.kept_original(step.path)
    original_kept = "; the original is kept as %s" % kept if kept else ""
    if node.root.link_target(step.path) is not None:
        message = "is somebody else's link now: left as it is" + original_kept
        return Finding(step.item, FOREIGN if known else IN_PLACE, step.path, message=message)
    current, wanted = node.root.read(step.path), _wanted_foreign(step, node)
    if not step.same(current, wanted):
        return Finding(step.item, DRIFT, step.path, current or "", wanted or "", "holds something of ours")
    original = node.store.original_text(step.path)
    if not known or step.same(current, original):
        return Finding(step.item, IN_PLACE, step.path)
    message = "was changed by somebody else since: what can be told to be ours is out of it, the rest is left as it is"
    message = "was removed since" if current is None else message
    return Finding(step.item, FOREIGN, step.path, original or "", current or "", message + original_kept)


def _wanted_foreign(step: Restore, node: Node) -> Text:
    """Their content less our part; where nothing of theirs is left, what was there before us. A removed file stays away."""
    current = node.root.read(step.path)
    theirs = step.take_out(current)
    return theirs if theirs is not None or current is None else node.store.original_text(step.path)


def _mend_path(step: Restore, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    finding = _inspect_path(step, node)  # an earlier step may have had the same path
    if finding.status != DRIFT:
        return finding, False
    if step.path in node.store.files and not node.store.foreign(step.path):
        _write_original(step.path, node)
        return finding._replace(status=IN_PLACE), True
    wanted = _wanted_foreign(step, node)
    kept = node.store.set_aside(step.path) if _is_edited(step, node) else ""
    _write(step.path, wanted, 0o644, None, node)
    after = _inspect_path(step, node)
    if kept:
        return after._replace(status=FOREIGN, message="was ours and somebody edited it: it is kept as %s" % kept), True
    return after, True


def _is_edited(step: Restore, node: Node) -> bool:
    """Whether a file that is ours as a whole holds what we never wrote."""
    known = node.store.files.get(step.path)
    return known is not None and step.take_out(node.root.read(step.path)) is None and node.store.now(step.path) != known["written"]


def _write_original(path: str, node: Node) -> None:
    original = node.store.files[path]["original"]
    if original and "link" in original:
        files.write_link(node.root.local(path), original["link"])
    elif original:
        _write(path, node.store.original_text(path), original["mode"], (original["uid"], original["gid"]), node)
    else:
        files.remove(node.root.local(path))
    node.root = Root(node.root.path)  # a Root remembers where links lead


def _write(path: str, text: Text, mode: int, owner: Optional[Tuple[int, int]], node: Node) -> None:
    local = node.root.local(path)
    if text is None:
        files.remove(local)
        return
    created = not os.path.exists(local)
    files.remove_leftovers(os.path.dirname(local))
    files.write_atomic(local, text.encode("utf-8", "surrogateescape"), mode, owner is not None, owner)
    if created:
        node.command.query(("restorecon", local))


def _as_first(path: str, node: Node) -> bool:
    """Whether mode and owner are the original's."""
    original, status = node.store.files[path]["original"], os.stat(node.root.local(path))
    return (original["mode"], original["uid"], original["gid"]) == (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def _shown(path: str, node: Node) -> str:
    return node.root.link_target(path) or node.root.read(path) or ""


def _original_shown(path: str, node: Node) -> str:
    """The original for a person.

    :raises UnreadableRoot: it is lost
    """
    original = node.store.files[path]["original"]
    if original is None or "link" in original:
        return original["link"] if original else ""
    text = node.store.original_text(path)
    if text is None and node.store.now(path) != original["sha256"]:
        raise UnreadableRoot(
            "The original of %s is missing from %s/originals." % (path, FOLDER), "Restore that folder from a backup, or the file itself."
        )
    return text or ""


# Kernel values ----------------------------------------------------------------------------------------------------------


def _inspect_value(step: FirstValue, node: Node) -> Finding:
    current = node.root.read(step.path)
    if current is None:
        return Finding(step.path, NOT_APPLICABLE, step.path, message="is there no more")
    if _value(current, node).split() == _value(step.value, node).split():
        return Finding(step.path, IN_PLACE, step.path)
    return Finding(step.path, DRIFT, step.path, chosen_word(current), chosen_word(step.value), "is not as before the first run")


def _value(text: str, node: Node) -> str:
    """What can be written: of "always [madvise] never" a kernel takes one word; in a folder it is a file like any other."""
    return chosen_word(text) if node.root.is_live else text


def _mend_value(step: FirstValue, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    if _inspect_value(step, node).status != DRIFT:  # a twin that was written before brought it along
        return finding._replace(status=IN_PLACE), True
    refusal = files.write_kernel(node.root.local(step.path), _value(step.value, node))
    now = _inspect_value(step, node)
    if now.status == IN_PLACE:
        return finding._replace(status=IN_PLACE), True
    why = "refuses it (%s)" % refusal if refusal else "made %s of it" % now.before
    message = "was %s first, but the kernel %s: the next boot sets it anew" % (finding.after, why)
    return now._replace(status=PENDING, until=REBOOT, message=message), False


# The end ----------------------------------------------------------------------------------------------------------------


def _is_file(step: Any) -> bool:
    """Whether the step is about a file on disk; what runs is gone at the next boot anyway."""
    return isinstance(step, Effect) and isinstance(step.probe, str) and not step.probe.startswith(("/proc/", "/run/", "/sys/"))


def _remove_folders(node: Node) -> None:
    """Folders that we made go when they are empty."""
    for folder in sorted(node.store.folders, key=len, reverse=True):
        with suppress(OSError):
            os.rmdir(node.root.local(folder))


_KINDS: Dict[type, Kind] = {
    **KINDS,
    Restore: Kind(_inspect_path, nothing_to_remember, _mend_path),
    FirstValue: Kind(_inspect_value, nothing_to_remember, _mend_value),
}
