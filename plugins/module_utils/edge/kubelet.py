# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module kubelet_config: like that of any concern, with kubelet's restart where the plan has it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Any, Dict

from ..core.change import unified
from ..core.errors import GpufleetError
from ..host.apply import Node
from ..host.kubelet_restart import TIMEOUT_SECONDS, configure
from ..host.root import node_root
from ..host.store import locked
from .module import fail, new_module, succeed
from .reconcile import report


def configure_kubelet() -> None:
    """Be the module kubelet_config."""
    module = new_module({"kubelet": {"type": "dict", "required": True}, "restart_timeout": {"type": "int", "default": TIMEOUT_SECONDS}})
    try:
        succeed(module, **_configure(module.params, module.check_mode))
    except GpufleetError as error:
        fail(module, error)


def _configure(parameters: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:
    os.umask(0o022)
    root = node_root(parameters["root"])
    with nullcontext() if check_mode else locked(root):
        done = configure(Node.at(parameters["root"]), {"kubelet": parameters["kubelet"]}, check_mode, parameters["restart_timeout"])
    return dict(
        report(done.outcome.findings),
        changed=done.outcome.changed,
        diff=unified(done.outcome.found),
        restarted=done.restarted,
        drain_required=done.drain_required,
    )
