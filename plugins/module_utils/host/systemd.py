# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node's systemd is up to."""

from __future__ import annotations

from .root import Root


def runs_systemd(root: Root) -> bool:
    """systemd is at work here, or will be (a root that isn't live)."""
    return not root.is_live or root.exists("/run/systemd/system")


def reload_is_hazard(root: Root) -> bool:
    """A daemon-reload could take GPUs from running containers: it rewrites their device rules, which runc looks up below /dev/char.

    195 is the NVIDIA driver's major number.
    """
    return root.exists("/dev/nvidia0") and not root.exists("/dev/char/195:0")
