# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""pod_fit: facts, plan and pods in, kubelet's answers out, on the controller."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import from_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError, InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet import flags_after
from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_fit import Question, predict
from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_fit_node import with_pools
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology

OPTIONS = {
    "pods": {"type": "list", "elements": "dict", "required": True},
    "running": {"type": "list", "elements": "dict", "default": []},
    "free": {"type": "dict", "options": {"gpus": {"type": "list", "elements": "str"}, "cpus": {"type": "str"}}},
    "devices": {"type": "dict", "default": {}},
    "in_turn": {"type": "bool", "default": True},
    "topology": {"type": "dict"},
    "plan": {"type": "dict"},
    "configuration": {"type": "dict", "default": {}},
    "version": {"type": "str"},
}


class ActionModule(ActionBase):
    """Collects the question from options and the host's facts."""

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """The task's result."""
        result = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec(OPTIONS)
        try:
            return dict(result, changed=False, **predict(self._question(options, task_vars)))
        except GpufleetError as error:
            raise AnsibleActionFail(str(error), result={"problem": error.problem, "remedy": error.remedy}) from None

    def _question(self, options, task_vars):
        topology = options["topology"] or self._fact("gpufleet_topology", task_vars)
        if not topology:
            raise InvalidInput("There are no facts of this node yet.", "Run gpufleet.node.topology_facts first, or pass topology.")
        plan = options["plan"] or self._fact("gpufleet_plan", task_vars) or {}
        kubelet = plan.get("kubelet") or {}
        found = topology.get("kubelet") or {}
        version = options["version"] or kubelet.get("version") or found.get("version")
        if not kubelet and not options["configuration"]:
            raise InvalidInput("Neither the plan nor the task says how kubelet is configured.", "Run gpufleet.node.node_plan first.")
        if not version:
            remedy = 'Pass version, like "1.34.4", or set gpufleet_kubelet_version for the plan.'
            raise InvalidInput("kubelet's version can't be told.", remedy)
        return Question(
            topology=with_pools(from_json(Topology, topology, "topology"), plan.get("hugepages") or {}),
            configuration=kubelet.get("configuration", {}),
            version=version,
            pods=options["pods"],
            running=options["running"],
            free={name: value for name, value in (options["free"] or {}).items() if value is not None},
            devices=options["devices"],
            in_turn=options["in_turn"],
            flags=flags_after(kubelet) if kubelet else found.get("flags", {}),
            what_if=options["configuration"],
        )

    def _fact(self, name, task_vars):
        return self._templar.template(task_vars.get(name) or task_vars.get("ansible_facts", {}).get(name))
