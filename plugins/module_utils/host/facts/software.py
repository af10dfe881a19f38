# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Other owners of our settings, by their units. Installed is what counts: whether we have masked one must not change the facts."""

from __future__ import annotations

import posixpath
import re
from typing import Optional

from ...core.topology import Software
from ..command import Command
from ..root import Root
from .units import is_enabled, unit_text
from .values import word

_CONTAINERD = "/etc/containerd/config.toml"
_PACKAGE = re.compile(
    r"^Package: containerd(?:\.io)?\n(?:.+\n)*?Status: \w+ ok installed\n(?:.+\n)*?Version: (?:\d+:)?(\d+\.\d+\.\d+)", re.MULTILINE
)
_CONFIG_VERSION = re.compile(r"^version\s*=\s*(\d+)", re.MULTILINE)
_IMPORTS = re.compile(r"^imports\s*=\s*\[([^\]]*)\]", re.MULTILINE)
_SYSTEMD_CGROUP = re.compile(r"^\s*SystemdCgroup\s*=\s*(true|false)", re.MULTILINE)


def read_software(root: Root, command: Command) -> Software:
    """Who else is there."""
    profile = word(root, "/etc/tuned/active_profile") if is_enabled(root, "tuned.service") else None
    containerd = _installed(root, "containerd")
    return Software(
        tuned_profile=profile,
        irqbalance=_installed(root, "irqbalance"),
        crio=_installed(root, "crio"),
        docker=_installed(root, "docker"),
        slurm=_installed(root, "slurmd"),
        containerd=containerd,
        containerd_version=_containerd_version(root, command) if containerd else None,
        containerd_systemd_cgroup=containerd and _systemd_cgroup(root),
    )


def _containerd_version(root: Root, command: Command) -> Optional[str]:
    """From the package database, from the version of its configuration (3 came with 2.0), else from the binary on a live node."""
    package = _PACKAGE.search(root.read("/var/lib/dpkg/status") or "")
    if package:
        return package.group(1)
    configured = _CONFIG_VERSION.search(root.read(_CONTAINERD) or "")
    if configured and int(configured.group(1)) >= 3:
        return "2.0.0"
    said = re.search(r"\bv?(\d+\.\d+\.\d+)", command.query(["containerd", "--version"]) or "")
    return said.group(1) if said else None


def _systemd_cgroup(root: Root) -> bool:
    """Whether the last of its files that says so says that containers use the cgroup driver systemd."""
    main = root.read(_CONTAINERD) or ""
    imported = [name for match in _IMPORTS.findall(main) for name in re.findall(r"[\"']([^\"']+)", match) if name.endswith("*.toml")]
    folders = [posixpath.dirname(name) for name in imported]
    texts = [
        main,
        *(root.read("%s/%s" % (folder, name)) or "" for folder in folders for name in sorted(root.names(folder)) if name.endswith(".toml")),
    ]
    said = [word for text in texts for word in _SYSTEMD_CGROUP.findall(text)]
    return said[-1:] == ["true"]


def _installed(root: Root, service: str) -> bool:
    return unit_text(root, service + ".service") is not None
