# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Other owners of our settings, by their units. Installed is what counts: whether we have masked one must not change the facts."""

from __future__ import annotations

from ...core.topology import Software
from ..root import Root
from .units import is_enabled, unit_text
from .values import word


def read_software(root: Root) -> Software:
    """Who else is there."""
    profile = word(root, "/etc/tuned/active_profile") if is_enabled(root, "tuned.service") else None
    return Software(
        tuned_profile=profile,
        irqbalance=_installed(root, "irqbalance"),
        crio=_installed(root, "crio"),
        docker=_installed(root, "docker"),
        slurm=_installed(root, "slurmd"),
        containerd=_installed(root, "containerd"),
    )


def _installed(root: Root, service: str) -> bool:
    return unit_text(root, service + ".service") is not None
