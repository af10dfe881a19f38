# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of the running system that a plan calls for: sysctls, transparent hugepages, governor, swap, limits, where the host's own
daemons run."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .errors import InvalidInput
from .kubelet_rules import KUBELET_SYSCTLS
from .notes import Notes
from .partition import Partition
from .policy import WORKLOADS, Policy
from .quantity import GIB
from .topology import Topology

# Where network buffers stop growing: a 100 Gbit/s path with 20 ms of delay holds 250 MB.
_SOCKET_BUFFER = "268435456"
SYSCTLS = {
    "kernel.numa_balancing": "0",
    "net.core.rmem_max": _SOCKET_BUFFER,
    "net.core.wmem_max": _SOCKET_BUFFER,
    "net.ipv4.tcp_rmem": "4096 87380 " + _SOCKET_BUFFER,
    "net.ipv4.tcp_wmem": "4096 65536 " + _SOCKET_BUFFER,
    "vm.swappiness": "0",
}

# From 512 GiB on a ratio lets a hundred GiB get dirty before anything is written. A machine that has them shows about 503 in MemTotal:
# the firmware and the kernel's own tables take the rest, a little more or less at each boot.
LARGE_MEMORY = 500 * GIB
DIRTY_LARGE = {"vm.dirty_background_bytes": str(8 * GIB), "vm.dirty_bytes": str(32 * GIB)}
DIRTY_SMALL = {"vm.dirty_background_ratio": "5", "vm.dirty_ratio": "20"}

# Setting one of a pair zeroes the other, so only one may be set (F12).
TWINS = (("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio"))

CONFINED_SLICES = ("system.slice", "user.slice", "init.scope")


def sysctls(topology: Topology, policy: Policy) -> Dict[str, str]:
    """The sysctls by dotted name, the user's over the plan's own.

    :raises InvalidInput: both of a pair that can't both be set; a value that kubelet would set back
    """
    values: Dict[str, Optional[str]] = dict(SYSCTLS)
    values.update(DIRTY_LARGE if topology.memory_bytes >= LARGE_MEMORY else DIRTY_SMALL)
    asked = {name.replace("/", "."): value for name, value in policy.sysctl.items()}
    for pair in TWINS:
        if all(asked.get(name) is not None for name in pair):
            raise InvalidInput("gpufleet_sysctl sets both %s and %s, and each sets the other to 0." % pair, "Keep one of them.")
        for name, twin in (pair, pair[::-1]):
            if asked.get(name) is not None:
                values.pop(twin, None)
    values.update(asked)
    if topology.kubelet is not None:
        for name, value in KUBELET_SYSCTLS.items():
            if values.get(name) not in (None, value):
                raise InvalidInput(
                    "gpufleet_sysctl sets %s to %s, and kubelet sets it to %s at its start." % (name, values[name], value),
                    "Leave it out, or set it to %s." % value,
                )
    return {name: value for name, value in sorted(values.items()) if value is not None}


def transparent_hugepage(topology: Topology, policy: Policy, notes: Notes) -> Dict[str, str]:
    """The words for enabled and defrag; {} where the kernel has no transparent hugepages.

    :raises InvalidInput: a word that this kernel doesn't offer (F1)
    """
    offered, workload = topology.transparent_hugepage, WORKLOADS[policy.workload]
    if offered is None:
        if policy.thp_enabled or policy.thp_defrag:
            raise InvalidInput(
                "gpufleet_thp_enabled or gpufleet_thp_defrag is given, and this kernel has no transparent hugepages.", "Leave them out."
            )
        notes.info("no_transparent_hugepage", "The kernel has no transparent hugepages: nothing to set.")
        return {}
    chosen = {}
    for name, word, default, choices in (
        ("enabled", policy.thp_enabled, workload.enabled, offered.enabled_choices),
        ("defrag", policy.thp_defrag, workload.defrag, offered.defrag_choices),
    ):
        if (word or default) in choices:
            chosen[name] = word or default
        elif word:
            raise InvalidInput(
                'gpufleet_thp_%s is "%s", which this kernel doesn\'t offer.' % (name, word), "Choose one of: %s." % ", ".join(choices)
            )
        else:
            notes.warning("transparent_hugepage_word", 'This kernel offers no "%s" for %s: left alone.' % (default, name), choices=choices)
    return chosen


def governor(topology: Topology, policy: Policy, notes: Notes) -> str:
    """The frequency governor; "" where nothing scales or the kernel lacks the default one (G1, G2).

    :raises InvalidInput: a governor asked for that this node doesn't have
    """
    if topology.cpufreq is None:
        if policy.governor:
            raise InvalidInput("gpufleet_governor is %s, and this node has no frequency scaling." % policy.governor, "Leave it out here.")
        notes.info("no_cpufreq", "The node has no frequency scaling (a virtual machine, or its firmware decides): no governor is set.")
        return ""
    available = topology.cpufreq.available_governors
    chosen = policy.governor or "performance"
    if chosen in available:
        return chosen
    if policy.governor:
        raise InvalidInput("gpufleet_governor is %s, which this node doesn't have." % chosen, "Choose one of: %s." % ", ".join(available))
    notes.warning("governor_missing", "The node has no governor performance: left alone.", available=available)
    return ""


def confinement(topology: Topology, policy: Policy, cpus: Partition, static: bool, notes: Notes) -> Dict[str, Any]:
    """Which slices are kept on the reserved CPUs. By AllowedCPUs of slices, never by CPUAffinity (D13, D14), never kubepods (A18).

    :raises InvalidInput: asked for on a node whose workloads live under these slices
    """
    wanted = policy.confine_system if policy.confine_system is not None else static or policy.defaults.isolates
    if not wanted:
        return {}
    tenants = [name for name, there in (("Docker", topology.software.docker), ("Slurm", topology.software.slurm)) if there]
    if tenants and policy.confine_system:
        raise InvalidInput(
            "gpufleet_confine_system is on, but %s runs workloads below system.slice here: they would lose all but the reserved CPUs."
            % " and ".join(tenants),
            "Set it to false on this node.",
        )
    if tenants:
        notes.warning(
            "confinement_left_out",
            "%s runs workloads below system.slice: host daemons are not confined to the reserved CPUs." % " and ".join(tenants),
            tenants=tenants,
        )
        return {}
    return {"cpus": cpus.reserved, "slices": list(CONFINED_SLICES)}
