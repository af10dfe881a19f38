# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether a reboot brought what it was for, and if not, the likely reason."""

from __future__ import annotations

from typing import Any, List, Mapping

from . import kernel_args
from .boot import RUNNING
from .change import DRIFT, FOREIGN, PENDING, REBOOT

_SHOWN = 5


def after_boot(verdict: Mapping[str, Any], plan: Mapping[str, Any], topology: Mapping[str, Any]) -> List[str]:
    """Sentences about what isn't as it was to be; none when all is well. ``verdict`` (node_verify's result) and ``topology`` were made
    after the reboot, ``plan`` before it."""
    findings = verdict["concerns"].get("boot", {}).get("findings", [])
    line = kernel_args.split(topology["command_line"])
    missing = kernel_args.differing(line, plan["kernel_arguments"])
    stale = [finding for finding in findings if finding["item"] == RUNNING]
    result = []
    if missing:
        result.append("The kernel was booted without what the plan wants of %s." % ", ".join(missing))
    elif stale:
        result.append("The kernel was booted with arguments that are to be gone (%s)." % stale[0]["message"])
    if missing or stale:
        result.append("Likely reason: %s." % _reason(findings, line).rstrip("."))
    return result + _others(verdict)


def _reason(findings: List[Mapping[str, Any]], line: List[str]) -> str:
    """A file that wins over ours; boot files that lack them; else something else booted than these files say."""
    for status in (FOREIGN, DRIFT):
        causes = ["%s: %s" % (finding["item"], finding["message"]) for finding in findings if finding["status"] == status]
        if causes:
            return "; ".join(causes[:_SHOWN])
    image = next((token for token in line if token.startswith("BOOT_IMAGE=")), "an image it doesn't name")
    return (
        "the boot files hold them, so another boot loader entry than the default was booted (%s), the boot loader of another disk, or a "
        "hypervisor that passes kernel and arguments itself" % image
    )


def _others(verdict: Mapping[str, Any]) -> List[str]:
    """What drifted over the reboot, and what waits for a reboot again although there was one."""
    found = []
    for name, result in verdict["concerns"].items():
        if result.get("refused"):
            found.append("%s is refused: %s" % (name, result["refused"]))
        for finding in result["findings"]:
            again = finding["status"] == PENDING and finding["until"] == REBOOT
            if finding["item"] != RUNNING and (finding["status"] == DRIFT or again):
                found.append("%s, %s: %s" % (name, finding["item"], finding["message"]))
    more = ["and %d more: run playbooks/verify.yml" % (len(found) - _SHOWN)] if len(found) > _SHOWN else []
    return found[:_SHOWN] + more
