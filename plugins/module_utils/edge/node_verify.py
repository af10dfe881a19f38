# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module node_verify: without a plan the node's facts, with one what differs from it. Its action plugin asks for one after the other.

One module for both, because Ansible packs an archive per module and run, which takes as long as a node takes to answer. A node loads what
the question needs.
"""

from __future__ import annotations

from ..core.errors import GpufleetError
from .module import fail, new_module, succeed

OPTIONS = {
    "plan": {"type": "dict"},
    "gpu_match": {"type": "list", "elements": "str", "default": []},
    "fingerprint": {"type": "str"},
    "concerns": {"type": "list", "elements": "str"},
    "list_in_place": {"type": "bool", "default": False},
}


def answer() -> None:
    """Be the module node_verify."""
    module = new_module(OPTIONS)
    asked = dict(module.params)
    of_facts = {"root": asked["root"], "gpu_match": asked.pop("gpu_match")}
    try:
        if asked["plan"] is None:
            from ..core.topology import NEEDED_BY_PLAN
            from .facts import facts

            succeed(module, changed=False, **facts(gather=NEEDED_BY_PLAN, **of_facts))
        else:
            from .verdict import verdict

            succeed(module, changed=False, **verdict(**asked))
    except GpufleetError as error:
        fail(module, error)
