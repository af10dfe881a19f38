#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: interleave_service
short_description: Run CPU jobs beside GPU pods, and pin services that feed GPUs
version_added: 0.1.0
description:
  - Each batch service becomes C(gpufleet-NAME.service) in C(gpufleet-batch.slice). Its command starts through the launcher, which spreads
    its memory over NUMA nodes; it isn't pinned, so the scheduler spreads it over the slice's CPUs. With a timer it also becomes
    C(gpufleet-NAME.timer).
  - The slice has the plan's pool. Where kubelet's static CPU manager gives CPUs of the pool to pods, a path unit takes them from the slice
    whenever kubelet writes its state, and gives them back after.
  - Weights are those of C(gpufleet.slice), which lies beside C(kubepods.slice).
  - Each pinned service becomes C(gpufleet-NAME.service) in C(gpufleet_pinned.slice), on its CPUs and with memory of its NUMA nodes.
  - Writes the seccomp profile with which a pod may set a memory policy into kubelet's folder.
  - A service that runs is never restarted; with a changed unit it is reported as pending. One that is no longer listed is stopped and
    removed. systemd reads its unit files again only when one of them changed.
options:
  units:
    description:
      - The plan's section of that name. Services are checked when the plan is made.
    type: dict
    required: true
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.applies]
seealso:
  - module: gpufleet.node.node_plan
  - module: gpufleet.node.launcher
  - module: gpufleet.node.node_verify
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Apply the plan
  gpufleet.node.interleave_service:
    units: "{{ ansible_facts.gpufleet_plan.units }}"

- name: Take all services of ours away
  gpufleet.node.interleave_service:
    units: {}
"""

RETURN = r"""
findings:
  description: What is not in place, one entry each.
  returned: success
  type: list
  elements: dict
  sample:
    - item: gpufleet-prep.service
      status: pending
      path: ""
      message: runs with its earlier settings until it is restarted
      until: restart
in_place:
  description: How many items are in place.
  returned: success
  type: int
  sample: 14
pending_commands:
  description: Commands that would have to run on the booted node; a root other than V(/) runs none.
  returned: success
  type: list
  elements: list
  sample: [[systemctl, start, gpufleet-prep.service]]
reboot_required:
  description: Whether something waits for the next boot. Never so here.
  returned: success
  type: bool
  sample: false
restart_required:
  description: Services that run with settings from before their unit changed.
  returned: success
  type: list
  elements: str
  sample: [gpufleet-prep.service]
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.reconcile import reconcile
from ansible_collections.gpufleet.node.plugins.module_utils.host.batch import CONCERN


def main():
    reconcile(CONCERN, {"units": {"type": "dict", "required": True}})


if __name__ == "__main__":
    main()
