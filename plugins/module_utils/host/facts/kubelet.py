# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kubelet: which unit runs it, from which files, in which version. Nothing heavy is run: one version query where no file tells."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from typing import Dict, List, Optional, Sequence

from ...core.errors import InvalidInput, UnreadableRoot
from ...core.kubelet_command import flags, nested_flags, rancher_settings
from ...core.kubelet_fields import ARGUMENTS, ENDPOINT, ENDPOINT_FLAG, UNIT_DROP_IN
from ...core.topology import Kubelet
from ...core.unit_reading import Service, command_line, environment_file, service
from ..command import Command
from ..kubelet_files import drop_ins as configuration_drop_ins
from ..kubelet_files import rancher_files
from ..root import Root
from .units import drop_ins, is_enabled, unit_text

# The distributions that run the kubelet inside their own process, with their units.
_EMBEDDED = {
    "k3s-agent.service": "k3s",
    "k3s.service": "k3s",
    "rke2-agent.service": "rke2",
    "rke2-server.service": "rke2",
}
_KUBELET = "kubelet.service"
_KUBESPRAY = "/etc/kubernetes/kubelet.env"
_KUBEADM = "/var/lib/kubelet/kubeadm-flags.env"
_ROOT_DIR = "/var/lib/kubelet"
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+)")
_PACKAGE = re.compile(r"^Package: kubelet\n(?:.+\n)*?Status: \w+ ok installed\n(?:.+\n)*?Version: (?:\d+:)?(\d+\.\d+\.\d+)", re.MULTILINE)


def read_kubelet(root: Root, command: Command, ours: bool = False) -> Optional[Kubelet]:
    """The kubelet of the node, the one that starts at boot when several units are installed; None without one.

    ``ours``: with our own part of its unit and of its flags. A plan is made of what is there without.

    :raises UnreadableRoot: what k3s or RKE2 is configured by can't be read
    """
    installed = [(name, text) for name in (_KUBELET, *_EMBEDDED) for text in [unit_text(root, name)] if text]
    if not installed:
        return None
    name, text = next((unit for unit in installed if is_enabled(root, unit[0])), installed[0])
    paths = [path for path in drop_ins(root, name) if ours or not path.endswith("/" + UNIT_DROP_IN)]
    unit = service([text, *(root.read(path) or "" for path in paths)])
    words = command_line(unit, [environment_file(root.read(path) or "") for path in unit.environment_files])
    if name in _EMBEDDED:
        return _embedded(root, command, name, words, unit.exec_start, ours)
    return _standalone(root, command, unit, words, any(path.endswith("kubeadm.conf") for path in paths))


def _standalone(root: Root, command: Command, unit: Service, words: Sequence[str], by_kubeadm: bool) -> Kubelet:
    given = flags(words[1:])
    kubelet = Kubelet(
        "kubespray" if _KUBESPRAY in unit.environment_files else "kubeadm" if by_kubeadm or root.exists(_KUBEADM) else "plain",
        _KUBELET,
        _version(root, command, words[0] if words else "kubelet"),
        given.pop("config", None),
        given.pop("config-dir", None),
        given.pop("root-dir", _ROOT_DIR),
        given,
        unit.exec_start,
    )
    return dataclasses.replace(kubelet, runtime_endpoint=_runtime_endpoint(root, kubelet))


def _runtime_endpoint(root: Root, kubelet: Kubelet) -> str:
    """By a flag, else by kubelet's files. Of files that kubelet can't read it is "": they are refused where the rest of them counts."""
    if ENDPOINT_FLAG in kubelet.flags:
        return kubelet.flags[ENDPOINT_FLAG]
    main = root.read(kubelet.config_file) if kubelet.config_file else None
    texts = configuration_drop_ins(root, kubelet.config_dir or "")
    if not any(ENDPOINT in text for text in (main or "", *texts.values())):
        return ""
    from ...core.kubelet_merge import runtime_endpoint  # only where a file names one

    try:
        return runtime_endpoint(main, texts)
    except InvalidInput:
        return ""


def _version(root: Root, command: Command, binary: str) -> Optional[str]:
    """From the package database when the binary is a package's, else from the binary itself on a live node."""
    found = None
    if binary.startswith("/usr/bin/"):
        found = _PACKAGE.search(root.read("/var/lib/dpkg/status") or "")
    found = found or _VERSION.search(command.query([binary, "--version"]) or "")
    return found.group(1) if found else None


def _embedded(root: Root, command: Command, name: str, words: List[str], exec_start: str, ours: bool) -> Kubelet:
    """k3s and RKE2: no main file; their kubelet reads a drop-in folder below the data folder, when the release has one."""
    distribution = _EMBEDDED[name]
    files = {path: text for path, text in rancher_files(root, distribution).items() if ours or path != ARGUMENTS % distribution}
    try:
        settings = rancher_settings(files)
    except InvalidInput as problem:
        raise UnreadableRoot(problem.problem, problem.remedy) from problem
    data = flags(words).get("data-dir") or "".join(settings.get("data-dir", ())) or "/var/lib/rancher/%s" % distribution
    folder = posixpath.join(data, "agent/etc/kubelet.conf.d")
    given: Dict[str, str] = nested_flags(words, settings.get("kubelet-arg", ()))
    # RKE2's binaries lie in a folder that is named after its version; k3s names its own after a hash.
    version = _VERSION.search(root.link_target(posixpath.join(data, "bin")) or "") or _VERSION.search(
        command.query([distribution, "--version"]) or ""
    )
    return Kubelet(
        distribution,
        name,
        version.group(1) if version else None,
        given.pop("config", None),
        given.pop("config-dir", folder if root.exists(folder) else None),
        given.pop("root-dir", _ROOT_DIR),
        given,
        exec_start,
    )
