# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel arguments of a plan, as an ordered list of tokens: only what the profile calls for and the kernel to be booted takes.

Sources: Documentation/admin-guide/kernel-parameters.txt, kernel/sched/isolation.c, mm/hugetlb.c, arch/*/include/uapi/asm/setup.h.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

from . import kernel_args
from .errors import InvalidInput
from .hugepage_plan import Pools
from .kernel_config import Version, kernel_version
from .notes import Notes
from .partition import Partition
from .policy import Policy
from .quantity import format_size
from .topology import Topology

# The kernel cuts a longer command line off. (s390 had 896 before 5.13.)
COMMAND_LINE_SIZE = {"x86_64": 2048, "aarch64": 2048, "ppc64le": 2048, "s390x": 4096, "riscv64": 1024}
SMALLEST_COMMAND_LINE = 1024

MANAGED_IRQ_SINCE: Version = (5, 6)
PER_NODE_HUGEPAGES_SINCE: Version = (5, 16)

# Deep C-states cost tens of microseconds to leave. The price of shallow ones is boost: neighbours that don't sleep leave less power.
SHALLOW_C_STATES = {
    "GenuineIntel": ("intel_idle.max_cstate=0", "processor.max_cstate=1"),
    "AuthenticAMD": ("processor.max_cstate=1",),
    "HygonGenuine": ("processor.max_cstate=1",),
}


# What decides each managed argument.
_VARIABLES = {
    "isolcpus": "gpufleet_isolated_cpus",
    "nohz_full": "gpufleet_nohz_full",
    "rcu_nocbs": "gpufleet_nohz_full",
    "irqaffinity": "gpufleet_reserved_cpus",
    "intel_idle.max_cstate": "gpufleet_c_states",
    "processor.max_cstate": "gpufleet_c_states",
    "idle": "gpufleet_c_states",
    "default_hugepagesz": "gpufleet_default_hugepage_size",
    "hugepagesz": "gpufleet_hugepages",
    "hugepages": "gpufleet_hugepages",
}


def kernel_arguments(topology: Topology, policy: Policy, cpus: Partition, pools: Pools, notes: Notes) -> Tuple[str, ...]:
    """The tokens, in the order in which the kernel is to see them.

    :raises InvalidInput: a user's argument that the plan decides, or more than the kernel's command line holds
    """
    kernel = kernel_version(topology.boot.kernel_release or topology.kernel_release)
    tokens = _isolation(topology, policy, cpus, kernel, notes)
    tokens += _c_states(topology, policy, notes)
    tokens += _hugepages(topology, policy, pools, kernel, notes)
    for token in policy.kernel_arguments:
        variable = _VARIABLES.get(kernel_args.key(token))
        if variable:
            raise InvalidInput("gpufleet_kernel_arguments holds %s, which the plan decides." % token, "Set %s instead." % variable)
    tokens += policy.kernel_arguments
    _check_length(topology, tokens)
    wanted = kernel_args.check(tokens, kernel)
    _note_displaced(kernel_args.of(kernel_args.split(topology.command_line), wanted), wanted, notes)
    return wanted


def _note_displaced(running: Sequence[str], wanted: Sequence[str], notes: Notes) -> None:
    """Values that the node runs with and will not any more. Whose they are, its memory tells, and so the verdict."""
    displaced = [token for token in running if token not in wanted]
    if displaced:
        notes.info(
            "kernel_arguments_displaced",
            "The node was booted with %s: the plan's values take their place, and rollback brings back those that aren't ours."
            % " ".join(displaced),
            arguments=displaced,
        )


def _isolation(topology: Topology, policy: Policy, cpus: Partition, kernel: Version, notes: Notes) -> List[str]:
    """isolcpus, nohz_full, rcu_nocbs and irqaffinity: one set and its complement (D1, D7; before 5.18 the kernel insists on one set)."""
    if not cpus.isolated:
        return []
    config, isolated = topology.boot.kernel_config, cpus.isolated.to_list()
    if not config:
        notes.info(
            "kernel_config_unknown",
            "The configuration of the kernel to be booted can't be read: whether it can isolate CPUs is seen after the boot.",
        )
    tokens = []
    flags = _isolcpus_flags(topology, policy, kernel, notes)
    if config.get("CPU_ISOLATION", "y") != "y":
        notes.error("cpu_isolation_unsupported", "The kernel to be booted is built without CONFIG_CPU_ISOLATION: isolcpus is left out.")
    elif flags:
        tokens.append("isolcpus=%s,%s" % (",".join(flags), isolated))
    if policy.nohz_full is not False:
        if config.get("NO_HZ_FULL", "y") == "y":
            tokens.append("nohz_full=" + isolated)
        else:  # D5
            notes.warning(
                "nohz_full_unsupported",
                "The kernel to be booted is built without CONFIG_NO_HZ_FULL: nohz_full is left out, and the tick goes on.",
            )
        if config.get("RCU_NOCB_CPU", "y") == "y":
            tokens.append("rcu_nocbs=" + isolated)
        else:
            notes.warning("rcu_nocbs_unsupported", "The kernel to be booted is built without CONFIG_RCU_NOCB_CPU: rcu_nocbs is left out.")
    tokens.append("irqaffinity=" + (cpus.online - cpus.isolated).to_list())
    return tokens


def _isolcpus_flags(topology: Topology, policy: Policy, kernel: Version, notes: Notes) -> List[str]:
    """managed_irq keeps kernel-managed interrupts away; domain takes the CPUs out of load balancing, which a shared pool can't bear."""
    with_kubelet = topology.kubelet is not None
    domain = policy.isolate_domain if policy.isolate_domain is not None else not with_kubelet
    if with_kubelet and domain:
        notes.warning(
            "isolation_over_shared_pool",
            "Pods without CPUs of their own run on isolated CPUs too, and without load balancing all threads of one stay on a single CPU.",
        )
    elif with_kubelet:
        notes.info(
            "isolation_over_shared_pool",
            "kubelet's shared pool covers the isolated CPUs, so isolcpus goes without domain (gpufleet_isolate_domain).",
        )
    if domain and topology.software.docker:  # D11
        notes.warning(
            "docker_over_isolated_cpus",
            "A container that Docker starts with a cpuset of its own gets the isolated CPUs in it, and without load balancing all its "
            "threads stay on a single one: name one CPU for each, or set gpufleet_isolate_domain: false.",
        )
    if kernel < MANAGED_IRQ_SINCE:
        notes.warning(
            "managed_irq_unsupported",
            "isolcpus knows managed_irq from kernel %d.%d on: it is left out." % MANAGED_IRQ_SINCE,
            kernel="%d.%d" % kernel,
        )
    return ["managed_irq"] * (kernel >= MANAGED_IRQ_SINCE) + ["domain"] * domain


def _c_states(topology: Topology, policy: Policy, notes: Notes) -> List[str]:
    wanted = policy.c_states or policy.defaults.c_states
    if wanted == "all":
        return []
    if wanted == "poll":
        if topology.architecture != "x86_64":
            raise InvalidInput(
                "gpufleet_c_states is poll, and idle=poll exists on x86-64 only; this node is %s." % topology.architecture, "Choose all."
            )
        notes.warning("c_states", "idle=poll: no CPU ever sleeps. The node draws its full power when idle, and boost is lost.")
        return ["idle=poll"]
    tokens = SHALLOW_C_STATES.get(topology.cpu_vendor, ()) if topology.architecture == "x86_64" else ()
    if topology.boot.kernel_config.get("INTEL_IDLE") == "n":  # ACPI's driver is at work then, which processor.max_cstate limits
        tokens = tuple(token for token in tokens if not token.startswith("intel_idle."))
    if tokens:
        notes.info(
            "c_states",
            "C-states are limited to the shallow ones: wake-ups are fast, idle power is higher and the highest boost clocks are lost.",
        )
    else:
        notes.info(
            "c_states",
            "There is no kernel argument for shallow C-states on this processor (%s): left alone."
            % (topology.cpu_vendor or topology.architecture),
        )
    return list(tokens)


def _hugepages(topology: Topology, policy: Policy, pools: Pools, kernel: Version, notes: Notes) -> List[str]:
    """hugepagesz and hugepages in pairs: a count belongs to the size before it (C10).

    The syntax per node came with 5.16; an older kernel would spread a plain count over all nodes, also those that nobody meant (F6).
    """
    if not pools:
        return []
    default = policy.default_hugepage_size or next(iter(pools))
    if default not in topology.hugepage_sizes:
        raise InvalidInput(
            "gpufleet_default_hugepage_size is %s, which this kernel lacks." % format_size(default),
            "It has %s." % ", ".join(map(format_size, topology.hugepage_sizes)),
        )
    tokens = ["default_hugepagesz=" + format_size(default)]
    memory_nodes = [node for node in topology.numa_nodes if node.memory_bytes]
    for size, counts in pools.items():
        wanted = {node: count for node, count in counts.items() if count}
        if len(memory_nodes) == 1:
            tokens += ["hugepagesz=" + format_size(size), "hugepages=%d" % sum(wanted.values())]
        elif kernel >= PER_NODE_HUGEPAGES_SINCE:
            tokens += ["hugepagesz=" + format_size(size), "hugepages=" + ",".join("%d:%d" % item for item in sorted(wanted.items()))]
        else:
            notes.warning(
                "hugepages_at_run_time",
                "Kernels before 5.16 can't divide hugepages over NUMA nodes at boot: %s pages come at run time." % format_size(size),
                counts=wanted, kernel="%d.%d" % kernel,
            )  # fmt: skip
    return tokens


def _check_length(topology: Topology, tokens: List[str]) -> None:
    """The kernel's own limit, counting what is on the command line now and isn't ours."""
    limit = COMMAND_LINE_SIZE.get(topology.architecture, SMALLEST_COMMAND_LINE)
    ours = kernel_args.keys_of(tokens) | set(kernel_args.MANAGED)
    foreign = [token for token in kernel_args.split(topology.command_line) if kernel_args.key(token) not in ours]
    length = len(" ".join(foreign + tokens))
    if length >= limit:
        raise InvalidInput(
            "The kernel command line would be %d characters long; %s kernels cut it off at %d."
            % (length, topology.architecture, limit - 1),
            "Isolate ranges of CPUs instead of single ones, or take arguments out.",
        )
