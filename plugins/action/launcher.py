# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.edge.launcher_build import build_launcher
from ansible_collections.gpufleet.node.plugins.module_utils.edge.launcher_source import SOURCE

COLLECTION = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class ActionModule(ActionBase):
    """Brings the program, or its source, to a node that lacks it; a node that has it is only looked at."""

    def run(self, tmp=None, task_vars=None):
        """The task's result."""
        super().run(tmp, task_vars)
        options = dict(self._task.args)
        build, architecture = options.pop("build", "controller"), options.pop("architecture", None)
        look = self._module(dict(options), task_vars, check_mode=True)
        if look.get("failed") or not look.get("findings"):
            return look
        try:
            # Where none is planned, there is one to take away and nothing to bring.
            brought = self._bring(options["launcher"], build, architecture) if options["launcher"] else {}
        except GpufleetError as error:
            raise AnsibleActionFail(str(error), result={"problem": error.problem, "remedy": error.remedy}) from None
        if self._task.check_mode:
            return dict(look, changed=True)
        try:
            return self._module(dict(options, launcher=dict(options["launcher"], **brought)), task_vars, check_mode=False)
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _bring(self, launcher, build, architecture):
        """The program's or the source's path on the node, as an option of the module."""
        if build == "node":
            what, local = "source", os.path.join(COLLECTION, *SOURCE, "numaspread.c")
        else:
            what, local = "binary", build_launcher(COLLECTION, launcher["source_sha256"], architecture)
        if self._task.check_mode:
            return {}
        remote = self._connection._shell.join_path(self._make_tmp_path(), os.path.basename(local))
        self._transfer_file(local, remote)
        self._fixup_perms2((self._connection._shell.tmpdir, remote))
        return {what: remote}

    def _module(self, arguments, task_vars, check_mode):
        self._task.check_mode, asked = check_mode, self._task.check_mode
        try:
            return self._execute_module("gpufleet.node.launcher", module_args=arguments, task_vars=task_vars)
        finally:
            self._task.check_mode = asked
