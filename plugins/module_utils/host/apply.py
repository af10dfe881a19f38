# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Artifacts against a node: ``inspect`` finds, ``apply`` mends what drifted. Verify is inspect alone."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..core.change import (
    COMMAND,
    DRIFT,
    FOREIGN,
    IN_PLACE,
    PENDING,
    REBOOT,
    Artifact,
    Effect,
    File,
    Finding,
    KernelValue,
    Link,
    Observation,
)
from ..core.errors import CommandFailed, WriteFailed
from . import files, written
from .command import Command
from .refusals import Refusals
from .root import Root
from .store import Store


@dataclass
class Outcome:
    """What a run found and did. ``found`` is the state before, ``findings`` the state after."""

    found: List[Finding] = field(default_factory=list)
    findings: List[Finding] = field(default_factory=list)
    changed: bool = False


@dataclass
class Node:
    """A node at work: its root, its commands, and its memory of what was there first and of what the kernel refused."""

    root: Root
    command: Command
    store: Store
    refusals: Refusals

    @classmethod
    def at(cls, path: str) -> Node:
        """The node whose root is the folder ``path``."""
        root = Root(path)
        return cls(root, Command(root), Store(root), Refusals(root))


def inspect(artifacts: Sequence[Artifact], node: Node) -> List[Finding]:
    """One finding per artifact; nothing is written, only read-only commands run."""
    return [KINDS[type(artifact)].inspect(artifact, node) for artifact in artifacts]


def apply(artifacts: Sequence[Any], node: Node, check_mode: bool = False, kinds: Optional[Mapping[type, Kind]] = None) -> Outcome:
    """Mend what drifted, in the artifacts' order. ``kinds`` says how each type of artifact is handled, when there are others than usual.

    Every artifact is inspected, and every original kept, before the first write: a refusal leaves the node untouched.

    :raises WriteFailed: a write failed or reads back as something else
    :raises CommandFailed: a command failed, or ran and didn't help
    """
    kinds = kinds or KINDS
    found = [kinds[type(artifact)].inspect(artifact, node) for artifact in artifacts]
    outcome = Outcome(found=found, findings=list(found))
    if check_mode:
        outcome.changed = any(finding.status == DRIFT for finding in found)
        return outcome
    for artifact, finding in zip(artifacts, found):
        if finding.status == DRIFT or (finding.status == IN_PLACE and isinstance(artifact, KernelValue)):
            kinds[type(artifact)].remember(artifact, finding, node)  # of a kernel value also that it was right without us
    node.store.save()
    for position, artifact in enumerate(artifacts):
        kind = kinds[type(artifact)]
        # An effect may have come undone by the writes before it.
        finding = kind.inspect(artifact, node) if isinstance(artifact, Effect) else found[position]
        if finding.status == DRIFT:
            finding, changed = kind.mend(artifact, finding, node)
            outcome.changed = outcome.changed or changed
        outcome.findings[position] = finding
    node.refusals.save()
    return outcome


def _done(finding: Finding) -> Tuple[Finding, bool]:
    return finding._replace(status=IN_PLACE), True


# Files ------------------------------------------------------------------------------------------------------------------


def _inspect_file(artifact: File, node: Node) -> Finding:
    path = node.root.resolve(artifact.path) or artifact.path
    current = node.root.read(path)
    wanted = artifact.edit(current)
    if wanted is None and not artifact.ours:
        wanted = node.store.original_text(path) if path in node.store.files else current
    right = artifact.same(current, wanted) and not (artifact.enforce_mode and current is not None and _mode(path, node) != artifact.mode)
    return Finding(
        artifact.item, IN_PLACE if right else DRIFT, path, current or "", wanted or "", "" if right else _file_message(current, wanted)
    )


def _file_message(current: Optional[str], wanted: Optional[str]) -> str:
    if wanted is None:
        return "is there and should not be"
    return "is missing" if current is None else "differs"


def _mode(path: str, node: Node) -> int:
    return stat.S_IMODE(os.stat(node.root.local(path)).st_mode)


def _wanted_file(artifact: File, node: Node) -> Optional[str]:
    """The wanted text again: a finding shows absent and empty alike."""
    path = node.root.resolve(artifact.path) or artifact.path
    wanted = artifact.edit(node.root.read(path))
    return node.store.original_text(path) if wanted is None and not artifact.ours else wanted


def _remember_file(artifact: File, finding: Finding, node: Node) -> None:
    node.store.remember_file(finding.path, _wanted_file(artifact, node))


def _mend_file(artifact: File, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    wanted = _wanted_file(artifact, node)
    local = node.root.local(finding.path)
    if wanted is None:
        files.remove(local)
    else:
        files.remove_leftovers(os.path.dirname(local))
        created = not os.path.exists(local)
        if artifact.news:
            written.note(node.root, finding.path)
        files.write_atomic(local, wanted.encode("utf-8", "surrogateescape"), artifact.mode, artifact.enforce_mode)
        if created:
            node.command.query(("restorecon", local))
    return _done(finding)


# Links ------------------------------------------------------------------------------------------------------------------


def _inspect_link(artifact: Link, node: Node) -> Finding:
    current = node.root.link_target(artifact.path)
    if current is None and os.path.lexists(node.root.local(artifact.path)):
        if artifact.target is None:
            return Finding(artifact.item, IN_PLACE, artifact.path)
        return Finding(
            artifact.item,
            FOREIGN,
            artifact.path,
            "",
            artifact.target,
            "a file is at the place of our link to %s: remove it to let us" % artifact.target,
        )
    wanted = artifact.target if artifact.target is not None else _link_before_us(artifact, current, node)
    if current == wanted:
        return Finding(artifact.item, IN_PLACE, artifact.path, current or "", wanted or "")
    return Finding(
        artifact.item, DRIFT, artifact.path, current or "", wanted or "", "is a link to %s" % current if current else "is missing"
    )


def _link_before_us(artifact: Link, current: Optional[str], node: Node) -> Optional[str]:
    known = node.store.known(artifact.path)
    if known is None or known["written"] != "link:%s" % current:
        return current
    return (known["original"] or {}).get("link")


def _remember_link(artifact: Link, finding: Finding, node: Node) -> None:
    node.store.remember_link(artifact.path, finding.after or None)


def _mend_link(artifact: Link, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    local = node.root.local(artifact.path)
    if finding.after:
        files.write_link(local, finding.after)
    else:
        files.remove(local)
    node.root = Root(node.root.path)  # a Root remembers where links lead
    return _done(finding)


# Kernel values ----------------------------------------------------------------------------------------------------------


def _inspect_kernel(artifact: KernelValue, node: Node) -> Finding:
    current = node.root.read(artifact.path)
    if current is None:
        if node.root.is_live:
            return Finding(artifact.item, artifact.if_absent, artifact.path, message="this kernel has no %s" % artifact.path)
        return Finding(
            artifact.item, PENDING, artifact.path, after=artifact.wanted[0], message="takes effect at the next boot", until=REBOOT
        )
    right = any(artifact.same(current, wanted) for wanted in artifact.wanted)
    before, after = artifact.shown(current), artifact.wanted[0]
    if right:
        return Finding(artifact.item, IN_PLACE, artifact.path, before, before)
    refusal = node.refusals.known(artifact.path, artifact.wanted[0], before)
    if refusal in artifact.refusals:
        return Finding(artifact.item, artifact.refusals[refusal][0], artifact.path, before, after, artifact.refusals[refusal][1])
    return Finding(artifact.item, DRIFT, artifact.path, before, after, "is %s, should be %s" % (before or "empty", after))


def _remember_kernel(artifact: KernelValue, finding: Finding, node: Node) -> None:
    for path in (artifact.path, *artifact.tied):
        value = node.root.read(path)
        if value is not None:
            node.store.remember_kernel(path, value.strip())


def _mend_kernel(artifact: KernelValue, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    refusals: List[str] = []
    for wanted in artifact.wanted:
        refusal = files.write_kernel(node.root.local(artifact.path), wanted)
        if refusal is None:
            return _read_back(artifact, wanted, refusals, finding, node)
        refusals.append(refusal)
        if refusal != "ENOSPC":
            break
    return _refused(artifact, refusals[-1], finding, node)


def _read_back(artifact: KernelValue, wanted: str, refusals: Sequence[str], finding: Finding, node: Node) -> Tuple[Finding, bool]:
    now = node.root.read(artifact.path)
    if now is None and "ENOENT" in artifact.refusals:  # it went just now
        return _refused(artifact, "ENOENT", finding, node)
    if now is None or not artifact.same(now, wanted):
        raise WriteFailed(
            "%s reads %s after %s was written." % (artifact.path, "nothing" if now is None else artifact.shown(now), wanted),
            "The kernel took the write but not the value: look at the kernel log.",
        )
    if refusals:
        node.refusals.note(artifact.path, artifact.wanted[0], refusals[0], artifact.shown(now))
    return _done(finding._replace(after=wanted))


def _refused(artifact: KernelValue, refusal: str, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    if refusal not in artifact.refusals:
        raise WriteFailed(
            "The kernel refuses %s for %s with %s." % (finding.after, artifact.path, refusal),
            "Choose a value that this kernel takes, or leave %s out." % artifact.item,
        )
    node.refusals.note(artifact.path, artifact.wanted[0], refusal, finding.before)
    status, message = artifact.refusals[refusal]
    return finding._replace(status=status, message=message), False


# Effects and observations -----------------------------------------------------------------------------------------------


def _probe(artifact: Effect, node: Node) -> Optional[str]:
    return node.root.read(artifact.probe) if isinstance(artifact.probe, str) else node.command.query(artifact.probe)


def _inspect_effect(artifact: Effect, node: Node) -> Finding:
    if artifact.satisfied(_probe(artifact, node)):
        return Finding(artifact.item, IN_PLACE)
    if artifact.command is None:
        return Finding(artifact.item, artifact.unmet, message=artifact.message, until=artifact.until)
    if not node.command.live:
        message = artifact.message or "`%s` makes it so once the node has booted" % " ".join(artifact.command)
        return Finding(artifact.item, PENDING, message=message, command=artifact.command, until=COMMAND)
    return Finding(artifact.item, DRIFT, message=artifact.message, command=artifact.command)


def _remember_effect(artifact: Effect, finding: Finding, node: Node) -> None:
    if artifact.installs and isinstance(artifact.probe, str):
        node.store.remember_packages(artifact.probe, [artifact.installs.package])


def _mend_effect(artifact: Effect, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    if artifact.command is None:  # a drift that only a person can mend
        return finding, False
    before = _installed(artifact, node)
    try:
        node.command.run(artifact.command)
    finally:
        if before and isinstance(artifact.probe, str):  # now by their real names, with those that they need
            node.store.remember_packages(artifact.probe, sorted(_installed(artifact, node) - before))
            node.store.save()
    if not artifact.satisfied(_probe(artifact, node)):
        raise CommandFailed(
            '"%s" ended well, but %s still isn\'t so.' % (" ".join(artifact.command), artifact.item),
            artifact.message or "Look at what it printed.",
        )
    return _done(finding)


def _installed(artifact: Effect, node: Node) -> FrozenSet[str]:
    """The packages on the node, where the effect is to bring one and the node can say."""
    lines = (node.command.query(artifact.installs.listing) or "").splitlines() if artifact.installs else []
    return frozenset(name for state, _space, name in (line.partition(" ") for line in lines) if state == "installed")


def _inspect_observation(artifact: Observation, node: Node) -> Finding:
    return Finding(artifact.item, artifact.status, message=artifact.message, until=artifact.until)


def nothing_to_remember(artifact: Any, finding: Finding, node: Node) -> None:
    """What leaves nothing of ours on the node."""


def _leave(artifact: Artifact, finding: Finding, node: Node) -> Tuple[Finding, bool]:
    return finding, False


class Kind(NamedTuple):
    """How artifacts of a type are found, remembered before the first write, and mended (which answers whether it changed anything)."""

    inspect: Callable[[Any, Node], Finding]
    remember: Callable[[Any, Finding, Node], None]
    mend: Callable[[Any, Finding, Node], Tuple[Finding, bool]]


KINDS: Dict[type, Kind] = {
    File: Kind(_inspect_file, _remember_file, _mend_file),
    Link: Kind(_inspect_link, _remember_link, _mend_link),
    KernelValue: Kind(_inspect_kernel, _remember_kernel, _mend_kernel),
    Effect: Kind(_inspect_effect, _remember_effect, _mend_effect),
    Observation: Kind(_inspect_observation, nothing_to_remember, _leave),
}
