# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""node_verify: the node against its plan. Without one it reads the facts and makes the plan first, in the same worker process."""

from __future__ import annotations

from collections.abc import Mapping

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import digest
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.edge.planning import make_plan


class ActionModule(ActionBase):
    """Calls the module; a task without a plan stands for topology_facts, node_plan and node_verify."""

    def run(self, tmp=None, task_vars=None):
        """The task's result."""
        super().run(tmp, task_vars)
        options = dict(self._task.args)
        if options.get("plan") is not None:
            return self._ask(options, task_vars)
        result = self._ask(options, task_vars)
        remembered = result.pop("remembered", {})
        if result.get("failed") or "ansible_facts" not in result:
            return result
        facts = result["ansible_facts"]
        topology = facts["gpufleet_topology"]
        try:
            plan = _given(task_vars) or make_plan(topology, task_vars, self._templar.template, {})
        except GpufleetError as error:
            raise AnsibleActionFail(str(error), result={"problem": error.problem, "remedy": error.remedy}) from None
        # A node that was as planned remembers the plan. If it is this one, its verdict has come with the facts.
        if remembered and remembered["plan"] == digest(plan):
            verdict, calls = dict(result, **remembered["verdict"]), 1
        else:
            options.pop("gpu_match", None)
            verdict, calls = self._ask(dict(options, plan=plan, fingerprint=topology["fingerprint"]), task_vars), 2
        return dict(verdict, module_calls=calls, ansible_facts=dict(facts, gpufleet_plan=plan))

    def _ask(self, options, task_vars):
        return self._execute_module("gpufleet.node.node_verify", options, task_vars=task_vars)


def _given(task_vars):
    """A plan that the user hands in as a variable (-e @plan.json). The fact of an earlier run is none, even where it is a variable too."""
    variable, fact = task_vars.get("gpufleet_plan"), task_vars.get("ansible_facts", {}).get("gpufleet_plan")
    return variable if isinstance(variable, Mapping) and variable != fact else None
