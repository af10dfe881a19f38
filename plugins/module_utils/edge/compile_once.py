# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Importing this has the modules that are imported after it compiled once, where they come from an archive: AnsiballZ's, or a program of
ours. Once per call, and not at all where an earlier call has kept them (``keep``).

zipimport compiles a module to tell its file's name, which every import asks for, and again to run it. Compiling is most of what a call of
ours costs a node. So every module and program of ours imports this before anything else.

What is kept lies in the user's home, wherever the environment points, one file for each kind of bytecode: SHA-256 of the rest, then name to
(SHA-256 of the source, code). Code whose source is another now is compiled anew. Python 3.9's zipimport doesn't ask a loader for code: it
goes without.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import pwd
import stat
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from contextlib import suppress
from typing import Any, Dict, Tuple
from zipimport import zipimporter

_DIGEST_SIZE = hashlib.sha256().digest_size


def _cache() -> str:
    """Not by HOME or XDG_CACHE_HOME: root may have been handed another user's.

    :raises LookupError: nobody has this user id, so it has no home
    """
    name = "bytecode-1-%s-%d" % (MAGIC_NUMBER[:2].hex(), sys.flags.optimize)
    return os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".cache", "gpufleet", name)


def _kept() -> Dict[str, Tuple[bytes, bytes]]:
    """What earlier calls kept; nothing where anybody else may have written it, or it is damaged."""
    try:
        with open(os.open(_cache(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            status = os.fstat(stream.fileno())
            trusted = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
            content = stream.read() if trusted else b""
    except (OSError, LookupError):
        return {}
    digest, body = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
    return marshal.loads(body) if hashlib.sha256(body).digest() == digest else {}


class Importer(zipimporter):
    """Modules of an archive without bytecode: where a module's file lies follows from its name."""

    known: Dict[str, Tuple[bytes, bytes]] = {}
    has_news = False

    def get_filename(self, fullname: str) -> str:
        """As zipimporter's, without compiling."""
        path = "%s/%s%s" % (self.archive, self.prefix, fullname.rpartition(".")[2])
        return path + ("/__init__.py" if self.is_package(fullname) else ".py")

    def get_code(self, fullname: str) -> Any:
        """As zipimporter's, compiling what isn't known. Its file is named from the archive on, which lies elsewhere in each call."""
        path = self.get_filename(fullname)
        try:
            source = self.get_data(path)
        except OSError:  # another's archive, with bytecode alone
            return super().get_code(fullname)
        digest = hashlib.sha256(source).digest()
        known_digest, code = self.known.get(fullname, (b"", b""))
        if known_digest == digest:
            return marshal.loads(code)
        compiled = compile(source, path[len(self.archive) + 1 :], "exec", dont_inherit=True)
        self.known[fullname] = digest, marshal.dumps(compiled)
        Importer.has_news = True
        return compiled


def keep() -> None:
    """Keep what this call has compiled for the next ones. A cache that can't be written is none."""
    if Importer.has_news:
        from ..core.errors import WriteFailed
        from ..host.files import write_atomic

        body = marshal.dumps(Importer.known)
        owner = os.geteuid(), os.getegid()
        with suppress(LookupError, WriteFailed):
            write_atomic(_cache(), hashlib.sha256(body).digest() + body, 0o600, enforce_mode=True, owner=owner)


if isinstance(globals()["__spec__"].loader, zipimporter):
    Importer.known = _kept()
    sys.path_hooks.insert(0, Importer)
    sys.path_importer_cache.clear()
