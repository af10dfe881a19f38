# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kubelet section of a plan: the KubeletConfiguration that this node, this profile and this kubelet version call for."""

from __future__ import annotations

import dataclasses
import posixpath
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import kubelet_rules as rules
from .admission_machine import cpus_of
from .errors import InvalidInput
from .kubelet_fields import DROP_IN_MINOR, EMBEDDED, EVICTION_DEFAULTS, FLAGS, HEADER, MAIN_FILE, PATCH
from .kubelet_tables import NEWEST_MINOR, OLDEST_MINOR
from .kubelet_version import minor_of, reads_drop_ins
from .kubelet_view import as_kubelet
from .notes import Notes
from .partition import Partition
from .policy import Policy
from .quantity import GIB, MIB, format_bytes
from .topology import CPU_MEMORY, Kubelet, Topology

Options = Dict[str, str]


# Where the kubelets of the distributions are and what they read, for a distribution that the node doesn't show.
DISTRIBUTIONS = {
    "plain": Kubelet("plain", "kubelet.service", config_file="/var/lib/kubelet/config.yaml"),
    "kubeadm": Kubelet("kubeadm", "kubelet.service", config_file="/var/lib/kubelet/config.yaml"),
    "kubespray": Kubelet("kubespray", "kubelet.service", config_file="/etc/kubernetes/kubelet-config.yaml"),
    "k3s": Kubelet("k3s", "k3s-agent.service", config_dir="/var/lib/rancher/k3s/agent/etc/kubelet.conf.d"),
    "rke2": Kubelet("rke2", "rke2-agent.service", config_dir="/var/lib/rancher/rke2/agent/etc/kubelet.conf.d"),
}


def planned_kubelet(topology: Topology, policy: Policy, notes: Notes) -> Optional[Kubelet]:
    """The kubelet that the plan is for: the node's, with the version and distribution that the variables say; None without one."""
    kubelet, said = topology.kubelet, policy.kubelet_distribution
    if said is not None and (kubelet is None or kubelet.unit != DISTRIBUTIONS[said].unit):
        kubelet = DISTRIBUTIONS[said]
    if kubelet is None:
        return None
    named, found = policy.kubelet_version, kubelet.version
    if named and found and named.split(".")[:2] != found.split(".")[:2] and policy.kubelet_manage:
        notes.warning(
            "kubelet_version_differs",
            "The plan is for kubelet %s, as gpufleet_kubelet_version says, and the node has %s, which may exit on it." % (named, found),
            planned=named,
            found=found,
        )
    return dataclasses.replace(kubelet, distribution=said or kubelet.distribution, version=policy.kubelet_version or kubelet.version)


def kubelet_section(topology: Topology, policy: Policy, cpus: Partition, hugepages: Mapping[int, int], notes: Notes) -> Dict[str, Any]:
    """The configuration and where it belongs; {} without a kubelet. ``topology`` has the planned one.

    ``hugepages`` are the planned bytes of them on each NUMA node.

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
    minor = _minor(kubelet.version, notes)
    configuration = _configuration(topology, policy, kubelet, cpus, minor, notes)
    machine = machine_section(topology, hugepages, policy.swap == "keep" and bool(topology.swaps))
    machine.update({"cgroup_driver": configuration["cgroupDriver"]} if "cgroupDriver" in configuration else {})
    asked = {name.replace("/", ".") for name, value in policy.sysctl.items() if value is not None}
    planned = sorted(asked & set(rules.KUBELET_SYSCTLS))  # to kubelet's own values: others are refused
    machine.update({"sysctls": planned} if planned else {})
    rules.check({"evictionHard": EVICTION_DEFAULTS, **configuration}, minor, rules.machine(machine))
    folder, exec_start = _folder(kubelet, policy)
    if not _gets_flags(kubelet):
        _report_flags(kubelet, configuration, notes)
    if kubelet.exec_start and not kubelet.config_file and not folder and kubelet.distribution not in EMBEDDED:
        notes.warning(
            "kubelet_reads_no_file",
            "%s starts kubelet without --config, so it doesn't read %s, where its configuration goes: pass --config=%s there, or set "
            "gpufleet_kubelet_config_dir (kubelet 1.%d or newer)." % (kubelet.unit, MAIN_FILE, MAIN_FILE, DROP_IN_MINOR),
            unit=kubelet.unit,
        )
    patches = _patches(kubelet, policy, reads_drop_ins(folder, kubelet.version), notes)
    return {
        "configuration": configuration,
        "version": kubelet.version or "",
        "distribution": kubelet.distribution,
        "unit": kubelet.unit,
        "config_file": kubelet.config_file or "",
        "config_dir": folder,
        "root_dir": kubelet.root_dir,
        "flags": dict(kubelet.flags),
        "restart": policy.kubelet_restart,
        "machine": machine,
        "exec_start": exec_start,
        "patches": patches,
    }


def _folder(kubelet: Kubelet, policy: Policy) -> Tuple[str, str]:
    """The folder of drop-ins that kubelet reads, or "", and the ExecStart by which its unit passes it where it didn't.

    All of ExecStart stays, with its variables: kubeadm's KUBELET_EXTRA_ARGS comes from a file that would beat an Environment= of ours.

    :raises InvalidInput: a folder is asked for that this kubelet can't have
    """
    asked = policy.kubelet_config_dir
    if asked is None or (kubelet.config_dir and posixpath.normpath(asked) == posixpath.normpath(kubelet.config_dir)):
        _check_command_line(kubelet)
        return kubelet.config_dir or "", ""
    if kubelet.config_dir or kubelet.distribution in EMBEDDED:
        raise InvalidInput(
            "gpufleet_kubelet_config_dir is %s, but this kubelet reads %s."
            % (asked, kubelet.config_dir or "the folder that %s passes" % kubelet.distribution),
            "Leave gpufleet_kubelet_config_dir out on this node.",
        )
    if not kubelet.version or minor_of(kubelet.version) < DROP_IN_MINOR:
        raise InvalidInput(
            "gpufleet_kubelet_config_dir is given, and kubelet %s may lose settings when it merges drop-ins; from 1.%d on it doesn't."
            % (kubelet.version or "of unknown version", DROP_IN_MINOR),
            "Leave it out, or upgrade kubelet (gpufleet_kubelet_version names the version).",
        )
    if not kubelet.exec_start:
        raise InvalidInput(
            "gpufleet_kubelet_config_dir is given, and the facts don't say how %s starts kubelet." % kubelet.unit,
            "Install kubelet first, or leave gpufleet_kubelet_config_dir out.",
        )
    return asked, "%s --config-dir=%s" % (kubelet.exec_start, asked)


def _gets_flags(kubelet: Kubelet) -> bool:
    """Whether there is no file that ours could be: k3s and RKE2 get flags instead, after those that they have."""
    reads_file = kubelet.config_file or reads_drop_ins(kubelet.config_dir, kubelet.version)
    return kubelet.distribution in EMBEDDED and not reads_file


def _check_command_line(kubelet: Kubelet) -> None:
    if _gets_flags(kubelet) and "--kubelet-arg" in kubelet.exec_start:
        raise InvalidInput(
            "%s is started with --kubelet-arg, and that replaces every kubelet-arg of its files, ours too." % kubelet.distribution,
            "Move these to the list kubelet-arg in /etc/rancher/%s/config.yaml." % kubelet.distribution,
        )


def _patches(kubelet: Kubelet, policy: Policy, reads_folder: bool, notes: Notes) -> str:
    """Where kubeadm's patch goes, by which our part of kubelet's main file outlives an upgrade; "" where none is needed.

    :raises InvalidInput: a folder for it is given there
    """
    if kubelet.distribution != "kubeadm" or reads_folder:
        if policy.kubeadm_patches:
            raise InvalidInput(
                "gpufleet_kubeadm_patches is given, and %s."
                % ("our part is a drop-in, which kubeadm leaves alone" if reads_folder else "this kubelet isn't kubeadm's"),
                "Leave gpufleet_kubeadm_patches out on this node.",
            )
        return ""
    if policy.kubeadm_patches:
        return "%s/%s" % (policy.kubeadm_patches.rstrip("/"), PATCH)
    notes.info(
        "kubeadm_upgrade",
        "kubeadm writes %s anew at an upgrade, without our part: run this again then, give kubeadm a patch (gpufleet_kubeadm_patches), or "
        "have kubelet 1.%d and newer read a drop-in (gpufleet_kubelet_config_dir)." % (kubelet.config_file, DROP_IN_MINOR),
    )
    return ""


def machine_section(topology: Topology, hugepages: Mapping[int, int], swap: bool) -> Dict[str, Any]:
    """What the node holds its files against (``kubelet_rules.machine`` reads it): the machine as kubelet sees it."""
    topology = as_kubelet(topology)
    return {
        "cpus": topology.cpus.online.to_list(),
        "packages": len({package.id for package in topology.packages}),
        "memory_bytes": topology.memory_bytes,
        "numa_nodes": [
            {
                "id": node.id,
                "kind": node.kind,
                "cpus": bool(node.cpus),
                "memory_bytes": node.memory_bytes,
                "hugepages_bytes": hugepages.get(node.id, 0),
            }
            for node in topology.numa_nodes
        ],
        "swap": swap,
    }


def uses_static_policy(section: Mapping[str, Any]) -> bool:
    """Whether a kubelet section gives pods CPUs of their own."""
    return bool(section) and section["configuration"]["cpuManagerPolicy"] == "static"


def _minor(version: Optional[str], notes: Notes) -> int:
    if version is None:
        notes.warning(
            "kubelet_version_unknown",
            "kubelet's version can't be told: the rules of 1.%d, with any gate an older one may need. gpufleet_kubelet_version names it."
            % NEWEST_MINOR,
        )
        return NEWEST_MINOR
    return noted_minor(version, notes)


def noted_minor(version: str, notes: Notes) -> int:
    """The minor of a version, with a note where it is newer than the newest known.

    :raises InvalidInput: no version, or older than the rules here
    """
    minor, newest = minor_of(version), "1.%d" % NEWEST_MINOR
    if "1.%d" % minor not in version:
        notes.info(
            "kubelet_version_newer", "kubelet %s is newer than the rules here; those of %s are used." % (version, newest), version=version
        )
    return minor


def _configuration(topology: Topology, policy: Policy, kubelet: Kubelet, cpus: Partition, minor: int, notes: Notes) -> Dict[str, Any]:
    profile = policy.defaults
    known = minor if kubelet.version else OLDEST_MINOR  # what any kubelet here knows
    cpu_policy = policy.cpu_manager_policy or profile.cpu_manager_policy
    cpu_options = _cpu_options(topology, policy, known, notes) if cpu_policy == "static" else _no_options(policy)
    topology_policy, topology_options = _topology_policy(topology, policy, known, notes)
    memory_policy = policy.memory_manager_policy or profile.memory_manager_policy
    _check_machine(topology)

    configuration: Dict[str, Any] = dict(HEADER)
    configuration["cpuManagerPolicy"] = cpu_policy
    if cpu_options:
        configuration["cpuManagerPolicyOptions"] = cpu_options
    configuration["reservedSystemCPUs"] = cpus.reserved.to_list()
    configuration["memoryManagerPolicy"] = memory_policy
    configuration["topologyManagerPolicy"] = topology_policy
    configuration["topologyManagerScope"] = policy.topology_manager_scope or profile.topology_manager_scope
    if topology_options:
        configuration["topologyManagerPolicyOptions"] = topology_options
    gates = (
        rules.gates_for(cpu_options, topology_options, minor) if kubelet.version else rules.gates_for_unknown(cpu_options, topology_options)
    )
    if gates:
        configuration["featureGates"] = gates
    configuration.update(_reservations(topology, policy, memory_policy, notes))
    if policy.swap == "keep":  # F27: failSwapOn is still on by default
        configuration["failSwapOn"] = False
        if minor >= 30:
            configuration["memorySwap"] = {"swapBehavior": "NoSwap"}
    driver = _driver_of_runtime(topology, kubelet)
    if driver:
        configuration["cgroupDriver"] = driver
    _explain(topology, policy, cpu_policy, cpu_options, notes)
    return configuration


def _no_options(policy: Policy) -> Options:
    if policy.cpu_manager_policy_options:
        raise InvalidInput(
            "gpufleet_cpu_manager_policy is none, and kubelet exits on options (gpufleet_cpu_manager_policy_options) without a policy.",
            "Leave the options out, or choose the policy static.",
        )
    return {}


def _cpu_options(topology: Topology, policy: Policy, minor: int, notes: Notes) -> Options:
    """The profile's options, what this topology gains from, then the user's over them; a default that can't go with what the user asked
    for steps back."""
    asked = policy.cpu_manager_policy_options
    wanted = [name for name, value in asked.items() if value == "true"]
    options = dict.fromkeys(policy.defaults.cpu_manager_policy_options, "true")
    if len(topology.cpu_nodes) < 2:
        options.pop("distribute-cpus-across-numa", None)
    divided = any(
        group.cpus <= node.cpus and topology.threads_per_core < len(group.cpus) < len(node.cpus)
        for node in topology.cpu_nodes
        for group in topology.l3_groups
    )
    if divided and "distribute-cpus-across-numa" not in options and rules.needs_no_gate("prefer-align-cpus-by-uncorecache", minor):
        options["prefer-align-cpus-by-uncorecache"] = "true"
        notes.info(
            "option_for_topology",
            "NUMA nodes have several L3 groups: kubelet gives whole ones where it can (prefer-align-cpus-by-uncorecache).",
            option="prefer-align-cpus-by-uncorecache",
        )
    for pair in rules.CONFLICTS:
        for mine, theirs in (pair, pair[::-1]):
            if mine in options and mine not in asked and theirs in wanted:
                del options[mine]
                notes.info("option_replaced", "%s is left out, because kubelet refuses it together with %s." % (mine, theirs), option=mine)
    options.update(asked)
    return {name: value for name, value in sorted(options.items()) if value != "false"}


def _topology_policy(topology: Topology, policy: Policy, minor: int, notes: Notes) -> Tuple[str, Options]:
    """The topology policy and its options.

    kubelet counts every NUMA node, those without CPUs too, exits above 8 under any policy but none, and with the limit raised looks at
    all subsets of nodes: on a machine with dozens of them no pod is ever admitted (B7, B8). So none is the default there, unless the user
    raises the limit.
    """
    chosen = policy.topology_manager_policy or policy.defaults.topology_manager_policy
    options = {name: value for name, value in policy.topology_manager_policy_options.items() if value != "false"}
    limit = int(options.get("max-allowable-numa-nodes", rules.MAX_NUMA_NODES))
    topology = as_kubelet(topology)
    beyond = [node.id for node in topology.numa_nodes if not 0 <= node.id < rules.NUMA_IDS]
    if chosen != "none" and beyond and policy.topology_manager_policy is None:
        notes.warning(
            "numa_ids",
            "kubelet's topology policies crash on NUMA nodes whose numbers aren't 0 to %d (%s here): the policy is none instead of %s."
            % (rules.NUMA_IDS - 1, ", ".join(map(str, beyond)), chosen),
            numa_nodes=beyond,
        )
        return "none", {}
    count = len(topology.numa_nodes)
    if chosen != "none" and count > limit and policy.topology_manager_policy is None:
        notes.warning(
            "many_numa_nodes",
            "kubelet has topology policies for up to %d NUMA nodes%s, not for %d: the policy is none instead of %s."
            % (limit, " (max-allowable-numa-nodes)" if limit > rules.MAX_NUMA_NODES else "", count, chosen),
            numa_nodes=count, with_cpus=len(topology.cpu_nodes),
        )  # fmt: skip
        return "none", {}
    if chosen != "none" and count > rules.MAX_NUMA_NODES:
        if count <= _RAISED_NUMA_NODES and rules.needs_no_gate("max-allowable-numa-nodes", minor):
            options.setdefault("max-allowable-numa-nodes", str(count))
        notes.warning(
            "many_numa_nodes",
            "kubelet compares all subsets of %d NUMA nodes when it admits a pod; from about a dozen on that takes very long." % count,
            numa_nodes=count, with_cpus=len(topology.cpu_nodes),
        )  # fmt: skip
    if (
        chosen in ("best-effort", "restricted")
        and "prefer-closest-numa-nodes" not in policy.topology_manager_policy_options
        and _nodes_are_near_and_far(topology)
        and rules.needs_no_gate("prefer-closest-numa-nodes", minor)
    ):
        options["prefer-closest-numa-nodes"] = "true"
        notes.info(
            "option_for_topology",
            "Some NUMA nodes are nearer to each other than others: of equally many, kubelet takes the nearest (prefer-closest-numa-nodes).",
            option="prefer-closest-numa-nodes",
        )
    return chosen, dict(sorted(options.items()))


_RAISED_NUMA_NODES = 16  # up to here the limit is raised for a policy that was asked for by name


def _nodes_are_near_and_far(topology: Topology) -> bool:
    """Whether it matters which NUMA nodes a job on several gets. kubelet exits where a node's distances are unknown, and looks a distance
    up by the number of the node, so it crashes where numbers are missing among them."""
    nodes = {node.id for node in topology.numa_nodes}
    remote = {node.distances.get(other.id) for node in topology.cpu_nodes for other in topology.cpu_nodes if other is not node}
    known = all(nodes <= set(node.distances) for node in topology.numa_nodes)
    return len(remote) > 1 and known and nodes == set(range(len(nodes)))


def _check_machine(topology: Topology) -> None:
    if not as_kubelet(topology).cores:
        raise InvalidInput(
            "kubelet would find no CPUs on this machine: the kernel doesn't show their core_id, package or NUMA node.",
            "Set gpufleet_kubelet_manage: false.",
        )


def _driver_of_runtime(topology: Topology, kubelet: Kubelet) -> str:
    """The cgroup driver that kubelet has to have because containerd, which can't tell, has it: before 2.0 it has no RuntimeConfig. ""
    where kubelet is told, or uses another runtime; k3s and RKE2 bring their own.

    Source: getCgroupDriverFromCRI in cmd/kubelet/app/server.go; kubelets from 1.38 on don't fall back to their configuration.

    :raises InvalidInput: a kubelet that would not start on this containerd, or a containerd whose containers use another cgroup driver
    """
    containerd = topology.software.containerd_version or ""
    used = kubelet.distribution not in EMBEDDED and "containerd" in (kubelet.runtime_endpoint or "containerd")
    if not used or not containerd.startswith(("0.", "1.")):
        return ""
    match = re.match(r"v?1\.(\d+)", kubelet.version or "")
    if match and int(match.group(1)) >= 38:
        raise InvalidInput(
            "containerd %s can't tell its cgroup driver, and kubelet %s insists on that." % (containerd, kubelet.version),
            "Upgrade containerd to 2.0 or newer before kubelet, or stay with kubelet 1.37.",
        )
    if not topology.software.containerd_systemd_cgroup:
        raise InvalidInput(
            "containerd %s doesn't use the cgroup driver systemd, and kubelet's has to be the same." % containerd,
            "Set SystemdCgroup = true for its default runtime (runc, or its default_runtime_name) in /etc/containerd/config.toml and "
            "restart containerd, or upgrade it to 2.0.",
        )
    return "systemd"


# --- memory -------------------------------------------------------------------------------------------------------------------------------


def _reservations(topology: Topology, policy: Policy, memory_policy: str, notes: Notes) -> Dict[str, Any]:
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
        fields["reservedMemory"] = _reserved_memory(topology, policy, fields)
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
    """A share of the memory beside CPUs, rounded up to bytes."""
    if "memory" in policy.system_reserved:
        raise InvalidInput("gpufleet_reserved_memory_percent and gpufleet_system_reserved.memory are both given.", "Keep one of them.")
    rounded = _whole_gib(sum(node.memory_bytes for node in topology.cpu_memory_nodes))
    size = -(-rounded * (policy.reserved_memory_percent or 0) // 100)
    notes.info("reserved_memory_percent", "%d %% of %d GiB." % (policy.reserved_memory_percent or 0, rounded // GIB), bytes=size)
    return format_bytes(size)


def _whole_gib(memory: int) -> int:
    """Memory that shares are taken of: in whole GiB, since MemTotal differs a little between boots (B4), and a share must not."""
    return (memory + GIB // 2) // GIB * GIB


def _eviction(topology: Topology, policy: Policy, notes: Notes) -> Dict[str, str]:
    """The whole set: a map in kubelet's main file replaces all of its defaults."""
    eviction = dict(EVICTION_DEFAULTS, **policy.eviction_hard)
    threshold = eviction["memory.available"]
    if threshold.endswith("%") and threshold not in ("0%", "100%") and policy.eviction_absolute:
        memory = _whole_gib(topology.memory_bytes)
        size = -(-rules.threshold_of({"evictionHard": eviction}, memory) // MIB) * MIB
        eviction["memory.available"] = format_bytes(size)
        notes.info(
            "eviction_absolute", "%s of %d GiB, written as %s." % (threshold, memory // GIB, format_bytes(size)), memory_bytes=memory
        )
    return eviction


def _reserved_memory(topology: Topology, policy: Policy, fields: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """reservedMemory: kube + system evenly over the NUMA nodes with CPUs and memory in whole MiB, threshold and remainder on the last."""
    total = rules.reserved_total(fields)
    threshold = rules.threshold_of(fields, None)
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
        if amounts.get(node.id, 0) and not node.memory_bytes:
            raise InvalidInput(
                "The facts don't say how much memory NUMA node %d has, so memory manager Static can't reserve any there." % node.id,
                "Take the facts anew from a root with its meminfo, or set gpufleet_memory_manager_policy: None.",
            )
    return [{"numaNode": node_id, "limits": {"memory": _megabytes(size)}} for node_id, size in sorted(amounts.items()) if size]


def _megabytes(size: int) -> str:
    """A size in Mi where it is whole, so that the parts are easy to add up."""
    return "%dMi" % (size // MIB) if size % MIB == 0 else str(size)


# --- what to know -------------------------------------------------------------------------------------------------------------------------


def _report_flags(kubelet: Kubelet, configuration: Mapping[str, Any], notes: Notes) -> None:
    overriding = {flag: value for flag, value in kubelet.flags.items() if FLAGS.get(flag) in configuration}
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
    each = cpus_of(as_kubelet(topology)).per_core
    if options.get("full-pcpus-only") == "true" and each > 1:  # A11
        notes.info(
            "whole_core_requests",
            "Guaranteed containers must ask for multiples of %d CPUs; others are refused (SMTAlignmentError)." % each,
            threads_per_core=each,
        )
    if topology.kubelet_cores is not None:
        notes.warning(
            "cores_by_id",
            "kubelet tells cores by the kernel's core_id, and takes this machine for one of %d cores, not %d: whole cores of its reckoning "
            "aren't whole ones here." % (len(topology.kubelet_cores), len(topology.cores)),
        )
    if "strict-cpu-reservation" not in options:  # A18
        notes.info(
            "reserved_in_shared_pool", "Pods without CPUs of their own may use the reserved CPUs too, unless strict-cpu-reservation is set."
        )
