# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node_plan: facts and policy in, plan out, on the controller, without a round trip to the node."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError, InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.edge.planning import make_plan


class ActionModule(ActionBase):
    """Collects the policy from the host's variables, the topology from its facts."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """The task's result."""
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec({"topology": {"type": "dict"}, "policy": {"type": "dict", "default": {}}})
        try:
            topology = options["topology"] or self._fact("gpufleet_topology", task_vars)
            plan = make_plan(topology, task_vars, self._templar.template, options["policy"])
        except GpufleetError as error:
            raise AnsibleActionFail(str(error), result={"problem": error.problem, "remedy": error.remedy}) from None
        return dict(result, changed=False, ansible_facts={"gpufleet_plan": plan})

    def _fact(self, name, task_vars):
        found = task_vars.get(name) or task_vars.get("ansible_facts", {}).get(name)
        if not found:
            raise InvalidInput("There are no facts of this node yet.", "Run gpufleet.node.topology_facts first, or pass topology.")
        return self._templar.template(found)
