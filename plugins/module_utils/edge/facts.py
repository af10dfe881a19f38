# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The facts module: read the root, hand out the Topology as JSON."""

from __future__ import annotations

from typing import Any, Dict, Sequence

from ..core.codec import to_json
from ..core.devices import check_gpu_match
from ..core.errors import GpufleetError
from ..host.command import Command
from ..host.root import Root
from ..host.topology import SUBSETS, read_topology
from .module import fail, new_module, succeed

OPTIONS = {
    "gather": {"type": "list", "elements": "str", "choices": list(SUBSETS), "default": list(SUBSETS)},
    "gpu_match": {"type": "list", "elements": "str", "default": []},
}


def gather() -> None:
    """Be the module topology_facts."""
    module = new_module(OPTIONS)
    try:
        succeed(module, changed=False, **facts(**module.params))
    except GpufleetError as error:
        fail(module, error)


def facts(root: str, gather: Sequence[str] = SUBSETS, gpu_match: Sequence[str] = ()) -> Dict[str, Any]:
    """``ansible_facts`` of the root."""
    node = Root(root)
    topology = read_topology(node, Command(node), gather, check_gpu_match(gpu_match))
    return {"ansible_facts": {"gpufleet_topology": to_json(topology)}}
