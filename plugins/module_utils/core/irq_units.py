# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All that the interrupt concern puts on a node: irqbalance out of the way, the units that place again, the placement itself.

The units run the program that ``host/irq.py`` builds from this collection's own sources. They start it at boot, when a planned device is
bound to its driver (udev), and when a device has other interrupts than before (a timer: drivers make new ones at run time).
"""

from __future__ import annotations

import json
from typing import Any, List, Mapping, NamedTuple, Optional, Tuple

from . import irq, irqbalance
from .change import FOREIGN, Artifact, Effect, File, Link, Observation, Text, always
from .cpuset import CpuSet
from .irq import Interrupts, Live
from .systemd import DAEMON_RELOAD, MARK, SANDBOX, UNIT_FOLDER, mask, reload_effect

PROGRAM = "/usr/local/lib/gpufleet/irq_affinity.pyz"
SERVICE, WATCH, TIMER = "gpufleet-irq.service", "gpufleet-irq-watch.service", "gpufleet-irq.timer"
UDEV_RULE = "/etc/udev/rules.d/90-gpufleet-irq.rules"

_ENABLED = {SERVICE: "multi-user.target", TIMER: "timers.target"}
_OURS = dict.fromkeys((SERVICE, WATCH, TIMER), False)
_IRQBALANCE = "irqbalance.service"

# ProtectSystem=strict leaves /proc alone; ProtectKernelTunables= would not, and /proc/irq is what the program is there to write. A driver
# that is loaded anew binds all its devices within a second: no limit of starts.
_SERVICE = (
    MARK
    + """\
[Unit]
Description=%(description)s
%(order)sConditionPathExists=/etc/gpufleet/irq.json
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=%(interpreter)s -I /usr/local/lib/gpufleet/irq_affinity.pyz%(arguments)s /etc/gpufleet/irq.json
TimeoutStartSec=2min
StateDirectory=gpufleet
RuntimeDirectory=gpufleet
RuntimeDirectoryPreserve=yes
MemoryDenyWriteExecute=yes
SystemCallFilter=@system-service
"""
    + SANDBOX
)
_AT_BOOT = "\n[Install]\nWantedBy=multi-user.target\n"
_NETWORK_UP = "Wants=network-online.target\nAfter=network-online.target\n"

_TIMER = (
    MARK
    + """\
[Unit]
Description=Look for device interrupts that came or went

[Timer]
OnActiveSec=30s
OnUnitActiveSec=30s
AccuracySec=5s
Unit=gpufleet-irq-watch.service

[Install]
WantedBy=timers.target
"""
)


class Irqbalance(NamedTuple):
    """An installed irqbalance. ``own_unit``: the administrator's unit file lies where a mask would."""

    environment_file: str
    environment: Text = None
    enabled: bool = True
    own_unit: bool = False
    masked_by_us: bool = False


class Reading(NamedTuple):
    """What the node has. ``program`` is the self-contained program to ship; ``installed``: an earlier run left its units;
    ``systemd``: it runs here, or will (a root that isn't live)."""

    live: Live
    program: str
    interpreter: str = "/usr/bin/python3"
    irqbalance: Optional[Irqbalance] = None
    crio: bool = False
    systemd: bool = True
    installed: bool = False


def artifacts(section: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    """irqbalance first: what it moves on its way out or at its restart is put right after."""
    interrupts = section["interrupts"]
    plan = irq.parse(interrupts)
    found = [
        *_irqbalance(plan, reading),
        *(_units(plan, interrupts, reading) if plan.places else _no_units(reading)),
        *irq.placement(interrupts, reading.live),
    ]
    return found if reading.systemd else [artifact for artifact in found if not isinstance(artifact, Effect)]


# irqbalance ---------------------------------------------------------------------------------------------------------------


def _irqbalance(plan: Interrupts, reading: Reading) -> List[Artifact]:
    found = reading.irqbalance
    off = found is not None and plan.irqbalance == "off"
    keep = plan if found is not None and not off else irq.NOTHING
    own_policy = found is not None and irqbalance.has_own_policy(found.environment)
    policy = [planned.device for planned in keep.devices] if not own_policy else []
    banned = keep.isolated if not reading.crio else CpuSet()
    result: List[Artifact] = [
        File(
            "irqbalance policy",
            irqbalance.POLICY_SCRIPT,
            always(irqbalance.policy_script(policy) if policy else None),
            mode=0o755,
            enforce_mode=True,
        ),
        mask("irqbalance is masked", _IRQBALANCE, off),
    ]
    if found is None:
        return result
    path = found.environment_file
    result.append(File("irqbalance settings", path, lambda text: irqbalance.edit(text, banned, bool(policy)), ours=False))
    if off:
        result.extend(_stopped(found))
    elif found.masked_by_us:
        result.extend(_started(found))
    if banned or policy:
        result.append(_restarted(banned, bool(policy)))
    if keep.devices and own_policy:
        message = "%s names a policy script, and irqbalance takes only one: it may move planned interrupts" % path
        result.append(Observation("irqbalance policy of somebody else", FOREIGN, message))
    if keep.isolated and reading.crio:
        message = "CRI-O keeps the banned CPUs in %s as pods come and go: left to it" % path
        result.append(Observation("irqbalance banned CPUs", FOREIGN, message))
    return result


def _stopped(found: Irqbalance) -> List[Artifact]:
    stopped = _systemd(
        "irqbalance is stopped", "ActiveState", ("inactive", "failed"), ("stop", _IRQBALANCE), "it is masked, so no boot starts it"
    )
    return [stopped] if found.own_unit else [reload_effect({_IRQBALANCE: True}), stopped]


def _started(found: Irqbalance) -> List[Artifact]:
    unmasked = _systemd("irqbalance is unmasked", "LoadState", ("loaded", "not-found"), DAEMON_RELOAD[1:], unit=_IRQBALANCE, unknown=True)
    started = _systemd("irqbalance runs again", "ActiveState", ("active", "activating"), ("start", _IRQBALANCE), "the next boot starts it")
    return [unmasked, started] if found.enabled else [unmasked]


def _restarted(banned: CpuSet, policy: bool) -> Effect:
    return Effect(
        "irqbalance runs with its settings",
        ("ps", "-C", "irqbalance", "eww", "-o", "args="),
        lambda process: irqbalance.in_force(process, banned, policy),
        ("systemctl", "try-restart", _IRQBALANCE),
    )


# Our units ----------------------------------------------------------------------------------------------------------------


def _units(plan: Interrupts, interrupts: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    rules = "".join(
        'ACTION=="bind", SUBSYSTEM=="pci", KERNEL=="%s", RUN+="/bin/systemctl --no-block start %s"\n' % (planned.device, SERVICE)
        for planned in plan.devices
    )
    return [
        *_files(
            program=reading.program,
            plan=json.dumps(dict(interrupts), indent=1, sort_keys=True) + "\n",
            service=_service("Put device interrupts on the CPUs planned for them", reading, _NETWORK_UP) + _AT_BOOT,
            watch=_service("Place device interrupts that came or went", reading, arguments=" --if-changed"),
            timer=_TIMER,
            rule="# From gpufleet.node: a planned device got its driver, so it has new interrupts.\n" + rules,
        ),
        *_links(enabled=True),
        reload_effect(_OURS),
        _systemd("%s is active" % TIMER, "ActiveState", ("active",), ("start", TIMER), "the next boot starts it"),
    ]


def _no_units(reading: Reading) -> List[Artifact]:
    removed = [*_links(enabled=False), *_files()]
    if not reading.installed:
        return removed
    # The services too: one that waits for this run's lock would place interrupts again once it has it.
    command = ("stop", TIMER, WATCH, SERVICE)
    stopped = _systemd("%s is stopped" % TIMER, "ActiveState", ("inactive", "failed"), command, unit=TIMER, unknown=True)
    return [stopped, *removed, reload_effect(_OURS)]


def _files(
    program: Text = None, plan: Text = None, service: Text = None, watch: Text = None, timer: Text = None, rule: Text = None
) -> List[Artifact]:
    units = ((SERVICE, service), (WATCH, watch), (TIMER, timer))
    return [
        File("interrupt program", PROGRAM, always(program), mode=0o755, enforce_mode=True),
        File("interrupt plan", irq.PLAN, always(plan)),
        *(File(name, "%s/%s" % (UNIT_FOLDER, name), always(text)) for name, text in units),
        File("udev rule for interrupts", UDEV_RULE, always(rule)),
    ]


def _links(enabled: bool) -> List[Artifact]:
    return [
        Link("%s is enabled" % unit, "%s/%s.wants/%s" % (UNIT_FOLDER, target, unit), "%s/%s" % (UNIT_FOLDER, unit) if enabled else None)
        for unit, target in _ENABLED.items()
    ]


def _service(description: str, reading: Reading, order: str = "", arguments: str = "") -> str:
    return _SERVICE % {"description": description, "order": order, "arguments": arguments, "interpreter": reading.interpreter}


def _systemd(
    item: str, wanted: str, states: Tuple[str, ...], command: Tuple[str, ...], message: str = "", unit: str = "", unknown: bool = False
) -> Effect:
    """A property of a unit (the command's last word, or ``unit``) that is to have one of these states.

    ``unknown``: what holds where systemd can't be asked; ``message``: what follows there by itself.
    """
    return Effect(
        item,
        ("systemctl", "show", "--property=%s" % wanted, "--value", unit or command[-1]),
        lambda text: unknown if text is None else text.strip() in states,
        ("systemctl", *command),
        message=message,
    )
