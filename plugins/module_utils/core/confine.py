# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's own daemons and logins on the reserved CPUs: AllowedCPUs= on the slices they live in.

Never CPUAffinity=: on newer kernels every container inherits it for good, on others it is lost when kubelet enables the cpuset controller.
Never on kubepods: kubelet owns it. Source: systemd.resource-control(5), Documentation/admin-guide/cgroup-v2.rst (cpuset).
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, NamedTuple, Sequence, Tuple

from .change import FOREIGN, NOT_APPLICABLE, Artifact, Effect, File, Observation, Text
from .cpuset import CpuSet
from .errors import InvalidInput, unknown_name
from .systemd import Parts, drop_in, drop_in_path

SLICES = ("system.slice", "user.slice", "init.scope")
CGROUPS = "/sys/fs/cgroup"
_ITEM = "CPUs of %s"


class ConfineReading(NamedTuple):
    """``online`` is empty when it can't be told. ``unified`` is False on a live node with cgroup v1. ``drop_ins`` are the texts of ours
    by slice, ``workloads`` what lives below the slices and isn't the host's, as (slice, description), ``strays`` processes of an already
    confined slice that may run elsewhere, as (slice, description)."""

    online: CpuSet = CpuSet()
    unified: bool = True
    drop_ins: Mapping[str, str] = {}
    workloads: Tuple[Tuple[str, str], ...] = ()
    strays: Tuple[Tuple[str, str], ...] = ()


def artifacts(confine: Mapping[str, Any], reading: ConfineReading) -> Parts:
    """Drop-ins of the slices and their live CPUs.

    :raises InvalidInput: a slice that isn't the host's, or CPUs that aren't online
    """
    cpus, slices = _check(confine, reading.online)
    parts = Parts(units=dict.fromkeys(SLICES, False))
    if slices and not reading.unified:
        slices = ()
        parts.live.append(Observation("confinement", NOT_APPLICABLE, "this node runs cgroup v1, where systemd has no AllowedCPUs="))
    for name in SLICES:
        guests = [description for where, description in reading.workloads if where == name]
        if name not in slices:
            _release(name, reading, parts)
        elif guests and not _allows(cpus)(reading.drop_ins.get(name)):
            parts.files.append(File(_ITEM % name, drop_in_path(name), lambda text: text))
            parts.live.append(_refusal(name, guests))
        else:
            parts.files.append(drop_in(_ITEM % name, name, _section(name), ["AllowedCPUs=", "AllowedCPUs=%s" % cpus]))
            parts.live.append(_live(name, _has_cpus(cpus), cpus))
            parts.live.extend(Observation(_ITEM % name, FOREIGN, text) for where, text in reading.strays if where == name)
    return parts


def _check(confine: Mapping[str, Any], online: CpuSet) -> Tuple[CpuSet, Sequence[str]]:
    if not confine:
        return CpuSet(), ()
    for key in confine:
        if key not in ("cpus", "slices"):
            raise unknown_name("key of confine", key, ("cpus", "slices"))
    cpus = CpuSet.parse(str(confine.get("cpus", "")))
    slices = confine.get("slices", SLICES)
    for name in slices:
        if name not in SLICES:
            raise InvalidInput('"%s" is not a slice of the host\'s own daemons and logins.' % name, "Choose from %s." % ", ".join(SLICES))
    if not cpus:
        raise InvalidInput("No CPUs are given to confine the system to.", "Give the reserved CPUs, or an empty confine.")
    if online and not cpus <= online:
        raise InvalidInput("CPU %s to confine the system to is not online." % (cpus - online), "Choose from %s." % online)
    return cpus, slices


def _release(name: str, reading: ConfineReading, parts: Parts) -> None:
    """All CPUs again for a slice that we confined, then our drop-in goes: a run that was killed in between is finished by the next."""
    if name in reading.drop_ins and reading.online and reading.unified:
        everywhere = reading.online
        parts.files.append(_live(name, lambda text: not (text or "").strip() or everywhere <= CpuSet.parse(text or ""), everywhere))
    parts.files.append(drop_in(_ITEM % name, name, _section(name), []))


def _live(name: str, satisfied: Callable[[Text], bool], cpus: CpuSet) -> Effect:
    # set-property changes this unit alone, without a daemon-reload; --runtime, since the drop-in is what lasts.
    command = ("systemctl", "set-property", "--runtime", name, "AllowedCPUs=%s" % cpus)
    return Effect(_ITEM % name, "%s/%s/cpuset.cpus" % (CGROUPS, name), satisfied, command)


def _has_cpus(cpus: CpuSet) -> Callable[[Text], bool]:
    return lambda text: CpuSet.parse(text or "") == cpus


def _allows(cpus: CpuSet) -> Callable[[Text], bool]:
    return lambda text: ("AllowedCPUs=%s" % cpus) in (text or "").split("\n")


def _section(name: str) -> str:
    return "Scope" if name.endswith(".scope") else "Slice"


def _refusal(name: str, guests: Sequence[str]) -> Artifact:
    shown: List[str] = sorted(set(guests))
    return Observation(
        _ITEM % name,
        FOREIGN,
        "%s is not confined, since workloads live there: %s%s. Run them below a slice of their own, or leave %s out."
        % (name, ", ".join(shown[:3]), " and %d more" % (len(shown) - 3) if len(shown) > 3 else "", name),
    )
