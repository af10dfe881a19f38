# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Making a plan on the controller: the policy is what a host's variables say. For action plugins."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Mapping

from ..core.codec import from_json, to_json
from ..core.plan import build_plan
from ..core.policy import PLAY_CHECKS, PREFIX, SETTINGS, policy_from_variables
from ..core.topology import Topology
from .launcher_source import launcher_source

COLLECTION = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


def make_plan(topology: Any, variables: Mapping[str, Any], template: Callable[[Any], Any], overrides: Mapping[str, Any]) -> Dict[str, Any]:
    """``gpufleet_plan`` for the facts ``topology``, from all of a host's ``variables``, which ``template`` resolves, and ``overrides``.

    :raises InvalidInput: what was asked for can't be on this node, or a variable of ours is misspelt
    """
    policy = policy_from_variables({**_ours(variables, template), **overrides})
    return to_json(build_plan(from_json(Topology, topology, "topology"), policy, launcher_source(COLLECTION)))


def _ours(variables: Mapping[str, Any], template: Callable[[Any], Any]) -> Dict[str, Any]:
    """The variables with our prefix; those that nobody checks here are only looked at by name."""
    checked = {PREFIX + name for name in (*SETTINGS, *PLAY_CHECKS)}
    return {name: template(value) if name in checked else None for name, value in variables.items() if name.startswith(PREFIX)}
