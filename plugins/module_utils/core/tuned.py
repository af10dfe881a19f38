# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""tuned, when it is at work: the settings of its active profile, and where they are at odds with ours.

tuned applies its profile whenever it starts, after everything that ran at boot, so it wins: its profile is to be changed, not fought.
Source: tuned-profiles(7), tuned's plugin_vm, plugin_cpu and plugin_sysctl.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Tuple

from .change import FOREIGN, Observation
from .sysctl import same_tokens

# Options of a profile, by plugin section, and the setting of ours that they are.
_OPTIONS = {
    ("vm", "transparent_hugepages"): "transparent_hugepage.enabled",
    ("vm", "transparent_hugepage"): "transparent_hugepage.enabled",
    ("vm", "transparent_hugepage.defrag"): "transparent_hugepage.defrag",
    ("cpu", "governor"): "governor",
}


def parse(text: str) -> Tuple[Tuple[str, ...], Dict[str, str]]:
    """A tuned.conf as (included profiles, settings); kernel parameters are keyed "sysctl.NAME". Values with variables are left out."""
    includes: Tuple[str, ...] = ()
    settings: Dict[str, str] = {}
    section = ""
    for line in text.split("\n"):
        line = line.strip()
        header = re.match(r"\[(.+)\]\Z", line)
        if header:
            section = header.group(1).strip()
        elif "=" in line and line[0] not in "#;":
            key, value = (part.strip() for part in line.split("=", 1))
            if (section, key) == ("main", "include"):
                includes = tuple(re.split(r"[,;\s]+", value))
            elif "$" not in value:
                name = "sysctl.%s" % key.replace("/", ".") if section == "sysctl" else _OPTIONS.get((section, key))
                if name:
                    settings[name] = value.strip("\"'")
    return includes, settings


def clashes(profile: str, theirs: Mapping[str, str], section: Mapping[str, Any]) -> List[Observation]:
    """Settings of the active profile that differ from what the plan wants."""
    ours = {"sysctl.%s" % name: str(value) for name, value in (section.get("sysctl") or {}).items()}
    ours.update({"transparent_hugepage.%s" % name: word for name, word in (section.get("transparent_hugepage") or {}).items()})
    ours["governor"] = section.get("governor") or ""
    return [
        Observation(
            "tuned: %s" % name,
            FOREIGN,
            'its active profile "%s" sets %s, the plan %s, and tuned wins at its next start: take it out there, or switch tuned off '
            "(tuned-adm off; systemctl disable --now tuned)." % (profile, theirs[name], wanted),
        )
        for name, wanted in sorted(ours.items())
        if wanted and name in theirs and not any(same_tokens(word, wanted) for word in theirs[name].split("|"))
    ]
