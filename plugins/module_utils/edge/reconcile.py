# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one place between Ansible and a concern: options, check mode, diff, results, errors."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, Dict, List, Optional, Sequence

from ansible.module_utils.basic import AnsibleModule

from ..core.change import IN_PLACE, PENDING, REBOOT, RESTART, Finding, unified
from ..core.errors import GpufleetError
from ..host.apply import Node, apply
from ..host.concern import Concern
from ..host.root import node_root
from ..host.store import locked
from .module import fail, new_module, succeed


def reconcile(concern: Concern, options: Dict[str, Any], **arguments: Any) -> None:
    """Be the module of a concern: its options are the concern's sections of the plan."""
    module = new_module(options, **arguments)
    try:
        succeed(module, **_reconcile(concern, module))
    except GpufleetError as error:
        fail(module, error)


def _reconcile(concern: Concern, module: AnsibleModule) -> Dict[str, Any]:
    os.umask(0o022)
    section = {name: module.params[name] for name in concern.sections}
    path = module.params["root"]
    root = node_root(path)
    with nullcontext() if module.check_mode else locked(root):
        node = Node.at(path)
        outcome = apply(concern.artifacts(section, concern.read(node.root, node.command, section)), node, module.check_mode)
    return dict(report(outcome.findings), changed=outcome.changed, diff=unified(outcome.found))


def report(findings: Sequence[Finding], list_in_place: bool = False) -> Dict[str, Any]:
    """What every module of ours returns about its findings. Items in place are counted, and listed on demand only."""
    return {
        "findings": [as_item(finding) for finding in findings if list_in_place or finding.status != IN_PLACE],
        "in_place": sum(finding.status == IN_PLACE for finding in findings),
        "pending_commands": _unique([list(f.command) for f in findings if f.status == PENDING and f.command]),
        "reboot_required": any(f.status == PENDING and f.until == REBOOT for f in findings),
        "restart_required": _unique([f.item for f in findings if f.status == PENDING and f.until == RESTART]),
    }


def as_item(finding: Finding) -> Dict[str, Optional[str]]:
    """A finding for people and programs."""
    return {"item": finding.item, "status": finding.status, "path": finding.path, "message": finding.message, "until": finding.until}


def _unique(values: List[Any]) -> List[Any]:
    return [value for position, value in enumerate(values) if value not in values[:position]]
