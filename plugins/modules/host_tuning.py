#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning
short_description: Tune the host of GPU workloads, live and for every boot
version_added: 0.1.0
description:
  - Kernel parameters, transparent hugepages, hugepage pools, the CPU frequency governor, swap, limits of locked memory and open
    files, and the CPUs of the host's own daemons.
  - Every setting is applied to the running kernel and made to last by the system's own mechanism (sysctl.d, tmpfiles.d, limits.d, systemd
    drop-ins and masks, marked lines in C(/etc/fstab)). Files that belong to others are never edited; where they win over ours,
    the result names them.
  - An option that is left out is left alone. An empty one takes back what an earlier run set. Everything is checked before anything is
    written.
  - No service is restarted. What runs with former limits is returned in RV(restart_required).
options:
  sysctl:
    description: Kernel parameters by name, each with its value as text. Of C(vm.dirty_bytes) and C(vm.dirty_ratio), and of their
      background forms, only one can be given.
    type: dict
  transparent_hugepage:
    description: The words for V(enabled) and V(defrag), as this kernel offers them.
    type: dict
  hugepages:
    description: >-
      Pages by page size in bytes and NUMA node, C({"2097152": {"0": 512}}). NUMA nodes that are not named get none of that size.
    type: dict
  governor:
    description: The CPU frequency governor. A node without cpufreq is fine.
    type: str
  swap:
    description: V(off) turns swap off for good (C(/etc/fstab), swap units, GPT swap partitions, zram); V(keep) leaves swap as it was.
    type: str
  limits:
    description: V(memlock) as C(unlimited) or a number of bytes, V(nofile) as a number of files, for logins and services.
    type: dict
  confine:
    description: The CPUs (V(cpus), a cpulist) of the host's own V(slices) (C(system.slice), C(user.slice), C(init.scope)). A slice in
      which workloads live is left as it is, and the result says so.
    type: dict
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.applies]
seealso:
  - module: gpufleet.node.node_plan
  - module: gpufleet.node.kernel_args
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Apply the plan
  gpufleet.node.host_tuning:
    sysctl: "{{ ansible_facts.gpufleet_plan.sysctl }}"
    transparent_hugepage: "{{ ansible_facts.gpufleet_plan.transparent_hugepage }}"
    hugepages: "{{ ansible_facts.gpufleet_plan.hugepages }}"
    governor: "{{ ansible_facts.gpufleet_plan.governor }}"
    swap: "{{ ansible_facts.gpufleet_plan.swap }}"
    limits: "{{ ansible_facts.gpufleet_plan.limits }}"
    confine: "{{ ansible_facts.gpufleet_plan.confine }}"

- name: Only swap, and nothing else
  gpufleet.node.host_tuning:
    swap: "off"

- name: Two settings of a node without a plan
  gpufleet.node.host_tuning:
    sysctl:
      vm.swappiness: "0"
    transparent_hugepage:
      enabled: madvise
      defrag: madvise
"""

RETURN = r"""
findings:
  description: What is not in place, one entry each.
  returned: success
  type: list
  elements: dict
  sample:
    - item: containerd.service
      status: pending
      path: ""
      message: "runs with its former limits until it is restarted: systemctl restart containerd.service, when its workloads allow."
      until: restart
in_place:
  description: How many settings are as wanted.
  returned: success
  type: int
  sample: 41
pending_commands:
  description: Commands that would have to run on the booted node; a root other than V(/) runs none.
  returned: success
  type: list
  elements: list
  sample: [[swapoff, -a]]
reboot_required:
  description: Whether something waits for the next boot, such as hugepages that found no room.
  returned: success
  type: bool
  sample: false
restart_required:
  description: Services that run with former limits.
  returned: success
  type: list
  elements: str
  sample: [containerd.service]
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.reconcile import reconcile
from ansible_collections.gpufleet.node.plugins.module_utils.host.tuning import CONCERN


def main():
    reconcile(
        CONCERN,
        {
            "sysctl": {"type": "dict"},
            "transparent_hugepage": {"type": "dict"},
            "hugepages": {"type": "dict"},
            "governor": {"type": "str"},
            "swap": {"type": "str"},
            "limits": {"type": "dict"},
            "confine": {"type": "dict"},
        },
    )


if __name__ == "__main__":
    main()
