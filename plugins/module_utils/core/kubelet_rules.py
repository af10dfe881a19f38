# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What kubelet accepts, by version: policy names, options with their feature gates, and the sums that have to match.

Sources, read at v1.28.0, v1.32.0, v1.34.4, v1.35.4, v1.36.3 and v1.37.2: pkg/kubelet/cm/{cpumanager,topologymanager}/policy_options.go,
pkg/kubelet/cm/memorymanager/memory_manager.go, pkg/kubelet/apis/config/validation/, pkg/kubelet/eviction/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from .errors import InvalidInput, unknown_name
from .quantity import MIB, format_bytes, parse_bytes

OLDEST_MINOR, NEWEST_MINOR = 28, 37

# What every KubeletConfiguration starts with, each file of it too.
HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

ALPHA, BETA, STABLE = "alpha", "beta", "stable"


@dataclass(frozen=True)
class PolicyOption:
    """A policy option: the minor from which on it has each stage. An alpha option needs its manager's alpha gate, even to be "false"."""

    manager: str  # CPUManager or TopologyManager
    stages: Tuple[Tuple[int, str], ...]

    def stage(self, minor: int) -> Optional[str]:
        """alpha, beta or stable; None: that kubelet doesn't know the option."""
        reached = [stage for since, stage in self.stages if since <= minor]
        return reached[-1] if reached else None

    @property
    def alpha_gate(self) -> str:
        """The feature gate of this manager's alpha options. (The gates of beta options are on by default.)"""
        return self.manager + "PolicyAlphaOptions"


CPU_OPTIONS = {
    "full-pcpus-only": PolicyOption("CPUManager", ((23, BETA), (33, STABLE))),
    "distribute-cpus-across-numa": PolicyOption("CPUManager", ((23, ALPHA), (33, BETA))),
    "align-by-socket": PolicyOption("CPUManager", ((25, ALPHA),)),
    "distribute-cpus-across-cores": PolicyOption("CPUManager", ((31, ALPHA),)),
    "strict-cpu-reservation": PolicyOption("CPUManager", ((32, ALPHA), (33, BETA), (35, STABLE))),
    "prefer-align-cpus-by-uncorecache": PolicyOption("CPUManager", ((32, ALPHA), (34, BETA), (36, STABLE))),
}
TOPOLOGY_OPTIONS = {
    "prefer-closest-numa-nodes": PolicyOption("TopologyManager", ((26, ALPHA), (28, BETA), (32, STABLE))),
    "max-allowable-numa-nodes": PolicyOption("TopologyManager", ((31, BETA), (35, STABLE))),
}
OUR_GATES = tuple(sorted({option.alpha_gate for option in (*CPU_OPTIONS.values(), *TOPOLOGY_OPTIONS.values())}))

# Pairs that make kubelet exit (A16).
CONFLICTS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)

# Case matters, and it differs between the managers (B21).
WORDS = {
    "cpuManagerPolicy": ("none", "static"),
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "memoryManagerPolicy": ("None", "Static"),
}

MAX_NUMA_NODES = 8  # above, a topology policy other than none needs max-allowable-numa-nodes

EVICTION_DEFAULTS = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}

# What kubelet sets at its start, or demands under protectKernelDefaults. Source: setupKernelTunables in container_manager_linux.go.
KUBELET_SYSCTLS = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}

# Command-line flags that beat the fields we write (B17).
FLAGS = {
    "cpu-manager-policy": "cpuManagerPolicy",
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "reserved-cpus": "reservedSystemCPUs",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "topology-manager-scope": "topologyManagerScope",
    "memory-manager-policy": "memoryManagerPolicy",
    "reserved-memory": "reservedMemory",
    "kube-reserved": "kubeReserved",
    "system-reserved": "systemReserved",
    "eviction-hard": "evictionHard",
    "feature-gates": "featureGates",
    "fail-swap-on": "failSwapOn",
}


def minor_of(version: str) -> int:
    """The minor of a version like "1.34.4" or "v1.34.4+k3s1", no newer than the newest known.

    :raises InvalidInput: no version, or older than the rules here
    """
    match = re.match(r"v?1\.(\d+)", version)
    if not match:
        raise InvalidInput('"%s" is not a kubelet version.' % version, 'Give gpufleet_kubelet_version like "1.34.4".')
    minor = int(match.group(1))
    if minor < OLDEST_MINOR:
        raise InvalidInput(
            "kubelet %s is older than 1.%d, the oldest that is known here." % (version, OLDEST_MINOR),
            "Upgrade it, or set gpufleet_kubelet_manage: false.",
        )
    return min(minor, NEWEST_MINOR)


def gates_for(cpu_options: Mapping[str, str], topology_options: Mapping[str, str], minor: int) -> Dict[str, bool]:
    """The feature gates that these options need in this minor: no others, and never one that a release has removed (A17).

    :raises InvalidInput: an option that the minor doesn't know
    """
    gates = {}
    for known, options in ((CPU_OPTIONS, cpu_options), (TOPOLOGY_OPTIONS, topology_options)):
        for name in options:
            if name not in known:
                raise unknown_name("policy option of kubelet", name, known)
            stage = known[name].stage(minor)
            if stage is None:
                first = known[name].stages[0][0]
                raise InvalidInput(
                    "kubelet 1.%d has no policy option %s." % (minor, name), "Leave it out, or upgrade kubelet to 1.%d." % first
                )
            if stage == ALPHA:
                gates[known[name].alpha_gate] = True
    return gates


def gates_for_unknown(cpu_options: Mapping[str, str], topology_options: Mapping[str, str]) -> Dict[str, bool]:
    """The gates for a kubelet whose version can't be told: those that any known minor needs. A superfluous alpha gate does no harm."""
    gates_for(cpu_options, topology_options, NEWEST_MINOR)
    used = [CPU_OPTIONS[name] for name in cpu_options] + [TOPOLOGY_OPTIONS[name] for name in topology_options]
    alpha = [option for option in used if any(option.stage(minor) == ALPHA for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1))]
    return {option.alpha_gate: True for option in alpha}


def check(configuration: Mapping[str, Any], minor: int, eviction_defaults_join: bool = False) -> None:
    """Refuse a KubeletConfiguration that kubelet would refuse, as far as no machine is needed to tell.

    ``configuration`` is what kubelet will read in the end: base file, drop-ins and flags merged. ``eviction_defaults_join``: evictionHard's
    keys join the defaults instead of replacing them (in a drop-in; with mergeDefaultEvictionSettings).

    :raises InvalidInput: names the field and the remedy
    """
    for field, words in WORDS.items():
        value = configuration.get(field, "")
        if value != "" and value not in words:
            right_case = [word for word in words if word.lower() == str(value).lower()]
            raise InvalidInput(
                '%s is "%s", which kubelet refuses.' % (field, value),
                "Write %s." % " or ".join('"%s"' % word for word in right_case or words),
            )
    cpu_options = configuration.get("cpuManagerPolicyOptions") or {}
    topology_options = configuration.get("topologyManagerPolicyOptions") or {}
    gates = configuration.get("featureGates") or {}
    for gate in gates_for(cpu_options, topology_options, minor):
        if gates.get(gate) is not True:
            raise InvalidInput(
                "A policy option of kubelet 1.%d needs the feature gate %s." % (minor, gate),
                "Set featureGates.%s: true, or leave the option out." % gate,
            )
    _check_cpu_manager(configuration, cpu_options)
    _check_topology_options(topology_options)
    _check_reservations(configuration)
    if configuration.get("memoryManagerPolicy") == "Static":
        _check_reserved_memory(configuration, eviction_defaults_join)


def _check_cpu_manager(configuration: Mapping[str, Any], options: Mapping[str, str]) -> None:
    for name, value in options.items():
        if str(value) not in ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"):
            raise InvalidInput('cpuManagerPolicyOptions.%s is "%s", which kubelet can\'t read.' % (name, value), 'Write "true" or "false".')
    on = {name for name, value in options.items() if str(value) in ("1", "t", "T", "TRUE", "true", "True")}
    for one, other in CONFLICTS:
        if one in on and other in on:
            raise InvalidInput(
                "kubelet refuses %s together with %s." % (one, other), 'Set one of them to "false" in gpufleet_cpu_manager_policy_options.'
            )
    if "align-by-socket" in on and configuration.get("topologyManagerPolicy") == "single-numa-node":
        raise InvalidInput(
            "kubelet refuses align-by-socket under the topology policy single-numa-node.",
            "Leave the option out, or choose the topology policy restricted.",
        )
    static = configuration.get("cpuManagerPolicy") == "static"
    if options and not static:
        raise InvalidInput(
            "kubelet exits when CPU manager policy none has options (%s)." % ", ".join(sorted(options)),
            "Choose policy static, or leave the options out.",
        )
    reserves = [(configuration.get(field) or {}).get("cpu", 0) for field in ("kubeReserved", "systemReserved")]
    if static and not configuration.get("reservedSystemCPUs") and not any(str(cpu) not in ("0", "0m") for cpu in reserves):  # A20
        raise InvalidInput("kubelet's static CPU manager needs a reservation of CPUs.", "Set reservedSystemCPUs.")


def _check_topology_options(options: Mapping[str, str]) -> None:
    limit = options.get("max-allowable-numa-nodes")
    if limit is not None and (not str(limit).isdigit() or int(limit) < MAX_NUMA_NODES):  # B7
        raise InvalidInput('max-allowable-numa-nodes is "%s".' % limit, "Write a number from %d on, as text." % MAX_NUMA_NODES)


def _check_reservations(configuration: Mapping[str, Any]) -> None:
    if not configuration.get("reservedSystemCPUs"):
        return
    for field in ("systemReservedCgroup", "kubeReservedCgroup"):  # A21
        if configuration.get(field):
            raise InvalidInput("kubelet refuses reservedSystemCPUs together with %s." % field, "Take %s out of its configuration." % field)


def reserved_total(configuration: Mapping[str, Any], eviction_defaults_join: bool = False) -> int:
    """What reservedMemory has to add up to, in bytes: kubeReserved + systemReserved + the eviction threshold (B2, B3).

    :raises InvalidInput: the threshold is a percentage, whose bytes differ between boots
    """
    total = sum(
        parse_bytes((configuration.get(field) or {}).get("memory", 0), "%s.memory" % field) for field in ("kubeReserved", "systemReserved")
    )
    eviction = configuration.get("evictionHard")
    if not eviction or eviction_defaults_join or configuration.get("mergeDefaultEvictionSettings"):
        eviction = dict(EVICTION_DEFAULTS, **(eviction or {}))
    threshold = str(eviction.get("memory.available", 0))
    if threshold in ("0%", "100%"):  # kubelet takes both for: no threshold
        return total
    if threshold.endswith("%"):
        raise InvalidInput(
            "evictionHard.memory.available is %s: with memory manager Static its bytes must be known, and they differ between boots."
            % threshold,
            'Write a quantity like "1Gi", or set gpufleet_eviction_absolute: true.',
        )
    return total + parse_bytes(threshold, "evictionHard.memory.available")


def _check_reserved_memory(configuration: Mapping[str, Any], eviction_defaults_join: bool) -> None:
    expected, found, seen = reserved_total(configuration, eviction_defaults_join), 0, set()
    for entry in configuration.get("reservedMemory") or []:
        for resource, amount in (entry.get("limits") or {}).items():
            if resource != "memory":  # B1
                raise InvalidInput("reservedMemory holds %s, which kubelet can't reserve." % resource, "Reserve memory only.")
            if entry["numaNode"] in seen:
                raise InvalidInput("reservedMemory names NUMA node %s twice." % entry["numaNode"], "Add the two amounts up.")
            seen.add(entry["numaNode"])
            size = parse_bytes(amount, "reservedMemory of NUMA node %s" % entry["numaNode"])
            if size == 0:
                raise InvalidInput(
                    "reservedMemory of NUMA node %s is zero, which kubelet refuses." % entry["numaNode"], "Leave that node out."
                )
            found += size
    if found != expected:
        raise InvalidInput(
            "reservedMemory adds up to %s, but kubeReserved + systemReserved + the eviction threshold are %s; kubelet would not start."
            % (_show(found), _show(expected)),
            "Make them equal, or leave gpufleet_reserved_memory out and let the plan divide it.",
        )


def _show(size: int) -> str:
    return "%dMi" % (size // MIB) if size % MIB == 0 else format_bytes(size)
