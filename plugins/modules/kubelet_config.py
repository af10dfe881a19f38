#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: kubelet_config
short_description: Write the plan's KubeletConfiguration where the node's kubelet reads it
version_added: 0.1.0
description:
  - A kubelet with a drop-in folder gets a file of its own there, V(zz-gpufleet.conf), which sorts last. Otherwise the fields are merged
    into its main file, and every other line there stays as it is. Packaged unit files are never touched.
  - A drop-in is written from kubelet 1.32 on. k3s and RKE2 before that get the fields as C(kubelet-arg) in a file of their own
    C(config.yaml.d). A unit that passes no drop-in folder gets a drop-in that keeps its ExecStart and adds C(--config-dir), where the plan
    says so (C(exec_start)), and kubeadm's folder of patches a patch (C(patches)), so that an upgrade keeps the fields.
  - What kubelet would refuse is refused first, on the result of all its files together, before anything is written.
  - kubelet is restarted only where the plan says so (C(restart) is V(when_needed)), on the running system, and where a difference needs it.
    Then the order is to stop it, to remove those of its state files that it would not start on, to write, to start it, and to wait until it
    is healthy (its unit, its C(healthz) address, and the state files that its managers write). Where it isn't, the old configuration and
    state come back and the module fails with the last lines of its journal.
  - A state file is removed only when this kubelet would not start on it, and never while a pod holds CPUs or memory by it. Its last content
    is kept in V(/var/lib/gpufleet/set-aside).
  - The checksum in a state file counts from kubelet 1.34 on. Of an older one it is not checked, and RV(findings) say so where it isn't as
    expected.
  - Otherwise RV(restart_required) and RV(findings) say what waits for a restart.
  - A unit removes state files at boot, before kubelet, that the boot made unusable.
options:
  kubelet:
    description:
      - The plan's section C(kubelet). An empty one takes out what an earlier run wrote.
      - C(configuration) is the KubeletConfiguration, with C(apiVersion) and C(kind). C(config_dir) is the drop-in folder, empty where
        kubelet reads none, and C(config_file) its main file. C(version), C(unit), C(root_dir) and C(flags) are as in the facts. C(machine)
        is what kubelet's own checks need of the machine.
    type: dict
    required: true
  restart_timeout:
    description: Seconds in which a restarted kubelet has to be healthy.
    type: int
    default: 180
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.applies]
seealso:
  - module: gpufleet.node.node_plan
  - module: gpufleet.node.node_verify
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Apply the plan
  gpufleet.node.kubelet_config:
    kubelet: "{{ ansible_facts.gpufleet_plan.kubelet }}"

- name: Take our configuration out again
  gpufleet.node.kubelet_config:
    kubelet: {}
"""

RETURN = r"""
findings:
  description: What is not in place, one entry each.
  returned: success
  type: list
  elements: dict
  sample: [{item: kubelet.service, status: pending, path: "", message: reads its configuration when it is restarted, until: restart}]
drain_required:
  description: In check mode, whether pods hold CPUs or memory by state files that have to go; then the node has to be drained first.
  returned: success
  type: bool
  sample: false
in_place:
  description: How many files are as wanted.
  returned: success
  type: int
  sample: 1
pending_commands:
  description: Commands that would have to run on the booted node.
  returned: success
  type: list
  elements: list
  sample: []
reboot_required:
  description: Whether something waits for the next boot.
  returned: success
  type: bool
  sample: false
restarted:
  description: Whether kubelet was restarted.
  returned: success
  type: bool
  sample: true
restart_required:
  description: kubelet's unit, where a mere restart completes the change. Where kubelet would not start on its state files, they are among
    RV(findings) instead, with C(until) V(removal).
  returned: success
  type: list
  elements: str
  sample: [kubelet.service]
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.kubelet import configure_kubelet


def main():
    configure_kubelet()


if __name__ == "__main__":
    main()
