# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan against the node, all concerns in one call, read-only."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from ..core.change import DRIFT, STATUSES, Finding, unified
from ..core.errors import GpufleetError, InvalidInput, unknown_name
from ..host.apply import Node, inspect
from ..host.concern import Concern
from ..host.concerns import CONCERNS, NOTHING
from .reconcile import report

_KINDS = {dict: "mapping", list: "list", str: "text"}
_WHOLE_PLAN = "Pass gpufleet_plan as gpufleet.node.node_plan returned it."


def verdict(plan: Dict[str, Any], fingerprint: Optional[str], concerns: Sequence[str], root: str, list_in_place: bool) -> Dict[str, Any]:
    """What is in place, what isn't, and which concerns' roles have work to do.

    :raises InvalidInput: no plan, another machine's, or a concern that there isn't
    """
    _check_fingerprint(plan, fingerprint)
    chosen = _chosen(concerns)
    _check_sections(plan, sorted(section for concern in chosen for section in concern.sections))
    node = Node.at(root)
    found: List[Finding] = []
    results: Dict[str, Any] = {}
    for concern in chosen:
        try:
            findings = _inspect(concern, plan, node)
        except GpufleetError as error:
            results[concern.name] = {"in_place": 0, "findings": [], "refused": str(error)}
            continue
        found.extend(findings)
        results[concern.name] = report(findings, list_in_place)
    return {
        "concerns": results,
        "counts": {status: sum(finding.status == status for finding in found) for status in STATUSES},
        "differing": [name for name, result in results.items() if "refused" in result or _drifted(result)],
        "diff": unified(found),
        **{key: value for key, value in report(found).items() if key not in ("findings", "in_place")},
    }


def _check_fingerprint(plan: Dict[str, Any], fingerprint: Optional[str]) -> None:
    """A plan made by hand or from a capture may be another machine's: its CPU numbers would mean other CPUs here."""
    made_for = plan.get("fingerprint")
    if fingerprint and made_for != fingerprint:
        raise InvalidInput(
            "The plan was made for another machine: its fingerprint is %s, this node's is %s." % (str(made_for)[:12], fingerprint[:12]),
            "Make the plan from this node's own facts.",
        )


def _check_sections(plan: Dict[str, Any], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in plan]
    if missing:
        raise InvalidInput("The plan lacks %s." % ", ".join(missing), _WHOLE_PLAN)
    for name in names:
        if not isinstance(plan[name], type(NOTHING[name])):
            raise InvalidInput("The plan's %s is %r, which is not a %s." % (name, plan[name], _KINDS[type(NOTHING[name])]), _WHOLE_PLAN)


def _chosen(names: Sequence[str]) -> List[Concern]:
    known = {concern.name: concern for concern in CONCERNS}
    for name in names or ():
        if name not in known:
            raise unknown_name("concern", name, known)
    return [concern for concern in CONCERNS if not names or concern.name in names]


def _inspect(concern: Concern, plan: Dict[str, Any], node: Node) -> List[Finding]:
    section = {name: plan[name] for name in concern.sections}
    return inspect(concern.artifacts(section, concern.read(node.root, node.command, section)), node)


def _drifted(result: Dict[str, Any]) -> bool:
    return any(item["status"] == DRIFT for item in result["findings"])
