# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""irqbalance beside our placement: its environment file and its policy script. Source: irqbalance(1).

Our settings stand in one marked block at the end of the environment file, where systemd lets them win; the administrator's lines stay.
"""

from __future__ import annotations

import re
from typing import Sequence

from .change import Text
from .cpuset import CpuSet
from .unit_reading import environment_file

POLICY_SCRIPT = "/usr/local/lib/gpufleet/irqbalance-policy"

_BEGIN, _END = "# BEGIN gpufleet.node\n", "# END gpufleet.node\n"
_BLOCK = re.compile("^%s(?:.*\n)*?%s" % (re.escape(_BEGIN), re.escape(_END)), re.MULTILINE)
_ARGS, _LIST, _MASK = "IRQBALANCE_ARGS", "IRQBALANCE_BANNED_CPULIST", "IRQBALANCE_BANNED_CPUS"
_EMPTY = re.compile(r"^[ \t]*(?:%s|%s)=[ \t]*(?:\"\"|'')?[ \t]*(?:\n|\Z)" % (_LIST, _MASK), re.MULTILINE)
_POLICY_OPTION = re.compile(r"(?:\A|\s)(?:-l|--policyscript)(?:[=\s]|\Z)")


def policy_script(devices: Sequence[str]) -> str:
    """The script that irqbalance asks about each interrupt, with the sysfs folder of its device: those of ``devices`` are banned."""
    return (
        "#!/bin/sh\n"
        "# From gpufleet.node: irqbalance leaves the interrupts of these devices alone. Arguments: sysfs folder of the device, IRQ.\n"
        "case ${1##*/} in\n"
        "%s) echo ban=true ;;\n"
        "esac\n"
        "exit 0\n" % "|".join(devices)
    )


def has_own_policy(text: Text) -> bool:
    """Whether the administrator gave irqbalance a policy script: it takes only one."""
    return bool(_POLICY_OPTION.search(_value(_foreign(text), _ARGS)))


def edit(text: Text, banned: CpuSet, policy: bool) -> Text:
    """The environment file with our block: ``banned`` CPUs in addition to those the administrator bans, and our policy script.

    With nothing to say there is no block, and a file that held nothing else is to be absent. Setting a list replaces irqbalance's own
    knowledge of isolated CPUs, and an empty assignment means different things in different versions: so none is written, and those that
    are there go. The mask, where it is set, beats the list: then ours is a mask.
    """
    foreign = _foreign(text)
    if not banned and not policy:
        return foreign or None
    foreign = _EMPTY.sub("", foreign)
    settings = []
    if policy:
        theirs = re.sub(r'(["\\])', r"\\\1", _value(foreign, _ARGS))
        settings.append((_ARGS, '"%s"' % ("%s --policyscript=%s" % (theirs, POLICY_SCRIPT)).strip()))
    mask = _value(foreign, _MASK)
    if banned and mask:
        settings.append((_MASK, (CpuSet.parse_mask(mask) | banned).to_mask()))
    elif banned:
        settings.append((_LIST, str(CpuSet.parse(_value(foreign, _LIST)) | banned)))
    if foreign and not foreign.endswith("\n"):
        foreign += "\n"
    return foreign + _BEGIN + "".join("%s=%s\n" % setting for setting in settings) + _END


def in_force(process: Text, banned: CpuSet, policy: bool) -> bool:
    """Whether a running irqbalance has these settings; one that doesn't run needs none.

    ``process`` is what ``ps eww -o args=`` shows: its arguments and its environment.
    """
    if not (process or "").strip():
        return True
    words = str(process).split()
    if policy and "--policyscript=%s" % POLICY_SCRIPT not in words:
        return False
    given = dict(word.split("=", 1) for word in words if "=" in word)
    return banned <= (CpuSet.parse_mask(given[_MASK]) if given.get(_MASK) else CpuSet.parse(given.get(_LIST, "")))


def _foreign(text: Text) -> str:
    return _BLOCK.sub("", text or "")


def _value(text: str, name: str) -> str:
    return environment_file(text).get(name, "")
