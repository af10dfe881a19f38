#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: pod_fit
short_description: Predict what kubelet does with pods on a node
version_added: 0.1.0
description:
  - Says for each pod whether kubelet admits it, with which exclusive CPUs and from which NUMA nodes its CPUs, memory and GPUs come, or
    refuses it, with kubelet's own reason, and what would have to change.
  - It computes on the controller what kubelet's CPU, memory, device and topology managers do, at 1.34 to 1.37, in kubelet's order. Nothing
    is sent to the node.
  - CPUs and memory are exact. Devices are told by NUMA node and number; which of them kubelet takes is chance or the wish of their plugin.
  - Not predicted are taints, node affinity, ports, ephemeral storage, dynamic resource allocation and resizes.
options:
  pods:
    description:
      - The pods, in the order in which they come.
      - Each is a Kubernetes object, a C(Pod) or one with a pod template, or the short form of one container - C(name), C(cpus),
        C(memory), C(gpus) (of the node's own vendor), C(resources) for more by their names, C(namespace), and C(qos), which is
        V(Guaranteed) or V(Burstable).
      - An object with a template counts as one pod, a C(List) as its items. Objects without pods, like a C(Service), are left out.
      - Pods whose resources the API server would refuse are refused here, too.
    type: list
    elements: dict
    required: true
  running:
    description: Pods that run already, in the order of their start and in the same forms.
    type: list
    elements: dict
    default: []
  free:
    description:
      - What no pod has, where more runs than O(running) says. Pods of O(running) have some of the rest, others have all of what they leave.
      - How much memory others have can't be said here. Give pods as O(running) where it matters.
    type: dict
    suboptions:
      gpus:
        description: GPUs, by nvidia-smi's index (their position in the facts where that is not known) or by PCI address.
        type: list
        elements: str
      cpus:
        description: CPUs that no container has for itself, a cpulist.
        type: str
  devices:
    description:
      - How many devices of a resource are on which NUMA node, for resources that facts don't tell (V(-1) for devices without a NUMA node).
      - NVIDIA's and AMD's GPUs are known from the facts, without virtual functions and those that the driver vfio-pci has.
    type: dict
    default: {}
  in_turn:
    description: Whether each pod comes after those before it. Otherwise each is asked for alone.
    type: bool
    default: true
  topology:
    description: The facts, as M(gpufleet.node.topology_facts) returned them. The default is the host's own fact C(gpufleet_topology).
    type: dict
  plan:
    description:
      - The plan, as M(gpufleet.node.node_plan) returned it. The default is the host's own fact C(gpufleet_plan).
      - Flags that kubelet is started with beat it, here as well.
      - Its hugepages count as if they were there already.
    type: dict
  configuration:
    description:
      - Fields of the KubeletConfiguration that stand over the plan's and over kubelet's flags, for what else it reads or for a what-if.
      - With a whole configuration no plan is needed.
      - What kubelet would refuse to start with is refused, and so are names that are nearly those of fields which count here.
    type: dict
    default: {}
  version:
    description: kubelet's version, instead of the plan's.
    type: str
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
  - module: gpufleet.node.node_plan
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Read the node
  gpufleet.node.topology_facts:

- name: Make its plan
  gpufleet.node.node_plan:

- name: Would this training job get its GPUs and CPUs from one NUMA node?
  gpufleet.node.pod_fit:
    pods:
      - {name: train, cpus: 16, memory: 128Gi, gpus: 4}
  register: fit

- name: The manifests of a deployment on a node where only GPUs 2 to 5 are free
  gpufleet.node.pod_fit:
    pods: "{{ lookup('ansible.builtin.file', 'inference.yml') | from_yaml_all | select | list }}"
    free: {gpus: [2, 3, 4, 5]}

- name: The same job under another topology policy, beside one that runs already
  gpufleet.node.pod_fit:
    configuration: {topologyManagerPolicy: single-numa-node, topologyManagerScope: pod}
    running:
      - {name: notebook, cpus: 8, memory: 64Gi, gpus: 1}
    pods:
      - {name: train, cpus: 16, memory: 128Gi, gpus: 4}

- name: Which of the two may start first, so that each finds memory beside its CPUs?
  gpufleet.node.pod_fit:
    pods:
      - {name: train, cpus: 192, memory: 1600Gi, gpus: 8}
      - {name: preprocess, cpus: 90, memory: 600Gi, qos: Burstable}
  register: fit

- name: The safe ones
  ansible.builtin.debug:
    msg: "{{ fit.start_orders | selectattr('safe') | map(attribute='order') | list }}"
"""

RETURN = r"""
pods:
  description: The pods, in their order.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The pod's name.
      type: str
      sample: train
    asks_for:
      description: Its requests, as kubelet adds them up.
      type: str
      sample: 16 CPUs, 128Gi memory, 4 nvidia.com/gpu
    qos:
      description: V(Guaranteed), V(Burstable) or V(BestEffort).
      type: str
      sample: Guaranteed
    admitted:
      description: Whether kubelet admits it. A pod that it refuses is V(Failed) and isn't tried again on this node.
      type: bool
      sample: true
    reason:
      description:
        - kubelet's reason for a refusal - V(TopologyAffinityError), V(SMTAlignmentError), V(UnexpectedAdmissionError),
          V(EmptyPodSharedPoolError), V(OutOfcpu), V(OutOfmemory), V(OutOfpods), C(OutOf) with another resource, or
          V(PodLevelResourcesNotSupported).
        - V(KubeletHangs) and V(KubeletCrashes) are no words of kubelet. It doesn't come back from such a pod.
      type: str
      sample: ""
    message:
      description: The reason in a sentence of ours.
      type: str
      sample: ""
    ends:
      description:
        - The pods that kubelet ends to make room for this one. It does so for critical pods only - static ones, which have the annotation
          C(kubernetes.io/config.source), and those of a system priority.
      type: list
      elements: str
      sample: []
    change:
      description: What would have to change for the pod to be admitted and get all that it asks for; empty where it does.
      type: str
      sample: ""
    scheduler:
      description:
        - What a topology-aware scheduler does with the pod, when alignment is C(required) or C(preferred).
        - V(runs), V(degraded) (it runs, but not aligned), V(pending) (it waits until enough is free together), V(never), or V(unknown) on
          machines with more NUMA nodes than kubelet aligns.
      type: dict
      sample: {required: runs, preferred: runs}
    containers:
      description: What each container gets, init containers first; empty for a refused pod.
      type: list
      elements: dict
      contains:
        name:
          description: The container's name.
          type: str
          sample: train
        kind:
          description: V(app), V(init) or V(sidecar).
          type: str
          sample: app
        cpus:
          description: Its CPUs; empty for the shared pool.
          type: str
          sample: 1-8,193-200
        exclusive:
          description: Whether it has them for itself. Otherwise it shares them with containers of its pod.
          type: bool
          sample: true
        cpu_numa_nodes:
          description: The NUMA nodes of its CPUs.
          type: list
          elements: int
          sample: [0]
        l3_aligned:
          description: Whether the CPUs lie within one L3 group or are whole groups; null without CPUs of its own or without L3 groups.
          type: bool
          sample: false
        memory:
          description: What the memory manager gives it; empty without the policy Static.
          type: list
          elements: dict
          sample: [{numa_nodes: [0], type: memory, bytes: 137438953472}]
        memory_numa_nodes:
          description: The NUMA nodes of its memory.
          type: list
          elements: int
          sample: [0]
        devices:
          description: Devices by resource and NUMA node.
          type: dict
          sample: {nvidia.com/gpu: {"0": 4}}
        devices_certain:
          description: Whether kubelet has no choice between NUMA nodes. If not, the numbers are what NVIDIA's plugin prefers.
          type: bool
          sample: true
free:
  description: What is left when all admitted pods run. CPUs are those that can still become exclusive.
  returned: success
  type: dict
  sample:
    cpus: 9-95,97-191,201-287,289-383
    devices: {nvidia.com/gpu: {"0": 0, "1": 4}}
    memory_bytes: {"0": 1077936128000, "1": 1216484343808}
start_orders:
  description:
    - For two or three pods that are all admitted, every order of start under every memory policy for jobs of the shared pool
      (C(first_touch), C(interleave), C(bind)), and whether each job then finds memory beside its CPUs.
    - C(numa_nodes) says what each job has on each NUMA node in the end, in bytes.
  returned: success
  type: list
  elements: dict
  sample:
    - order: [preprocess, train]
      policy: first_touch
      safe: false
      problem: train lacks 268Gi on NUMA node 0 beside its CPUs.
      numa_nodes:
        - {id: 0, memory_bytes: 1215475744768, jobs: {preprocess: 644245094400, train: 571230650368}}
        - {id: 1, memory_bytes: 1216549486592, jobs: {train: 1146756268032}}
notes:
  description: What to know about the answers. Severities are V(info) and V(warning).
  returned: success
  type: list
  elements: dict
  sample:
    - code: objects_without_pods
      severity: info
      message: "Left out of pods, since they make no pods: Service train."
      facts: {objects: ["Service train"]}
"""
