# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which CPUs the batch slice may use while kubelet gives CPUs of the shared pool to pods.

kubelet's static CPU manager takes a pod's exclusive CPUs out of ``defaultCpuSet`` in its state file, at admission, and they are exclusive
against pods only. Source: pkg/kubelet/cm/cpumanager/state (fields policyName, defaultCpuSet, entries), policy_static.go.
"""

from __future__ import annotations

import json
from typing import NamedTuple, Optional

from .cpuset import CpuSet
from .errors import InvalidInput

SLICE = "gpufleet-batch.slice"
STATE_FILE = "cpu_manager_state"


class Decision(NamedTuple):
    """The slice's CPUs, never none and never an isolated one, and why."""

    cpus: CpuSet
    reason: str


def decide(state: Optional[str], pool: CpuSet, reserved: CpuSet) -> Decision:
    """The CPUs of the pool that no pod has for itself; the reserved ones when none is left or the state can't be read.

    ``state`` is the text of the file, None when it isn't there. ``pool`` and ``reserved`` are the plan's, disjoint, without isolated CPUs.
    """
    try:
        default = _default_cpus(state, pool)
    except (ValueError, InvalidInput) as problem:
        return Decision(reserved, "kubelet's state is %s" % problem)
    shared = (default & pool) - reserved
    if not shared:
        return Decision(reserved, "pods have every CPU of the pool")
    return Decision(shared, "no pod has these to itself" if shared != pool else "no pod has CPUs to itself")


def _default_cpus(state: Optional[str], pool: CpuSet) -> CpuSet:
    if state is None:
        raise ValueError("missing")
    try:
        content = json.loads(state)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(content, dict) or not isinstance(content.get("defaultCpuSet", ""), str):
        raise ValueError("of an unknown form")
    if content.get("policyName") == "none":  # kubelet hasn't started with the static policy yet: no CPU is exclusive
        return pool
    if content.get("policyName") != "static":
        raise ValueError("of an unknown policy")
    return CpuSet.parse(content.get("defaultCpuSet", ""))
