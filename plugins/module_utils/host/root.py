# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The root every path starts at: ``/`` for a live node, any other folder for a mounted image or an unpacked capture.

Symbolic links are resolved inside the root, absolute ones too, as chroot would: nothing outside it is ever read or written.
"""

from __future__ import annotations

import errno
import os
import posixpath
from typing import Dict, List, Optional

from ..core.errors import UnreadableRoot

_MAX_LINKS = 40  # the kernel's MAXSYMLINKS


class Root:
    """A node's file system. ``opened`` lists the paths read so far, in order: what a capture has to bring home."""

    def __init__(self, path: str = "/") -> None:
        self.path = os.path.realpath(path)
        if not os.path.isdir(self.path):
            raise UnreadableRoot('The root "%s" is not a folder.' % path, "Give the folder that holds the node's /etc, /proc and /sys.")
        self.is_live = self.path == "/"
        self._base = "" if self.is_live else self.path
        self._resolved: Dict[str, Optional[str]] = {"/": "/"}
        self.opened: List[str] = []

    def resolve(self, path: str) -> Optional[str]:
        """The path inside the root after all links of its folders and itself; None for a loop or a path below a file."""
        known = self._resolved.get(path)
        if known is not None:
            return known
        current = "/"
        todo = [part for part in path.split("/") if part][::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part == ".":
                continue
            if part == "..":
                current = posixpath.dirname(current)
                continue
            step = posixpath.join(current, part)
            try:
                target = os.readlink(self._base + step)
            except OSError:  # no link, or nothing there: the caller's open tells
                current = step
                continue
            links += 1
            if links > _MAX_LINKS:
                return None
            if target.startswith("/"):
                current = "/"
            todo.extend(p for p in reversed(target.split("/")) if p)
        self._resolved[path] = current
        return current

    def local(self, path: str) -> str:
        """Where the (resolved) path lies on this machine, for a writer. The last component may not exist yet.

        :raises UnreadableRoot: a loop of links
        """
        folder = self.resolve(posixpath.dirname(path))
        if folder is None:
            raise UnreadableRoot('"%s" leads into a loop of symbolic links.' % path, "Mend the links below %s." % self.path)
        return self._base + posixpath.join(folder, posixpath.basename(path))

    def read(self, path: str) -> Optional[str]:
        """The text of a file (UTF-8 with surrogate escapes); None when it isn't there.

        A kernel file that refuses to be read (EINVAL, EIO, ENODEV, EOPNOTSUPP …) is absent for all we can tell.

        :raises UnreadableRoot: permission denied
        """
        inside = self.resolve(path)
        if inside is None:
            return None
        self.opened.append(path)
        try:
            descriptor = os.open(self._base + inside, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as problem:
            if problem.errno in (errno.EACCES, errno.EPERM):
                raise UnreadableRoot("%s can't be read: permission denied." % path, "Run as root (become: true).") from problem
            return None
        try:
            chunks = []
            while True:
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    return b"".join(chunks).decode("utf-8", "surrogateescape")
                chunks.append(chunk)
        except OSError:
            return None
        finally:
            os.close(descriptor)

    def names(self, path: str) -> List[str]:
        """The sorted names in a folder; empty when it isn't there."""
        inside = self.resolve(path)
        try:
            return sorted(os.listdir(self._base + inside)) if inside is not None else []
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
