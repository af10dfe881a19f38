# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was on the node before us: first originals of files and links, first values of kernel settings, in /var/lib/gpufleet. And which
packages came with us.

``state.json`` is written before the first write of a run, atomically; originals lie beside it by their SHA-256, and what we wrote in their
place by its path. So at any moment, power loss included, a path holds its original, what an earlier run wrote, or what the state says this
run was going to write. Anything else is somebody else's work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Sequence

from ..core.errors import GpufleetError, UnreadableRoot, WriteFailed
from .files import failure, missing_folders, remove, write_atomic
from .root import Root

FOLDER = "/var/lib/gpufleet"
WRITTEN = FOLDER + "/written"  # and the path: what we wrote last to a file that was there before us
BOOT_ID = "/proc/sys/kernel/random/boot_id"

_OF_ONE_INTERRUPT = re.compile(r"/proc/irq/\d+/")
_LOCK, _SET_ASIDE = "lock", "set-aside"  # what stays below FOLDER when the rest is forgotten


def digest(text: str) -> str:
    """The SHA-256 of a content in our text form (UTF-8 with surrogate escapes)."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


class Store:
    """The state below one root. ``files``: place (Root.place) to {original, written, before, foreign}; ``kernel``: path to its first value;
    ``folders`` we made; ``packages``: path of a file that was missing to the packages that were installed for it; ``boot_id`` of the boot
    that interrupt numbers belong to.

    ``original`` is null (absent), {link: target} or {sha256, mode, uid, gid}; ``written`` is the SHA-256 of what we wrote,
    "link:TARGET", or null when we took the path away; ``before`` is the same of what the last write found, and ``foreign`` says that
    somebody else had changed the path by then. Values of single interrupts are of one boot: the next one numbers them anew.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._path = root.local(FOLDER + "/state.json")
        text = root.read(FOLDER + "/state.json")
        try:
            state = json.loads(text) if text else {}
            self.files: Dict[str, Dict[str, Any]] = {root.place(path): {**known} for path, known in state.get("files", {}).items()}
            self.kernel: Dict[str, str] = {**state.get("kernel", {})}
            self.folders: List[str] = [*state.get("folders", [])]
            self.packages: Dict[str, List[str]] = {path: [*names] for path, names in state.get("packages", {}).items()}
            self.boot_id = (root.read(BOOT_ID) or "").strip()
            if state.get("boot_id", self.boot_id) != self.boot_id:
                self.kernel = {path: value for path, value in self.kernel.items() if not _OF_ONE_INTERRUPT.match(path)}
        except (ValueError, AttributeError, TypeError) as problem:
            raise UnreadableRoot(
                "%s/state.json is damaged and can't be read." % FOLDER,
                "Restore it from a backup, or move it away: then there is no roll-back to before it.",
            ) from problem
        self._dirty = False

    def known(self, path: str) -> Optional[Dict[str, Any]]:
        """What ``files`` has of the path; None when we never wrote there."""
        return self.files.get(self._root.place(path))

    def remember_file(self, path: str, written: Optional[str]) -> None:
        """Keep the first original of a path and note what is about to be written (our text form, or None for absent)."""
        self._remember(path, None if written is None else digest(written), written)

    def remember_link(self, path: str, target: Optional[str]) -> None:
        """Keep the first original of a path that becomes a link (or goes, for None)."""
        self._remember(path, None if target is None else "link:" + target)

    def remember_kernel(self, path: str, value: str) -> None:
        """Keep the first value of a kernel setting."""
        if path not in self.kernel:
            self.kernel[path] = value
            self._dirty = True

    def remember_packages(self, path: str, names: Sequence[str]) -> None:
        """Note which packages are installed for a file that is missing."""
        if self.packages.get(path) != list(names):
            self.packages[path] = list(names)
            self._dirty = True

    def original_text(self, path: str) -> Optional[str]:
        """The content of a regular file before our first write; None when it was absent, a link, or never written by us."""
        original = (self.known(path) or {}).get("original")
        if not original or "sha256" not in original:
            return None
        return self._root.read("%s/originals/%s" % (FOLDER, original["sha256"]))

    def written_text(self, path: str) -> Optional[str]:
        """What we wrote last to a file that was there before us; None when that isn't known."""
        text = self._root.read(WRITTEN + self._root.place(path))
        return text if text is not None and digest(text) == (self.known(path) or {}).get("written") else None

    def now(self, path: str) -> Optional[str]:
        """What lies at the path, in the terms of ``written``."""
        target = self._root.link_target(path)
        if target is not None:
            return "link:" + target
        text = self._root.read(path)
        return None if text is None else digest(text)

    def first(self, path: str) -> Optional[str]:
        """What lay at the path before our first write, in the terms of ``written``."""
        original = self.files[path]["original"]
        if original is None:
            return None
        return "link:%s" % original["link"] if "link" in original else str(original["sha256"])

    def foreign(self, path: str) -> bool:
        """Whether somebody else changed a path since we know it. A link is ours or it isn't; a file may hold the work of both."""
        known, now = self.files[path], self.now(path)
        shared = known.get("foreign", False) and not (now or "").startswith("link:")
        return shared or now not in (known["written"], known.get("before"), self.first(path))

    def set_aside(self, path: str) -> str:
        """Keep what lies at the path, which is neither the original nor ours, and answer where."""
        kept = "%s/%s%s" % (FOLDER, _SET_ASIDE, path)
        text = self._root.read(path) or ""
        write_atomic(self._root.local(kept), text.encode("utf-8", "surrogateescape"), 0o600)
        return kept

    def kept_original(self, path: str) -> str:
        """Where ``keep_original`` keeps the first content of a file; "" when it was no regular file."""
        return "" if self.original_text(path) is None else "%s/%s%s.original" % (FOLDER, _SET_ASIDE, path)

    def keep_original(self, path: str) -> None:
        """Keep what lay at the path before our first write when the rest is forgotten."""
        text = self.original_text(path)
        if text is not None:
            write_atomic(self._root.local(self.kept_original(path)), text.encode("utf-8", "surrogateescape"), 0o600)

    def forget(self) -> None:
        """Know nothing any more: the next run keeps originals afresh. What was set aside stays, and the lock, which may be held."""
        remove(self._path)
        for name in self._root.names(FOLDER):
            local = self._root.local("%s/%s" % (FOLDER, name))
            if name not in (_LOCK, _SET_ASIDE):
                shutil.rmtree(local) if os.path.isdir(local) and not os.path.islink(local) else remove(local)
        self.files, self.kernel, self.folders, self.packages, self._dirty = {}, {}, [], {}, False

    def save(self) -> None:
        """Write the state when it has news."""
        if self._dirty:
            state = {
                "boot_id": self.boot_id,
                "files": self.files,
                "folders": self.folders,
                "kernel": self.kernel,
                "packages": self.packages,
                "schema": 1,
            }
            write_atomic(self._path, (json.dumps(state, indent=1, sort_keys=True) + "\n").encode(), 0o600)
            self._dirty = False

    def _remember(self, path: str, written: Optional[str], text: Optional[str] = None) -> None:
        path = self._root.place(path)
        news: Dict[str, Any] = {"written": written, "before": self.now(path)}
        if path in self.files:
            news = {**self.files[path], **news, "foreign": self.foreign(path)}
        else:
            news = {**news, "original": self._keep_original(path), "foreign": False}
            self._remember_folders(path)
        if text is not None and "sha256" in (news["original"] or {}):
            write_atomic(self._root.local(WRITTEN + path), text.encode("utf-8", "surrogateescape"), 0o600)
        self._dirty = self._dirty or self.files.get(path) != news
        self.files[path] = news

    def _keep_original(self, path: str) -> Optional[Dict[str, Any]]:
        local = self._root.local(path)
        try:
            status = os.lstat(local)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise failure(local, problem) from problem
        if stat.S_ISLNK(status.st_mode):
            return {"link": os.readlink(local)}
        if not stat.S_ISREG(status.st_mode):
            raise WriteFailed("%s is in the way: it is no regular file." % local, "Move it away and run again.")
        text = self._root.read(path) or ""
        sha256 = digest(text)
        blob = self._root.local("%s/originals/%s" % (FOLDER, sha256))
        if not os.path.exists(blob):
            write_atomic(blob, text.encode("utf-8", "surrogateescape"), 0o600)
        return {"sha256": sha256, "mode": stat.S_IMODE(status.st_mode), "uid": status.st_uid, "gid": status.st_gid}

    def _remember_folders(self, path: str) -> None:
        base = "" if self._root.is_live else self._root.path
        for folder in missing_folders(self._root.local(path)):
            inside = folder[len(base) :]
            if inside not in self.folders:
                self.folders.append(inside)


@contextmanager
def locked(root: Root, wait_seconds: float = 60.0) -> Iterator[None]:
    """Hold the node's lock; a second run waits for it.

    :raises WriteFailed: the node's memory can't be written
    :raises GpufleetError: another run still holds it
    """
    path = root.local(FOLDER + "/lock")
    try:
        for folder in missing_folders(path):
            os.makedirs(folder, 0o755, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise failure(path, problem) from problem
    try:
        deadline = time.monotonic() + wait_seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise GpufleetError(
                        "Another run of gpufleet.node is at work on this node.", "Wait until it has ended and run again."
                    ) from None
                time.sleep(0.2)
        yield
    finally:
        os.close(descriptor)
