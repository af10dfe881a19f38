# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a concern wants of a node (artifacts), and what was found there (findings). Apply and verify share both.

An artifact never says "write this": it says what must hold, as a pure function of what is there now. So a second run is empty by
construction, a run that was killed half-way is finished by the next one, and verify can't disagree with apply.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

# Statuses of a finding.
IN_PLACE = "in_place"
DRIFT = "drift"
PENDING = "pending"  # right on disk; the running system follows later, at what `until` says
NOT_APPLICABLE = "not_applicable"
FOREIGN = "owned_by_someone_else"
STATUSES = (IN_PLACE, DRIFT, PENDING, NOT_APPLICABLE, FOREIGN)

# What a pending finding waits for.
REBOOT = "reboot"
RESTART = "restart"  # of the process or unit that the message names
REMOVAL = "removal"  # of a file that the unit that the message names would not start on
INTERRUPT = "interrupt"  # the next one on that line moves it
COMMAND = "command"  # a command that can't run on a root that isn't live

Text = Optional[str]  # a file's content; None: the file is absent


def always(text: Text) -> Callable[[Text], Text]:
    """An edit that wants this text whatever is there (None: the file is to be absent)."""
    return lambda current: text


class File(NamedTuple):
    """A file of ours, or our part of somebody else's.

    ``edit`` maps the current content to the wanted one and must be idempotent: edit(edit(x)) == edit(x). Content is UTF-8 with
    surrogate escapes, so that any bytes survive. ``mode`` is for a file that is created; an existing one keeps its own
    unless ``enforce_mode``. ``same`` compares meanings when text alone would lie. ``ours`` is False for a path that isn't ours by its
    name: then "absent" means "as it was before our first write", and without such a write it is left alone. ``news``: whoever has read the
    file has to read it again when it is written.
    """

    item: str
    path: str
    edit: Callable[[Text], Text]
    mode: int = 0o644
    enforce_mode: bool = False
    same: Callable[[Text, Text], bool] = lambda current, wanted: current == wanted
    ours: bool = True
    news: bool = True


class Link(NamedTuple):
    """A symbolic link to ``target``; None: as it was before our first write (a link somebody else made stays).

    A regular file at the path is never replaced: it is somebody else's.
    """

    item: str
    path: str
    target: Optional[str]


class KernelValue(NamedTuple):
    """A live value under /proc or /sys.

    ``wanted`` lists acceptable texts in order of preference: the next is tried when the kernel answers ENOSPC. ``same`` compares what is
    read with each of them. ``refusals`` maps an errno name (EIO) to (status, message): answers that are facts about the node, not faults.
    ``if_absent`` is the status when the file doesn't exist on a live root; under any other root it is pending until boot.
    ``shown`` extracts what a person wants to see from the raw text. ``tied`` are files that the kernel changes along with this one.
    """

    item: str
    path: str
    wanted: Tuple[str, ...]
    same: Callable[[str, str], bool]
    refusals: Mapping[str, Tuple[str, str]] = {}
    if_absent: str = NOT_APPLICABLE
    shown: Callable[[str], str] = str.strip
    tied: Tuple[str, ...] = ()


class Installs(NamedTuple):
    """A package that a command installs. ``listing`` is the command that prints "installed NAME" for each package that is there."""

    package: str
    listing: Tuple[str, ...]


class Effect(NamedTuple):
    """A state that commands bring about, seen in a file or in a read-only command's output.

    ``probe`` is a path, or an argument vector (run on a live root only). ``satisfied`` judges its text (None: absent).
    ``command`` mends it, on a live root; elsewhere it is listed as pending. Without a command, ``unmet`` and ``message`` say what holds
    until somebody acts (pending until reboot, owned by someone else). ``installs`` goes with a command that installs the package of the
    file ``probe``: rollback lists it.
    """

    item: str
    probe: Union[str, Tuple[str, ...]]
    satisfied: Callable[[Text], bool]
    command: Optional[Tuple[str, ...]] = None
    unmet: str = DRIFT
    message: str = ""
    until: str = ""
    installs: Optional[Installs] = None


class Observation(NamedTuple):
    """Something the reader has judged already: a finding that no write of ours changes."""

    item: str
    status: str
    message: str
    until: str = ""


Artifact = Union[File, Link, KernelValue, Effect, Observation]


class Finding(NamedTuple):
    """One artifact against the node. ``before`` and ``after`` are texts for the diff; equal when in place."""

    item: str
    status: str
    path: str = ""
    before: str = ""
    after: str = ""
    message: str = ""
    command: Optional[Tuple[str, ...]] = None
    until: str = ""


def unified(findings: Sequence[Finding]) -> List[Dict[str, str]]:
    """Ansible's diff entries for what drifted. Content that isn't text is shown by its length only."""
    return [
        {"before_header": f.path or f.item, "after_header": f.path or f.item, "before": _printable(f.before), "after": _printable(f.after)}
        for f in findings
        if f.status == DRIFT and f.before != f.after
    ]


def summary_diff(finding: Finding) -> str:
    """A unified diff as text, with one line of context."""
    import difflib  # here, since on most nodes nothing differs

    lines = difflib.unified_diff(
        _printable(finding.before).splitlines(), _printable(finding.after).splitlines(), "before", "after", n=1, lineterm=""
    )
    return "\n".join(lines)


def _printable(text: str) -> str:
    if any("\udc80" <= c <= "\udcff" or c == "\0" for c in text):
        return "(binary, %d bytes)\n" % len(text.encode("utf-8", "surrogateescape"))
    return text if not text or text.endswith("\n") else text + "\n"
