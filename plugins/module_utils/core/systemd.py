# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemd unit names, drop-ins, masks and the question whether the manager has to read unit files again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping, Sequence, Tuple

from .change import Artifact, Effect, File, Link, Text, always

UNIT_FOLDER = "/etc/systemd/system"
DROP_IN = "zz-gpufleet.conf"  # drop-ins are read by name, the last assignment wins
MARK = "# Written by gpufleet.node. Changes here are overwritten.\n"
# Of the services that run a program of ours: what none of them needs.
SANDBOX = """\
ProtectSystem=strict
ProtectHome=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
PrivateTmp=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
"""
DAEMON_RELOAD = ("systemctl", "daemon-reload")
RELOAD_HAZARD = (
    "GPU containers started through NVIDIA's runtime hook can lose their GPUs at this daemon-reload: run "
    "`nvidia-ctk system create-dev-char-symlinks --create-all` first, or drain the node"
)

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.")


@dataclass
class Parts:
    """What a theme wants: ``files`` come first, ``live`` after systemd has read them again; ``units`` maps those whose files are ours
    to whether they are to be masked."""

    files: List[Artifact] = field(default_factory=list)
    live: List[Artifact] = field(default_factory=list)
    units: Mapping[str, bool] = field(default_factory=dict)


def unit_name(path: str, suffix: str) -> str:
    """The name of the unit for a path ("/dev/disk/by-label/a b" → "dev-disk-by\\x2dlabel-a\\x20b.swap"); see systemd.unit(5), escaping."""
    parts = [part for part in path.split("/") if part]
    text = "-".join(_escape(part) for part in parts) or "-"
    return ("\\x2e" + text[1:] if text.startswith(".") else text) + suffix


def _escape(part: str) -> str:
    return "".join(c if c in _PLAIN else "".join("\\x%02x" % b for b in c.encode("utf-8", "surrogateescape")) for c in part)


def drop_in_path(unit: str) -> str:
    """Where our drop-in of a unit lies."""
    return "%s/%s.d/%s" % (UNIT_FOLDER, unit, DROP_IN)


def drop_in(item: str, unit: str, section: str, lines: Sequence[str]) -> File:
    """Our drop-in of a unit; without lines it is to be absent."""
    text = "%s[%s]\n%s\n" % (MARK, section, "\n".join(lines)) if lines else None
    return File(item, drop_in_path(unit), always(text))


def mask(item: str, unit: str, masked: bool) -> Link:
    """The unit masked, or as it was before us."""
    return Link(item, "%s/%s" % (UNIT_FOLDER, unit), "/dev/null" if masked else None)


def reload_effect(units: Mapping[str, bool], message: str = "") -> Effect:
    """systemd reads unit files again only when it says that it has to for one of these, or doesn't see one of them as masked.

    A unit that had failed before its file went is in the state "error" once the file is back: only a daemon-reload gets it out of there.
    A daemon-reload is no harmless thing: it rewrites the device rules of running containers.
    """
    names = tuple(sorted(units))

    def up_to_date(text: Text) -> bool:
        if text is None:  # no systemd at work here: whoever boots this reads all files
            return True
        shown = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in text.strip().split("\n\n")]
        return all(
            properties.get("NeedDaemonReload") != "yes"
            and properties.get("LoadState") != "error"
            and (not units[name] or properties.get("LoadState") == "masked")
            for name, properties in zip(names, shown)
        )

    probe: Tuple[str, ...] = ("systemctl", "show", "--property=LoadState,NeedDaemonReload", "--", *names)
    return Effect("systemd has read our unit files", probe, up_to_date, DAEMON_RELOAD, message=message)
