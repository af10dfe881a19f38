# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemd units as files: which is there, which starts at boot. Nothing is asked of systemd, so an image answers like a live node."""

from __future__ import annotations

from typing import Dict, List, Optional

from ..root import Root

# Where systemd looks, first hit first (systemd.unit(5)).
FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")


def unit_text(root: Root, name: str) -> Optional[str]:
    """The text of a unit, a mask overlooked; None when it isn't installed."""
    for folder in FOLDERS:
        text = root.read("%s/%s" % (folder, name))
        if text:
            return text
    return None


def drop_ins(root: Root, name: str) -> List[str]:
    """The paths of a unit's drop-ins in the order in which they count. One in an earlier folder hides its namesakes."""
    found: Dict[str, str] = {}
    for folder in FOLDERS:
        for file in root.names("%s/%s.d" % (folder, name)):
            if file.endswith(".conf"):
                found.setdefault(file, "%s/%s.d/%s" % (folder, name, file))
    return [found[file] for file in sorted(found)]


def is_enabled(root: Root, name: str) -> bool:
    """Whether multi-user.target wants the unit and no mask hides it."""
    wanted = root.link_target("/etc/systemd/system/multi-user.target.wants/%s" % name) is not None
    return wanted and root.link_target("/etc/systemd/system/%s" % name) != "/dev/null"
