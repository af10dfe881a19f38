# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module node_capture."""

from __future__ import annotations

from ..core.codec import to_json
from ..core.errors import GpufleetError
from ..core.plan import build_plan
from ..core.policy import Policy
from ..host.capture import RecordingRoot, capture
from ..host.command import Command
from ..host.concerns import CONCERNS
from ..host.files import write_atomic
from ..host.root import Root
from ..host.topology import read_topology
from .module import fail, new_module


def capture_node() -> None:
    """Be the module node_capture."""
    module = new_module({"dest": {"type": "path", "required": True}})
    try:
        root = RecordingRoot(module.params["root"])
        archive = capture(root, read_everything)
        if not module.check_mode:
            write_atomic(module.params["dest"], archive, 0o600, enforce_mode=True)
        module.exit_json(changed=not module.check_mode, dest=module.params["dest"], files=len(root.contents), size_bytes=len(archive))
    except GpufleetError as error:
        fail(module, error)


def read_everything(root: Root, command: Command) -> None:
    """All that facts and the concerns look at, the latter by a plan of the defaults."""
    topology = read_topology(root, command)
    try:
        plan = to_json(build_plan(topology, Policy()))
    except GpufleetError:  # a node that the defaults don't fit: its facts are what a report is about
        return
    for concern in CONCERNS:
        concern.read(root, command, {name: plan[name] for name in concern.sections})
