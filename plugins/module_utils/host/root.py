# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The root every path starts at: ``/`` for a live node, any other folder for a mounted image or an unpacked capture.

Symbolic links are resolved inside the root, absolute ones too, as chroot would: nothing outside it is ever read or written.
"""

from __future__ import annotations

import errno
import os
from typing import Dict, Iterable, List, Optional

from ..core.errors import UnreadableRoot

_MAX_LINKS = 40  # the kernel's MAXSYMLINKS
_CHUNK = 4096  # a sysfs attribute fits; only cpulist and cpumap of very large machines need more
# Files of one value each: a short read is the end. Other procfs files may hand out their records in any portions.
_SINGLE_VALUES = ("/sys/", "/proc/irq/")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW


def node_root(path: str) -> Root:
    """The root of something that may be a node: for those who write.

    :raises UnreadableRoot: any other folder
    """
    root = Root(path)
    if not any(map(root.exists, ("/etc", "/proc", "/sys"))):
        raise UnreadableRoot('The root "%s" is no node\'s: it has none of /etc, /proc and /sys.' % path, "Give the folder that holds them.")
    return root


class Root:
    """A node's file system. ``opened`` lists the paths read so far, in order: what a capture has to bring home.

    A folder is resolved once. The last component of a path is looked at afresh each time, so a file or a link that is replaced
    meanwhile is seen.
    """

    def __init__(self, path: str = "/") -> None:
        self.path = os.path.realpath(path)
        if not os.path.isdir(self.path):
            raise UnreadableRoot('The root "%s" is not a folder.' % path, "Give the folder that holds the node's /etc, /proc and /sys.")
        self.is_live = self.path == "/"
        self._base = "" if self.is_live else self.path
        self._folders: Dict[str, Optional[str]] = {"": ""}  # the root folder itself is ""
        self.opened: List[str] = []

    def resolve(self, path: str) -> Optional[str]:
        """The path inside the root after all links of its folders and itself; None for a loop."""
        for _unused in range(_MAX_LINKS):
            parent, _slash, name = path.rpartition("/")
            if name in ("", ".", ".."):
                folder = self._folder(path)
                return None if folder is None else folder or "/"
            folder = self._folder(parent)
            if folder is None:
                return None
            here = folder + "/" + name
            try:
                target = os.readlink(self._base + here)
            except OSError:  # no link, or nothing there: the caller's open tells
                return here
            path = target if target.startswith("/") else folder + "/" + target
        return None

    def _folder(self, path: str) -> Optional[str]:
        """A folder with all links resolved; None for a loop, which is one that meets itself while it is being resolved."""
        try:
            return self._folders[path]
        except KeyError:
            pass
        self._folders[path] = None
        parent, _slash, name = path.rpartition("/")
        found = self._folder(parent)
        if found is not None:
            if name == "..":
                found = found.rpartition("/")[0]
            elif name not in ("", "."):
                here = found + "/" + name
                try:
                    target = os.readlink(self._base + here)
                except OSError:
                    found = here
                else:
                    found = self._folder(target if target.startswith("/") else found + "/" + target)
        self._folders[path] = found
        return found

    def place(self, path: str) -> str:
        """The path inside the root with its folder resolved, its last component as it is (it may not exist yet).

        :raises UnreadableRoot: a loop of links
        """
        parent, _slash, name = path.rpartition("/")
        folder = self._folder(parent)
        if folder is None:
            raise UnreadableRoot('"%s" leads into a loop of symbolic links.' % path, "Mend the links below %s." % self.path)
        return folder + "/" + name

    def local(self, path: str) -> str:
        """Where the path's place is on this machine, for a writer.

        :raises UnreadableRoot: a loop of links
        """
        return self._base + self.place(path)

    def once(self, paths: Iterable[str]) -> List[str]:
        """Each file once, by the first of the paths that lead to it: they may have links on their way, and spellings of their own."""
        found: Dict[str, str] = {}
        for path in paths:
            found.setdefault(self.resolve(path) or path, path)
        return list(found.values())

    def read(self, path: str, limit: int = 0) -> Optional[str]:
        """The text of a file (UTF-8 with surrogate escapes), or its first ``limit`` bytes; None when it isn't there.

        A kernel file that refuses to be read (EINVAL, EIO, ENODEV, EOPNOTSUPP …) is absent for all we can tell.

        :raises UnreadableRoot: permission denied
        """
        parent, _slash, name = path.rpartition("/")
        folder = self._folder(parent)
        if folder is None:
            return None
        self.opened.append(path)
        try:
            try:
                descriptor = os.open(self._base + folder + "/" + name, _FLAGS)
            except OSError as problem:
                if problem.errno != errno.ELOOP:  # what O_NOFOLLOW answers for a link
                    raise
                inside = self.resolve(path)
                if inside is None:
                    return None
                descriptor = os.open(self._base + inside, _FLAGS)
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EPERM):
                raise UnreadableRoot("%s can't be read: permission denied." % path, "Run as root (become: true).") from problem
            return None
        try:
            content = os.read(descriptor, limit or _CHUNK)
            if not limit and (len(content) == _CHUNK or (content and not path.startswith(_SINGLE_VALUES))):
                content += _rest(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return content.decode("utf-8", "surrogateescape")

    def names(self, path: str) -> List[str]:
        """The sorted names in a folder; empty when it isn't there."""
        folder = self._folder(path)
        try:
            return sorted(os.listdir(self._base + (folder or "/"))) if folder is not None else []
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """True when the path leads to something inside the root."""
        inside = self.resolve(path)
        return inside is not None and os.path.lexists(self._base + inside)

    def link_target(self, path: str) -> Optional[str]:
        """The text of the symbolic link at the path itself; None when it is none."""
        try:
            return os.readlink(self.local(path))
        except OSError:
            return None


def _rest(descriptor: int) -> bytes:
    """What is left to read."""
    chunks = []
    while True:
        chunk = os.read(descriptor, 1 << 18)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
