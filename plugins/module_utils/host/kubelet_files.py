# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's files as kubelet finds them, and those of k3s and RKE2, which start one."""

from __future__ import annotations

import posixpath
from typing import Dict

from ..core.kubelet_fields import RANCHER
from .root import Root


def drop_ins(root: Root, folder: str) -> Dict[str, str]:
    """The texts of the *.conf files in the folder and below it, by path; links to folders aren't followed. Of no folder ("") none."""
    found: Dict[str, str] = {}
    for name in root.names(folder) if folder else ():
        path = posixpath.join(folder, name)
        if root.link_target(path) is None:
            found.update(drop_ins(root, path))
        text = root.read(path) if name.endswith(".conf") else None
        if text is not None:
            found[path] = text
    return found


def rancher_files(root: Root, distribution: str) -> Dict[str, str]:
    """The texts of what k3s or RKE2 is configured by, by path: its main file and those of the folder beside it."""
    main = RANCHER % distribution
    paths = [main, *("%s.d/%s" % (main, name) for name in root.names(main + ".d") if name.endswith((".yaml", ".yml")))]
    return {path: root.read(path) or "" for path in paths}
