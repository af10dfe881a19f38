# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""tuned, when it is at work: the settings of its active profile, and where they are at odds with ours.

tuned applies its profile whenever it starts, after everything that ran at boot, so it wins: its profile is to be changed, not fought.
Source: tuned-profiles(7), tuned's plugin_vm, plugin_cpu and plugin_sysctl.
"""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Set, Tuple

from .change import FOREIGN, Observation
from .sysctl import same_tokens

# Options of a profile, by plugin section, and the setting of ours that they are.
_OPTIONS = {
    ("vm", "transparent_hugepages"): "transparent_hugepage.enabled",
    ("vm", "transparent_hugepage"): "transparent_hugepage.enabled",
    ("vm", "transparent_hugepage.defrag"): "transparent_hugepage.defrag",
    ("cpu", "governor"): "governor",
}


_PLUGINS = {setting: section for (section, _option), setting in _OPTIONS.items()}
_SYSCTL = "sysctl"


class Profile(NamedTuple):
    """A tuned.conf. ``settings`` by our names, kernel parameters as "sysctl.NAME"; those with variables are left out.
    ``replaced`` are the sections in which nothing of the included profiles counts (replace=1)."""

    includes: Tuple[str, ...]
    settings: Mapping[str, str]
    replaced: FrozenSet[str]

    def after(self, settings: Mapping[str, str]) -> Dict[str, str]:
        """What holds when this profile comes after others with these settings."""
        return {**{name: value for name, value in settings.items() if _section(name) not in self.replaced}, **self.settings}


def _section(setting: str) -> str:
    return _PLUGINS.get(setting, _SYSCTL)


def parse(text: str) -> Profile:
    """A profile from its tuned.conf."""
    includes: Tuple[str, ...] = ()
    settings: Dict[str, str] = {}
    replaced: Set[str] = set()
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
            elif key == "replace":
                replaced.update([section] if value.lower() in ("1", "true") else [])
            elif "$" not in value:
                name = "sysctl.%s" % key.replace("/", ".") if section == _SYSCTL else _OPTIONS.get((section, key))
                if name:
                    settings[name] = value.strip("\"'")
    return Profile(includes, settings, frozenset(replaced))


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
