# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The node's own containerd: its version, and the cgroup driver that pods get from it."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from typing import Any, Dict, List, Optional, Tuple

from ...core import containerd
from ..command import Command
from ..root import Root

_PACKAGE = re.compile(
    r"^Package: containerd(?:\.io)?\n(?:.+\n)*?Status: \w+ ok installed\n(?:.+\n)*?Version: (?:\d+:)?(\d+\.\d+\.\d+)", re.MULTILINE
)


def read_containerd(root: Root, command: Command) -> Tuple[Optional[str], bool]:
    """containerd's version, and whether pods of its default runtime have the cgroup driver systemd."""
    files = _files(root)
    version = _version(root, command, containerd.version_of(files))
    return version, containerd.has_systemd_cgroup(files, merges=not (version or "").startswith(("0.", "1.")))


def _version(root: Root, command: Command, configured: int) -> Optional[str]:
    """From the package database, from the version of its configuration (3 came with 2.0), else from the binary on a live node."""
    package = _PACKAGE.search(root.read("/var/lib/dpkg/status") or "")
    if package:
        return package.group(1)
    if configured >= 3:
        return "2.0.0"
    said = re.search(r"\bv?(\d+\.\d+\.\d+)", command.query(["containerd", "--version"]) or "")
    return said.group(1) if said else None


def _files(root: Root) -> List[Dict[str, Any]]:
    """Its main file and what that imports, as containerd comes upon them. A path is relative to the file that names it.

    Files of another name than *.toml are left out: a capture knows by the name what of a file may leave the node.
    """
    paths, files = [containerd.MAIN_FILE], []
    for path in paths:  # which grows
        files.append(containerd.read(root.read(path)))
        named = [posixpath.normpath(posixpath.join(posixpath.dirname(path), name)) for name in containerd.imports(files[-1])]
        paths += [found for name in named for found in _matching(root, name) if found not in paths and found.endswith(".toml")]
    return files


def _matching(root: Root, pattern: str) -> List[str]:
    """The paths that a pattern stands for."""
    found = [""]
    for part in pattern.strip("/").split("/"):
        names = {folder: root.names(folder or "/") for folder in found} if "*" in part else {}
        found = ["%s/%s" % (folder, name) for folder in found for name in (fnmatch.filter(names[folder], part) if names else [part])]
    return found
