# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kubelet section of a plan: the KubeletConfiguration that this node, this profile and this kubelet version call for."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import kubelet_rules as rules
from .errors import InvalidInput
from .notes import Notes
from .partition import Partition
from .policy import Policy
from .quantity import GIB, MIB, format_bytes
from .topology import CPU_MEMORY, DEVICE_MEMORY, Kubelet, Topology

Options = Dict[str, str]


def kubelet_section(topology: Topology, policy: Policy, cpus: Partition, hugepages: Mapping[int, int], notes: Notes) -> Dict[str, Any]:
    """The configuration and where it belongs; {} without a kubelet. ``hugepages`` are the planned bytes of them on each NUMA node.

    :raises InvalidInput: something that kubelet would refuse, or that can't hold on this machine
    """
    kubelet = topology.kubelet
    if kubelet is None or not policy.kubelet_manage:
        if policy.profile != "isolated":
            notes.warning(
                "profile_without_kubelet",
                "Profile %s is about kubelet, and none is configured here: no kubelet configuration is written, the rest of the plan holds."
                % policy.profile,
            )
        return {}
    minor = _minor(policy.kubelet_version or kubelet.version, notes)
    configuration = _configuration(topology, policy, cpus, hugepages, minor, notes)
    rules.check(configuration, minor)
    _report_flags(kubelet, configuration, notes)
    return {
        "configuration": configuration,
        "version": policy.kubelet_version or kubelet.version or "",
        "distribution": kubelet.distribution,
        "unit": kubelet.unit,
        "config_file": kubelet.config_file or "",
        "config_dir": kubelet.config_dir or "",
        "root_dir": kubelet.root_dir,
        "flags": dict(kubelet.flags),
        "restart": policy.kubelet_restart,
    }


def uses_static_policy(section: Mapping[str, Any]) -> bool:
    """Whether a kubelet section gives pods CPUs of their own."""
    return bool(section) and section["configuration"]["cpuManagerPolicy"] == "static"


def _minor(version: Optional[str], notes: Notes) -> int:
    newest = "1.%d" % rules.NEWEST_MINOR
    if version is None:
        notes.warning(
            "kubelet_version_unknown",
            "kubelet's version can't be told: the rules of %s, with any gate an older one may need. gpufleet_kubelet_version names it."
            % newest,
        )
        return rules.NEWEST_MINOR
    minor = rules.minor_of(version)
    if "1.%d" % minor not in version:
        notes.info(
            "kubelet_version_newer", "kubelet %s is newer than the rules here; those of %s are used." % (version, newest), version=version
        )
    return minor


def _configuration(
    topology: Topology, policy: Policy, cpus: Partition, hugepages: Mapping[int, int], minor: int, notes: Notes
) -> Dict[str, Any]:
    profile = policy.defaults
    cpu_policy = policy.cpu_manager_policy or profile.cpu_manager_policy
    cpu_options = _cpu_options(topology, policy, notes) if cpu_policy == "static" else _no_options(policy)
    topology_policy, topology_options = _topology_policy(topology, policy, notes)
    memory_policy = policy.memory_manager_policy or profile.memory_manager_policy
    _check_machine(topology, cpu_options, memory_policy)

    configuration: Dict[str, Any] = dict(rules.HEADER)
    configuration["cpuManagerPolicy"] = cpu_policy
    if cpu_options:
        configuration["cpuManagerPolicyOptions"] = cpu_options
    configuration["reservedSystemCPUs"] = cpus.reserved.to_list()
    configuration["memoryManagerPolicy"] = memory_policy
    configuration["topologyManagerPolicy"] = topology_policy
    configuration["topologyManagerScope"] = policy.topology_manager_scope or profile.topology_manager_scope
    if topology_options:
        configuration["topologyManagerPolicyOptions"] = topology_options
    known = policy.kubelet_version or (topology.kubelet and topology.kubelet.version)
    gates = rules.gates_for(cpu_options, topology_options, minor) if known else rules.gates_for_unknown(cpu_options, topology_options)
    if gates:
        configuration["featureGates"] = gates
    configuration.update(_reservations(topology, policy, memory_policy, hugepages, notes))
    if policy.swap == "keep":  # F27: failSwapOn is still on by default
        configuration["failSwapOn"] = False
        if minor >= 30:
            configuration["memorySwap"] = {"swapBehavior": "NoSwap"}
    _explain(topology, policy, cpu_policy, cpu_options, notes)
    return configuration


def _no_options(policy: Policy) -> Options:
    if policy.cpu_manager_policy_options:
        raise InvalidInput(
            "gpufleet_cpu_manager_policy is none, and kubelet exits on options (gpufleet_cpu_manager_policy_options) without a policy.",
            "Leave the options out, or choose the policy static.",
        )
    return {}


def _cpu_options(topology: Topology, policy: Policy, notes: Notes) -> Options:
    """The profile's options, then the user's over them; a default that can't go with what the user asked for steps back."""
    asked = policy.cpu_manager_policy_options
    wanted = [name for name, value in asked.items() if value == "true"]
    options = dict.fromkeys(policy.defaults.cpu_manager_policy_options, "true")
    if len(topology.cpu_nodes) < 2:
        options.pop("distribute-cpus-across-numa", None)
    for pair in rules.CONFLICTS:
        for mine, theirs in (pair, pair[::-1]):
            if mine in options and mine not in asked and theirs in wanted:
                del options[mine]
                notes.info("option_replaced", "%s is left out, because kubelet refuses it together with %s." % (mine, theirs), option=mine)
    options.update(asked)
    return {name: value for name, value in sorted(options.items()) if value != "false"}


def _topology_policy(topology: Topology, policy: Policy, notes: Notes) -> Tuple[str, Options]:
    """The topology policy and its options.

    kubelet counts every NUMA node, those without CPUs too, exits above 8 under any policy but none, and with the limit raised looks at
    all subsets of nodes: on a machine with dozens of them no pod is ever admitted (B7, B8). So none is the default there.
    """
    chosen = policy.topology_manager_policy or policy.defaults.topology_manager_policy
    options = {name: value for name, value in policy.topology_manager_policy_options.items() if value != "false"}
    count = len(topology.numa_nodes)
    if chosen == "none" or count <= rules.MAX_NUMA_NODES:
        return chosen, options
    if policy.topology_manager_policy is None:
        notes.warning(
            "many_numa_nodes",
            "kubelet has topology policies for up to %d NUMA nodes, not for %d: the policy is none instead of %s."
            % (rules.MAX_NUMA_NODES, count, chosen),
            numa_nodes=count, with_cpus=len(topology.cpu_nodes),
        )  # fmt: skip
        return "none", {}
    limit = options.get("max-allowable-numa-nodes", "0")
    if not limit.isdigit() or int(limit) < count:
        raise InvalidInput(
            "gpufleet_topology_manager_policy is %s on a machine with %d NUMA nodes; kubelet exits above %d."
            % (chosen, count, rules.MAX_NUMA_NODES),
            'Choose none, or set gpufleet_topology_manager_policy_options to {max-allowable-numa-nodes: "%d"}.' % count,
        )
    notes.warning(
        "many_numa_nodes",
        "kubelet compares all subsets of %d NUMA nodes when it admits a pod; from about a dozen on that takes very long." % count,
        numa_nodes=count, with_cpus=len(topology.cpu_nodes),
    )  # fmt: skip
    return chosen, options


def _check_machine(topology: Topology, cpu_options: Options, memory_policy: str) -> None:
    """What kubelet's managers refuse on this very machine."""
    if "align-by-socket" in cpu_options and len(topology.packages) > len(topology.cpu_nodes):
        raise InvalidInput(
            "kubelet refuses align-by-socket on a machine with more sockets (%d) than NUMA nodes (%d)."
            % (len(topology.packages), len(topology.cpu_nodes)),
            "Leave the option out.",
        )
    device_nodes = [str(node.id) for node in topology.numa_nodes if node.kind == DEVICE_MEMORY]
    if memory_policy == "Static" and device_nodes:
        raise InvalidInput(
            "kubelet's memory manager Static may place pods into GPU memory, which is NUMA nodes %s here." % ", ".join(device_nodes),
            "Set gpufleet_memory_manager_policy: None, or load the NVIDIA driver in the mode that keeps GPU memory out of NUMA.",
        )


# --- memory -------------------------------------------------------------------------------------------------------------------------------


def _reservations(topology: Topology, policy: Policy, memory_policy: str, hugepages: Mapping[int, int], notes: Notes) -> Dict[str, Any]:
    """kubeReserved, systemReserved, evictionHard and reservedMemory, as far as asked for or needed.

    With memory manager Static the whole eviction set is written, so that the sum doesn't hang on what another file says (B3).
    """
    static = memory_policy == "Static"
    for name, reserve in (("kube", policy.kube_reserved), ("system", policy.system_reserved)):
        if "cpu" in reserve:  # A21: kubelet drops the one and overwrites the other without a word
            raise InvalidInput(
                "gpufleet_%s_reserved.cpu is given, and kubelet ignores it beside reservedSystemCPUs." % name,
                "Set gpufleet_reserved_cores_per_numa instead.",
            )
    fields: Dict[str, Any] = {}
    if policy.kube_reserved:
        fields["kubeReserved"] = dict(policy.kube_reserved)
    system = dict(policy.system_reserved)
    if policy.reserved_memory_percent is not None:
        system["memory"] = _share_of_memory(topology, policy, notes)
    if system:
        fields["systemReserved"] = system
    if policy.eviction_hard or static:
        fields["evictionHard"] = _eviction(topology, policy, notes)
    if static:
        fields["reservedMemory"] = _reserved_memory(topology, policy, fields, hugepages)
        if not policy.kube_reserved and not system:
            notes.info(
                "no_memory_reserved",
                "No gpufleet_kube_reserved or gpufleet_system_reserved is given: only the eviction threshold is held back from pods.",
            )
    elif policy.reserved_memory:
        raise InvalidInput(
            "gpufleet_reserved_memory is given, but the memory manager policy is None, which reserves nothing per NUMA node.",
            "Leave it out, or set gpufleet_memory_manager_policy: Static.",
        )
    return fields


def _share_of_memory(topology: Topology, policy: Policy, notes: Notes) -> str:
    """A share of the memory beside CPUs, rounded up to bytes. Memory counts in whole GiB, since MemTotal differs a little between boots."""
    if "memory" in policy.system_reserved:
        raise InvalidInput("gpufleet_reserved_memory_percent and gpufleet_system_reserved.memory are both given.", "Keep one of them.")
    memory = sum(node.memory_bytes for node in topology.cpu_memory_nodes)
    rounded = (memory + GIB // 2) // GIB * GIB
    size = -(-rounded * (policy.reserved_memory_percent or 0) // 100)
    notes.info("reserved_memory_percent", "%d %% of %d GiB." % (policy.reserved_memory_percent or 0, rounded // GIB), bytes=size)
    return format_bytes(size)


def _eviction(topology: Topology, policy: Policy, notes: Notes) -> Dict[str, str]:
    """The whole set: a map in kubelet's main file replaces all of its defaults."""
    eviction = dict(rules.EVICTION_DEFAULTS, **policy.eviction_hard)
    threshold = eviction["memory.available"]
    if threshold.endswith("%") and threshold not in ("0%", "100%") and policy.eviction_absolute:
        size = -(-topology.memory_bytes * round(float(threshold[:-1]) * 1000) // (100000 * MIB)) * MIB
        eviction["memory.available"] = format_bytes(size)
        notes.info(
            "eviction_absolute",
            "%s of the node's memory, written as %s." % (threshold, format_bytes(size)),
            memory_bytes=topology.memory_bytes,
        )
    return eviction


def _reserved_memory(topology: Topology, policy: Policy, fields: Mapping[str, Any], hugepages: Mapping[int, int]) -> List[Dict[str, Any]]:
    """reservedMemory: kube + system evenly over the NUMA nodes with CPUs and memory in whole MiB, threshold and remainder on the last."""
    total = rules.reserved_total(fields)
    threshold = total - rules.reserved_total({**fields, "evictionHard": {"memory.available": "0%"}})
    nodes = topology.cpu_memory_nodes
    if not nodes:
        raise InvalidInput(
            "No NUMA node has both CPUs and memory, so memory manager Static has none to reserve on.",
            "Set gpufleet_memory_manager_policy: None.",
        )
    kinds = {node.id: node.kind for node in topology.numa_nodes}
    if policy.reserved_memory:
        amounts = {int(node): amount for node, amount in policy.reserved_memory.items()}
        for node_id in amounts:
            if node_id not in kinds:
                raise InvalidInput(
                    "gpufleet_reserved_memory names NUMA node %d, which isn't there." % node_id,
                    "Name one of %s." % ", ".join(map(str, kinds)),
                )
            if kinds[node_id] != CPU_MEMORY:
                raise InvalidInput(
                    "gpufleet_reserved_memory names NUMA node %d, which is of the kind %s." % (node_id, kinds[node_id]),
                    "Name nodes with CPUs and memory.",
                )
    else:
        share = (total - threshold) // len(nodes) // MIB * MIB
        amounts = {node.id: share for node in nodes}
        amounts[nodes[-1].id] = total - share * (len(nodes) - 1)
    for node in nodes:
        amount, room = amounts.get(node.id, 0), max(node.memory_bytes - hugepages.get(node.id, 0), 0)
        if amount and not node.memory_bytes:
            raise InvalidInput(
                "The facts don't say how much memory NUMA node %d has, so memory manager Static can't reserve any there." % node.id,
                "Take the facts anew from a root with its meminfo, or set gpufleet_memory_manager_policy: None.",
            )
        if amount > room:  # kubelet's unsigned arithmetic would wrap
            raise InvalidInput(
                "NUMA node %d has %d MiB beside its hugepages; %d MiB can't be reserved there." % (node.id, room // MIB, amount // MIB),
                "Reserve less, or divide it by gpufleet_reserved_memory.",
            )
    return [{"numaNode": node_id, "limits": {"memory": _megabytes(size)}} for node_id, size in sorted(amounts.items()) if size]


def _megabytes(size: int) -> str:
    """A size in Mi where it is whole, so that the parts are easy to add up."""
    return "%dMi" % (size // MIB) if size % MIB == 0 else str(size)


# --- what to know -------------------------------------------------------------------------------------------------------------------------


def _report_flags(kubelet: Kubelet, configuration: Mapping[str, Any], notes: Notes) -> None:
    overriding = {flag: value for flag, value in kubelet.flags.items() if rules.FLAGS.get(flag.lstrip("-")) in configuration}
    if overriding:
        notes.warning(
            "kubelet_flags_override",
            "kubelet is started with flags that beat the file: %s." % ", ".join(sorted(overriding)),
            flags=overriding,
            unit=kubelet.unit,
        )


def _explain(topology: Topology, policy: Policy, cpu_policy: str, options: Options, notes: Notes) -> None:
    if cpu_policy != "static":
        return
    if options.get("full-pcpus-only") == "true" and topology.threads_per_core > 1:  # A11
        notes.info(
            "whole_core_requests",
            "Guaranteed containers must ask for multiples of %d CPUs; others are refused (SMTAlignmentError)." % topology.threads_per_core,
            threads_per_core=topology.threads_per_core,
        )
    if "strict-cpu-reservation" not in options:  # A18
        notes.info(
            "reserved_in_shared_pool", "Pods without CPUs of their own may use the reserved CPUs too, unless strict-cpu-reservation is set."
        )
