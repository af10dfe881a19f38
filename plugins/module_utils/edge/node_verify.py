# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The module node_verify: without a plan the node's facts, with one what differs from it. Its action plugin asks for one after the other,
unless the first answer brings the other along: the verdict on the plan that the node remembers.

One module for both, because Ansible packs an archive per module and run, which takes as long as a node takes to answer. A node loads what
the question needs.
"""

from __future__ import annotations

import os
from typing import Any, Dict

from ..core.codec import digest
from ..core.errors import GpufleetError
from . import compile_once
from .module import fail, new_module, succeed

OPTIONS = {
    "plan": {"type": "dict"},
    "gpu_match": {"type": "list", "elements": "str", "default": []},
    "fingerprint": {"type": "str"},
    "concerns": {"type": "list", "elements": "str"},
    "list_in_place": {"type": "bool", "default": False},
    "remember": {"type": "bool", "default": False},
}


def answer() -> None:
    """Be the module node_verify."""
    module = new_module(OPTIONS)
    asked = dict(module.params)
    gpu_match, remember = asked.pop("gpu_match"), asked.pop("remember") and not module.check_mode
    os.umask(0o022)
    try:
        result = _facts(asked, gpu_match) if asked["plan"] is None else _verdict(asked, remember)
    except GpufleetError as error:
        fail(module, error)
    if remember:
        compile_once.keep()
    succeed(module, changed=False, **result)


def _facts(asked: Dict[str, Any], gpu_match: Any) -> Dict[str, Any]:
    from ..core.topology import NEEDED_BY_PLAN
    from ..host.remembered import recall
    from ..host.root import Root
    from .facts import facts

    result = facts(asked["root"], NEEDED_BY_PLAN, gpu_match)
    plan = recall(Root(asked["root"]))
    if plan is not None:
        from .verdict import verdict

        fingerprint = result["ansible_facts"]["gpufleet_topology"]["fingerprint"]
        try:
            found = verdict(**dict(asked, plan=plan, fingerprint=fingerprint))
        except Exception:  # pylint: disable=broad-except
            return result  # another machine's plan, or another version's: the one that is asked about next is neither
        result["remembered"] = {"plan": digest(plan), "verdict": found}
    return result


def _verdict(asked: Dict[str, Any], remember: bool) -> Dict[str, Any]:
    from .verdict import verdict

    result = verdict(**asked)
    if remember and not result["differing"]:
        from ..host.remembered import keep
        from ..host.root import Root

        keep(asked["plan"], Root(asked["root"]))
    return result
