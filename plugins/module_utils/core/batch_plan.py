# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan's section ``units``: the batch services and their slice, the pinned services on their CPUs, the seccomp profile for pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .batch_names import SECCOMP_PROFILE
from .batch_services import Batch, Pinned, parse_services
from .cpuset import CpuSet, union
from .errors import InvalidInput, unknown_name
from .notes import Notes
from .partition import Partition
from .policy import Policy
from .topology import NumaNode, Topology


def units_section(
    topology: Topology, policy: Policy, cpus: Partition, static: bool, launcher_path: str, with_launcher: bool, notes: Notes
) -> Dict[str, Any]:
    """{} when there are neither services nor pods that would use the launcher.

    ``slice.follows_kubelet``: kubelet takes exclusive CPUs out of the pool, so the slice has to follow its state file. The slice's CPUs
    are never empty (systemd would read that as all) and never isolated (naming one would take it back into load balancing: A8).

    :raises InvalidInput: a service that can't be on this node
    """
    if policy.batch_services and not cpus.pool and not policy.batch_on_reserved:
        raise InvalidInput(
            "Profile %s leaves no shared pool for gpufleet_batch_services." % policy.profile,
            "Set gpufleet_batch_on_reserved: true to run them on the reserved CPUs, or choose another profile.",
        )
    batch = parse_services(Batch, "gpufleet_batch_services", policy.batch_services)
    pinned = parse_services(Pinned, "gpufleet_pinned_services", policy.pinned_services)
    _check_names([service.name for service in (*batch, *pinned)])
    seccomp = _seccomp(topology, notes) if with_launcher else ""
    if not (batch or pinned or seccomp):
        return {}
    return {
        "architecture": topology.architecture,
        "launcher": launcher_path,
        "install_allocators": policy.batch_install_allocators,
        "slice": _slice(topology, policy, cpus, static, batch, notes) if batch else {},
        "services": [vars(service) for service in batch],
        "pinned": [vars(service) for service in _placed(pinned, topology, policy, cpus, static, notes)],
        "seccomp": seccomp,
    }


def _check_names(names: List[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidInput('Two services are named "%s".' % name, "Rename one: each is a unit gpufleet-<name>.service.")


def _seccomp(topology: Topology, notes: Notes) -> str:
    if topology.kubelet is None:
        return ""
    notes.info(
        "seccomp_profile",
        "Pods with seccomp profile RuntimeDefault (kubelet's seccompDefault gives it to all) may not set a memory policy: those that use "
        "the launcher take the Localhost profile gpufleet/numa.json. Unconfined pods need nothing.",
    )
    return "%s/%s" % (topology.kubelet.root_dir.rstrip("/"), SECCOMP_PROFILE)


# Batch services -------------------------------------------------------------------------------------------------------------------------


def _slice(topology: Topology, policy: Policy, cpus: Partition, static: bool, batch: Tuple[Batch, ...], notes: Notes) -> Dict[str, Any]:
    if not cpus.pool:
        notes.warning(
            "batch_on_reserved", "Batch services run on the reserved CPUs, beside the system and the device interrupts.", cpus=cpus.reserved
        )
    follows = static and bool(cpus.pool)
    if follows:
        notes.info("batch_follows_kubelet", "Batch services leave CPUs that kubelet gives to pods: their slice follows its CPU manager.")
    named = union(CpuSet.parse(service.nodes) for service in batch if service.nodes != "auto")
    _check_memory_nodes("gpufleet_batch_services", named, topology)
    beside_cpus = CpuSet(node.id for node in topology.cpu_memory_nodes)
    if not named <= beside_cpus:
        notes.warning(
            "batch_on_memory_without_cpus",
            "Batch services may use the memory of NUMA nodes without CPUs, as asked.",
            numa_nodes=named - beside_cpus,
        )
    return {
        "cpus": cpus.pool or cpus.reserved,
        "reserved": cpus.reserved,
        "memory_nodes": beside_cpus | named,
        "auto_nodes": beside_cpus,
        "cpu_weight": policy.batch_cpu_weight,
        "io_weight": policy.batch_io_weight,
        "follows_kubelet": follows,
        "kubelet_root": topology.kubelet.root_dir if static and topology.kubelet else "",
    }


def _check_memory_nodes(what: str, nodes: CpuSet, topology: Topology) -> None:
    with_memory = CpuSet(node.id for node in topology.numa_nodes if node.memory_bytes)
    if not nodes <= with_memory:
        problem = "%s names NUMA node %s, which has no memory here." % (what, nodes - with_memory)
        raise InvalidInput(problem, "Choose from %s." % with_memory)


# Pinned services ------------------------------------------------------------------------------------------------------------------------


def _placed(
    pinned: Tuple[Pinned, ...], topology: Topology, policy: Policy, cpus: Partition, static: bool, notes: Notes
) -> Iterator[Pinned]:
    """Each with its CPUs and NUMA nodes. Services that ask for a CPU per thread get CPUs of their own."""
    taken = CpuSet()
    for service in pinned:
        node = _gpu_node(service, topology)
        chosen = _cpus(service, node, topology, cpus)
        if service.threads:
            chosen = _one_per_thread(service, chosen - taken, topology)
            taken = taken | chosen
        _guard(service, chosen, policy, cpus)
        _say(service, chosen, topology, policy, cpus, static, notes)
        _check_memory_nodes("Service %s" % service.name, service.memory_nodes, topology)
        yield replace(service, cpus=chosen, memory_nodes=service.memory_nodes or _memory_nodes(node, chosen, topology))


def _gpu_node(service: Pinned, topology: Topology) -> Optional[NumaNode]:
    if not service.gpu:
        return None
    by_address = {gpu.address.lower(): gpu for gpu in topology.gpus}
    if service.gpu.lower() not in by_address:
        raise unknown_name("GPU of this node (service %s)" % service.name, service.gpu.lower(), by_address)
    number = by_address[service.gpu.lower()].numa_node
    return next((node for node in topology.numa_nodes if node.id == number), None)


def _cpus(service: Pinned, node: Optional[NumaNode], topology: Topology, cpus: Partition) -> CpuSet:
    if service.cpus:
        if not service.cpus <= cpus.online:
            raise InvalidInput(
                "Service %s names CPU %s, which isn't online." % (service.name, service.cpus - cpus.online), "Choose from %s." % cpus.online
            )
        return service.cpus
    near = cpus.isolated & node.cpus if node is not None else cpus.isolated
    if not near:
        where = " on NUMA node %d, where its GPU is" % node.id if node is not None and cpus.isolated else ""
        raise InvalidInput(
            "Service %s has no CPUs: the plan isolates none%s." % (service.name, where), "Give its cpus, or choose profile isolated."
        )
    return near


def _one_per_thread(service: Pinned, free: CpuSet, topology: Topology) -> CpuSet:
    """Cores before thread siblings: two threads on one core share it."""
    cores = [list(core) for core in topology.cores]
    by_thread = [core[thread] for thread in range(topology.threads_per_core) for core in cores if thread < len(core)]
    in_order = [cpu for cpu in by_thread if cpu in free]
    if len(in_order) < service.threads:
        raise InvalidInput(
            "Service %s wants %d CPUs for its threads, and %d are left for it." % (service.name, service.threads, len(in_order)),
            "Lower threads, or give it other cpus.",
        )
    return CpuSet(in_order[: service.threads])


def _memory_nodes(node: Optional[NumaNode], chosen: CpuSet, topology: Topology) -> CpuSet:
    local = [one for one in topology.cpu_memory_nodes if node is not None and one.id == node.id]
    return CpuSet(one.id for one in local or topology.cpu_memory_nodes if local or not one.cpus.isdisjoint(chosen))


def _guard(service: Pinned, chosen: CpuSet, policy: Policy, cpus: Partition) -> None:
    """A real-time thread that never sleeps starves all else on its CPU: so only where nothing else is, and with the kernel's brake on."""
    if service.policy == "other":
        return
    if not chosen <= cpus.isolated:
        raise InvalidInput(
            "Service %s asks for %s on CPUs %s, which aren't isolated: it could starve the node." % (service.name, service.policy, chosen),
            "Give it isolated CPUs, or policy other with a nice level.",
        )
    if policy.sysctl.get("kernel.sched_rt_runtime_us") == "-1":
        raise InvalidInput(
            "Service %s asks for %s while gpufleet_sysctl turns the kernel's real-time throttling off." % (service.name, service.policy),
            "Leave kernel.sched_rt_runtime_us at its default.",
        )


def _say(service: Pinned, chosen: CpuSet, topology: Topology, policy: Policy, cpus: Partition, static: bool, notes: Notes) -> None:
    domain = policy.isolate_domain if policy.isolate_domain is not None else topology.kubelet is None
    unbalanced = chosen & (topology.cpus.isolated | (cpus.isolated if domain else CpuSet()))
    if unbalanced and len(chosen) > 1:
        offer = "OpenMP does, by the variables that the unit sets."
        if not service.threads:
            offer = "With threads: N it gets a CPU for each of N threads, and OpenMP is told to use them."
        notes.warning(
            "pinned_threads_not_balanced",
            "The kernel doesn't balance load over isolated CPUs: all threads of service %s stay on the one it starts on, unless they "
            "choose their CPUs themselves. %s" % (service.name, offer),
            service=service.name,
            cpus=chosen,
        )
    if not chosen.isdisjoint(cpus.reserved):
        notes.warning(
            "pinned_on_reserved",
            "Service %s shares CPUs with the system and the device interrupts." % service.name,
            cpus=chosen & cpus.reserved,
        )
    if static and not chosen <= cpus.reserved:
        notes.warning(
            "pinned_beside_kubelet",
            "kubelet knows nothing of service %s and gives its CPUs to pods too, to some for their exclusive use." % service.name,
            cpus=chosen - cpus.reserved,
        )
