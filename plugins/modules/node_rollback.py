#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: node_rollback
short_description: Bring a node back to where it was before the first run
version_added: 0.1.0
description:
  - Restores every file, link and kernel value that modules of this collection changed, from what they kept in C(/var/lib/gpufleet) before
    their first write. Folders that they made go when they are empty. No plan and no facts are needed.
  - A path that is still as it was left comes back byte for byte, with mode and owner. Where somebody else changed a file since, only our
    part is taken out, as far as it can be told, and RV(left) shows the rest; the original is kept as
    C(/var/lib/gpufleet/set-aside/PATH.original). A file of ours that somebody edited is removed, and kept in that folder too.
  - Kernel values are written back, except the affinities of interrupts after a reboot, since their numbers belong to other devices then.
  - Then C(/var/lib/gpufleet) is emptied, and a later run keeps originals afresh. When the module fails, it is kept; mend what the
    message says and run the module again.
  - Nothing reboots and no kubelet restarts. Packages that were installed for C(gpufleet_batch_install_allocators) are listed in
    RV(packages) and stay, since others may need them by now.
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.applies]
seealso:
  - module: gpufleet.node.node_verify
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Undo everything
  gpufleet.node.node_rollback:
  register: undone

- name: What other people changed meanwhile
  ansible.builtin.debug:
    var: undone.left
"""

RETURN = r"""
left:
  description: What somebody else changed after the first run and so isn't as it was before it.
  returned: success
  type: list
  elements: dict
  sample:
    - path: /etc/fstab
      diff: "--- before\n+++ after\n@@ -1 +1,2 @@\n /dev/sda1 / ext4 defaults 0 1\n+/dev/sdb1 /data xfs defaults 0 2"
packages:
  description: Packages that a run installed, with those that they needed, and that are still there.
  returned: success
  type: list
  elements: str
  sample: [libjemalloc2]
findings:
  description: What is not as it was, one entry each.
  returned: success
  type: list
  elements: dict
  sample:
    - item: running kernel command line
      status: pending
      path: ""
      message: "isolcpus: differs from what the node is configured to boot with, until the next boot"
      until: reboot
in_place:
  description: How many items are as they were.
  returned: success
  type: int
  sample: 57
pending_commands:
  description: Commands that would have to run on the booted node; a root other than V(/) runs none.
  returned: success
  type: list
  elements: list
  sample: [[update-grub]]
reboot_required:
  description: Whether the running kernel still has something of ours until the next boot.
  returned: success
  type: bool
  sample: true
restart_required:
  description: What still runs with our settings until it is restarted.
  returned: success
  type: list
  elements: str
  sample: [kubelet]
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.rollback import rollback


def main():
    rollback()


if __name__ == "__main__":
    main()
