#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: node_plan
short_description: Make a node's plan from its topology and a policy
version_added: 0.1.0
description:
  - Computes on the controller what a node should be - reserved, isolated and shared CPUs, kubelet's configuration, kernel arguments,
    interrupt placement, system settings - and why. Nothing is sent to the node and nothing is written.
  - The policy is made of the host's variables that begin with C(gpufleet_); the role documentation and the README list them. An unknown one
    is refused, with the nearest name that is known.
  - The same facts and the same policy always give the same plan.
options:
  topology:
    description:
      - The facts, as M(gpufleet.node.topology_facts) returned them, all subsets.
      - The default is the host's own fact C(gpufleet_topology).
    type: dict
  policy:
    description:
      - Variables that stand over those of the host, with or without the prefix C(gpufleet_).
      - V(null) means the default of the profile, the workload or the node.
    type: dict
    default: {}
extends_documentation_fragment: [action_common_attributes]
attributes:
  check_mode:
    description: There is no difference; it changes nothing.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
  platform:
    description: Runs on the controller.
    support: full
    platforms: posix
seealso:
  - module: gpufleet.node.topology_facts
  - module: gpufleet.node.node_verify
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Read the node
  gpufleet.node.topology_facts:

- name: Make its plan
  gpufleet.node.node_plan:

- name: What would the isolated profile do, with two cores for the system on each NUMA node?
  gpufleet.node.node_plan:
    policy:
      profile: isolated
      reserved_cores_per_numa: 2

- name: A plan from saved facts, on a laptop
  gpufleet.node.node_plan:
    topology: "{{ lookup('ansible.builtin.file', 'node17.json') | from_json }}"
  delegate_to: localhost
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to ansible_facts.
  returned: success
  type: dict
  contains:
    gpufleet_plan:
      description:
        - The plan. CPU sets are cpulists, sizes bytes.
        - From C(kubelet) to C(units) its keys are what the modules of this collection apply; an empty one means that nothing of ours is to
          be there.
      returned: success
      type: dict
      contains:
        schema:
          description: The version of this structure.
          type: int
          sample: 1
        profile:
          description: V(colocation), V(aligned) or V(isolated).
          type: str
          sample: colocation
        workload:
          description: V(training) or V(inference).
          type: str
          sample: training
        fingerprint:
          description: The fingerprint of the facts the plan was made from. A node of another shape is not what the plan is for.
          type: str
          sample: 9b1f4c7a2d5e8036
        cpus:
          description: Who gets which CPU.
          type: dict
          contains:
            online:
              description: All online CPUs; the next three are disjoint and together are exactly these.
              type: str
              sample: 0-383
            reserved:
              description: Whole cores for the system, one on each NUMA node with CPUs unless asked for otherwise.
              type: str
              sample: 0,96,192,288
            isolated:
              description: CPUs that the kernel is told to keep clear.
              type: str
              sample: ""
            pool:
              description: What is left, for jobs.
              type: str
              sample: 1-95,97-191,193-287,289-383
            housekeeping:
              description: Where daemons and device interrupts go, the reserved CPUs.
              type: str
              sample: 0,96,192,288
        numa_nodes:
          description: What each NUMA node has for jobs.
          type: list
          elements: dict
          contains:
            id:
              description: The kernel's id of the NUMA node.
              type: int
              sample: 0
            kind:
              description: V(cpu_memory), V(cpu_only), V(memory_only), V(device_memory) or V(empty).
              type: str
              sample: cpu_memory
            cpus:
              description: Its online CPUs.
              type: str
              sample: 0-95,192-287
            reserved:
              description: Those of them that are reserved.
              type: str
              sample: 0,192
            available:
              description: Those that are not.
              type: str
              sample: 1-95,193-287
            available_count:
              description: How many those are.
              type: int
              sample: 190
            gpus:
              description: The PCI addresses of its GPUs, without virtual functions and those that the driver vfio-pci has.
              type: list
              elements: str
              sample: ["0000:02:00.0", "0000:03:00.0", "0000:22:00.0", "0000:23:00.0"]
            whole_l3_groups:
              description: L3 groups of which no CPU is reserved; 0 where the NUMA node is a single L3 group.
              type: int
              sample: 11
            aligned_job_sizes:
              description: CPU counts that are whole L3 groups. Read them with RV(ansible_facts.gpufleet_plan.alignment).
              type: list
              elements: int
              sample: [16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176]
            cpus_per_gpu:
              description: The largest equal share of the available CPUs for each GPU, in whole cores and in whole L3 groups.
              type: dict
              sample: {whole_cores: 46, whole_l3_groups: 32}
            reserved_memory_bytes:
              description: What kubelet's memory manager holds back on this NUMA node.
              type: int
              sample: 0
        aligned_job_sizes_across_nodes:
          description: CPU counts that are the same number of whole L3 groups on each NUMA node with CPUs.
          type: list
          elements: int
          sample: [32, 64, 96]
        alignment:
          description: Whether jobs of the aligned sizes really get whole L3 groups, and on what that rests.
          type: dict
          sample: {holds: false, condition: "The reserved cores break the first L3 group of NUMA nodes 0, 1: ..."}
        kubelet:
          description:
            - C(configuration) is the KubeletConfiguration; the rest says where it belongs (C(version), C(distribution), C(unit),
              C(config_file), C(config_dir), C(root_dir), C(flags)) and whether kubelet may be restarted (C(restart)).
            - C(machine) is what kubelet holds a configuration against. C(exec_start) is the ExecStart by which kubelet's unit is made to
              pass C(config_dir), and C(patches) the file of ours in kubeadm's folder of patches; both are empty unless asked for.
            - Empty where no kubelet is.
          type: dict
          sample:
            configuration:
              apiVersion: kubelet.config.k8s.io/v1beta1
              kind: KubeletConfiguration
              cpuManagerPolicy: static
              cpuManagerPolicyOptions: {distribute-cpus-across-numa: "true", full-pcpus-only: "true"}
              reservedSystemCPUs: 0,96,192,288
              memoryManagerPolicy: None
              topologyManagerPolicy: best-effort
              topologyManagerScope: container
            version: 1.34.1
            distribution: kubeadm
            unit: kubelet.service
            config_file: /var/lib/kubelet/config.yaml
            config_dir: ""
            root_dir: /var/lib/kubelet
            flags: {}
            restart: never
            machine: {cpus: 0-383, packages: 2, memory_bytes: 2430964826112, numa_nodes: [], swap: false}
            exec_start: ""
            patches: ""
        kernel_arguments:
          description: Tokens for the kernel's command line, in their order.
          type: list
          elements: str
          sample: ["isolcpus=managed_irq,domain,1-95,97-191", "nohz_full=1-95,97-191", "rcu_nocbs=1-95,97-191", "irqaffinity=0,96"]
        interrupts:
          description: Where device interrupts go, and who else may move them.
          type: dict
          contains:
            placement:
              description: V(housekeeping), V(local) or V(none).
              type: str
              sample: housekeeping
            irqbalance:
              description: V(off) or V(keep).
              type: str
              sample: "off"
            default_affinity:
              description: For interrupts that no device here owns.
              type: str
              sample: 0,96,192,288
            isolated:
              description: CPUs that no balancer may use.
              type: str
              sample: ""
            devices:
              description: GPUs, NICs and NVMe drives, each with the CPUs for its interrupts.
              type: list
              elements: dict
              sample: [{device: "0000:02:00.0", kind: gpu, numa_node: 0, cpus: "0,192"}]
        sysctl:
          description: Kernel parameters by name.
          type: dict
          sample: {vm.swappiness: "0", kernel.numa_balancing: "0"}
        transparent_hugepage:
          description: The words for C(enabled) and C(defrag).
          type: dict
          sample: {enabled: always, defrag: defer+madvise}
        hugepages:
          description: Pages by page size in bytes and NUMA node.
          type: dict
          sample: {"1073741824": {"0": 8, "1": 8}}
        governor:
          description: The frequency governor; empty where nothing scales.
          type: str
          sample: performance
        swap:
          description: V(off) or V(keep).
          type: str
          sample: "off"
        limits:
          description: Locked memory and open files, for sessions and services.
          type: dict
          sample: {memlock: unlimited, nofile: 1048576}
        confine:
          description: Which slices of the host's own daemons are kept on which CPUs.
          type: dict
          sample: {cpus: "0,96,192,288", slices: [system.slice, user.slice, init.scope]}
        launcher:
          description: The launcher that the node is to have.
          type: dict
          sample: {version: 1.0.0, source_sha256: 3f0c..., path: /usr/local/bin/numaspread}
        units:
          description: The slice of batch services, batch and pinned services with all their keys, and the seccomp profile for pods.
          type: dict
          sample:
            architecture: x86_64
            launcher: /usr/local/bin/numaspread
            install_allocators: false
            slice: {}
            services: []
            pinned: []
            seccomp: /var/lib/kubelet/seccomp/gpufleet/numa.json
        notes:
          description: The reasons for the values above, and what to know about them. Severities are V(info), V(warning) and V(error).
          type: list
          elements: dict
          sample:
            - code: reserved_cpus
              severity: info
              message: Whole physical cores on each NUMA node that has CPUs, inside as few L3 groups as possible, the boot CPU's core first.
              facts: {boot_cpu: 0, numa_nodes: {"0": "0,192", "1": "96,288"}, reserved: "0,96,192,288"}
"""
