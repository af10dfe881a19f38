# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Units for CPU jobs and for services that feed GPUs, and all that keeps them in their place.

Batch services live in gpufleet-batch.slice; the dash nests it in gpufleet.slice, whose weights count beside kubepods.slice. Pinned services
live in a slice of their own at the top, so that those weights aren't theirs. Sources: systemd.resource-control(5), systemd.exec(5),
Documentation/admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Tuple

from . import allocators
from .batch_follow import SLICE, decide
from .batch_names import (
    FOLLOW,
    FOLLOW_PATH,
    FOLLOW_TIMER,
    PARENT,
    PINNED_SLICE,
    PROGRAM,
    WANTED_BY,
    seccomp_profiles,
)
from .batch_services import Service
from .batch_units import (
    Slice,
    Units,
    batch_slice,
    follow_path,
    follow_service,
    follow_timer,
    parent_slice,
    parse,
    pinned_slice,
    service_unit,
    timer_unit,
)
from .change import FOREIGN, PENDING, RESTART, Artifact, Effect, File, Link, Observation, Text, always
from .cpuset import CpuSet
from .errors import InvalidInput
from .systemd import RELOAD_HAZARD, UNIT_FOLDER, reload_effect

_CGROUPS = "/sys/fs/cgroup"
_RUNTIME = "/run/systemd/system.control"  # where set-property --runtime writes


@dataclass(frozen=True)
class Reading:
    """What the node has. ``services`` are the texts of service and timer units that an earlier run wrote, by name; ``program`` is the
    self-contained program to ship; ``family`` debian or redhat; ``libraries`` the allocators' files that are there;
    ``systemd``: it runs here, or will (a root that isn't live); ``reload_hazard``: a daemon-reload could take GPUs from containers.

    ``state`` is kubelet's CPU manager state; ``stale`` the services that run with settings from before their unit was last written;
    ``seccomp`` where profiles for pods are to be, or may be from an earlier run; ``kubepods_weight`` the live cpu.weight of all pods
    together.
    """

    program: str = ""
    interpreter: str = "/usr/bin/python3"
    services: Mapping[str, str] = field(default_factory=dict)
    follows: bool = False
    family: str = "debian"
    libraries: FrozenSet[str] = frozenset()
    unified: bool = True
    systemd: bool = True
    reload_hazard: bool = False
    state: Text = None
    running: FrozenSet[str] = frozenset()
    stale: FrozenSet[str] = frozenset()
    seccomp: Tuple[str, ...] = ()
    kubepods_weight: Optional[int] = None


def artifacts(section: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    """What went from the plan first, then files, then systemd's own state.

    :raises InvalidInput: an allocator that isn't installed, a node with cgroup v1
    """
    units = parse(section)
    if units.all and not reading.unified:
        raise InvalidInput(
            "This node runs cgroup v1, where systemd can't keep services on CPUs or NUMA nodes.",
            "Boot it with systemd.unified_cgroup_hierarchy=1, or leave batch and pinned services out.",
        )
    files = _files(units, reading)
    gone = sorted(name for name in reading.services if name not in files)
    if not units.slice or not units.slice.follows_kubelet:
        gone.extend([FOLLOW_PATH, FOLLOW_TIMER] if reading.follows else [])
    written = {name: text for name, text in files.items() if text is not None}
    ours = dict.fromkeys([*written, *gone], False)
    reload: List[Artifact] = [reload_effect(ours, RELOAD_HAZARD if reading.reload_hazard else "")] if ours else []
    found: List[Artifact] = [
        *(_active(name, False) for name in gone),
        *_allocators(units, reading),
        _program(reading.program if FOLLOW in written else None),
        *(File(name, "%s/%s" % (UNIT_FOLDER, name), always(text)) for name, text in {**files, **dict.fromkeys(gone)}.items()),
        *_links(units, files, gone),
        *reload,
        *_slice_state(units, reading),
        *_service_state(units, files, reading),
        *seccomp_profiles(units.architecture, units.seccomp, reading.seccomp),
    ]
    return found if reading.systemd else [one for one in found if not _asks_systemd(one)]


def _program(text: Text) -> File:
    return File("program that follows kubelet", PROGRAM, always(text), mode=0o755, enforce_mode=True)


def _asks_systemd(artifact: Artifact) -> bool:
    return isinstance(artifact, Effect) and artifact.command is not None and artifact.command[0] == "systemctl"


# Unit files -----------------------------------------------------------------------------------------------------------------------------


def _files(units: Units, reading: Reading) -> Dict[str, Text]:
    """All units by name; None for one of ours that isn't wanted."""
    here = units.slice
    follow = here if here and here.follows_kubelet else None
    files: Dict[str, Text] = {
        PARENT: parent_slice(here) if here else None,
        SLICE: batch_slice(here) if here else None,
        PINNED_SLICE: pinned_slice() if units.pinned else None,
        FOLLOW: follow_service(follow, reading.interpreter) if follow else None,
        FOLLOW_PATH: follow_path(follow) if follow else None,
        FOLLOW_TIMER: follow_timer() if follow else None,
    }
    for service in units.all:
        files[service.unit] = service_unit(service, units, _library(service, units, reading))
        if service.timer:
            files[service.timer_unit] = timer_unit(service)
    return files


# Allocators -----------------------------------------------------------------------------------------------------------------------------


def _library(service: Service, units: Units, reading: Reading) -> Optional[str]:
    if not service.allocator:
        return None
    path = allocators.library_path(service.allocator, units.architecture, reading.family)
    if path not in reading.libraries and not units.install_allocators:
        raise allocators.missing(service.name, service.allocator, path, reading.family)
    return path


def _allocators(units: Units, reading: Reading) -> Iterator[Artifact]:
    for allocator in sorted({service.allocator for service in units.all if service.allocator}):
        path = allocators.library_path(allocator, units.architecture, reading.family)
        yield Effect(
            "%s is installed" % allocator,
            path,
            lambda text: text is not None,
            allocators.install_command(allocator, reading.family),
            installs=allocators.installs(allocator, reading.family),
        )


# Links and live state -------------------------------------------------------------------------------------------------------------------


def _links(units: Units, files: Mapping[str, Text], gone: Iterable[str]) -> Iterator[Artifact]:
    """What starts at boot: the follower's triggers, timers, and services without one."""
    timed = {service.unit for service in units.all if service.timer}
    for name in dict.fromkeys([*files, *gone]):
        target = WANTED_BY.get(name.rpartition(".")[2])
        if target and name != FOLLOW:
            wanted = files.get(name) is not None and name not in timed and name not in gone
            path = "%s/%s" % (UNIT_FOLDER, name)
            yield Link("%s is enabled" % name, "%s/%s.wants/%s" % (UNIT_FOLDER, target, name), path if wanted else None)


def _active(name: str, wanted: bool) -> Effect:
    """A path or timer that is to wait, or a unit that is to be stopped."""
    states = ("active", "activating") if wanted else ("inactive", "failed")
    return Effect(
        "%s is %s" % (name, "active" if wanted else "stopped"),
        ("systemctl", "show", "--property=ActiveState", "--value", name),
        lambda text: not wanted if text is None else text.strip() in states,
        ("systemctl", "start" if wanted else "stop", name),
        message="the next boot starts it" if wanted else "",
    )


def _slice_state(units: Units, reading: Reading) -> Iterator[Artifact]:
    here = units.slice
    if not here:
        return
    yield _weight("cpu.weight", "CPUWeight", here.cpu_weight)
    if reading.kubepods_weight is not None and reading.kubepods_weight <= here.cpu_weight:
        weights = (reading.kubepods_weight, here.cpu_weight)
        message = "pods together have weight %d, and CPU jobs %d: lower gpufleet_batch_cpu_weight" % weights
        yield Observation("CPU weight of kubepods", FOREIGN, message)
    yield _allowed(here, reading)
    if not here.follows_kubelet:
        yield _no_longer_followed(here)
    else:
        yield _active(FOLLOW_PATH, True)
        yield _active(FOLLOW_TIMER, True)


def _weight(name: str, setting: str, weight: int) -> Effect:
    """Beside kubepods.slice, where it counts; a slice without processes has no cgroup."""
    return Effect(
        "%s of %s" % (name, PARENT),
        "%s/%s/%s" % (_CGROUPS, PARENT, name),
        lambda text: text is None or text.strip() == str(weight),
        ("systemctl", "set-property", "--runtime", PARENT, "%s=%d" % (setting, weight)),
    )


def _allowed(here: Slice, reading: Reading) -> Effect:
    cpus = decide(reading.state, here.cpus, here.reserved).cpus if here.follows_kubelet else here.cpus
    by_hand = ("systemctl", "set-property", "--runtime", SLICE, "AllowedCPUs=%s" % cpus)
    return Effect(
        "CPUs of %s" % SLICE,
        "%s/%s/%s/cpuset.cpus" % (_CGROUPS, PARENT, SLICE),
        lambda text: text is None or CpuSet.parse(text) == cpus,
        ("systemctl", "start", FOLLOW) if here.follows_kubelet else by_hand,
        message="It should have %s." % cpus,
    )


def _no_longer_followed(here: Slice) -> Effect:
    """What an earlier plan's follower told systemd counts until the next boot, whatever the unit says."""

    def satisfied(text: Text) -> bool:
        said = [line.partition("=")[2] for line in (text or "").splitlines() if line.startswith("AllowedCPUs=")]
        return not said or CpuSet.parse(said[-1].replace(" ", ",")) == here.cpus

    command = ("systemctl", "set-property", "--runtime", SLICE, "AllowedCPUs=%s" % here.cpus)
    return Effect("%s no longer follows kubelet" % SLICE, "%s/%s.d/50-AllowedCPUs.conf" % (_RUNTIME, SLICE), satisfied, command)


def _service_state(units: Units, files: Mapping[str, Text], reading: Reading) -> Iterator[Artifact]:
    for service in units.all:
        yield _active(service.timer_unit, True) if service.timer else _has_started(service.unit)
        text = reading.services.get(service.unit)
        if service.unit in reading.running and (service.unit in reading.stale or text != files[service.unit]):
            yield Observation(service.unit, PENDING, "runs with its earlier settings until it is restarted", RESTART)


def _has_started(name: str) -> Effect:
    """It runs, or it ran and ended well: a job that is done isn't started again by the next run."""

    def satisfied(text: Text) -> bool:
        shown = dict(line.partition("=")[::2] for line in (text or "").splitlines())
        state = shown.get("ActiveState")
        done = state == "inactive" and shown.get("Result") == "success" and shown.get("ExecMainStartTimestampMonotonic", "0") != "0"
        return state in ("active", "activating", "reloading") or done

    probe = ("systemctl", "show", "--property=ActiveState,Result,ExecMainStartTimestampMonotonic", name)
    return Effect("%s has started" % name, probe, satisfied, ("systemctl", "start", name), message="the next boot starts it")
