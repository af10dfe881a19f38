# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Other owners of our settings, by their units. Installed is what counts: whether we have masked one must not change the facts."""

from __future__ import annotations

from typing import Optional, Tuple

from ...core.topology import Software
from ..command import Command
from ..root import Root
from .units import is_enabled, unit_text
from .values import word


def read_software(root: Root, command: Command) -> Software:
    """Who else is there."""
    profile = word(root, "/etc/tuned/active_profile") if is_enabled(root, "tuned.service") else None
    has_containerd = _installed(root, "containerd")
    version, systemd_cgroup = _containerd(root, command) if has_containerd else (None, False)
    return Software(
        tuned_profile=profile,
        irqbalance=_installed(root, "irqbalance"),
        crio=_installed(root, "crio"),
        docker=_installed(root, "docker"),
        slurm=_installed(root, "slurmd"),
        containerd=has_containerd,
        containerd_version=version,
        containerd_systemd_cgroup=systemd_cgroup,
    )


def _installed(root: Root, service: str) -> bool:
    return unit_text(root, service + ".service") is not None


def _containerd(root: Root, command: Command) -> Tuple[Optional[str], bool]:
    from .containerd import read_containerd  # only nodes with one of their own load what reads TOML

    return read_containerd(root, command)
