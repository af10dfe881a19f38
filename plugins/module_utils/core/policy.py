# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Policy: what the user asked for. Two choices (profile, workload), then one variable per override.

The one table of variables is the ``Policy`` class: default, check and meaning stand beside each other. What depends on the node (does it
have this CPU, this page size, this governor) is checked where the plan is made.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Callable, Collection, Dict, Mapping, Optional, Tuple

from .checks import Check, boolean, choice, cpulist, folder, integer, mapping, mappings, one_word, refuse, words
from .cpuset import CpuSet
from .errors import InvalidInput, unknown_name
from .kubelet_fields import TRUTH_WORDS
from .kubelet_rules import MAX_NUMA_NODES, WORDS
from .kubelet_tables import CPU_OPTIONS, TOPOLOGY_OPTIONS
from .quantity import parse_bytes, parse_quantity, parse_size

PREFIX = "gpufleet_"

# Variables of plays and roles: known, so that they aren't refused, and no business of the plan. Without a meaning: the plays set them
# themselves, or a play to come reads them.
PLAY_VARIABLES = {
    "root": 'The folder that is the node\'s root; "/" is the live node',
    "hosts": "The inventory pattern that the playbooks run on",
    "serial": "How many nodes are changed at a time (with -e)",
    "max_fail_percentage": "The share of failed nodes, in percent, above which a rolling change stops (with -e)",
    "canary": "A node that is changed first, alone; the others follow when it went well (with -e)",
    "reboot": "never, or when_needed: reboot a node that waits for it, and verify what it booted with",
    "reboot_timeout": "Seconds in which a node has to be back after its reboot",
    "kubelet_restart_timeout": "Seconds in which a restarted kubelet has to be healthy",
    "drain": "A task file that drains a node: before its reboot, and before kubelet state files go that pods hold CPUs by",
    "uncordon": "A task file that is run after it, when the node is as planned, to take it back",
    "report_dir": "The folder on the controller that verify.yml writes NODE.json and NODE.xml (JUnit) to",
    "gpu_match": "What counts as a GPU, for topology_facts",
    "capture_dir": "The folder on the controller that captures come home to; default is captures, where the play is called",
    "launcher_build": "Where the launcher is built: controller or node",
    "topology": "",
    "plan": "",
    "found": "",
    "checked": "",
    "undone": "",
    "verdict": "",
    "capture_archive": "",
    "capture_home": "",
    "reports": "",
    "booted": "",
    "last": "",
    "due": "",
    "chosen": "",
}

# Looked at before anything is written, not only by the role that comes last.
PLAY_CHECKS: Dict[str, Check] = {
    "reboot": choice("never", "when_needed"),
    "launcher_build": choice("controller", "node"),
}


def _kubelet_version(name: str, value: Any) -> str:
    if not re.match(r"v?1\.\d+(\.\d+)?([-+].*)?\Z", str(value)):
        raise refuse(name, value, "which is not a kubelet version", 'Write it like "1.34.4".')
    return str(value).lstrip("v")


def _reserve(variable: str, key: str, value: Any) -> str:
    """An item of kubeReserved or systemReserved."""
    what = "%s.%s" % (variable, key)
    if key.startswith("hugepages-"):  # B1, F11: Node Allocatable can't hold hugepages back
        raise InvalidInput(
            "%s can't be: kubelet can't reserve hugepages." % what, "Leave it out, and ask for more pages than the pods need."
        )
    known = ("cpu", "memory", "ephemeral-storage", "pid")
    if key not in known:
        raise unknown_name("resource of %s" % variable, key, known)
    parse = parse_quantity if key in ("cpu", "pid") else parse_bytes
    parse(value, what)
    return str(value)


def _eviction(variable: str, key: str, value: Any) -> str:
    """An item of evictionHard: a quantity or a percentage."""
    what = "%s.%s" % (variable, key)
    known = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available",
             "containerfs.available", "containerfs.inodesFree")  # fmt: skip
    if key not in known:
        raise unknown_name("eviction signal of %s" % variable, key, known)
    percent = re.match(r"(\d+(?:\.\d+)?)%\Z", str(value))
    if percent and float(percent.group(1)) > 100:
        raise refuse(what, value, "which is no share", "Give at most 100%.")
    if not percent and parse_bytes(value, what) == 0:
        raise refuse(what, value, "and kubelet refuses a threshold of nothing", 'Write "0%" to switch it off.')
    return str(value)


def _node_quantity(variable: str, key: str, value: Any) -> int:
    """An item of reservedMemory by NUMA node id, in bytes."""
    node = integer(0)("%s: the NUMA node" % variable, key)
    amount: int = parse_bytes(value, "%s.%s" % (variable, node))
    if amount == 0:
        raise refuse("%s.%s" % (variable, node), value, "and kubelet refuses a reservation of nothing", "Leave that NUMA node out.")
    return amount


def _pages(variable: str, key: str, value: Any) -> Dict[Optional[int], int]:
    """Hugepages of one size: {node id: count}; {None: count} is a count for each NUMA node with CPUs and memory."""
    parse_size(key, "%s: the page size" % variable)
    count = integer(0)
    if not isinstance(value, Mapping):
        return {None: count("%s.%s" % (variable, key), value)}
    return {
        integer(0)("%s.%s: the NUMA node" % (variable, key), node): count("%s.%s.%s" % (variable, key, node), n)
        for node, n in value.items()
    }


def _option(known: Collection[str]) -> Callable[[str, str, Any], str]:
    """The check of one of kubelet's policy options: "true" or "false", or the text of a number."""

    def check(variable: str, key: str, value: Any) -> str:
        what = "%s.%s" % (variable, key)
        if key not in known:
            raise unknown_name("policy option of kubelet", key, known)
        if key == "max-allowable-numa-nodes":
            return str(integer(MAX_NUMA_NODES)(what, value))
        if str(value) not in TRUTH_WORDS:  # A16: "yes" is fatal
            raise refuse(what, value, "which kubelet can't read", 'Write "true" or "false".')
        return "true" if TRUTH_WORDS[str(value)] else "false"

    return check


def _sysctl(variable: str, key: str, value: Any) -> Optional[str]:
    """A sysctl by its dotted name; null leaves one of ours out."""
    what = "%s.%s" % (variable, key)
    if not re.match(r"[a-z0-9_]+([./][A-Za-z0-9_*-]+)+\Z", key):
        raise InvalidInput('%s: "%s" is not the name of a sysctl.' % (variable, key), 'Write it like "vm.swappiness".')
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip() or "\n" in str(value):
        raise refuse(what, value, "which is not one value", "Give a number or one line of text; null leaves the setting alone.")
    text = " ".join(str(value).split())
    if key in ("vm.dirty_bytes", "vm.dirty_background_bytes") and integer(0)(what, text) < 8192:  # F12: two pages at least
        raise refuse(what, value, "which the kernel refuses", "Give two pages (8192) or more, or set the ratio instead.")
    return text


def memlock(name: str, value: Any) -> str:
    """A limit of locked memory: "unlimited" or bytes."""
    if value == "unlimited":
        return "unlimited"
    try:
        return str(parse_bytes(value, name))
    except InvalidInput:
        raise refuse(name, value, "which is neither unlimited nor a size", 'Write "unlimited", or a size like "64Gi".') from None


def _setting(default: Any, check: Check, about: str) -> Any:
    """A variable: its default, how a value given is checked, what it means. ``null`` is the default."""
    extra = {"default_factory": dict} if default == {} else {"default": default}
    return dataclasses.field(metadata={"check": check, "about": about}, **extra)  # pylint: disable=invalid-field-call


# --- profiles and workloads -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Profile:
    """The defaults that a profile stands for."""

    cpu_manager_policy: str
    cpu_manager_policy_options: Tuple[str, ...]
    topology_manager_policy: str
    topology_manager_scope: str
    memory_manager_policy: str
    isolates: bool
    c_states: str
    launcher: bool


PROFILES = {
    "colocation": Profile(
        "static", ("distribute-cpus-across-numa", "full-pcpus-only"), "best-effort", "container", "None", False, "all", True
    ),
    "aligned": Profile("static", ("full-pcpus-only",), "single-numa-node", "pod", "Static", False, "all", False),
    "isolated": Profile("static", ("full-pcpus-only",), "best-effort", "container", "None", True, "shallow", False),
}


@dataclass(frozen=True)
class Workload:
    """Transparent hugepages: the words for enabled and defrag."""

    enabled: str
    defrag: str


WORKLOADS = {"training": Workload("always", "defer+madvise"), "inference": Workload("never", "never")}


# --- the variables ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Policy:
    """Every variable of the plan without its prefix ``gpufleet_``. None: what the profile, the workload or the node calls for."""

    profile: str = _setting("colocation", choice(*PROFILES), "colocation, aligned or isolated")
    workload: str = _setting("training", choice(*WORKLOADS), "training or inference")

    # CPUs
    reserved_cpus: Optional[CpuSet] = _setting(None, cpulist, "The CPUs for the system, whole cores; instead of the plan's choice")
    reserved_cores_per_numa: Optional[int] = _setting(
        None, integer(1), "Physical cores for the system on each NUMA node that has CPUs; default is 1"
    )
    reserved_cores_percent: Optional[int] = _setting(
        None, integer(1, 99), "The same as a share of all cores of the NUMA node, in whole percent, rounded up to whole cores"
    )
    reserved_whole_l3: bool = _setting(False, boolean, "Reserve whole L3 groups, so that what is left starts at one")
    isolated_cpus: Optional[CpuSet] = _setting(None, cpulist, "Profile isolated: these CPUs only; default is all but the reserved")

    # kubelet
    kubelet_manage: bool = _setting(True, boolean, "Configure the node's kubelet")
    kubelet_version: Optional[str] = _setting(None, _kubelet_version, "Plan for this kubelet version instead of the one found")
    kubelet_distribution: Optional[str] = _setting(
        None, choice("plain", "kubeadm", "kubespray", "k3s", "rke2"), "Plan for a kubelet of this distribution instead of the one found"
    )
    kubelet_config_dir: Optional[str] = _setting(
        None, folder, "A folder of drop-ins that kubelet (1.32 or newer) is made to read; without, its main file gets our part"
    )
    kubeadm_patches: Optional[str] = _setting(
        None, folder, "kubeadm's folder of patches (its --patches): our part of kubelet's file then outlives an upgrade"
    )
    kubelet_restart: str = _setting("never", choice("never", "when_needed"), "when_needed: restart kubelet where a difference needs it")
    cpu_manager_policy: Optional[str] = _setting(None, choice(*WORDS["cpuManagerPolicy"]), "cpuManagerPolicy")
    cpu_manager_policy_options: Dict[str, str] = _setting(
        {}, mapping(_option(CPU_OPTIONS)), "cpuManagerPolicyOptions, over those of the profile"
    )
    topology_manager_policy: Optional[str] = _setting(None, choice(*WORDS["topologyManagerPolicy"]), "topologyManagerPolicy")
    topology_manager_scope: Optional[str] = _setting(None, choice(*WORDS["topologyManagerScope"]), "topologyManagerScope")
    topology_manager_policy_options: Dict[str, str] = _setting({}, mapping(_option(TOPOLOGY_OPTIONS)), "topologyManagerPolicyOptions")
    memory_manager_policy: Optional[str] = _setting(None, choice(*WORDS["memoryManagerPolicy"]), "memoryManagerPolicy")
    kube_reserved: Dict[str, str] = _setting({}, mapping(_reserve), "kubeReserved, as quantities")
    system_reserved: Dict[str, str] = _setting({}, mapping(_reserve), "systemReserved, as quantities")
    reserved_memory_percent: Optional[int] = _setting(None, integer(1, 90), "systemReserved.memory as a share of the memory beside CPUs")
    eviction_hard: Dict[str, str] = _setting({}, mapping(_eviction), "evictionHard, over kubelet's defaults")
    eviction_absolute: bool = _setting(False, boolean, "Write a percentage of memory.available as an absolute quantity")
    reserved_memory: Dict[str, int] = _setting(
        {}, mapping(_node_quantity), "reservedMemory: quantity by NUMA node, instead of an even split"
    )

    # kernel arguments
    isolate_domain: Optional[bool] = _setting(None, boolean, "isolcpus with the domain flag; default only where no kubelet is")
    nohz_full: Optional[bool] = _setting(None, boolean, "nohz_full and rcu_nocbs on isolated CPUs; default with profile isolated")
    c_states: Optional[str] = _setting(None, choice("all", "shallow", "poll"), "C-states: all, shallow (no deep ones) or poll (idle=poll)")
    kernel_arguments: Tuple[str, ...] = _setting((), words, "More kernel arguments, in this order, after the plan's own")
    hugepages: Dict[str, Dict[Optional[int], int]] = _setting(
        {}, mapping(_pages), 'Hugepages by size: {"1G": {0: 8, 1: 8}}, or {"1G": 8} on each NUMA node with CPUs and memory'
    )
    default_hugepage_size: Optional[int] = _setting(None, lambda name, value: parse_size(value, name), "default_hugepagesz")

    # interrupts
    irq_placement: str = _setting("housekeeping", choice("housekeeping", "local", "none"), "Where device interrupts go")
    irqbalance: Optional[str] = _setting(None, choice("off", "keep"), "irqbalance: off where the plan places interrupts, else keep")
    irq_vectors_per_cpu: int = _setting(200, integer(1), "Interrupt vectors that one x86-64 CPU has for devices")
    nic_gbps_per_core: int = _setting(20, integer(1), "Network traffic that one housekeeping core serves, in Gbit/s (RDMA needs none)")

    # the running system
    sysctl: Dict[str, Optional[str]] = _setting({}, mapping(_sysctl), "Sysctls over the plan's own; null leaves one alone")
    thp_enabled: Optional[str] = _setting(None, choice("always", "madvise", "never"), "Transparent hugepages")
    thp_defrag: Optional[str] = _setting(
        None, choice("always", "defer", "defer+madvise", "madvise", "never"), "Transparent hugepage defragmentation"
    )
    governor: Optional[str] = _setting(None, one_word, "The frequency governor")
    swap: str = _setting("off", choice("off", "keep"), "off or keep")
    memlock: str = _setting("unlimited", memlock, "The limit of locked memory for sessions and services")
    nofile: int = _setting(1048576, integer(1024), "The limit of open files for sessions and services")
    confine_system: Optional[bool] = _setting(None, boolean, "Keep host daemons and logins on the reserved CPUs")

    # CPU jobs
    launcher: Optional[bool] = _setting(None, boolean, "Install the launcher; default with profile colocation")
    batch_services: Tuple[Dict[str, Any], ...] = _setting((), mappings, "CPU jobs to run as services, in the shared pool")
    batch_cpu_weight: int = _setting(20, integer(1, 10000), "CPU weight of all batch services together, beside kubepods.slice")
    batch_io_weight: int = _setting(20, integer(1, 10000), "I/O weight of all batch services together")
    batch_install_allocators: bool = _setting(False, boolean, "Install the package of an allocator that a service names")
    batch_on_reserved: bool = _setting(False, boolean, "Where the profile leaves no pool: batch services on the reserved CPUs")
    pinned_services: Tuple[Dict[str, Any], ...] = _setting((), mappings, "Services that feed GPUs, on CPUs of their own")

    @property
    def defaults(self) -> Profile:
        """What the profile stands for."""
        return PROFILES[self.profile]


SETTINGS: Dict[str, Any] = {setting.name: setting for setting in dataclasses.fields(Policy)}


def policy_from_variables(variables: Mapping[str, Any]) -> Policy:
    """The Policy from variables, with or without their prefix; null is the default, and variables of the plays don't enter it.

    :raises InvalidInput: an unknown name (with the nearest known one) or a value that can't be
    """
    values = {}
    for given, value in variables.items():
        name = given.removeprefix(PREFIX)
        if name not in SETTINGS and name not in PLAY_VARIABLES:
            raise unknown_name("variable", PREFIX + name, [PREFIX + known for known in (*SETTINGS, *PLAY_VARIABLES)])
        if name in PLAY_CHECKS and value is not None:
            PLAY_CHECKS[name](PREFIX + name, value)
        if name in SETTINGS and value is not None:
            values[name] = SETTINGS[name].metadata["check"](PREFIX + name, value)
    return Policy(**values)
