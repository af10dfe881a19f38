"""Wrong input and the sentence that it gets. Policy and plan see all of it before a node is touched, so nothing is ever written."""

# ruff: noqa: E501 - a wrong input and its sentence are one line

from __future__ import annotations

from typing import Any

import pytest
from strategies import GIB, make_topology

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import (
    DEVICE_MEMORY,
    MEMORY_ONLY,
    CpuSet,
    NumaNode,
    Software,
    Topology,
    TransparentHugepage,
)

# Two packages of 8 cores and 2 threads, 4 cores for each L3 cache, 64 GiB each; CPUs 7 and 23, one core, are offline.
NODE = make_topology(offline=[7, 23])
SMT = make_topology()
ISOLATED = {"profile": "isolated"}
ALIGNED = {"profile": "aligned"}
OLD_KERNEL = make_topology(
    transparent_hugepage=TransparentHugepage("always", "always", ("always", "never"), ("always", "madvise", "never"))
)
# Its kubelet's files could not be read.
UNREADABLE = make_topology(
    gathered=("pci", "boot", "software", "tuning"), gaps=("/var/lib/kubelet/kubeadm-flags.env can't be read: permission denied.",)
)
GPU_MEMORY = make_topology(
    extra_nodes=[NumaNode(2, DEVICE_MEMORY, CpuSet(), 96 * GIB), NumaNode(3, MEMORY_ONLY, CpuSet(), 64 * GIB), NumaNode(4, "empty")]
)

TABLE: list[tuple[Topology, dict[str, Any], str]] = [
    # facts
    (UNREADABLE, {}, "The facts lack what a plan needs: kubelet. /var/lib/kubelet/kubeadm-flags.env can't be read: permission denied. Gather the facts"),
    (NODE.replace(gathered=("boot",)), {}, "The facts lack what a plan needs: pci, kubelet, software, tuning. Gather them with gpufleet.node.topology_facts"),
    # names and words
    (NODE, {"gpufleet_proflie": "isolated"}, '"gpufleet_proflie" is not a known variable. Did you mean "gpufleet_profile"?'),
    (NODE, {"gpufleet_numa_balancing": 0}, '"gpufleet_numa_balancing" is not a known variable.'),
    (NODE, {"profile": "Isolated"}, 'gpufleet_profile is "Isolated", and case matters. Write "isolated".'),
    (NODE, {"profile": "latency"}, 'gpufleet_profile is "latency", which is not a choice. Choose one of: colocation, aligned, isolated.'),
    (NODE, {"memory_manager_policy": "static"}, 'gpufleet_memory_manager_policy is "static", and case matters. Write "Static".'),
    (NODE, {"topology_manager_policy": "single-numa"}, 'gpufleet_topology_manager_policy is "single-numa", which is not a choice.'),
    (NODE, {"reserved_whole_l3": "maybe"}, 'gpufleet_reserved_whole_l3 is "maybe", which is neither true nor false. Write true or false.'),
    (NODE, {"reserved_cores_per_numa": "two"}, 'gpufleet_reserved_cores_per_numa is "two", which is not a whole number. Write digits only.'),
    (NODE, {"reserved_cores_per_numa": 0}, 'gpufleet_reserved_cores_per_numa is "0", which is out of range. Give a number at least 1.'),
    (NODE, {"reserved_cores_percent": 100}, 'gpufleet_reserved_cores_percent is "100", which is out of range. Give a number from 1 to 99.'),
    (NODE, {"reserved_cores_percent": 12.5}, 'gpufleet_reserved_cores_percent is "12.5", which is not a whole number. Write digits only.'),
    (NODE, {"reserved_cores_percent": 5, "reserved_cpus": "0,16"}, "gpufleet_reserved_cpus and gpufleet_reserved_cores_percent are both given. Keep one"),
    (NODE, {"reserved_cores_percent": 5, "reserved_cores_per_numa": 1}, "gpufleet_reserved_cores_per_numa and gpufleet_reserved_cores_percent are both"),
    (NODE, {"reserved_cores_per_numa": 1, "reserved_cpus": "0,16"}, "gpufleet_reserved_cpus and gpufleet_reserved_cores_per_numa are both given. Keep"),
    (NODE, {"reserved_whole_l3": True, "reserved_cpus": "0,16"}, "gpufleet_reserved_cpus and gpufleet_reserved_whole_l3 are both given. Keep one"),
    # CPU lists
    (NODE, {"reserved_cpus": "0-"}, 'gpufleet_reserved_cpus: "0-" in the CPU list "0-" is not a CPU or a range. Write it like "0-3,8,10-11".'),
    (NODE, {"reserved_cpus": "3-0"}, 'gpufleet_reserved_cpus: The range "3-0" in the CPU list "3-0" runs backwards. Write "0-3".'),
    (NODE, {"reserved_cpus": "0,,1"}, 'gpufleet_reserved_cpus: "" in the CPU list "0,,1" is not a CPU or a range.'),
    (NODE, {"reserved_cpus": "0x3"}, 'gpufleet_reserved_cpus: "0x3" in the CPU list "0x3" is not a CPU or a range.'),
    (NODE, {"reserved_cpus": ""}, 'gpufleet_reserved_cpus is "", which is empty.'),
    (NODE, {"reserved_cpus": [0, 1]}, 'gpufleet_reserved_cpus is "[0, 1]", which is not a CPU list.'),
    (NODE, {"reserved_cpus": "7,23"}, "gpufleet_reserved_cpus holds CPUs 7,23, which are offline."),
    (NODE, {"reserved_cpus": "0,16,99"}, "gpufleet_reserved_cpus holds CPUs 99, which this node doesn't have. Its CPUs are 0-6,8-22,24-31."),
    (NODE, {"reserved_cpus": "0,1,16"}, "gpufleet_reserved_cpus holds CPU 1 but not its thread sibling 17: half a core. Name whole cores, here 1,17."),
    (NODE, {"reserved_cpus": "0-6,8-22,24-31"}, "The reserved CPUs 0-6,8-22,24-31 are all that this node has; nothing is left for work."),
    (NODE, {"reserved_cores_per_numa": 8}, "The reserved CPUs 0-6,8-22,24-31 are all that this node has; nothing is left for work."),
    (NODE, {"reserved_cores_per_numa": 5, "reserved_whole_l3": True}, "gpufleet_reserved_whole_l3 would reserve all of NUMA node 0,"),
    (NODE, {"isolated_cpus": "1,17"}, "gpufleet_isolated_cpus is given, but profile colocation isolates no CPU. Choose gpufleet_profile isolated,"),
    (NODE, {**ISOLATED, "isolated_cpus": "0,16"}, "gpufleet_isolated_cpus holds CPU 0, the boot CPU, which the kernel needs for its own work."),
    (NODE, {**ISOLATED, "isolated_cpus": "0-6,8-22,24-31"}, "gpufleet_isolated_cpus holds CPU 0, the boot CPU,"),
    (NODE, {**ISOLATED, "reserved_cpus": "1,17"}, "Profile isolated would isolate CPU 0, the boot CPU, which the kernel needs for its own work."),
    (NODE, {**ISOLATED, "reserved_cpus": "0-1,16-17", "isolated_cpus": "1-2,17-18"}, "CPUs 1,17 are in both gpufleet_reserved_cpus and gpufleet_isol"),
    (NODE, {**ISOLATED, "isolated_cpus": "2-3,18"}, "gpufleet_isolated_cpus holds CPU 3 but not its thread sibling 19: half a core."),
    (NODE, {**ALIGNED, "nohz_full": True}, "gpufleet_nohz_full is given, but profile aligned isolates no CPU. Choose gpufleet_profile isolated, or leave"),
    (NODE, {"isolate_domain": True}, "gpufleet_isolate_domain is given, but profile colocation isolates no CPU. Choose gpufleet_profile isolated,"),
    # quantities and memory
    (NODE, {"kube_reserved": {"memory": "6GiB"}}, 'gpufleet_kube_reserved.memory is "6GiB", which is not a Kubernetes quantity.'),
    (NODE, {"system_reserved": {"memory": "2g"}}, 'gpufleet_system_reserved.memory is "2g", which is not a Kubernetes quantity.'),
    (NODE, {"system_reserved": {"memory": "512m"}}, 'gpufleet_system_reserved.memory is "512m", which Kubernetes reads as 0.512 bytes.'),
    (NODE, {"system_reserved": {"memory": "0.1Gi"}}, 'gpufleet_system_reserved.memory is "0.1Gi", which Kubernetes reads as 107374182.4 bytes. Write whole'),
    (NODE, {"system_reserved": {"memory": "-1Gi"}}, 'gpufleet_system_reserved.memory is "-1Gi", which is negative.'),
    (NODE, {"system_reserved": {"mem": "1Gi"}}, '"mem" is not a known resource of gpufleet_system_reserved. Did you mean "memory"?'),
    (NODE, {"system_reserved": {"hugepages-2Mi": "1Gi"}}, "gpufleet_system_reserved.hugepages-2Mi can't be: kubelet can't reserve hugepages."),  # F11
    (NODE, {"kube_reserved": {"cpu": 6}}, "gpufleet_kube_reserved.cpu is given, and kubelet ignores it beside reservedSystemCPUs."),  # A21
    (NODE, {**ALIGNED, "reserved_memory": {0: "50Mi", 1: "60Mi"}}, "reservedMemory adds up to 110Mi, but kubeReserved + systemReserved + the evict"),
    (NODE, {**ALIGNED, "reserved_memory": {0: "100Mi", 7: "1Mi"}}, "gpufleet_reserved_memory names NUMA node 7, which isn't there. Name one of 0, 1."),
    (NODE, {**ALIGNED, "reserved_memory": {0: "0"}}, 'gpufleet_reserved_memory.0 is "0", and kubelet refuses a reservation of nothing.'),  # B1
    (NODE, {"reserved_memory": {0: "1Gi"}}, "gpufleet_reserved_memory is given, but the memory manager policy is None,"),
    (NODE, {**ALIGNED, "kube_reserved": {"memory": "200Gi"}}, "NUMA node 0 has 65536 MiB beside its hugepages; 102400 MiB can't be reserved there."),
    (NODE, {**ALIGNED, "eviction_hard": {"memory.available": "5%"}}, "evictionHard.memory.available is 5%: with memory manager Static its bytes"),  # B3
    (NODE, {"eviction_hard": {"memory.free": "1Gi"}}, '"memory.free" is not a known eviction signal of gpufleet_eviction_hard.'),
    (NODE, {"eviction_hard": {"nodefs.available": "120%"}}, 'gpufleet_eviction_hard.nodefs.available is "120%", which is no share.'),
    (NODE, {"eviction_hard": {"memory.available": 0}}, 'gpufleet_eviction_hard.memory.available is "0", and kubelet refuses a threshold of'),
    (NODE, {"system_reserved": {"memory": "1Gi"}, "reserved_memory_percent": 5}, "gpufleet_reserved_memory_percent and gpufleet_system_reserved.memory"),
    (GPU_MEMORY, {**ALIGNED}, "memoryManagerPolicy is Static, and kubelet may then place pods into GPU memory, which is NUMA nodes 2 here."),
    # kubelet
    (NODE, {"kubelet_version": "latest"}, 'gpufleet_kubelet_version is "latest", which is not a kubelet version. Write it like "1.34.4".'),
    (NODE, {"kubelet_version": "1.24.9"}, "kubelet 1.24.9 is older than 1.28, the oldest that is known here."),
    (NODE, {"cpu_manager_policy_options": {"full-pcpu-only": "true"}}, '"full-pcpu-only" is not a known policy option of kubelet. Did you mean "full'),
    (NODE, {"cpu_manager_policy_options": {"full-pcpu-only": False}}, '"full-pcpu-only" is not a known policy option of kubelet. Did you mean "full'),
    (NODE, {"topology_manager_policy": "none", "topology_manager_policy_options": {"prefer-closest-numa": 1}}, '"prefer-closest-numa" is not a known p'),
    (NODE, {"cpu_manager_policy_options": {"full-pcpus-only": "yes"}}, 'gpufleet_cpu_manager_policy_options.full-pcpus-only is "yes", which kubelet'),
    (NODE, {"cpu_manager_policy_options": "full-pcpus-only"}, 'gpufleet_cpu_manager_policy_options is "full-pcpus-only", which is not a mapping.'),
    (NODE, {"cpu_manager_policy": "none", "cpu_manager_policy_options": {"full-pcpus-only": "true"}}, "gpufleet_cpu_manager_policy is none, and kubelet"),
    (NODE, {"cpu_manager_policy_options": {"distribute-cpus-across-cores": "true", "full-pcpus-only": "true"}}, "kubelet refuses full-pcpus-only tog"),
    (NODE, {**ALIGNED, "cpu_manager_policy_options": {"align-by-socket": "true"}}, "kubelet refuses align-by-socket under the topology policy single"),
    (NODE, {"cpu_manager_policy_options": {"strict-cpu-reservation": "true"}, "kubelet_version": "1.31.2"}, "kubelet 1.31 has no policy option strict"),
    (NODE, {"topology_manager_policy_options": {"max-allowable-numa-nodes": "4"}},
     'gpufleet_topology_manager_policy_options.max-allowable-numa-nodes is "4", which is out of range. Give a number at least 8.'),  # B7
    (NODE, {"topology_manager_policy_options": {"max-allowable-numa-nodes": 0}}, 'gpufleet_topology_manager_policy_options.max-allowable-numa-nodes is "0"'),
    (NODE, {"topology_manager_policy_options": {"max-allowable-numa-nodes": 1}}, 'gpufleet_topology_manager_policy_options.max-allowable-numa-nodes is "1"'),
    # hugepages
    (NODE, {"hugepages": {"3M": 8}}, "gpufleet_hugepages names pages of 3M, which this kernel lacks. It has 2M, 1G."),
    (NODE, {"hugepages": {"2MB": 8}}, 'gpufleet_hugepages: the page size is "2MB", which is not a page size.'),
    (NODE, {"hugepages": {"1G": {5: 8}}}, "gpufleet_hugepages names NUMA node 5, which isn't there. Name one of 0, 1."),
    (NODE, {"hugepages": {"1G": 100}}, "gpufleet_hugepages asks for 100 GiB on NUMA node 0, which has 64 GiB. Ask for fewer pages."),
    (NODE, {"hugepages": {"1G": 40, "2M": 20480}}, "gpufleet_hugepages asks for 80 GiB on NUMA node 0, which has 64 GiB."),
    (GPU_MEMORY, {"hugepages": {"1G": {4: 1}}}, "gpufleet_hugepages asks for pages on NUMA node 4, which has no memory."),  # F6
    (NODE, {"hugepages": {"1G": -1}}, 'gpufleet_hugepages.1G is "-1", which is out of range. Give a number at least 0.'),
    (NODE, {"hugepages": {"1G": 1}, "default_hugepage_size": "16M"}, "gpufleet_default_hugepage_size is 16M, which this kernel lacks."),
    (NODE, {"default_hugepage_size": "1G"}, "gpufleet_default_hugepage_size is given without gpufleet_hugepages, and is written only with them. Ask"),
    # kernel arguments
    (NODE, {"kernel_arguments": ["iommu = pt"]}, 'The kernel argument "iommu = pt" has a blank, a quote or another character that'),
    (NODE, {"kernel_arguments": ["a=$(reboot)"]}, 'The kernel argument "a=$(reboot)" has a blank, a quote or another character that'),
    (NODE, {"kernel_arguments": ["iommu=pt", "iommu=off"]}, "The kernel argument iommu is given twice; the kernel takes the last."),
    (NODE, {"kernel_arguments": ["root=/dev/sda1"]}, 'The kernel argument "root=/dev/sda1" isn\'t ours to set:'),
    (NODE, {"kernel_arguments": 7}, 'gpufleet_kernel_arguments is "7", which is not a list. Write a YAML list of texts.'),
    (NODE, {"kernel_arguments": ["isolcpus=1-3"]}, "gpufleet_kernel_arguments holds isolcpus=1-3, which the plan decides. Set gpufleet_isolated_cpus"),
    (NODE, {"kernel_arguments": ["x" * 3000]}, "The kernel command line would be 3000 characters long; x86_64 kernels cut it off at 2047."),
    (NODE.replace(architecture="aarch64"), {"c_states": "poll"}, "gpufleet_c_states is poll, and idle=poll exists on x86-64 only;"),
    # the running system
    (NODE, {"sysctl": {"vm.dirty_bytes": 1 << 30, "vm.dirty_ratio": 20}}, "gpufleet_sysctl sets both vm.dirty_bytes and vm.dirty_ratio,"),  # F12
    (NODE, {"sysctl": {"vm.dirty_bytes": 0}}, 'gpufleet_sysctl.vm.dirty_bytes is "0", which the kernel refuses.'),  # F12
    (NODE, {"sysctl": {"swappiness": 0}}, 'gpufleet_sysctl: "swappiness" is not the name of a sysctl. Write it like "vm.swappiness".'),
    (NODE, {"sysctl": {"vm.overcommit_memory": 2}}, "gpufleet_sysctl sets vm.overcommit_memory to 2, and kubelet sets it to 1 at its start."),
    (NODE, {"sysctl": {"vm.swappiness": [1]}}, 'gpufleet_sysctl.vm.swappiness is "[1]", which is not one value.'),
    (NODE, {"thp_enabled": "defer"}, 'gpufleet_thp_enabled is "defer", which is not a choice. Choose one of: always, madvise, never.'),  # F1
    (OLD_KERNEL, {"thp_enabled": "madvise"}, 'gpufleet_thp_enabled is "madvise", which this kernel doesn\'t offer. Choose one of: always, never.'),  # F1
    (OLD_KERNEL, {"thp_defrag": "defer"}, 'gpufleet_thp_defrag is "defer", which this kernel doesn\'t offer. Choose one of: always, madvise, never.'),
    (NODE.replace(transparent_hugepage=None), {"thp_enabled": "never"}, "gpufleet_thp_enabled or gpufleet_thp_defrag is given, and this kernel has no"),
    (NODE, {"governor": "ondemand"}, "gpufleet_governor is ondemand, which this node doesn't have. Choose one of: performance, schedutil."),  # G1
    (NODE.replace(cpufreq=None), {"governor": "performance"}, "gpufleet_governor is performance, and this node has no frequency scaling."),  # G2
    (NODE, {"swap": "never"}, 'gpufleet_swap is "never", which is not a choice. Choose one of: off, keep.'),
    (NODE, {"memlock": "lots"}, 'gpufleet_memlock is "lots", which is neither unlimited nor a size. Write "unlimited", or'),
    (NODE, {"nofile": 10}, 'gpufleet_nofile is "10", which is out of range.'),
    (NODE, {"irq_placement": "near"}, 'gpufleet_irq_placement is "near", which is not a choice. Choose one of: housekeeping, local, none.'),
    (NODE.replace(software=Software(slurm=True)), {"confine_system": True}, "gpufleet_confine_system is on, but Slurm runs workloads below system.slice"),
    # CPU jobs
    (NODE, {**ISOLATED, "batch_services": [{"name": "x", "command": ["/bin/true"], "user": "jobs"}]},
     "Profile isolated leaves no shared pool for gpufleet_batch_services."),
    (NODE, {"batch_services": {"name": "x"}}, "gpufleet_batch_services is \"{'name': 'x'}\", which is not a list of mappings."),
]  # fmt: skip


@pytest.mark.parametrize(("topology", "variables", "sentence"), TABLE, ids=[sentence[:60] for _topology, _variables, sentence in TABLE])
def test_wrong_input_gets_its_sentence(topology: Topology, variables: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GpufleetError) as refusal:
        build_plan(topology, policy_from_variables(variables))
    assert str(refusal.value).startswith(sentence)
    assert refusal.value.problem[-1] in ".?" and refusal.value.remedy[-1] in ".?"
    assert "\n" not in str(refusal.value)


def test_the_same_node_takes_good_input() -> None:
    for topology in (NODE, SMT, GPU_MEMORY):
        for variables in ({}, {"nohz_full": False, "isolate_domain": False}, {"hugepages": {"1G": 0}, "default_hugepage_size": "1G"}):
            build_plan(topology, policy_from_variables(variables))
