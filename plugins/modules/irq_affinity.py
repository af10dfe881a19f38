#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: irq_affinity
short_description: Put device interrupts on the CPUs planned for them
version_added: 0.1.0
description:
  - Gives every interrupt of the planned devices one CPU, spread evenly over the CPUs that its device may use, in the order of devices
    and queues. IRQ numbers decide nothing, so the result is the same after a reboot.
  - Sets the affinity that new interrupts start with, and keeps irqbalance away from the planned devices.
  - Installs units that place again at boot, when a device gets its driver, and when a device's interrupts changed. They run this module's
    own code, in one file for Python's standard library; the plan lies in C(/etc/gpufleet/irq.json).
  - An interrupt that the kernel manages itself is reported and left alone. One whose affinity is right but which has not fired since is
    reported as pending, and is not changed again.
  - With placement V(none) nothing is placed, and what an earlier run installed for it is taken away. Interrupts stay where they are;
    irqbalance is still off or kept as the section says. An empty section takes everything of ours away.
options:
  interrupts:
    description:
      - The plan's section of that name.
      - V(placement) is C(housekeeping), C(local) or C(none); V(irqbalance) is C(off) (stopped and masked) or C(keep) (a policy script
        takes the planned devices out of its hands, and V(isolated) joins the CPUs that it leaves alone).
      - V(default_affinity) and V(isolated) are cpulists. V(devices) lists mappings of V(device) (the PCI address), V(kind), V(numa_node)
        and V(cpus) (a cpulist).
    type: dict
    required: true
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.applies]
seealso:
  - module: gpufleet.node.node_plan
  - module: gpufleet.node.node_verify
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Apply the plan
  gpufleet.node.irq_affinity:
    interrupts: "{{ ansible_facts.gpufleet_plan.interrupts }}"

- name: Only one NIC, irqbalance for all else
  gpufleet.node.irq_affinity:
    interrupts:
      placement: housekeeping
      irqbalance: keep
      default_affinity: 0-127
      isolated: ""
      devices:
        - {device: "0000:41:00.0", kind: nic, numa_node: 0, cpus: "0,64"}
"""

RETURN = r"""
findings:
  description: What is not in place, one entry each. Interrupts that wait for their next occurrence, or that the kernel manages, are one
    entry per device.
  returned: success
  type: list
  elements: dict
  sample:
    - item: interrupts of 0000:41:00.0 (IRQ 57-60)
      status: pending
      path: ""
      message: the affinity is right, the next interrupt moves it
      until: interrupt
    - item: interrupts of 0000:81:00.0 (IRQ 90-185)
      status: not_applicable
      path: ""
      message: kernel-managed, so only isolcpus=managed_irq keeps them off isolated CPUs
      until: ""
in_place:
  description: How many items are in place. Interrupts that are, count as one item per device.
  returned: success
  type: int
  sample: 31
pending_commands:
  description: Commands that would have to run on the booted node; a root other than V(/) runs none.
  returned: success
  type: list
  elements: list
  sample: [[systemctl, stop, irqbalance.service]]
reboot_required:
  description: Whether something waits for the next boot. Never so on a running node.
  returned: success
  type: bool
  sample: false
restart_required:
  description: Always empty here.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.reconcile import reconcile
from ansible_collections.gpufleet.node.plugins.module_utils.host.irq import CONCERN


def main():
    reconcile(CONCERN, {"interrupts": {"type": "dict", "required": True}})


if __name__ == "__main__":
    main()
