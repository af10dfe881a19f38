#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_args
short_description: Give a node its kernel arguments, whatever boots it
version_added: 0.1.0
description:
  - Puts an ordered list of arguments onto the kernel command line of the next boots. It never reboots.
  - With GRUB on Debian and Ubuntu, a drop-in of ours in C(/etc/default/grub.d) that is sourced last, then C(update-grub). Where GRUB reads
    boot loader entries (Red Hat and its kin), the entries themselves, C(/etc/kernel/cmdline) and a block in C(/etc/default/grub), so that
    the entries of later kernels have them too. On ostree hosts C(rpm-ostree kargs). Elsewhere C(/etc/kernel/cmdline) and C(kernel-install).
  - Of several arguments with the same name the kernel often takes the first. So other values of the given arguments are taken out, and
    named in RV(findings). All other arguments stay, in their order. Recovery and rescue entries stay as they are.
  - C(hugepagesz), C(hugepages) and C(default_hugepagesz) are one group. Whoever gives one of them owns all three. So are C(isolcpus) and
    C(nohz_full); kernels before 5.18 ignore one of them when they name different CPUs, so there that is refused.
options:
  kernel_arguments:
    description:
      - The arguments, in their order, one per item. An empty list takes out what this module wrote before, and the values that it had
        displaced come back.
    type: list
    elements: str
    required: true
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.applies]
seealso:
  - module: gpufleet.node.node_plan
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Apply the plan's kernel arguments
  gpufleet.node.kernel_args:
    kernel_arguments: "{{ ansible_facts.gpufleet_plan.kernel_arguments }}"
  register: boot

- name: Four pages of 1 GiB on NUMA node 0, and four on node 1
  gpufleet.node.kernel_args:
    kernel_arguments: [default_hugepagesz=1G, hugepagesz=1G, "hugepages=0:4,1:4"]

- name: Reboot when the running kernel has other arguments
  ansible.builtin.reboot:
  when: boot.reboot_required
"""

RETURN = r"""
findings:
  description:
    - What is not in place, or was not before this run. An argument of somebody else that ours takes the place of has the status
      V(owned_by_someone_else).
  returned: success
  type: list
  elements: dict
  sample:
    - item: kernel argument isolcpus=2-3
      status: owned_by_someone_else
      path: ""
      message: "is somebody else's (/etc/default/grub.d/50-site.cfg); ours takes its place"
      until: ""
in_place:
  description: How many items are in place.
  returned: success
  type: int
  sample: 2
pending_commands:
  description: Commands that have to run on the booted node; a root other than V(/) runs none.
  returned: success
  type: list
  elements: list
  sample: [[update-grub]]
reboot_required:
  description: Whether the running kernel has other arguments than those that the node is configured to boot with.
  returned: success
  type: bool
  sample: true
restart_required:
  description: Always empty here.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.reconcile import reconcile
from ansible_collections.gpufleet.node.plugins.module_utils.host.boot import CONCERN


def main():
    reconcile(CONCERN, {"kernel_arguments": {"type": "list", "elements": "str", "required": True}})


if __name__ == "__main__":
    main()
