#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: node_verify
short_description: Compare a node with its plan, all concerns in one call
version_added: 0.1.0
description:
  - Looks at everything that the applying modules would write, through the same code, and changes nothing of it.
  - Writes nothing at all unless O(remember) is set.
  - Tells apart what is in place, what drifted, what waits for a reboot, restart or interrupt, what does not apply on this node
    and what belongs to someone else.
options:
  plan:
    description:
      - The plan, as M(gpufleet.node.node_plan) returned it.
      - Without one the facts are read as M(gpufleet.node.topology_facts) reads them, and the plan is made from the host's variables as
        M(gpufleet.node.node_plan) makes it, in this one task. A mapping in the variable C(gpufleet_plan) is taken for the plan then.
    type: dict
  fingerprint:
    description:
      - The node's own fingerprint, as M(gpufleet.node.topology_facts) has just read it.
      - A plan that was made for another machine is refused.
    type: str
  gpu_match:
    description: What counts as a GPU, as in M(gpufleet.node.topology_facts); used where the facts are read.
    type: list
    elements: str
    default: []
  list_in_place:
    description: List the items that are in place too, instead of counting them only.
    type: bool
    default: false
  remember:
    description:
      - Keep the plan on the node, in C(/var/lib/gpufleet/plan.json), where nothing differs from it, and this module's bytecode in
        C(~/.cache/gpufleet) of the user it runs as. A node that remembers the plan that is made the next time has answered at the first
        question, so a fleet that is as planned is asked once instead of twice.
      - The node is looked at as ever. Check mode keeps nothing.
    type: bool
    default: false
  concerns:
    description: The concerns to look at (V(boot), V(tuning), V(irq), V(kubelet), ...). All of them when left out.
    type: list
    elements: str
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.read_only]
attributes:
  check_mode:
    description: Answers as ever; O(remember) keeps nothing.
    support: full
seealso:
  - module: gpufleet.node.node_plan
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Read the facts, make the plan, ask the node what differs from it
  gpufleet.node.node_verify:
  register: verdict

- name: Ask the node what differs from a plan that is there already
  gpufleet.node.node_verify:
    plan: "{{ ansible_facts.gpufleet_plan }}"
    fingerprint: "{{ ansible_facts.gpufleet_topology.fingerprint }}"
  register: verdict

- name: Stop when somebody changed a sysctl by hand
  ansible.builtin.assert:
    that: "'tuning' not in verdict.differing"
"""

RETURN = r"""
ansible_facts:
  description: The facts C(gpufleet_topology) and C(gpufleet_plan).
  returned: when no plan was given
  type: dict
  contains:
    gpufleet_topology:
      description: >-
        The facts that a plan is made of, RV(gpufleet.node.topology_facts#module:ansible_facts.gpufleet_topology) without
        the subset C(interrupts).
      type: dict
      sample: {schema: 1, architecture: x86_64, fingerprint: 5d0c5dbd8f4fe3a1}
    gpufleet_plan:
      description: The plan, RV(gpufleet.node.node_plan#module:ansible_facts.gpufleet_plan).
      type: dict
      sample: {schema: 1, profile: colocation, fingerprint: 5d0c5dbd8f4fe3a1}
module_calls:
  description: How often the node was asked, which is once where it remembers the plan.
  returned: when no plan was given
  type: int
  sample: 1
concerns:
  description: >-
    Per concern, its items that are not in place, and how many are. C(until) says what a pending item waits for: C(reboot),
    C(restart), C(removal), C(interrupt) or C(command). A concern that this node can't have as planned has C(refused), the reason, and
    neither commands nor what is required.
  returned: success
  type: dict
  sample:
    tuning:
      in_place: 23
      findings:
        - {item: sysctl vm.swappiness, status: drift, path: /proc/sys/vm/swappiness, message: "is 60, should be 0", until: ""}
      pending_commands: []
      reboot_required: false
      restart_required: []
    batch:
      in_place: 0
      findings: []
      refused: >-
        Service prep wants jemalloc, and /usr/lib/x86_64-linux-gnu/libjemalloc.so.2 is not there.
        Install libjemalloc2, or set gpufleet_batch_install_allocators: true.
differing:
  description: Names of the concerns that drifted, or that the node refuses. Their roles have work to do.
  returned: success
  type: list
  elements: str
  sample: [tuning, batch]
counts:
  description: How many items have each status.
  returned: success
  type: dict
  sample: {in_place: 84, drift: 1, pending: 2, not_applicable: 3, owned_by_someone_else: 0}
pending_commands:
  description: Commands that would have to run on the booted node; a root other than V(/) runs none.
  returned: success
  type: list
  elements: list
  sample: [[update-grub]]
reboot_required:
  description: Whether something that is right on disk waits for the next boot.
  returned: success
  type: bool
  sample: true
restart_required:
  description: What has to be restarted to follow.
  returned: success
  type: list
  elements: str
  sample: [containerd.service]
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.node_verify import answer


def main():
    answer()


if __name__ == "__main__":
    main()
