# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""containerd's configuration, as far as it says by which cgroup driver pods run.

Sources, read at v1.7 and v2.1: cmd/containerd/server/config/config.go (imports, how files are merged, names of plugins by version),
pkg/cri/config/config.go (the default runtime).
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from . import toml_text
from .errors import InvalidInput

MAIN_FILE = "/etc/containerd/config.toml"

# The CRI plugin by the version of the configuration; 3 came with containerd 2.0, which reads 2 as well.
_CRI_OF_VERSION_1 = ("cri",)
_CRI = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")


def read(text: Optional[str]) -> Dict[str, Any]:
    """What is looked at in one of its files: {version, imports, plugins}; {} where there is none that containerd could read."""
    try:
        file = toml_text.read(text or "")
    except InvalidInput:
        return {}
    plugins = {name: {"containerd": _runtimes(section)} for name, section in _table(file, "plugins").items() if _is_cri(name, section)}
    return {**{key: file[key] for key in ("version", "imports") if key in file}, **({"plugins": plugins} if plugins else {})}


def _is_cri(name: str, section: Any) -> bool:
    return name in (*_CRI_OF_VERSION_1, *_CRI) and isinstance(section, dict)


def _runtimes(section: Mapping[str, Any]) -> Dict[str, Any]:
    containerd = _table(section, "containerd")
    options = {name: _table(_table(_table(containerd, "runtimes"), name), "options") for name in _table(containerd, "runtimes")}
    found: Dict[str, Any] = {key: containerd[key] for key in ("default_runtime_name",) if key in containerd}
    return {
        **found,
        "runtimes": {name: {"options": {key: of[key] for key in of if key == "SystemdCgroup"}} for name, of in options.items()},
    }


def excerpt(text: str) -> str:
    """What is looked at in a file, as a file again: all else may be a secret."""
    return "".join("%s = %s\n" % (key, _inline(value)) for key, value in read(text).items())


def imports(file: Mapping[str, Any]) -> List[str]:
    """The files that a file imports: paths and patterns."""
    found = file.get("imports")
    return [str(name) for name in found] if isinstance(found, list) else []


def version_of(files: Iterable[Mapping[str, Any]]) -> int:
    """The version of the configuration: the last file's that has one. Without any it is 1."""
    said: List[int] = [file["version"] for file in files if isinstance(file.get("version"), int)]
    return said[-1] if said else 1


def has_systemd_cgroup(files: Sequence[Mapping[str, Any]], merges: bool) -> bool:
    """Whether pods of the default runtime run by the cgroup driver systemd. ``files``: the main one, then what is imported, in order.

    ``merges``: of containerd 2.0 on, which merges a plugin's settings. Before, those of a later file took the place of all earlier ones.
    """
    cri: Mapping[str, Any] = {}
    for name in _CRI_OF_VERSION_1 if version_of(files) < 2 else _CRI:
        for section in (_table(file, "plugins")[name] for file in files if name in _table(file, "plugins")):
            cri = _merged(cri, section) if merges else section
    containerd = _table(cri, "containerd")
    chosen = _table(_table(containerd, "runtimes"), str(containerd.get("default_runtime_name", "runc")))
    return _table(chosen, "options").get("SystemdCgroup") is True


def _table(table: Mapping[str, Any], key: str) -> Dict[str, Any]:
    inner = table.get(key)
    return inner if isinstance(inner, dict) else {}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Dict[str, Any]:
    both = {key: _merged(base[key], value) for key, value in over.items() if isinstance(value, dict) and isinstance(base.get(key), dict)}
    return {**base, **over, **both}


def _inline(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "{%s}" % ", ".join("%s = %s" % (json.dumps(key, ensure_ascii=False), _inline(item)) for key, item in value.items())
