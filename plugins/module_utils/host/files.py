# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Writing on a node: atomic for files and links, read back for kernel values. Paths are local ones (``Root.local``)."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from typing import Iterator, List, Optional, Tuple

from ..core.errors import WriteFailed

_REMEDIES = {
    errno.EROFS: "Remount it read-write.",
    errno.ENOSPC: "Free some space and run again.",
    errno.EDQUOT: "Free some space and run again.",
    errno.EACCES: "Run as root (become: true).",
    errno.EPERM: "It may be immutable: look at lsattr, take the flag off with chattr -i, and run again.",
}


def failure(path: str, problem: OSError) -> WriteFailed:
    """The refusal for a write that failed, with a remedy by its errno."""
    return WriteFailed("%s can't be written: %s." % (path, problem.strerror), _REMEDIES.get(problem.errno or 0, "Mend that and run again."))


def missing_folders(path: str) -> List[str]:
    """The folders above the path that don't exist yet, outermost first."""
    missing = []
    folder = os.path.dirname(path)
    while folder and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing[::-1]


def write_atomic(path: str, content: bytes, mode: int, enforce_mode: bool = False, owner: Optional[Tuple[int, int]] = None) -> None:
    """Replace a file by rename, flushed to disk. An existing one keeps extended attributes (SELinux, ACL), unless ``owner`` (user, group)
    is given its owner, and unless ``enforce_mode`` its mode; missing folders are made.

    :raises WriteFailed: the old content is untouched
    """
    temporary = ""
    try:
        for folder in missing_folders(path):
            os.mkdir(folder, 0o755)
        # The dot and the suffix keep a leftover of a killed run from being read by whatever reads the folder.
        descriptor, temporary = tempfile.mkstemp(prefix=".gpufleet-", suffix=".tmp", dir=os.path.dirname(path))
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            _take_over(path, descriptor, mode, enforce_mode, owner)
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
        _sync_folder(path)
    except OSError as problem:
        with suppress(OSError):
            os.unlink(temporary)
        raise failure(path, problem) from problem


def _take_over(path: str, descriptor: int, mode: int, enforce_mode: bool, owner: Optional[Tuple[int, int]]) -> None:
    try:
        old: Optional[os.stat_result] = os.stat(path)
    except FileNotFoundError:
        old = None
    owner = owner or ((old.st_uid, old.st_gid) if old else None)
    if owner and owner != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, *owner)
    os.fchmod(descriptor, mode if enforce_mode or not old else old.st_mode & 0o7777)
    if not old:
        return
    with suppress(OSError):  # a file system without extended attributes
        for name in os.listxattr(path):
            os.setxattr(descriptor, name, os.getxattr(path, name))


def write_link(path: str, target: str) -> None:
    """Make or replace a symbolic link by rename.

    :raises WriteFailed: the old link is untouched
    """
    temporary = "%s/.gpufleet-%d.tmp" % (os.path.dirname(path), os.getpid())
    try:
        for folder in missing_folders(path):
            os.mkdir(folder, 0o755)
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(target, temporary)
        os.replace(temporary, path)
        _sync_folder(path)
    except OSError as problem:
        with suppress(OSError):
            os.unlink(temporary)
        raise failure(path, problem) from problem


def remove(path: str) -> None:
    """Remove a file or link; absent is fine.

    :raises WriteFailed: it is still there
    """
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
            _sync_folder(path)
    except OSError as problem:
        raise failure(path, problem) from problem


def remove_leftovers(folder: str) -> None:
    """Remove temporary files that a killed run left in the folder."""
    for name in _leftovers(folder):
        with suppress(OSError):
            os.unlink(os.path.join(folder, name))


def _leftovers(folder: str) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(".gpufleet-") and name.endswith(".tmp"):
                yield name


def write_kernel(path: str, text: str) -> Optional[str]:
    """Write a kernel value in one write, as the kernel needs it; answer the errno's name when it refuses, else None."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, (text + "\n").encode())
        finally:
            os.close(descriptor)
    except OSError as problem:
        return errno.errorcode.get(problem.errno or 0, str(problem.errno))
    return None


def _sync_folder(path: str) -> None:
    descriptor = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
