# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Bring a node's root home: exactly the files that our readers open, anonymised, as one archive that is a root again.

Never a copy of a tree: /sys and /proc hold files that block, that act when they are read, and links that never end.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import re
import secrets
import stat
import tarfile
from typing import Callable, Dict, Iterable, List, Optional, Set, Tuple

from ..core.anonymise import Anonymiser
from ..core.anonymise_files import anonymous
from ..core.irq import AFFINITY_LIST
from .command import Command
from .irq_live import managed
from .root import Root
from .store import FOLDER, WRITTEN, Store

_INTERRUPT = re.compile(r"/proc/irq/(\d+)/smp_affinity_list\Z")
_FIRST_PERSON_UID = 1000
_NOBODY_UID = 65534


class RecordingRoot(Root):
    """A root that remembers what it was asked for: the files in ``contents``, the folders, the links and what was merely looked for."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.contents: Dict[str, str] = {}
        self.folders: Dict[str, List[str]] = {}
        self.looked_for: Set[str] = set()

    def read(self, path: str, limit: int = 0) -> Optional[str]:
        text = super().read(path, limit)
        if text is not None and len(text) >= len(self.contents.get(path, "")):
            self.contents[path] = text
        return text

    def names(self, path: str) -> List[str]:
        self.folders[path] = super().names(path)
        return self.folders[path]

    def exists(self, path: str) -> bool:
        self.looked_for.add(path)
        return super().exists(path)

    def link_target(self, path: str) -> Optional[str]:
        self.looked_for.add(path)
        return super().link_target(path)


def capture(root: RecordingRoot, read: Callable[[Root, Command], Iterable[str]]) -> bytes:
    """The archive (tar, gzip) of what ``read`` opens below the root.

    ``read`` answers the paths of programs that are this collection's own, byte for byte: they name nobody, and with one byte changed they
    would be others.
    """
    programs = frozenset(map(root.resolve, read(root, Command(root))))
    people, system = _accounts(root)
    anonymiser = Anonymiser(secrets.token_bytes(32), _host_names(root), people, system)
    kept = {known["original"]["sha256"]: path for path, known in Store(root).files.items() if "sha256" in (known["original"] or {})}

    def content(path: str, read_as: str, text: str) -> str:
        """A file's text for the archive. Its format is told by the name that it is read by; an original that we keep has that of the file
        that it was, and so has what we wrote there."""
        format_of = kept.get(posixpath.basename(read_as), read_as) if read_as.startswith(FOLDER + "/") else read_as
        format_of = read_as[len(WRITTEN) :] if read_as.startswith(WRITTEN + "/") else format_of
        return text if path in programs else anonymous(format_of, text, anonymiser)

    return _archive(_entries(root, _managed(root)), anonymiser, content)


def _managed(root: RecordingRoot) -> Set[str]:
    """The affinity files of interrupts that only the kernel moves: not every kernel shows it by their mode, and a copy can't be asked."""
    numbers = [int(match.group(1)) for match in map(_INTERRUPT.match, root.contents) if match]
    return {AFFINITY_LIST % number for number in managed(root, numbers)}


def _host_names(root: RecordingRoot) -> List[str]:
    """The node's names, but none that the kernel's own paths hold as well: a host called "node" or "cpu" gives nobody away."""
    names = [(root.read(path) or "").strip() for path in ("/proc/sys/kernel/hostname", "/etc/hostname")]
    common = {word for path in root.contents if path.startswith(("/sys/", "/proc/")) for word in re.split(r"[^A-Za-z]+", path)}
    return [name for name in names if name and name.partition(".")[0] not in common]


def _accounts(root: Root) -> Tuple[List[str], List[str]]:
    """The node's accounts: those of people, and those of its system."""
    fields = [line.split(":") for line in (Root(root.path).read("/etc/passwd") or "").splitlines()]
    accounts = [(account[0], int(account[2])) for account in fields if len(account) > 2 and account[2].isdigit()]
    people = [name for name, uid in accounts if _FIRST_PERSON_UID <= uid < _NOBODY_UID]
    return people, [name for name, _uid in accounts if name not in people]


class _Entries:
    """The tree of an archive: files by their real path, links as they are, folders for what holds them. ``read_as``: the name by which a
    file is read, by its real path."""

    def __init__(self, root: RecordingRoot, read_only: Set[str]) -> None:
        self._root, self._read_only = root, read_only
        self.files: Dict[str, str] = {}
        self.read_as: Dict[str, str] = {}
        self.links: Dict[str, str] = {}
        self.folders: Set[str] = set()

    def add(self, path: str, text: Optional[str] = None) -> None:
        """A path with all links on its way; text None: an empty file or a folder, whichever it is."""
        real = self._follow(path)
        if text is not None:  # a file with several names may have been read in full by one of them only
            self.files[real] = max(text, self.files.get(real, ""), key=len)
            self.read_as.setdefault(real, path)
        elif os.path.isdir(self._local(real)):
            self.folders.add(real)
        elif os.path.lexists(self._local(real)):
            self.files.setdefault(real, "")

    def _follow(self, path: str, depth: int = 0) -> str:
        here = "/"
        parts = [part for part in path.split("/") if part]
        for position, part in enumerate(parts):
            step = posixpath.normpath(posixpath.join(here, part))
            target = self._root.link_target(step) if part not in (".", "..") else None
            if target is not None and depth < 40:
                self.links[step] = target
                rest = "/".join(parts[position + 1 :])
                return self._follow(posixpath.normpath(posixpath.join(here, target, rest)), depth + 1)
            here = step
        return here

    def mode(self, path: str) -> int:
        """The permissions of a file, and that its owner may read it: whoever unpacks the archive does."""
        mode = stat.S_IMODE(os.lstat(self._local(path)).st_mode) & 0o777 | stat.S_IRUSR
        return mode & ~0o222 if path in self._read_only else mode

    def _local(self, real: str) -> str:
        return ("" if self._root.is_live else self._root.path) + real


def _entries(root: RecordingRoot, read_only: Set[str]) -> _Entries:
    entries = _Entries(root, read_only)
    for path, text in list(root.contents.items()):
        entries.add(path, text)
    for folder, names in list(root.folders.items()):
        entries.add(folder)
        for name in names:
            entries.add(posixpath.join(folder, name))
    for path in sorted(root.looked_for):
        entries.add(path)
    return entries


def _archive(entries: _Entries, anonymiser: Anonymiser, content_of: Callable[[str, str, str], str]) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for folder in sorted(entries.folders):
            archive.addfile(_member(anonymiser.text(folder), tarfile.DIRTYPE, 0o755))
        for path, target in sorted(entries.links.items()):
            member = _member(anonymiser.text(path), tarfile.SYMTYPE, 0o777)
            member.linkname = anonymiser.text(target)
            archive.addfile(member)
        for path, text in sorted(entries.files.items()):
            content = content_of(path, entries.read_as.get(path, path), text).encode("utf-8", "surrogateescape")
            member = _member(anonymiser.text(path), tarfile.REGTYPE, entries.mode(path))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _member(path: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path.lstrip("/"))
    member.type, member.mode = kind, mode
    return member
