# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan against the node, all concerns in one call, read-only."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from ..core.change import DRIFT, STATUSES, Finding, unified
from ..core.errors import GpufleetError, InvalidInput, unknown_name
from ..host.apply import Node, inspect
from ..host.concern import Concern
from ..host.concerns import CONCERNS
from .reconcile import fail, new_module, report

OPTIONS = {"plan": {"type": "dict", "required": True}, "concerns": {"type": "list", "elements": "str"}}


def verify() -> None:
    """Be the module node_verify."""
    module = new_module(OPTIONS)
    try:
        module.exit_json(changed=False, **_verify(module.params["plan"], module.params["concerns"], module.params["root"]))
    except GpufleetError as error:
        fail(module, error)


def _verify(plan: Dict[str, Any], names: Sequence[str], root: str) -> Dict[str, Any]:
    chosen = _chosen(names)
    missing = sorted({section for concern in chosen for section in concern.sections} - set(plan))
    if missing:
        raise InvalidInput("The plan lacks %s." % ", ".join(missing), "Pass gpufleet_plan as gpufleet.node.node_plan returned it.")
    node = Node.at(root)
    found: List[Finding] = []
    concerns: Dict[str, Any] = {}
    for concern in chosen:
        try:
            findings = _inspect(concern, plan, node)
        except GpufleetError as error:
            concerns[concern.name] = {"in_place": 0, "findings": [], "refused": str(error)}
            continue
        found.extend(findings)
        concerns[concern.name] = report(findings)
    return {
        "concerns": concerns,
        "counts": {status: sum(finding.status == status for finding in found) for status in STATUSES},
        "differing": [name for name, result in concerns.items() if "refused" in result or _drifted(result)],
        "diff": unified(found),
        **{key: value for key, value in report(found).items() if key not in ("findings", "in_place")},
    }


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
