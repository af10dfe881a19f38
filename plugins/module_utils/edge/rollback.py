# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module that undoes all others."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, Dict

from ..core.change import unified
from ..core.errors import GpufleetError
from ..host.apply import Node
from ..host.rollback import roll_back
from ..host.root import node_root
from ..host.store import locked
from .module import fail, new_module, succeed
from .reconcile import report


def rollback() -> None:
    """Be the module node_rollback."""
    module = new_module({})
    try:
        succeed(module, **_rollback(module.params["root"], module.check_mode))
    except GpufleetError as error:
        fail(module, error)


def _rollback(root: str, check_mode: bool) -> Dict[str, Any]:
    os.umask(0o022)
    node = node_root(root)
    with nullcontext() if check_mode else locked(node):
        done = roll_back(Node.at(root), check_mode)
    left = [{"path": path, "diff": difference} for path, difference in sorted(done.left.items())]
    return dict(
        report(done.outcome.findings), changed=done.outcome.changed, diff=unified(done.outcome.found), left=left, packages=done.packages
    )
