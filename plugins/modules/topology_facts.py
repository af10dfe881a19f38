#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: topology_facts
short_description: Read CPUs, caches, NUMA nodes, GPUs, NICs, NVMe drives and interrupts of a node
version_added: 0.1.0
description:
  - Reads sysfs, procfs and a few files of the distribution itself. Neither C(lscpu) nor C(nvidia-smi) is needed; on the live root
    C(nvidia-smi) adds GPU index and UUID where it runs.
  - The same code reads a live node, a mounted image and an unpacked capture of a node.
  - CPUs, caches, NUMA nodes, memory, architecture and the running kernel's command line are always read.
options:
  gather:
    description:
      - What to read beside the CPUs and NUMA nodes. V(interrupts) includes V(pci).
      - A plan needs all of it; leave parts out to look at less in less time. With V([]) only CPUs and NUMA nodes are read.
    type: list
    elements: str
    choices: [pci, interrupts, boot, kubelet, software, tuning]
    default: [pci, interrupts, boot, kubelet, software, tuning]
  gpu_match:
    description:
      - What counts as a GPU, instead of the built-in rules. Each entry is C(vendor:device) or C(vendor:*) in hexadecimal, or C(class:)
        and the first digits of a PCI class.
      - The rules are NVIDIA, AMD and Intel devices of the classes 0300, 0302, 0380 and 1200, without graphics that are part of the CPU
        or of the board. NVSwitches, BMC graphics and emulated VGA are not GPUs.
    type: list
    elements: str
    default: []
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.read_only]
seealso:
  - module: gpufleet.node.node_plan
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Read everything a plan needs
  gpufleet.node.topology_facts:

- name: Read an unpacked capture, on the controller
  gpufleet.node.topology_facts:
    root: /srv/captures/node17
  delegate_to: localhost

- name: Only CPUs, NUMA nodes and PCI devices; count nothing but one model as a GPU
  gpufleet.node.topology_facts:
    gather: [pci]
    gpu_match: ["10de:2330"]

- name: Show the free hugepages of NUMA node 0
  ansible.builtin.debug:
    msg: "{{ (ansible_facts.gpufleet_topology.numa_nodes | selectattr('id', 'eq', 0) | first).hugepages }}"
"""

RETURN = r"""
ansible_facts:
  description: Facts to add to ansible_facts.
  returned: success
  type: dict
  contains:
    gpufleet_topology:
      description: What the node has. Sizes are bytes, CPU sets cpulists ("0-3,8"; "" is the empty set).
      returned: success
      type: dict
      contains:
        schema:
          description: Version of this schema. A larger number may have lost or changed fields, never just gained some.
          type: int
          sample: 1
        gathered:
          description: What was read.
          type: list
          elements: str
          sample: [cpu, numa, pci, interrupts, boot, kubelet, software, tuning]
        gaps:
          description: What could not be read and was left out, one sentence each.
          type: list
          elements: str
          sample: ["/boot/config-6.8.0-60-generic can't be read: permission denied."]
        architecture:
          description: What C(uname -m) says on the node. V(unknown) when nothing in a root tells.
          type: str
          sample: x86_64
        page_size:
          description: Size of a base page.
          type: int
          sample: 4096
        kernel_release:
          description: The running kernel; empty for an image that never ran.
          type: str
          sample: 6.8.0-60-generic
        cpu_vendor:
          description: The C(vendor_id) on x86-64, the implementer on arm64 (V(ARM), V(NVIDIA), V(Ampere)), V(IBM), or empty.
          type: str
          sample: AuthenticAMD
        command_line:
          description: The running kernel's command line.
          type: str
          sample: BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=UUID=3f1c9a52-7b1e-4d0a-9a55-0c7d5e8b1a01 ro quiet
        fingerprint:
          description:
            - Equal on machines of the same hardware shape. Empty when C(pci) was not gathered.
            - Made of architecture, present CPUs with threads and L3 groups, each NUMA node's kind, CPUs, distances and memory rounded to
              1 GiB, and the number of devices of each vendor and model on each node. Not of PCI addresses, kernel, settings or which
              CPUs are offline.
          type: str
          sample: 5d0c5dbd8f4fe3a1
        cpus:
          description: CPU sets.
          type: dict
          sample: {online: 0-383, present: 0-383, offline: "", isolated: "", nohz_full: ""}
          contains:
            online: {description: CPUs in use., type: str, sample: 0-383}
            present: {description: CPUs that the machine has., type: str, sample: 0-383}
            offline: {description: Present CPUs that are not online., type: str, sample: ""}
            isolated: {description: CPUs that the running kernel keeps out of load balancing (isolcpus)., type: str, sample: ""}
            nohz_full: {description: CPUs without a periodic tick., type: str, sample: ""}
        threads_per_core:
          description: Online threads of the widest core.
          type: int
          sample: 2
        cores:
          description: One cpulist per physical core with its online threads, ordered by first CPU.
          type: list
          elements: str
          sample: ["0,192", "1,193"]
        kubelet_cores:
          description:
            - The cores as kubelet tells them, by core_id within a package and NUMA node; null where they are those in C(cores).
          type: list
          elements: str
          sample: null
        packages:
          description: Sockets, ordered by first CPU. C(id) is the kernel's physical_package_id, which may be -1.
          type: list
          elements: dict
          sample: [{id: 0, cpus: "0-95,192-287"}, {id: 1, cpus: "96-191,288-383"}]
        l3_groups:
          description:
            - Online CPUs that share an L3 cache, ordered by first CPU. C(size_bytes) is null where the kernel shows none.
            - C(id) is the kernel's number of the cache, null where not all caches have one; kubelet tells L3 caches apart only by that.
          type: list
          elements: dict
          sample: [{cpus: "0-7,192-199", size_bytes: 33554432, id: 0}]
        memory_bytes:
          description: MemTotal.
          type: int
          sample: 2431961169920
        hugepage_sizes:
          description: Sizes that the kernel offers.
          type: list
          elements: int
          sample: [2097152, 1073741824]
        numa_nodes:
          description: NUMA nodes by id; ids may have gaps. A kernel without NUMA is one node 0.
          type: list
          elements: dict
          sample:
            - id: 0
              kind: cpu_memory
              kind_evidence: has online CPUs and memory
              cpus: 0-95,192-287
              memory_bytes: 1215475744768
              distances: {"0": 10, "1": 32}
              hugepages: {"2097152": {total: 0, free: 0}}
          contains:
            id: {description: The kernel's number., type: int, sample: 0}
            kind:
              description: V(cpu_memory), V(cpu_only), V(memory_only) (CXL, PMEM), V(device_memory) (belongs to a GPU) or V(empty).
              type: str
              sample: cpu_memory
            kind_evidence: {description: What the kind rests on., type: str, sample: has online CPUs and memory}
            cpus: {description: Its online CPUs., type: str, sample: "0-95,192-287"}
            memory_bytes: {description: Its MemTotal., type: int, sample: 1215475744768}
            distances: {description: Distance to each node by id., type: dict, sample: {"0": 10, "1": 32}}
            hugepages: {description: Pages by size in bytes., type: dict, sample: {"2097152": {total: 0, free: 0}}}
        has_numa:
          description: Whether the kernel shows NUMA nodes. Without, C(numa_nodes) is one that stands for the machine.
          type: bool
          sample: true
        gpus:
          description: GPUs by PCI address.
          type: list
          elements: dict
          sample:
            - address: "0000:02:00.0"
              vendor: 10de
              device: "2330"
              pci_class: "030200"
              pci_root: pci0000:00
              driver: nvidia
              numa_node: 0
              local_cpus: 0-95,192-287
              vectors: 12
              virtual_function: false
              name: null
              speed_mbps: null
              index: 0
              uuid: GPU-5c1a9f6e-2f3b-4b4e-8f8c-1d2e3f4a5b6c
          contains:
            address: {description: PCI address; the domain may have more than four digits., type: str, sample: "0000:02:00.0"}
            vendor: {description: PCI vendor id., type: str, sample: "10de"}
            device: {description: PCI device id., type: str, sample: "2330"}
            pci_class: {description: Class with subclass and programming interface., type: str, sample: "030200"}
            pci_root: {description: The host bridge that it is below., type: str, sample: "pci0000:00"}
            driver: {description: The bound driver or null., type: str, sample: nvidia}
            numa_node:
              description: Null when the firmware does not say and the machine has several nodes.
              type: int
              sample: 0
            local_cpus: {description: CPUs that the kernel calls local to it., type: str, sample: "0-95,192-287"}
            vectors: {description: How many message-signalled interrupts (MSI and MSI-X) it has., type: int, sample: 12}
            virtual_function: {description: Whether it is an SR-IOV virtual function., type: bool, sample: false}
            name: {description: "Interface of a NIC, controller of an NVMe drive, null for a GPU.", type: str, sample: eth0}
            speed_mbps: {description: Link speed of a NIC; null while the link is down., type: int, sample: 400000}
            index: {description: "The index of nvidia-smi, only from a live node.", type: int, sample: 0}
            uuid: {description: UUID from nvidia-smi or the NVIDIA driver., type: str, sample: GPU-5c1a9f6e-2f3b-4b4e-8f8c-1d2e3f4a5b6c}
        nics:
          description: Network devices by PCI address, with the fields of C(gpus).
          type: list
          elements: dict
          sample: [{address: "0000:05:00.0", vendor: 15b3, device: "1021", name: eth2, speed_mbps: 400000, numa_node: 0}]
        nvmes:
          description: NVMe drives by PCI address, with the fields of C(gpus).
          type: list
          elements: dict
          sample: [{address: "0000:07:00.0", vendor: 144d, device: a80a, name: nvme0, numa_node: 0, pci_root: pci0000:00}]
        shared_roots:
          description: PCI roots with GPUs and NVMe drives below them, so that I/O and DMA share their bandwidth.
          type: list
          elements: dict
          sample: [{pci_root: pci0000:00, gpus: ["0000:02:00.0"], nvmes: ["0000:07:00.0"]}]
        interrupts:
          description:
            - Interrupts of PCI devices. C(kind) is V(gpu), V(nic), V(nvme) or V(other).
            - An affinity is null where the kernel shows none. C(action) is the driver's name for it, empty while nobody has requested it.
          type: list
          elements: dict
          sample:
            - device: "0000:07:00.0"
              kind: nvme
              interrupts: [{irq: 148, affinity: "0,192", effective_affinity: "0", action: nvme0q1}]
        boot:
          description: How the node gets its kernel command line.
          type: dict
          sample:
            loader: grub
            kernel_release: 6.8.0-60-generic
            kernel_config: {NO_HZ_FULL: "y", RCU_NOCB_CPU: "y", CPU_ISOLATION: "y"}
          contains:
            loader:
              description: V(grub), V(bls) (boot loader entries), V(ostree), V(kernel_cmdline) (/etc/kernel/cmdline) or V(unknown).
              type: str
              sample: grub
            kernel_release: {description: The kernel to be booted; null when it can't be told., type: str, sample: 6.8.0-60-generic}
            kernel_config:
              description: Values of some CONFIG_ symbols of that kernel, V(n) for those not set. Empty when no config is readable.
              type: dict
              sample: {NO_HZ_FULL: "y"}
        kubelet:
          description: The kubelet; null without one.
          type: dict
          sample:
            distribution: kubeadm
            unit: kubelet.service
            version: 1.34.1
            config_file: /var/lib/kubelet/config.yaml
            config_dir: null
            root_dir: /var/lib/kubelet
            flags: {pod-infra-container-image: "registry.k8s.io/pause:3.10"}
            exec_start: /usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_EXTRA_ARGS
          contains:
            distribution: {description: "V(plain), V(kubeadm), V(kubespray), V(k3s) or V(rke2).", type: str, sample: kubeadm}
            unit: {description: The systemd unit that runs it., type: str, sample: kubelet.service}
            version: {description: Its version; null when it can't be told., type: str, sample: 1.34.1}
            config_file: {description: Its main configuration file or null., type: str, sample: /var/lib/kubelet/config.yaml}
            config_dir:
              description: The drop-in folder that it reads; null when it reads none.
              type: str
              sample: /etc/kubernetes/kubelet.conf.d
            root_dir: {description: Its state folder., type: str, sample: /var/lib/kubelet}
            flags:
              description: Other command line flags; they override the files. Values of one that is repeated are joined.
              type: dict
              sample: {node-ip: 192.0.2.7}
            exec_start: {description: The unit's ExecStart without a part of ours., type: str, sample: /usr/bin/kubelet $KUBELET_EXTRA_ARGS}
            runtime_endpoint:
              description: The socket of its container runtime as flags and files say; empty where none does, and for k3s and RKE2.
              type: str
              sample: unix:///run/containerd/containerd.sock
        software:
          description:
            - Other owners of settings. C(tuned_profile) is null unless tuned starts at boot; the others say what is installed.
            - C(containerd_version) is null when it can't be told. C(containerd_systemd_cgroup) says whether its configuration has
              C(SystemdCgroup) on for the default runtime.
          type: dict
          sample:
            tuned_profile: null
            irqbalance: true
            crio: false
            docker: false
            slurm: false
            containerd: true
            containerd_version: 2.0.0
            containerd_systemd_cgroup: true
        cpufreq:
          description: CPU frequency scaling; null on a node without it. C(governors) are the governors in use.
          type: dict
          sample: {driver: acpi-cpufreq, available_governors: [performance, schedutil], governors: [schedutil]}
        transparent_hugepage:
          description: Chosen and offered words; null on a kernel without it.
          type: dict
          sample:
            enabled: madvise
            defrag: madvise
            enabled_choices: [always, madvise, never]
            defrag_choices: [always, defer, defer+madvise, madvise, never]
        swaps:
          description: Active swap.
          type: list
          elements: dict
          sample: [{path: /swap.img, type: file, size_bytes: 8589930496, used_bytes: 0}]
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.facts import gather


def main():
    gather()


if __name__ == "__main__":
    main()
