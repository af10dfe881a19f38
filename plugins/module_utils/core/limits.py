# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Limits of locked memory and open files, for logins (pam_limits) and for services (systemd): neither reaches the other's processes."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .change import FOREIGN, PENDING, RESTART, Artifact, Effect, File, Observation, Text, always
from .errors import InvalidInput, unknown_name
from .systemd import DAEMON_RELOAD, MARK, Parts, drop_in

LOGINS = "/etc/security/limits.d/zz-gpufleet.conf"
SERVICES = "/etc/systemd/system.conf.d/zz-gpufleet.conf"
SERVICES_FOLDER = "/etc/systemd/system.conf.d"

# Services whose children are the workloads, and whose units may set limits of their own that the manager's default doesn't change.
RUNTIMES = (
    "containerd.service", "docker.service", "crio.service", "kubelet.service", "k3s.service", "k3s-agent.service",
    "rke2-server.service", "rke2-agent.service", "slurmd.service",
)  # fmt: skip

_UNLIMITED = ("unlimited", "infinity", str(2**64 - 1))


class LimitsReading(NamedTuple):
    """``units`` are those of RUNTIMES that exist, ``running`` their main processes as (unit, pid). ``services`` is the text of our
    system.conf.d file, ``later`` those of others that sort after it, as (path, text). ``nr_open`` caps the number of open files."""

    units: Tuple[str, ...] = ()
    running: Tuple[Tuple[str, int], ...] = ()
    services: Text = None
    later: Tuple[Tuple[str, str], ...] = ()
    nr_open: Optional[int] = None


def artifacts(limits: Mapping[str, Any], reading: LimitsReading) -> Parts:
    """Limits for logins and services; what runs already keeps its own until it is restarted.

    :raises InvalidInput: an unknown limit, or a value that can't be
    """
    wanted = _check(limits, reading.nr_open)
    settings = ["Limit%s=%s" % (name.upper(), "infinity" if value is None else value) for name, value in wanted.items()]
    manager = "%s[Manager]\n%s" % (MARK, "".join("Default%s\n" % setting for setting in settings))
    files: List[Artifact] = [
        File("limits of logins", LOGINS, always(_logins(wanted) if wanted else None)),
        File("limits of services", SERVICES, always(manager if wanted else None)),
    ]
    files.extend(drop_in("limits of %s" % unit, unit, "Service", settings if unit in reading.units else []) for unit in RUNTIMES)
    live: List[Artifact] = [_default_effect(wanted, reading)] if wanted or reading.services else []
    live.extend(_overriders(reading.later) if wanted else [])
    live.extend(_running(unit, pid, wanted) for unit, pid in reading.running if wanted)
    return Parts(files, live, dict.fromkeys(reading.units, False))


def _check(limits: Mapping[str, Any], nr_open: Optional[int]) -> Dict[str, Optional[int]]:
    """Bytes or a number; None is unlimited."""
    wanted: Dict[str, Optional[int]] = {}
    for name, given in limits.items():
        if name not in ("memlock", "nofile"):
            raise unknown_name("limit", name, ("memlock", "nofile"))
        text = str(given).strip()
        if text in ("unlimited", "infinity") and name == "memlock":
            wanted[name] = None
        elif re.match(r"\d+\Z", text) and int(text) > 0:
            wanted[name] = int(text)
        else:
            remedy = 'Give "unlimited" or a number of bytes.' if name == "memlock" else "Give a number of files, like 1048576."
            raise InvalidInput('The limit %s can\'t be "%s".' % (name, given), remedy)
    nofile = wanted.get("nofile")
    if nofile is not None and nr_open is not None and nofile > nr_open:
        raise InvalidInput(
            "The limit nofile %d is above fs.nr_open %d: nobody could log in any more." % (nofile, nr_open), "Give at most %d." % nr_open
        )
    return {name: wanted[name] for name in sorted(wanted)}


def _logins(wanted: Mapping[str, Optional[int]]) -> str:
    """limits.conf(5): memlock counts KiB, and the wildcard leaves root out."""
    lines = [MARK]
    for name, value in wanted.items():
        text = "unlimited" if value is None else str(-(-value // 1024) if name == "memlock" else value)
        lines.extend("%-4s - %s %s\n" % (who, name, text) for who in ("*", "root"))
    return "".join(lines)


def _default_effect(wanted: Mapping[str, Optional[int]], reading: LimitsReading) -> Effect:
    """The manager's defaults as ``systemctl show`` has them; without wanted ones, those of our former file are to be gone."""
    former = dict(re.findall(r"^(DefaultLimit\w+)=(.*)$", reading.services or "", re.MULTILINE))

    def right(text: Text) -> bool:
        if text is None or reading.later:  # no systemd at work, or somebody else's word counts
            return True
        shown = dict(line.partition("=")[::2] for line in text.splitlines())
        if not wanted:
            return not former or any(not _same_limit(shown.get(name, ""), value) for name, value in former.items())
        return all(_same_limit(shown.get("DefaultLimit" + name.upper(), ""), value) for name, value in wanted.items())

    probe = ("systemctl", "show", "--property=DefaultLimitMEMLOCK,DefaultLimitNOFILE")
    return Effect("default limits of services", probe, right, DAEMON_RELOAD)


def _same_limit(shown: str, wanted: Any) -> bool:
    unlimited = wanted is None or str(wanted) in _UNLIMITED
    return shown in _UNLIMITED if unlimited else shown == str(wanted)


def _overriders(later: Tuple[Tuple[str, str], ...]) -> List[Observation]:
    return [
        Observation(
            "default limits of services", FOREIGN, "%s sets DefaultLimit values and is read after ours: take them out there." % path
        )
        for path, _text in later
    ]


def _running(unit: str, pid: int, wanted: Mapping[str, Optional[int]]) -> Effect:
    return Effect(
        unit,
        "/proc/%d/limits" % pid,
        _has_limits(wanted),
        unmet=PENDING,
        until=RESTART,
        message="runs with its former limits until it is restarted: systemctl restart %s, when its workloads allow." % unit,
    )


def _has_limits(wanted: Mapping[str, Optional[int]]) -> Callable[[Text], bool]:
    """Whether a /proc/PID/limits has at least the wanted soft limits; a process that is gone has no wrong ones."""
    rows = {"memlock": "Max locked memory", "nofile": "Max open files"}

    def has(text: Text) -> bool:
        soft = dict(re.findall(r"^(Max \S+(?: \S+)*?) {2,}(\S+)", text or "", re.MULTILINE))
        return text is None or all(_at_least(soft.get(rows[name], ""), value) for name, value in wanted.items())

    return has


def _at_least(shown: str, wanted: Optional[int]) -> bool:
    return shown == "unlimited" or (wanted is not None and shown.isdigit() and int(shown) >= wanted)
