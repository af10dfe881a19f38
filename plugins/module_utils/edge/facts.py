# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The facts module: read the root, hand out the Topology as JSON."""

from __future__ import annotations

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
        root = Root(module.params["root"])
        topology = read_topology(root, Command(root), module.params["gather"], check_gpu_match(module.params["gpu_match"]))
        succeed(module, changed=False, ansible_facts={"gpufleet_topology": to_json(topology)})
    except GpufleetError as error:
        fail(module, error)
