# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's state files against the node: the machine as kubelet sees it, the pods that run, the files that it would not start on."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Dict, List, Mapping, Optional

from ..core.cpuset import CpuSet
from ..core.kubelet_state import Machine, NodeMemory, holders, stale_because
from ..core.kubelet_state_format import CPU, MEMORY
from .facts.values import kilobytes, number, numbered
from .root import Root

NODES = "/sys/devices/system/node"
_POOL = re.compile(r"hugepages-(\d+)kB\Z")

# The cgroup of all pods, with either of kubelet's drivers, on cgroup v2 and v1. Guaranteed pods are its direct children.
_PODS = tuple(base + name for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpuset") for name in ("/kubepods.slice", "/kubepods"))
_POD = re.compile(r"(?:kubepods-)?pod([0-9a-f_-]+)(?:\.slice)?\Z")
_LOGS = "/var/log/pods"  # folders named namespace_name_uid


def read_machine(root: Root) -> Machine:
    """CPUs and NUMA nodes as kubelet sees them: all nodes that have a folder, those without CPUs too, with MemTotal and all pools."""
    nodes = {}
    for id in numbered(root.names(NODES), "node"):
        folder = "%s/node%d" % (NODES, id)
        sizes = [match.group(1) for match in map(_POOL.match, root.names(folder + "/hugepages")) if match]
        pools = {int(size) * 1024: number(root, "%s/hugepages/hugepages-%skB/nr_hugepages" % (folder, size)) or 0 for size in sizes}
        nodes[id] = NodeMemory(kilobytes(root.read(folder + "/meminfo") or "", "MemTotal") or 0, pools)
    return Machine(CpuSet.parse(root.read("/sys/devices/system/cpu/online") or ""), nodes)


def refused(root: Root, states: Mapping[str, str], configuration: Mapping[str, Any], minor: int) -> Dict[str, str]:
    """The state files (texts by name) that kubelet would not start on, with the reason."""
    machine = read_machine(root)
    reasons = {name: stale_because(name, text, configuration, machine, minor) for name, text in states.items()}
    return {name: reason for name, reason in reasons.items() if reason}


def read_states(root: Root, folder: str) -> Dict[str, str]:
    """The texts of the state files in kubelet's root folder, by name."""
    found = {name: root.read(posixpath.join(folder, name)) for name in (CPU, MEMORY)}
    return {name: text for name, text in found.items() if text is not None}


def in_use(root: Root, states: Mapping[str, str], minor: int, at_boot: bool = False) -> List[str]:
    """Pods with processes that hold CPUs or memory of their own by these state files, in words; empty where there are none.

    By a file that can't be read every running Guaranteed pod may hold some. Where kubelet's cgroups can't be found, every entry counts;
    ``at_boot`` there are none yet.
    """
    running = _guaranteed_pods(root)
    if running == [] or (running is None and at_boot):
        return []
    found: Dict[str, List[str]] = {}
    for name, text in states.items():
        held = holders(name, text, minor)
        if held is None:
            held = {pod: [] for pod in running or ()}
        found.update((pod, containers) for pod, containers in held.items() if running is None or pod in running)
    return [_described(root, pod, containers) for pod, containers in sorted(found.items())]


def _guaranteed_pods(root: Root) -> Optional[List[str]]:
    """UIDs of Guaranteed pods with processes; None where kubelet's cgroups aren't found."""
    folder = next((folder for folder in _PODS if root.exists(folder)), None)
    if folder is None:
        return None
    pods = {match.group(1).replace("_", "-"): match.group(0) for match in map(_POD.match, root.names(folder)) if match}
    # cgroup v1 has no such file: there the folder counts.
    return [uid for uid, name in pods.items() if "populated 0" not in (root.read("%s/%s/cgroup.events" % (folder, name)) or "")]


def _described(root: Root, uid: str, containers: List[str]) -> str:
    log = next((name for name in root.names(_LOGS) if name.endswith("_" + uid)), None)
    pod = "/".join(log.split("_")[:2]) if log else uid
    return "pod %s (%s)" % (pod, ", ".join(containers)) if containers else "pod %s" % pod
