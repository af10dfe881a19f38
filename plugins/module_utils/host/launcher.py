# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The launcher concern, and building the launcher on a node that has a compiler."""

from __future__ import annotations

import hashlib
import os
import tempfile
from typing import Optional

from ..core.errors import InvalidInput, UnreadableRoot
from ..core.launcher import DEFAULT_PATH, STAMP_PATH, Reading, artifacts
from .command import Command
from .concern import Concern, Section
from .root import Root

COMPILERS = ("cc", "gcc", "clang")
# As in the Makefile beside the source, which is what builds it everywhere else.
_FLAGS = ("-std=gnu11", "-O2", "-fstack-protector-strong", "-Wl,--build-id=none", "-s")


def read(root: Root, command: Command, section: Section) -> Reading:
    """What is installed, and the program to install where the section names one."""
    launcher = section.get("launcher") or {}
    return Reading(
        installed_sha256=_sha256(root, launcher.get("path") or DEFAULT_PATH),
        stamp=root.read(STAMP_PATH),
        binary=_binary(launcher, command),
        runs_commands=command.live,
    )


def _sha256(root: Root, path: str) -> Optional[str]:
    """Of the bytes, which needn't become text for that; and a program is nothing that a capture should bring home."""
    inside = root.resolve(path)
    try:
        with open(root.local(inside or path), "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return None


def _binary(launcher: Section, command: Command) -> Optional[str]:
    if launcher.get("binary"):
        return _text(launcher["binary"])
    return _build(launcher["source"], command) if launcher.get("source") else None


def _text(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")
    except OSError as problem:
        raise UnreadableRoot("%s can't be read: %s." % (path, problem.strerror), "Name the program as it lies on the node.") from problem


def _build(source: str, command: Command) -> str:
    """Compile the source here; static where the C library allows it."""
    compiler = next((name for name in COMPILERS if command.find(name)), None)
    if compiler is None:
        raise InvalidInput(
            "This node has no C compiler.", "Install gcc on it, or build on the controller (gpufleet_launcher_build: controller)."
        )
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "numaspread")
        build = (compiler, *_FLAGS, "-o", program, source)
        if command.query((*build, "-static")) is None:
            command.run(build)
        return _text(program)


CONCERN = Concern(name="launcher", sections=("launcher",), read=read, artifacts=artifacts)
