# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module node_capture."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, List, Mapping, Optional, Sequence

from ..core.change import IN_PLACE, Finding
from ..core.codec import to_json
from ..core.devices import check_gpu_match
from ..core.errors import GpufleetError
from ..core.plan import build_plan
from ..core.policy import Policy
from ..host.apply import Node, inspect
from ..host.capture import RecordingRoot, capture
from ..host.command import Command
from ..host.concerns import CONCERNS
from ..host.files import write_atomic
from ..host.refusals import Refusals
from ..host.root import Root
from ..host.store import Store
from ..host.topology import read_topology
from .module import fail, new_module

OPTIONS = {
    "dest": {"type": "path", "required": True},
    "plan": {"type": "dict"},
    "gpu_match": {"type": "list", "elements": "str", "default": []},
}

_LAUNCHER, _PROGRAM = "launcher", ".pyz"  # the item of the first, the names of the others


def capture_node() -> None:
    """Be the module node_capture."""
    module = new_module(OPTIONS)
    try:
        root = RecordingRoot(module.params["root"])
        gpu_match = check_gpu_match(module.params["gpu_match"])
        archive = capture(root, lambda reader, command: read_everything(reader, command, module.params["plan"], gpu_match))
        if not module.check_mode:
            write_atomic(module.params["dest"], archive, 0o600, enforce_mode=True)
        module.exit_json(changed=not module.check_mode, dest=module.params["dest"], files=len(root.contents), size_bytes=len(archive))
    except GpufleetError as error:
        fail(module, error)


def read_everything(root: Root, command: Command, plan: Optional[Mapping[str, Any]] = None, gpu_match: Sequence[str] = ()) -> List[str]:
    """All that facts (with this ``gpu_match``) and verify look at, the latter by ``plan`` or, without one, by that of the defaults.

    :returns: the paths of our own programs that are as we ship them
    """
    topology = read_topology(root, command, gpu_match=gpu_match)
    node = Node(root, command, Store(root), Refusals(root))
    found: List[Finding] = []
    with suppress(GpufleetError):  # a node that the defaults don't fit: its facts are what a report is about
        plan = plan or to_json(build_plan(topology, Policy()))
    for concern in CONCERNS if plan else ():
        section = {name: plan[name] for name in concern.sections}
        with suppress(GpufleetError):  # a concern that is refused: what was read up to there is why
            found += inspect(concern.artifacts(section, concern.read(root, command, section)), node)
    return _own_programs(root, found, (plan or {}).get("launcher") or {})


def _own_programs(root: Root, found: Sequence[Finding], launcher: Mapping[str, Any]) -> List[str]:
    """Those that are as this collection ships them. Verify tells the launcher by its checksum alone, so that it is read only here."""
    in_place = [finding for finding in found if finding.status == IN_PLACE]
    paths = [launcher["path"] for finding in in_place if finding.item == _LAUNCHER and launcher.get("path")]
    for path in paths:
        root.read(path)
    return paths + [finding.path for finding in in_place if finding.path.endswith(_PROGRAM)]
