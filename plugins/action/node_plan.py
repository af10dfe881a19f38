# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node_plan: facts and policy in, plan out, on the controller, without a round trip to the node."""

from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import from_json, to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError, InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PLAY_CHECKS, PREFIX, SETTINGS, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.edge.launcher_source import launcher_source

COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class ActionModule(ActionBase):
    """Collects the policy from the host's variables, the topology from its facts."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """The task's result."""
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec({"topology": {"type": "dict"}, "policy": {"type": "dict", "default": {}}})
        try:
            topology = options["topology"] or self._fact("gpufleet_topology", task_vars)
            policy = policy_from_variables({**self._variables(task_vars), **options["policy"]})
            plan = build_plan(from_json(Topology, topology, "topology"), policy, launcher_source(COLLECTION))
        except GpufleetError as error:
            raise AnsibleActionFail(str(error), result={"problem": error.problem, "remedy": error.remedy}) from None
        return dict(result, changed=False, ansible_facts={"gpufleet_plan": to_json(plan)})

    def _variables(self, task_vars):
        """The host's variables with our prefix; those that nobody checks here are only looked at by name."""
        ours = {name: value for name, value in task_vars.items() if name.startswith(PREFIX)}
        checked = {PREFIX + name for name in (*SETTINGS, *PLAY_CHECKS)}
        return {name: self._templar.template(value) if name in checked else None for name, value in ours.items()}

    def _fact(self, name, task_vars):
        found = task_vars.get(name) or task_vars.get("ansible_facts", {}).get(name)
        if not found:
            raise InvalidInput("There are no facts of this node yet.", "Run gpufleet.node.topology_facts first, or pass topology.")
        return self._templar.template(found)
