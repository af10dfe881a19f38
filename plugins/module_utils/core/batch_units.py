# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan's section ``units``, and the text of every unit that it stands for.

Sources: systemd.exec(5), systemd.resource-control(5), systemd.path(5), systemd.timer(5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from . import allocators, codec
from .batch_follow import SLICE, STATE_FILE
from .batch_names import FOLLOW, PINNED_SLICE, SERVICE_MARK, WANTED_BY
from .batch_services import IO_LIMITS, Batch, Pinned, Service
from .cpuset import CpuSet
from .errors import InvalidInput
from .systemd import MARK
from .unit_text import environment, exec_start, text_value, unit

# What suits a job that computes: it gains no privileges and changes no system. Nothing here hides or write-protects the user's own folders
# (ProtectHome, PrivateTmp, ProtectSystem=strict) or forbids memory that is written and then run, which a JIT needs.
_HARDENED = (
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "AmbientCapabilities=",
    "ProtectSystem=full",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectHostname=yes",
    "ProtectProc=invisible",
    "RestrictNamespaces=yes",
    "RestrictSUIDSGID=yes",
    "LockPersonality=yes",
    "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK",
    "SystemCallArchitectures=native",
    "SystemCallErrorNumber=EPERM",
)
# ProtectClock= allows a device, and so closes all others: not for a service that needs its GPU.
_BATCH_ONLY = ("ProtectClock=yes", "RestrictRealtime=yes", "DevicePolicy=closed")
_REFUSED_CALLS = ("@clock", "@cpu-emulation", "@module", "@mount", "@obsolete", "@raw-io", "@reboot", "@swap")
_MIGRATION = ("move_pages", "migrate_pages")

_FOLLOW_SERVICE = (
    MARK
    + """\
[Unit]
Description=Keep batch services off the CPUs that kubelet gives to pods
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=%(interpreter)s -I /usr/local/lib/gpufleet/batch_cpus.pyz --pool %(pool)s --reserved %(reserved)s %(state)s
TimeoutStartSec=1min
ProtectSystem=strict
ProtectHome=yes
ProtectControlGroups=yes
ProtectKernelTunables=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
PrivateTmp=yes
NoNewPrivileges=yes
RestrictAddressFamilies=AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
"""
)


@dataclass(frozen=True)
class Slice:
    """The CPUs, memory and weights of all batch services together; see ``batch_plan``."""

    cpus: CpuSet
    reserved: CpuSet
    memory_nodes: CpuSet
    auto_nodes: CpuSet
    cpu_weight: int
    io_weight: int
    follows_kubelet: bool
    kubelet_root: str

    @property
    def state_file(self) -> str:
        """kubelet's CPU manager state."""
        return "%s/%s" % (self.kubelet_root.rstrip("/"), STATE_FILE)


@dataclass(frozen=True)
class Units:
    """The plan's section. ``slice`` is null without batch services."""

    architecture: str = ""
    launcher: str = ""
    install_allocators: bool = False
    slice: Optional[Slice] = None
    services: Tuple[Batch, ...] = ()
    pinned: Tuple[Pinned, ...] = ()
    seccomp: str = ""

    @property
    def all(self) -> Tuple[Service, ...]:
        """Batch and pinned services."""
        return (*self.services, *self.pinned)


def parse(section: Mapping[str, Any]) -> Units:
    """The plan's section.

    :raises InvalidInput: an unknown or missing key, a slice without CPUs
    """
    given = {key: value for key, value in (section.get("units") or {}).items() if key != "slice" or value}
    units = codec.from_json(Units, given, "units")
    if units.services and (units.slice is None or not units.slice.cpus or not units.slice.reserved):
        raise InvalidInput("The plan gives the batch services no CPUs, which systemd reads as all.", "Make the plan anew from fresh facts.")
    return units


def parent_slice(here: Slice) -> str:
    """Where the weights of all batch services count, beside kubepods.slice."""
    return unit(
        ("Unit", ["Description=CPU jobs of gpufleet.node, beside kubepods.slice"]),
        ("Slice", ["CPUWeight=%d" % here.cpu_weight, "IOWeight=%d" % here.io_weight]),
    )


def pinned_slice() -> str:
    """At the top, so that the weights of CPU jobs aren't theirs."""
    return unit(("Unit", ["Description=Services that feed GPUs"]), ("Slice", ["CPUAccounting=yes"]))


def batch_slice(here: Slice) -> str:
    """Until the follower has spoken, the CPUs that no pod gets."""
    lines = ["AllowedCPUs=%s" % (here.reserved if here.follows_kubelet else here.cpus)]
    lines.extend(["AllowedMemoryNodes=%s" % here.memory_nodes] if here.memory_nodes else [])
    return unit(("Unit", ["Description=Batch services"]), ("Slice", lines))


def follow_service(here: Slice, interpreter: str) -> str:
    """Runs the program that gives the slice its CPUs."""
    state = text_value(here.state_file, "kubelet's folder")
    words = {"interpreter": interpreter, "pool": here.cpus, "reserved": here.reserved, "state": state}
    return _FOLLOW_SERVICE % words


def follow_path(here: Slice) -> str:
    """Starts the program whenever kubelet has written its state."""
    return unit(
        ("Unit", ["Description=kubelet gives CPUs to pods, or takes them back"]),
        ("Path", ["PathChanged=%s" % text_value(here.state_file, "kubelet's folder"), "Unit=%s" % FOLLOW]),
        ("Install", ["WantedBy=%s" % WANTED_BY["path"]]),
    )


def follow_timer() -> str:
    """Once at boot, and for what happens in the moment when systemd doesn't watch the file because the program just ends."""
    return unit(
        ("Unit", ["Description=Look whether batch services are off the CPUs of pods"]),
        ("Timer", ["OnActiveSec=0", "OnUnitInactiveSec=1min", "AccuracySec=5s", "Unit=%s" % FOLLOW]),
        ("Install", ["WantedBy=%s" % WANTED_BY["timer"]]),
    )


def service_unit(service: Service, units: Units, library: Optional[str] = None) -> str:
    """The unit of a service. ``library`` is the path of its allocator."""
    what = "service %s" % service.name
    lines = [*_process(service, what, library), *_memory(service)]
    if isinstance(service, Batch):
        lines.extend(_batch(service, units, what))
    if isinstance(service, Pinned):
        lines.extend(_pinned(service, what))
    calls = [*_REFUSED_CALLS, *(() if service.page_migration else _MIGRATION)]
    lines.extend([*_HARDENED, "SystemCallFilter=~" + " ".join(calls)])
    kind = "Batch service" if isinstance(service, Batch) else "Pinned service"
    about = ["Description=%s" % text_value(service.description or "%s %s" % (kind, service.name), "The description of %s" % what)]
    if isinstance(service, Batch) and units.slice and units.slice.follows_kubelet:
        about.extend(["Wants=%s" % FOLLOW, "After=%s" % FOLLOW])
    install = None if service.timer else ("Install", ["WantedBy=%s" % WANTED_BY["service"]])
    return unit(("Unit", about), ("Service", lines), install, header=SERVICE_MARK)


def _process(service: Service, what: str, library: Optional[str]) -> Iterator[str]:
    yield "Type=exec"
    yield "User=%s" % service.user
    if service.group:
        yield "Group=%s" % service.group
    if service.working_directory:
        yield "WorkingDirectory=%s" % text_value(service.working_directory, "The working directory of %s" % what)
    variables = {**_openmp(service), **allocators.variables(service.allocator, service.allocator_settings, library), **service.environment}
    yield from environment(variables, "The environment of %s" % what)
    if service.environment_file:
        yield "EnvironmentFile=%s" % text_value(service.environment_file, "The environment file of %s" % what)
    yield "Restart=%s" % service.restart
    if service.restart != "no":
        yield "RestartSec=%d" % service.restart_seconds


def _memory(service: Service) -> Iterator[str]:
    if service.slowed_at:
        yield "MemoryHigh=%d" % service.slowed_at
    if service.memory_max:
        yield "MemoryMax=%d" % service.memory_max


def _batch(service: Batch, units: Units, what: str) -> Iterator[str]:
    """No pinning inside: the scheduler spreads the job over what the slice has."""
    launcher = [units.launcher, "--mode", service.mode]
    launcher.extend(["--nodes", service.nodes] if service.nodes != "auto" and service.mode != "local" else [])
    launcher.extend(["--best-effort"] if service.best_effort else [])
    yield exec_start([*launcher, "--", *service.command], what)
    yield "Slice=%s" % SLICE
    # An own list, since the slice may have more than this service: memory that another one named.
    nodes = CpuSet.parse(service.nodes) if service.nodes != "auto" else units.slice.auto_nodes if units.slice else CpuSet()
    if nodes:
        yield "AllowedMemoryNodes=%s" % nodes
    yield "CPUWeight=%d" % service.cpu_weight
    yield "IOWeight=%d" % service.io_weight
    for limit in service.io_limits:
        yield from ("%s=%s %d" % (setting, limit["device"], limit[key]) for key, (setting, _check) in IO_LIMITS.items() if key in limit)
    yield "OOMScoreAdjust=%d" % service.oom_score_adjust
    yield from _BATCH_ONLY
    yield from ("DeviceAllow=%s rw" % device for device in service.devices)


def _pinned(service: Pinned, what: str) -> Iterator[str]:
    if not service.cpus:
        raise InvalidInput("The plan gives service %s no CPUs, which systemd reads as all." % service.name, "Make the plan anew.")
    yield exec_start(service.command, what)
    yield "Slice=%s" % PINNED_SLICE
    yield "AllowedCPUs=%s" % service.cpus
    if service.memory_nodes:
        yield "AllowedMemoryNodes=%s" % service.memory_nodes
    if service.policy == "other":
        yield "Nice=%d" % service.nice
        yield "RestrictRealtime=yes"
    else:
        yield "CPUSchedulingPolicy=%s" % service.policy
        yield "CPUSchedulingPriority=%d" % service.priority
    yield "LimitMEMLOCK=infinity"


def _openmp(service: Service) -> Dict[str, str]:
    """One place per CPU: the only threads that can be told from outside where to run."""
    if not isinstance(service, Pinned) or not service.threads:
        return {}
    places = ",".join("{%d}" % cpu for cpu in service.cpus)
    return {"OMP_NUM_THREADS": str(service.threads), "OMP_PROC_BIND": "true", "OMP_PLACES": places}


def timer_unit(service: Service) -> str:
    """The timer of a service that has one."""
    timer, lines = service.timer, []
    if "on_calendar" in timer:
        lines.append("OnCalendar=%s" % timer["on_calendar"])
    if "on_boot_seconds" in timer:
        lines.append("OnBootSec=%d" % timer["on_boot_seconds"])
    if "every_seconds" in timer:
        lines.extend([] if "on_boot_seconds" in timer else ["OnActiveSec=%d" % timer["every_seconds"]])
        lines.append("OnUnitActiveSec=%d" % timer["every_seconds"])
    if "randomized_delay_seconds" in timer:
        lines.append("RandomizedDelaySec=%d" % timer["randomized_delay_seconds"])
    if timer.get("persistent"):
        lines.append("Persistent=yes")
    lines.append("Unit=%s" % service.unit)
    about = "Description=When service %s starts" % service.name
    return unit(("Unit", [about]), ("Timer", lines), ("Install", ["WantedBy=%s" % WANTED_BY["timer"]]), header=SERVICE_MARK)
