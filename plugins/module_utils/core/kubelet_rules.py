# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What kubelet accepts, by version: policy names, options with their feature gates, and the sums that have to match.

Sources, read at the last patch release of each minor from 1.28 on; tests/oracle compares with kubelet's own code:
pkg/kubelet/cm/{cpumanager,topologymanager}/policy_options.go, pkg/kubelet/cm/{container_manager_linux,node_container_manager_linux}.go,
pkg/kubelet/cm/memorymanager/, pkg/kubelet/eviction/, pkg/kubelet/apis/config/validation/, cmd/kubelet/app/server.go.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from .cpuset import CpuSet
from .errors import InvalidInput, unknown_name
from .feature_gates import Rows, is_on, latest, state_of
from .kubelet_fields import EARLIER_GATES, TRUTH_WORDS
from .kubelet_tables import CPU_OPTIONS, GATES, NEWEST_MINOR, OLDEST_MINOR, TOPOLOGY_OPTIONS
from .quantity import MIB, format_bytes, parse_bytes, parse_quantity
from .topology import CPU_ONLY, DEVICE_MEMORY

ALPHA, BETA, STABLE = "alpha", "beta", "stable"
# The gates of the managers' policy options, which are all that the plan sets.
OPTION_GATES = frozenset(
    "%sPolicy%sOptions" % (manager, stage) for manager in ("CPUManager", "TopologyManager") for stage in ("", "Alpha", "Beta")
)

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

OFF = {"max-allowable-numa-nodes": "8"}  # what is the same as leaving an option out; for the others it is "false"
NUMA_IDS = 64  # kubelet keeps sets of NUMA nodes in as many bits
MAX_NUMA_NODES = 8  # above, a topology policy other than none needs max-allowable-numa-nodes

# What kubelet sets at its start, or demands under protectKernelDefaults. Source: setupKernelTunables in container_manager_linux.go.
KUBELET_SYSCTLS = {
    "vm.overcommit_memory": "1",
    "vm.panic_on_oom": "0",
    "kernel.panic": "10",
    "kernel.panic_on_oops": "1",
    "kernel.keys.root_maxkeys": "1000000",
    "kernel.keys.root_maxbytes": "25000000",
}


@dataclass(frozen=True)
class Machine:
    """What of a machine kubelet holds a configuration against. Sizes are bytes; ``numa_nodes`` are all that kubelet sees, by id:
    memory, hugepages. ``kinds`` are those of the facts, by id, as far as they are known. ``numa_nodes_with_cpus`` counts those that have
    online CPUs. ``swap``: there is some, and it stays. ``cgroup_driver`` is that of a container runtime which can't tell kubelet, else "".
    """

    cpus: CpuSet
    packages: int
    memory: int
    numa_nodes: Dict[int, Tuple[int, int]] = field(default_factory=dict)
    numa_nodes_with_cpus: int = 1
    swap: bool = False
    kinds: Dict[int, str] = field(default_factory=dict)
    cgroup_driver: str = ""


def machine(section: Mapping[str, Any]) -> Machine:
    """The machine of a plan's section."""
    return Machine(
        CpuSet.parse(section["cpus"]),
        section["packages"],
        section["memory_bytes"],
        {node["id"]: (node["memory_bytes"], node["hugepages_bytes"]) for node in section["numa_nodes"]},
        sum(node["cpus"] for node in section["numa_nodes"]),
        section["swap"],
        {node["id"]: node["kind"] for node in section["numa_nodes"]},
        section.get("cgroup_driver", ""),
    )


# --- options and gates --------------------------------------------------------------------------------------------------------------------


def stage_of(option: str, minor: int) -> Optional[str]:
    """alpha, beta or stable; None: that kubelet doesn't know the option."""
    reached = [stage for since, stage in {**CPU_OPTIONS, **TOPOLOGY_OPTIONS}[option] if since <= minor]
    return reached[-1] if reached else None


def needs_no_gate(option: str, minor: int) -> bool:
    """Whether the minor's kubelet takes the option as it is."""
    return stage_of(option, minor) in (BETA, STABLE)


def _gate(option: str, stage: str) -> str:
    """The feature gate of a manager's options of a stage."""
    return "%sPolicy%sOptions" % ("CPUManager" if option in CPU_OPTIONS else "TopologyManager", stage.capitalize())


def gates_for(cpu_options: Mapping[str, str], topology_options: Mapping[str, str], minor: int) -> Dict[str, bool]:
    """The feature gates that have to be set for these options in this minor: no others, and never one that a release has removed (A17).

    An option needs its gate even to be "false". The gates of beta options are on by default.

    :raises InvalidInput: an option that the minor doesn't know
    """
    return {_gate(name, ALPHA): True for name in _known(cpu_options, topology_options, minor) if stage_of(name, minor) == ALPHA}


def _known(cpu_options: Mapping[str, str], topology_options: Mapping[str, str], minor: int) -> List[str]:
    """The names of the options.

    :raises InvalidInput: one that the minor doesn't know
    """
    for known, options in ((CPU_OPTIONS, cpu_options), (TOPOLOGY_OPTIONS, topology_options)):
        for name in options:
            if name not in known:
                raise unknown_name("policy option of kubelet", name, known)
            if stage_of(name, minor) is None:
                raise InvalidInput(
                    "kubelet 1.%d has no policy option %s." % (minor, name), "Leave it out, or upgrade kubelet to 1.%d." % known[name][0][0]
                )
    return [*cpu_options, *topology_options]


def gates_for_unknown(cpu_options: Mapping[str, str], topology_options: Mapping[str, str]) -> Dict[str, bool]:
    """The gates for a kubelet whose version can't be told: those that any known minor needs. A superfluous alpha gate does no harm."""
    used = _known(cpu_options, topology_options, NEWEST_MINOR)
    return {
        _gate(name, ALPHA): True for name in used if any(stage_of(name, minor) == ALPHA for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1))
    }


def _check_gates(gates: Mapping[str, bool], minor: int) -> None:
    """Each gate is known and may be set so; those that are on have what they need (kubelet looks at that from 1.35 on)."""
    if OPTION_GATES.issuperset(gates):  # no other gate needs them, and they need no other
        known: Mapping[str, Rows] = GATES
        needs: Mapping[str, Sequence[Tuple[int, Any]]] = {}
    else:
        from .kubelet_gates import GATE_DEPENDENCIES as needs  # only kubelets with gates of others pay for it
        from .kubelet_gates import OTHER_GATES

        known = {**GATES, **OTHER_GATES}
    for gate, value in gates.items():
        default, locked = state_of(known.get(gate, ()), minor)
        if default is None:  # A17
            raise InvalidInput(
                "kubelet 1.%d has no feature gate %s, and exits on it." % (minor, gate),
                "Take featureGates.%s out of kubelet's configuration." % gate,
            )
        if locked and value is not default:
            raise InvalidInput(
                "kubelet 1.%d has the feature gate %s locked to %s." % (minor, gate, str(default).lower()),
                "Take featureGates.%s out of kubelet's configuration." % gate,
            )
    for gate, rows in needs.items():
        for need in latest(rows, minor) or ():
            if is_on(gate, gates, minor, known) and not is_on(need, gates, minor, known):
                raise InvalidInput(
                    "kubelet 1.%d has the feature gate %s on, which needs %s, and that is off; it would exit." % (minor, gate, need),
                    "Set featureGates.%s: false or featureGates.%s: true." % (gate, need),
                )


def _check_late_gates(earlier: Mapping[str, bool], gates: Mapping[str, bool], minor: int) -> None:
    """kubelet sets some defaults by the gates that it has when it reads its main file, and refuses them without these gates."""
    for gate in () if OPTION_GATES.issuperset(gates) else ("KubeletCrashLoopBackOffMax", "KubeletEnsureSecretPulledImages"):
        if is_on(gate, earlier, minor) and not is_on(gate, gates, minor):
            raise InvalidInput(
                "The feature gate %s is switched off after kubelet has set a default by it, which it then refuses." % gate,
                "Switch it off in kubelet's main file, or leave it on.",
            )


def _check_options_gate(manager: str, options: Mapping[str, str], gates: Mapping[str, bool], minor: int) -> None:
    """The gate that options as such need. kubelet looks at it under any policy."""
    if options and not is_on(manager + "PolicyOptions", gates, minor):
        raise InvalidInput(
            "kubelet refuses policy options without the feature gate %sPolicyOptions (%s)." % (manager, ", ".join(sorted(options))),
            "Take featureGates.%sPolicyOptions out, or leave the options out." % manager,
        )


def _check_options_gates(options: Mapping[str, str], gates: Mapping[str, bool], minor: int) -> None:
    """The gate that each option needs for its stage."""
    for name in options:
        stage = stage_of(name, minor)
        if stage in (ALPHA, BETA) and not is_on(_gate(name, str(stage)), gates, minor):
            raise InvalidInput(
                "The policy option %s of kubelet 1.%d needs the feature gate %s." % (name, minor, _gate(name, str(stage))),
                "Set featureGates.%s: true, or leave the option out." % _gate(name, str(stage)),
            )


# --- a configuration as kubelet has it in the end -----------------------------------------------------------------------------------------


def check(configuration: Mapping[str, Any], minor: int, machine: Optional[Machine] = None) -> None:
    """Refuse a KubeletConfiguration that kubelet would refuse; without a ``machine``, as far as none is needed to tell.

    ``configuration`` is what kubelet has in the end (``kubelet_merge.effective``): files and flags merged, default thresholds in it.

    :raises InvalidInput: names the field and the remedy
    """
    for name, words in WORDS.items():
        value = configuration.get(name, "")
        if value != "" and value not in words:
            right_case = [word for word in words if word.lower() == str(value).lower()]
            raise InvalidInput(
                '%s is "%s", which kubelet refuses.' % (name, value),
                "Write %s." % " or ".join('"%s"' % word for word in right_case or words),
            )
    gates = configuration.get("featureGates") or {}
    if EARLIER_GATES in configuration:
        by_flag, at_default = configuration[EARLIER_GATES]
        _check_gates(by_flag, minor)
        _check_gates(at_default, minor)
        _check_late_gates(at_default, gates, minor)
    _check_gates(gates, minor)
    _check_swap(configuration, minor)
    _check_enforcement(configuration, minor)
    _check_reservations(configuration)
    _check_reserved_memory_entries(configuration)
    _check_eviction(configuration)
    _check_topology_manager(configuration, minor, machine)
    _check_cpu_manager(configuration, minor, machine)
    if configuration.get("memoryManagerPolicy") == "Static":
        _check_kinds_of_memory(machine)
        _check_memory_manager(configuration, machine)
    if machine is not None:
        _check_cgroup_driver(configuration, machine)
        _check_numa_ids(configuration, machine)
        _check_capacity(configuration, minor, machine)


def _option_truths(field_name: str, options: Mapping[str, str]) -> set[str]:
    """The options that are on; max-allowable-numa-nodes is no truth."""
    for name, value in options.items():
        if name != "max-allowable-numa-nodes" and str(value) not in TRUTH_WORDS:
            raise InvalidInput('%s.%s is "%s", which kubelet can\'t read.' % (field_name, name, value), 'Write "true" or "false".')
    return {name for name, value in options.items() if TRUTH_WORDS.get(str(value), False)}


def _check_cpu_manager(configuration: Mapping[str, Any], minor: int, machine: Optional[Machine]) -> None:
    options = configuration.get("cpuManagerPolicyOptions") or {}
    if configuration.get("cpuManagerPolicy") != "static":
        if options:
            raise InvalidInput(
                "cpuManagerPolicy is none, and kubelet exits on any cpuManagerPolicyOptions beside it (%s)." % ", ".join(sorted(options)),
                "Choose cpuManagerPolicy: static, or take cpuManagerPolicyOptions out.",
            )
        return
    _known(options, {}, minor)
    on = _option_truths("cpuManagerPolicyOptions", options)
    _check_options_gate("CPUManager", options, configuration.get("featureGates") or {}, minor)
    _check_options_gates(options, configuration.get("featureGates") or {}, minor)
    for one, other in CONFLICTS:
        if one in on and other in on:
            raise InvalidInput(
                "kubelet refuses %s together with %s." % (one, other), 'Set one of them to "false" in gpufleet_cpu_manager_policy_options.'
            )
    if "align-by-socket" in on:
        if configuration.get("topologyManagerPolicy") == "single-numa-node":
            raise InvalidInput(
                "kubelet refuses align-by-socket under the topology policy single-numa-node.",
                "Leave the option out, or choose the topology policy restricted.",
            )
        if machine and machine.packages > machine.numa_nodes_with_cpus:
            raise InvalidInput(
                "kubelet refuses align-by-socket on a machine with more sockets (%d) than NUMA nodes (%d)."
                % (machine.packages, machine.numa_nodes_with_cpus),
                "Leave the option out.",
            )
    if not configuration.get("reservedSystemCPUs") and not reserved_cpus(configuration, minor):  # A20
        raise InvalidInput("kubelet's static CPU manager needs a reservation of CPUs.", "Set reservedSystemCPUs.")


def ignored_reserves(configuration: Mapping[str, Any]) -> List[str]:
    """The fields whose cpu kubelet ignores, without a word, because CPUs are reserved by their numbers (A21)."""
    beside = configuration.get("reservedSystemCPUs")
    return [name for name in ("kubeReserved", "systemReserved") if beside and "cpu" in (configuration.get(name) or {})]


def reserved_cpus(configuration: Mapping[str, Any], minor: int) -> int:
    """How many CPUs are reserved by amount, rounded up to whole ones as kubelet does; from 1.37 on it first rounds each to thousandths."""
    fields = [(name, (configuration.get(name) or {}).get("cpu", "0")) for name in ("kubeReserved", "systemReserved")]
    thousandths = [parse_quantity(amount, "%s.cpu" % name) * 1000 for name, amount in fields]
    if minor >= 37:
        thousandths = [(-(-amount * 1000 // 1) + 500) // 1000 for amount in thousandths]
    return -int(-sum(thousandths) // 1000)


def _check_topology_manager(configuration: Mapping[str, Any], minor: int, machine: Optional[Machine]) -> None:
    options = configuration.get("topologyManagerPolicyOptions") or {}
    _check_options_gate("TopologyManager", options, configuration.get("featureGates") or {}, minor)
    if configuration.get("topologyManagerPolicy", "none") in ("", "none"):  # kubelet doesn't look at the options then
        return
    _known({}, options, minor)
    _option_truths("topologyManagerPolicyOptions", options)
    _check_options_gates(options, configuration.get("featureGates") or {}, minor)
    limit = str(options.get("max-allowable-numa-nodes", MAX_NUMA_NODES))
    if not re.match(r"\+?\d+\Z", limit, re.ASCII) or not MAX_NUMA_NODES <= int(limit) < 1 << 63:  # B7
        raise InvalidInput('max-allowable-numa-nodes is "%s".' % limit, "Write a number from %d on, as text." % MAX_NUMA_NODES)
    if machine and len(machine.numa_nodes) > int(limit):
        raise InvalidInput(
            "topologyManagerPolicy is %s on a machine with %d NUMA nodes; kubelet exits above %s."
            % (configuration["topologyManagerPolicy"], len(machine.numa_nodes), limit),
            'Choose none, or set the policy option max-allowable-numa-nodes to "%d" (from kubelet 1.31 on).' % len(machine.numa_nodes),
        )


def _check_swap(configuration: Mapping[str, Any], minor: int) -> None:
    """memorySwap, which has one field."""
    given = (configuration.get("memorySwap") or {}).get("swapBehavior")
    words = ("NoSwap", "LimitedSwap") if minor >= 30 else ("LimitedSwap", "UnlimitedSwap")
    if given and not is_on("NodeSwap", configuration.get("featureGates") or {}, minor):
        raise InvalidInput(
            "memorySwap.swapBehavior is given, and kubelet 1.%d refuses it without the feature gate NodeSwap." % minor,
            "Leave it out, or set featureGates.NodeSwap: true.",
        )
    if given and given not in words:
        raise InvalidInput(
            'memorySwap.swapBehavior is "%s", which kubelet 1.%d refuses.' % (given, minor), "Write %s." % " or ".join(words)
        )


def _check_numa_ids(configuration: Mapping[str, Any], machine: Machine) -> None:
    """Numbers of NUMA nodes on which kubelet starts, and crashes when it looks for a pod's place."""
    ids, policy = sorted(machine.numa_nodes), configuration.get("topologyManagerPolicy") or "none"
    beyond = [id for id in ids if not 0 <= id < NUMA_IDS]
    for what, on, right in (("topologyManagerPolicy", policy != "none", "none"),
                            ("memoryManagerPolicy", configuration.get("memoryManagerPolicy") == "Static", "None")):  # fmt: skip
        if beyond and on:
            raise InvalidInput(
                "%s is %s, and kubelet crashes on NUMA nodes whose numbers aren't 0 to %d (%s here)."
                % (what, configuration[what], NUMA_IDS - 1, ", ".join(map(str, beyond))),
                "Set %s: %s." % (what, right),
            )
    closest = (configuration.get("topologyManagerPolicyOptions") or {}).get("prefer-closest-numa-nodes", "false")
    if policy in ("best-effort", "restricted") and TRUTH_WORDS.get(str(closest)) and ids != list(range(len(ids))):
        raise InvalidInput(
            "prefer-closest-numa-nodes is on, and kubelet crashes with it where numbers of NUMA nodes have gaps (%s here)."
            % ", ".join(map(str, ids)),
            "Leave the option out.",
        )


def _check_enforcement(configuration: Mapping[str, Any], minor: int) -> None:
    """enforceNodeAllocatable: each level with what it needs."""
    levels = configuration.get("enforceNodeAllocatable")
    levels = ["pods"] if levels is None else levels
    for level in levels:
        reserve = re.match(r"(kube|system)-reserved%s\Z" % ("(-compressible)?" if minor >= 32 else "()"), str(level))
        cgroup = "%sReservedCgroup" % reserve.group(1) if reserve else ""
        if (level not in ("none", "pods") and not reserve) or levels.count(level) > 1 or (level == "none" and len(levels) > 1):
            raise InvalidInput(
                "enforceNodeAllocatable is %s, which kubelet refuses." % ", ".join(map(str, levels)), 'Write [pods], or ["none"] alone.'
            )
        if reserve and (not configuration.get(cgroup) or (reserve.group(2) and level.replace("-compressible", "") in levels)):
            raise InvalidInput(
                "enforceNodeAllocatable holds %s without what kubelet needs for it." % level,
                "Set %s and one level of each reserve, or leave it out." % cgroup,
            )
        if (level != "none" or minor <= 30) and configuration.get("cgroupsPerQOS") is False:
            raise InvalidInput("enforceNodeAllocatable holds %s, and cgroupsPerQOS is false." % level, "Set cgroupsPerQOS: true.")


def _check_reservations(configuration: Mapping[str, Any]) -> None:
    cpus = configuration.get("reservedSystemCPUs")
    if cpus:
        if not re.match(r"\d+(-\d+)?(,\d+(-\d+)?)*\Z", cpus, re.ASCII):
            raise InvalidInput('reservedSystemCPUs is "%s", which is no list of CPUs.' % cpus, 'Write one like "0,8-11".')
        try:
            CpuSet.parse(cpus)
        except InvalidInput as error:
            raise InvalidInput("reservedSystemCPUs can't be: %s" % error.problem, error.remedy) from None
        for name in ("systemReservedCgroup", "kubeReservedCgroup"):  # A21
            if configuration.get(name):
                raise InvalidInput(
                    "kubelet refuses reservedSystemCPUs together with %s." % name, "Take %s out of its configuration." % name
                )
    for name in ("kubeReserved", "systemReserved"):
        for resource, amount in (configuration.get(name) or {}).items():
            if resource not in ("cpu", "memory", "ephemeral-storage", "pid"):
                raise InvalidInput("%s holds %s, which kubelet can't reserve." % (name, resource), "Take it out.")
            if not (cpus and resource == "cpu"):  # the number of reservedSystemCPUs takes the place of both
                parse_quantity(amount, "%s.%s" % (name, resource))


def _check_reserved_memory_entries(configuration: Mapping[str, Any]) -> None:
    """What kubelet refuses in reservedMemory under any policy."""
    seen = set()
    for entry in configuration.get("reservedMemory") or []:
        for resource, amount in entry["limits"].items():
            what = "reservedMemory of NUMA node %s" % entry["numaNode"]
            if resource != "memory" and not resource.startswith("hugepages-"):
                raise InvalidInput("%s holds %s, which kubelet can't reserve." % (what, resource), "Reserve memory only.")
            if (entry["numaNode"], resource) in seen:
                raise InvalidInput("reservedMemory names NUMA node %s twice." % entry["numaNode"], "Add the two amounts up.")
            seen.add((entry["numaNode"], resource))
            if parse_quantity(amount, what) == 0:
                raise InvalidInput("%s is zero, which kubelet refuses." % what, "Leave that node out.")


# --- memory -------------------------------------------------------------------------------------------------------------------------------

SIGNALS = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
           "containerfs.available", "containerfs.inodesFree", "pid.available", "allocatableMemory.available")  # fmt: skip


def _check_eviction(configuration: Mapping[str, Any]) -> None:
    for signal, amount in (configuration.get("evictionHard") or {}).items():
        what = "evictionHard.%s" % signal
        if signal not in SIGNALS:
            raise unknown_name("eviction signal of kubelet's evictionHard", signal, SIGNALS)
        if amount.endswith("%"):
            share(amount, what)
        elif parse_quantity(amount, what) == 0:
            raise InvalidInput('%s is "%s", and kubelet refuses a threshold of nothing.' % (what, amount), 'Write "0%" to switch it off.')


def share(percentage: str, what: str) -> float:
    """A percentage as kubelet has it: a 32-bit float, 0 for "0%" and "100%", which both mean: no threshold.

    :raises InvalidInput: no percentage from 0 to 100
    """
    if percentage in ("0%", "100%"):
        return 0.0
    match = re.match(r"[+]?(\d+\.?\d*|\.\d+)%+\Z", percentage, re.ASCII)
    if not match or _float32(_float32(float(match.group(1))) / 100) > 1:
        raise InvalidInput('%s is "%s", which is no share.' % (what, percentage), 'Write "0%" to "100%".')
    return _float32(_float32(float(match.group(1))) / 100)


def _float32(value: float) -> float:
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def threshold_of(configuration: Mapping[str, Any], memory: Optional[int]) -> int:
    """Bytes of evictionHard's memory.available. ``memory``: the node's, None where it isn't known.

    :raises InvalidInput: a percentage of memory that isn't known
    """
    amount = str((configuration.get("evictionHard") or {}).get("memory.available", "0%"))
    if not amount.endswith("%"):
        return parse_bytes(amount, "evictionHard.memory.available")
    part = share(amount, "evictionHard.memory.available")
    if part and memory is None:
        raise InvalidInput(
            "evictionHard.memory.available is %s: with memory manager Static its bytes must be known, and they differ between boots."
            % amount,
            'Write a quantity like "1Gi", or set gpufleet_eviction_absolute: true.',
        )
    return int((memory or 0) * part)


def reserved_total(configuration: Mapping[str, Any], memory: Optional[int] = None) -> int:
    """What reservedMemory has to add up to, in bytes: kubeReserved + systemReserved + the eviction threshold (B2, B3).

    :raises InvalidInput: the threshold is a percentage of memory that isn't known
    """
    reserves = [(name, (configuration.get(name) or {}).get("memory", "0")) for name in ("kubeReserved", "systemReserved")]
    return sum(parse_bytes(amount, "%s.memory" % name) for name, amount in reserves) + threshold_of(configuration, memory)


def _check_kinds_of_memory(machine: Optional[Machine]) -> None:
    """Where memoryManagerPolicy can't be Static, whatever is reserved."""
    kinds = machine.kinds if machine else {}
    if kinds and set(kinds.values()) <= {CPU_ONLY}:  # as kubelet sees a machine whose kernel shows no nodes
        raise InvalidInput(
            "This kernel shows no NUMA nodes, and kubelet finds memory by them only: its memory manager can't be Static here "
            "(memoryManagerPolicy).",
            "Set gpufleet_memory_manager_policy: None.",
        )
    devices = [str(id) for id, kind in kinds.items() if kind == DEVICE_MEMORY]
    if devices:
        raise InvalidInput(
            "memoryManagerPolicy is Static, and kubelet may then place pods into GPU memory, which is NUMA nodes %s here."
            % ", ".join(devices),
            "Set gpufleet_memory_manager_policy: None, or load the NVIDIA driver in the mode that keeps GPU memory out of NUMA.",
        )


def _check_memory_manager(configuration: Mapping[str, Any], machine: Optional[Machine]) -> None:
    found: Dict[int, int] = {}
    for entry in configuration.get("reservedMemory") or []:
        node = entry["numaNode"]
        if machine and node not in machine.numa_nodes:
            raise InvalidInput(
                "reservedMemory names NUMA node %s, which isn't there." % node, "Name one of %s." % ", ".join(map(str, machine.numa_nodes))
            )
        for resource, amount in entry["limits"].items():
            if resource != "memory":  # B1
                raise InvalidInput("reservedMemory holds %s, which kubelet can't reserve." % resource, "Reserve memory only.")
            found[node] = parse_bytes(amount, "reservedMemory of NUMA node %s" % node)
    expected, total = reserved_total(configuration, machine.memory if machine else None), sum(found.values())
    if total != expected:
        raise InvalidInput(
            "reservedMemory adds up to %s, but kubeReserved + systemReserved + the eviction threshold are %s; kubelet would not start."
            % (_show(total), _show(expected)),
            "Give all that is reserved to the plan, by gpufleet_kube_reserved and gpufleet_system_reserved, and it divides it; "
            "reservedMemory that is given otherwise (gpufleet_reserved_memory) has to add up to the same.",
        )
    if total == 0:
        raise InvalidInput(
            "memoryManagerPolicy is Static, and kubelet needs a reservation of memory for it.", "Set gpufleet_system_reserved.memory."
        )
    for node, amount in found.items() if machine else ():
        memory, hugepages = machine.numa_nodes[node] if machine else (0, 0)
        if amount > max(memory - hugepages, 0):  # kubelet's unsigned arithmetic would wrap
            raise InvalidInput(
                "NUMA node %d has %d MiB beside its hugepages; %d MiB can't be reserved there."
                % (node, max(memory - hugepages, 0) // MIB, amount // MIB),
                "Reserve less, or divide it by gpufleet_reserved_memory.",
            )


def _check_capacity(configuration: Mapping[str, Any], minor: int, machine: Machine) -> None:
    """What the machine must have. (kubelet finds out late that a reservation is larger than the node: when it starts its managers.)"""
    cpus = configuration.get("reservedSystemCPUs")
    if cpus and not CpuSet.parse(cpus) <= machine.cpus:  # A3: by membership, not by number
        raise InvalidInput(
            "reservedSystemCPUs holds CPUs %s, which are not online." % (CpuSet.parse(cpus) - machine.cpus),
            "Online are %s." % machine.cpus,
        )
    if not cpus and reserved_cpus(configuration, minor) > len(machine.cpus):
        raise InvalidInput(
            "kubeReserved.cpu + systemReserved.cpu are more than the %d CPUs of the node." % len(machine.cpus), "Reserve less."
        )
    if reserved_total(configuration, machine.memory) > machine.memory > 0:
        raise InvalidInput(
            "kubeReserved.memory, systemReserved.memory and the eviction threshold are more than the node's memory (%s)."
            % _show(machine.memory),
            "Reserve less.",
        )
    if machine.swap and configuration.get("failSwapOn", True):  # F27
        raise InvalidInput("The node keeps swap, and kubelet exits on it (failSwapOn).", "Set failSwapOn: false, or gpufleet_swap: off.")


def _check_cgroup_driver(configuration: Mapping[str, Any], machine: Machine) -> None:
    driver = configuration.get("cgroupDriver") or "cgroupfs"
    if machine.cgroup_driver and driver != machine.cgroup_driver:
        raise InvalidInput(
            "cgroupDriver is %s, and the container runtime, which can't tell kubelet, has the driver %s: pods would not start."
            % (driver, machine.cgroup_driver),
            "Set cgroupDriver: %s, or take it out there." % machine.cgroup_driver,
        )


def check_kernel(configuration: Mapping[str, Any], sysctls: Mapping[str, str], planned: Collection[str]) -> None:
    """With protectKernelDefaults kubelet demands certain values of the kernel, where it sets them otherwise, and exits on others.

    ``sysctls`` are the kernel's by name, those that aren't known left out; what is ``planned`` will be as kubelet wants it.

    :raises InvalidInput: one that kubelet would not start on
    """
    for name, value in KUBELET_SYSCTLS.items() if configuration.get("protectKernelDefaults") else ():
        found = sysctls.get(name, value).strip()
        if found != value and name not in planned:
            raise InvalidInput(
                "protectKernelDefaults is true and %s is %s: kubelet exits unless it is %s." % (name, found, value),
                "Set it with gpufleet_sysctl: {%s: %s}, or set protectKernelDefaults: false." % (name, value),
            )


def _show(size: int) -> str:
    return "%dMi" % (size // MIB) if size % MIB == 0 else format_bytes(size)
