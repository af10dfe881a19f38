# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The launcher on a node: one static program, and beside it what it was built from."""

from __future__ import annotations

import hashlib
import json
from typing import Any, List, Mapping, NamedTuple, Optional

from .change import DRIFT, IN_PLACE, Artifact, Effect, File, Observation, always
from .errors import InvalidInput

DEFAULT_PATH = "/usr/local/bin/numaspread"
STAMP_PATH = "/usr/local/lib/gpufleet/numaspread.json"


class Reading(NamedTuple):
    """``installed_sha256``: of the program on the node, None when it isn't there. ``stamp``: the text of the stamp beside it.

    ``binary``: a program to install, in the text form of files (UTF-8 with surrogate escapes); None when only looking.
    ``runs_commands``: the root is live, so the program can be asked for its version.
    """

    installed_sha256: Optional[str]
    stamp: Optional[str]
    binary: Optional[str]
    runs_commands: bool


def artifacts(section: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    """The program and its stamp; an Observation of drift where the program would have to be brought along first.

    :raises InvalidInput: a launcher without version, source_sha256 or path
    """
    launcher = {key: value for key, value in (section.get("launcher") or {}).items() if value}
    if not launcher:
        return [File("launcher", DEFAULT_PATH, always(None)), File("launcher's stamp", STAMP_PATH, always(None))]
    missing = [key for key in ("version", "source_sha256", "path") if key not in launcher]
    if missing:
        raise InvalidInput("The launcher lacks %s." % ", ".join(missing), "Pass gpufleet_plan.launcher as the plan has it.")
    if is_current(launcher, reading):
        return [Observation("launcher", IN_PLACE, ""), *_version_check(launcher, reading)]
    if reading.binary is None:
        return [
            Observation(
                "launcher", DRIFT, "is missing" if reading.installed_sha256 is None else "is not built from this collection's source"
            )
        ]
    stamp = _stamp(launcher["source_sha256"], _sha256(reading.binary))
    return [
        File("launcher", launcher["path"], always(reading.binary), mode=0o755, enforce_mode=True),
        File("launcher's stamp", STAMP_PATH, always(stamp)),
        *_version_check(launcher, reading),
    ]


def is_current(launcher: Mapping[str, Any], reading: Reading) -> bool:
    """True when the program on the node is the one that its stamp names, built from the source that the plan names."""
    return reading.installed_sha256 is not None and reading.stamp == _stamp(launcher["source_sha256"], reading.installed_sha256)


def _stamp(source_sha256: str, sha256: str) -> str:
    return json.dumps({"sha256": sha256, "source_sha256": source_sha256}, sort_keys=True) + "\n"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _version_check(launcher: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    if not reading.runs_commands:
        return []
    ask = (launcher["path"], "--version")
    # Asking again mends nothing, but its failure says what is wrong: another architecture, a noexec file system.
    message = "It has to run on this node and answer with version %s." % launcher["version"]
    return [Effect("launcher's version", ask, lambda answer: launcher["version"] in (answer or ""), ask, message=message)]
