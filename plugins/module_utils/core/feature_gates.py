# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether kubelet has a feature gate on: what the rules, the check of state files and the predictions all ask.

Source: Set in staging/src/k8s.io/component-base/featuregate/feature_gate.go; a gate's own name beats AllAlpha and AllBeta.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Tuple

from .kubelet_tables import GATES

Rows = Tuple[Tuple[int, Optional[bool], bool], ...]  # of a gate: the minors at which its default or lock changes

_EVERY = {"alpha": "AllAlpha", "beta": "AllBeta"}


def state_of(rows: Rows, minor: int) -> Tuple[Optional[bool], bool]:
    """The default of a gate in a minor, and whether it is locked; no default where kubelet doesn't know the gate."""
    reached = [(default, locked) for since, default, locked in rows if since <= minor]
    return reached[-1] if reached else (None, False)


def latest(rows: Sequence[Tuple[int, Any]], minor: int) -> Any:
    """What holds in a minor, of values by the minor at which they change; None before the first."""
    return next((value for since, value in reversed(rows) if since <= minor), None)


def is_on(gate: str, gates: Optional[Mapping[str, bool]], minor: int, known: Mapping[str, Rows] = GATES) -> bool:
    """Whether a gate is on under these featureGates: by its name, by AllAlpha or AllBeta, by default. Off where the minor lacks it."""
    gates, (default, _locked) = gates or {}, state_of(known[gate], minor)
    if default is None:
        return False
    if gate not in gates and not gates.keys().isdisjoint(_EVERY.values()):
        from .kubelet_gates import GATE_STAGES  # few kubelets have such gates, and the table is long

        return bool(gates.get(_EVERY.get(latest(GATE_STAGES[gate], minor), ""), default))
    return bool(gates.get(gate, default))
