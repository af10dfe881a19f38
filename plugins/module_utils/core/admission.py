# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What kubelet does with a pod: admit it and with which CPUs, memory and devices, or refuse it and why.

`node_of` makes the Node of facts, a KubeletConfiguration and a kubelet minor; `admit`, `start` and `remove` are what happens to pods on it,
each from one State to the next. The order is kubelet's: its topology manager first (hints of devices, CPUs and memory, then their
allocation, container by container), then the sums of requests, then features. What a refused pod had been given is taken back.

Not predicted: taints, node affinity, ports, ephemeral storage, dynamic resource allocation and resizes.
Sources: pkg/kubelet/cm/topologymanager/scope_*.go, pkg/kubelet/lifecycle/predicate.go, handlers.go, pkg/kubelet/kubelet.go.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import admission_cpu, admission_devices, admission_topology
from .admission_cpu import NotEnoughCpus, Options
from .admission_machine import Cpus, KubeletHangs, bits_of, cpu_count, cpus_of, popcount
from .admission_memory import Block, Crash, Memory, NoMemory, hugepages, memory_of, memory_requests
from .admission_topology import Affinity, BadDistances, Hints, Policy
from .cpuset import CpuSet
from .errors import InvalidInput
from .feature_gates import is_on
from .kubelet_fields import EVICTION_DEFAULTS
from .kubelet_rules import NUMA_IDS, threshold_of
from .kubelet_view import as_kubelet
from .pods import CPU, GUARANTEED, HUGEPAGES, MEMORY, Amounts, Container, Pod, combined, describe, is_extended
from .preemption import victims
from .quantity import parse_quantity
from .topology import Topology

# kubelet's reasons. The last two are no reasons of kubelet: it doesn't come back from the pod.
AFFINITY, SMT, UNEXPECTED = "TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"
EMPTY_POOL, NO_POD_LEVEL, OUT_OF = "EmptyPodSharedPoolError", "PodLevelResourcesNotSupported", "OutOf"
HANGS, CRASHES = "KubeletHangs", "KubeletCrashes"

# The minors that changed what happens to pods with resources of their own (KEP-2837, KEP-5526).
POD_LEVEL_MANAGERS, NO_MEMORY_REQUEST_IS_FINE = 36, 37

DEFAULT_MAX_PODS = 110


@dataclass(frozen=True)
class Node:
    """A node as kubelet's managers see it. Sets of CPUs and of NUMA nodes are masks.

    ``devices``: how many of each resource belong to which NUMA nodes. ``allocatable``: what the node has for pods, in a pod's units.
    ``pod_level``: kubelet knows resources of a pod as a whole; ``pod_managers``: its managers allocate by them.
    """

    cpus: Cpus
    numa_nodes: int
    static: bool
    options: Options
    reserved: int
    policy: Policy
    scope: str
    memory: Optional[Memory]
    devices: Mapping[str, Mapping[int, int]]
    allocatable: Amounts
    minor: int
    pod_level: bool
    pod_managers: bool

    @property
    def reserved_cores(self) -> int:
        """The reserved CPUs with all their siblings."""
        return sum(core for core in self.cpus.cores.values() if core & self.reserved)

    def empty(self) -> State:
        """The node without pods."""
        shared = self.cpus.all & ~self.reserved if self.options.strict and self.static else self.cpus.all
        free = {resource: dict(counts) for resource, counts in self.devices.items()}
        return State(shared, self.memory.copy() if self.memory else None, free)


@dataclass
class State:
    """What pods have. ``shared`` are the CPUs of the shared pool, reserved ones among them unless they are strictly reserved; the rest is
    keyed by the pods' keys. Treat it as a value: `admit`, `start` and `remove` return another."""

    shared: int
    memory: Optional[Memory]
    free_devices: Dict[str, Dict[int, int]]
    pods: Dict[str, Pod] = field(default_factory=dict)
    cpus: Dict[str, Dict[str, int]] = field(default_factory=dict)
    pod_cpus: Dict[str, int] = field(default_factory=dict)
    blocks: Dict[str, Dict[str, Tuple[Block, ...]]] = field(default_factory=dict)
    pod_blocks: Dict[str, Tuple[Block, ...]] = field(default_factory=dict)
    devices: Dict[str, Dict[str, Dict[int, int]]] = field(default_factory=dict)

    def copy(self) -> State:
        """Another that can change; what belongs to one pod is replaced, never changed."""
        return State(
            self.shared, self.memory.copy() if self.memory else None,
            {resource: dict(counts) for resource, counts in self.free_devices.items()},
            dict(self.pods), dict(self.cpus), dict(self.pod_cpus), dict(self.blocks), dict(self.pod_blocks), dict(self.devices),
        )  # fmt: skip


@dataclass
class Placement:
    """What one container gets. ``cpus``: exclusive ones, or those that its pod shares alone (``exclusive`` False); empty: the shared pool.

    ``nodes``: what the topology manager settled on, None when anything goes. ``devices``: by resource and NUMA nodes (a mask);
    ``certain`` False: kubelet chooses between NUMA nodes, and the counts are what NVIDIA's plugin prefers.
    """

    name: str
    kind: str
    nodes: Optional[int] = None
    cpus: int = 0
    exclusive: bool = False
    memory: Tuple[Block, ...] = ()
    devices: Dict[str, Dict[int, int]] = field(default_factory=dict)
    certain: bool = True

    @property
    def cpu_list(self) -> str:
        """The CPUs as a cpulist."""
        return CpuSet.from_int(self.cpus).to_list()

    @property
    def memory_nodes(self) -> List[int]:
        """The NUMA nodes of its memory."""
        return sorted({node for block in self.memory for node in bits_of(block.nodes)})


@dataclass(frozen=True)
class Verdict:
    """What becomes of a pod. A refused one has kubelet's reason, and a message of ours. ``ends``: the pods that kubelet ends for it."""

    pod: str
    qos: str
    admitted: bool
    reason: str
    message: str
    containers: Tuple[Placement, ...]
    ends: Tuple[str, ...] = ()


class Refused(Exception):
    """kubelet refuses the pod."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


# --- the node -----------------------------------------------------------------------------------------------------------------------------


def node_of(topology: Topology, configuration: Mapping[str, Any], minor: int, devices: Mapping[str, Mapping[int, int]]) -> Node:
    """The node of facts under a KubeletConfiguration (base file, drop-ins and flags merged) that kubelet 1.``minor`` accepts.

    ``devices``: how many healthy devices of each resource belong to which NUMA nodes, as a mask (0: their plugin doesn't say).

    :raises InvalidInput: an amount in the configuration is none, or kubelet makes nothing of this machine
    """
    seen = as_kubelet(topology)
    _check_ids(seen, configuration)
    cpus = cpus_of(seen)
    numa_nodes = sum(1 << node.id for node in seen.numa_nodes)
    options = admission_cpu.options_of(configuration, minor)
    gates = configuration.get("featureGates")
    pod_level = is_on("PodLevelResources", gates, minor)
    distances = {node.id: node.distances for node in seen.numa_nodes}
    return Node(
        cpus,
        numa_nodes,
        configuration.get("cpuManagerPolicy") == "static",
        options,
        _reserved(cpus, configuration, options),
        admission_topology.policy_of(configuration, numa_nodes, distances),
        str(configuration.get("topologyManagerScope") or "container"),
        memory_of(seen, configuration),
        devices,
        _allocatable(topology, configuration, devices),
        minor,
        pod_level,
        pod_level and is_on("PodLevelResourceManagers", gates, minor),
    )


def _check_ids(seen: Topology, configuration: Mapping[str, Any]) -> None:
    """What kubelet must be able to tell apart.

    :raises InvalidInput: it finds no CPUs, or has no room for the number of a NUMA node in its sets of them
    """
    aligns = (configuration.get("topologyManagerPolicy") or "none") != "none" or configuration.get("memoryManagerPolicy") == "Static"
    beyond = [node.id for node in seen.numa_nodes if node.id < 0 or (node.id >= NUMA_IDS and aligns)]
    if beyond or not seen.cores:
        found = "NUMA nodes %s, and it can't count beyond 0 to %d" % (", ".join(map(str, beyond)), NUMA_IDS - 1) if beyond else "no CPUs"
        raise InvalidInput("kubelet would find %s on this machine." % found, "Its managers don't work there: no pod can be predicted.")


def _reserves(configuration: Mapping[str, Any], resource: str) -> int:
    """kubeReserved and systemReserved of a resource together, in a pod's units."""
    amounts = [(configuration.get(name) or {}).get(resource, 0) for name in ("kubeReserved", "systemReserved")]
    unit = 1000 if resource == CPU else 1
    return sum(-int(-parse_quantity(amount, "the reservation of " + resource) * unit // 1) for amount in amounts)


def _reserved(cpus: Cpus, configuration: Mapping[str, Any], options: Options) -> int:
    """The reserved CPUs; where only their number is given, kubelet takes them as it does for a container."""
    named = CpuSet.parse(str(configuration.get("reservedSystemCPUs") or "")).bits
    if named or configuration.get("cpuManagerPolicy") != "static":
        return named
    return admission_cpu.take(cpus, cpus.all, -(-_reserves(configuration, CPU) // 1000), options)


def _allocatable(topology: Topology, configuration: Mapping[str, Any], devices: Mapping[str, Mapping[int, int]]) -> Dict[str, int]:
    """What the node reports as allocatable."""
    named = CpuSet.parse(str(configuration.get("reservedSystemCPUs") or ""))
    reserved_cpu = len(named) * 1000 if named else _reserves(configuration, CPU)
    pages: Dict[int, int] = dict.fromkeys(topology.hugepage_sizes, 0)
    for node in topology.numa_nodes:
        for size, pool in node.hugepages.items():
            pages[size] = pages.get(size, 0) + size * pool.total
    reserved_memory = _reserves(configuration, MEMORY) + _eviction(topology.memory_bytes, configuration)
    online = cpu_count(topology)
    per_core = int(configuration.get("podsPerCore") or 0)
    max_pods = int(configuration.get("maxPods") or DEFAULT_MAX_PODS)
    return {
        "pods": min(max_pods, online * per_core) if per_core else max_pods,
        CPU: max(0, online * 1000 - reserved_cpu),
        MEMORY: max(0, max(0, topology.memory_bytes - reserved_memory) - sum(pages.values())),
        **{hugepages(size): amount for size, amount in pages.items()},
        **{resource: sum(counts.values()) for resource, counts in devices.items()},
    }


def _eviction(memory: int, configuration: Mapping[str, Any]) -> int:
    """The hard eviction threshold of memory in bytes."""
    hard = configuration.get("evictionHard")
    if hard is None or configuration.get("mergeDefaultEvictionSettings"):
        hard = {**EVICTION_DEFAULTS, **(hard or {})}
    return threshold_of({"evictionHard": hard}, memory)


def beyond(node: Node, pod: Pod) -> List[str]:
    """The resources of which the pod asks for more than the node has for all pods: no policy and no end of other pods lets it in."""
    return list(_lack_of(node, {"pods": 1, **pod.total_requests(node.pod_level)}, {}))


# --- what happens to pods -----------------------------------------------------------------------------------------------------------------


def admit(node: Node, state: State, pod: Pod) -> Tuple[Verdict, State]:
    """kubelet's answer to a pod, and the node after it."""
    admission = _Admission(node, state.copy(), pod)
    try:
        admission.run()
    except Refused as refused:
        return _verdict(admission, refused), _without(admission.state, pod)
    except NotEnoughCpus as problem:
        return _verdict(admission, Refused(UNEXPECTED, "CPUs can't be allocated: %s." % problem)), _without(admission.state, pod)
    except NoMemory as problem:
        return _verdict(admission, Refused(UNEXPECTED, "Memory can't be allocated: %s." % problem)), _without(admission.state, pod)
    except (KubeletHangs, Crash, BadDistances) as problem:
        reason = HANGS if isinstance(problem, KubeletHangs) else CRASHES
        return _verdict(admission, Refused(reason, "kubelet doesn't come back from this pod: %s." % problem)), state
    admission.state.pods[pod.key] = pod
    return _verdict(admission, None), admission.state


def start(node: Node, state: State, pod: Pod) -> State:
    """The node when an admitted pod's containers run: the memory of its init containers is free again (their CPUs are not)."""
    state = state.copy()
    done = {one.name for one in pod.containers if one.kind == "init"}
    if not done or state.memory is None or pod.key not in state.blocks:
        return state
    if pod.key not in state.pod_blocks:
        for name in done:
            state.memory.release(state.blocks[pod.key].get(name, ()))
    state.blocks[pod.key] = {name: blocks for name, blocks in state.blocks[pod.key].items() if name not in done}
    return state


def remove(node: Node, state: State, pod: Pod) -> State:
    """The node after a pod has ended."""
    return _without(state.copy(), pod)


def _without(state: State, pod: Pod) -> State:
    key = pod.key
    state.pods.pop(key, None)
    containers = state.cpus.pop(key, {})
    whole = state.pod_cpus.pop(key, None)
    for cpus in containers.values():
        state.shared |= cpus if whole is None else whole
    blocks, whole_blocks = state.blocks.pop(key, {}), state.pod_blocks.pop(key, None)
    if state.memory:
        for some in blocks.values() if whole_blocks is None else [whole_blocks]:
            state.memory.release(some)
    for resource, counts in state.devices.pop(key, {}).items():
        state.free_devices[resource] = dict(Counter(state.free_devices[resource]) + Counter(counts))
    return state


def _verdict(admission: _Admission, refused: Optional[Refused]) -> Verdict:
    pod = admission.pod
    if refused:
        return Verdict(pod.name, admission.qos, False, refused.reason, refused.message, ())
    return Verdict(pod.name, admission.qos, True, "", "", tuple(admission.placements.values()), tuple(admission.ends))


class _Admission:
    """One pod on its way through kubelet's admission. ``state`` changes."""

    def __init__(self, node: Node, state: State, pod: Pod) -> None:
        self.node, self.state, self.pod = node, state, pod
        self.qos = pod.qos_class(node.pod_level)
        self.placements = {one.name: Placement(one.name, one.kind) for one in pod.containers}
        self.managed_as_pod = node.pod_managers and pod.has_pod_level
        known = node.pod_level if node.minor < POD_LEVEL_MANAGERS else True
        self.left_alone = known and pod.has_pod_level and not node.pod_managers
        # what init containers leave for the next: CPUs, memory by NUMA nodes and kind, devices by resource
        self.cpus_left = 0
        self.memory_left: Dict[int, Dict[str, int]] = {}
        self.devices_left: Dict[str, Dict[int, int]] = {}
        self.ends: List[str] = []

    def run(self) -> None:
        """The whole admission.

        :raises Refused: and the exceptions of the managers
        """
        if self.node.policy.name == admission_topology.NONE:
            for container in self.pod.containers:
                self._allocate(container, Affinity())
        elif self.node.scope == "pod":
            self._by_pod()
        else:
            for container in self.pod.containers:
                self._allocate(container, self._agree(self._hints(container)))
        self._check_sums()
        if self.pod.has_pod_level and not self.node.pod_level:
            raise Refused(NO_POD_LEVEL, "kubelet's feature gate PodLevelResources is off.")

    def _by_pod(self) -> None:
        affinity = self._agree(self._pod_hints())
        if self.managed_as_pod:
            self._allocate_pod_cpus(affinity)
            self._allocate_pod_memory(affinity)
        for container in self.pod.containers:
            if self.managed_as_pod:  # devices are allocated later, when the container starts
                self.placements[container.name].nodes = affinity.nodes
                self._allocate_devices(container, affinity)
            else:
                self._allocate(container, affinity)

    def _agree(self, hints: List[Hints]) -> Affinity:
        affinity, admitted = self.node.policy.merge(hints)
        if not admitted:
            raise Refused(AFFINITY, "CPUs, memory and devices don't come together as the topology policy %s wants." % self.node.policy.name)
        return affinity

    def _allocate(self, container: Container, affinity: Affinity) -> None:
        self.placements[container.name].nodes = affinity.nodes
        self._allocate_devices(container, affinity)
        self._allocate_cpus(container, affinity)
        self._allocate_memory(container, affinity)

    # --- hints

    def _hints(self, container: Container) -> List[Hints]:
        found = self._device_hints(container.limits, self.devices_left)
        count = self._exclusive(container)
        if count and not self.left_alone:
            found.append(self._cpu_hints(count))
        return found + self._memory_hints(self._memory_of(container), self.memory_left)

    def _pod_hints(self) -> List[Hints]:
        found = self._device_hints(self.pod.total_limits(), {})
        count = self._exclusive_of_pod()
        if count and not self.left_alone:
            found.append({} if self.managed_as_pod and self._cpu_pool_is_empty(count) else self._cpu_hints(count))
        requests = self._memory_of_pod()
        if self.state.memory and requests and self.managed_as_pod and self._memory_pool_is_empty(requests):
            return [*found, {}]
        return found + self._memory_hints(requests, {})

    def _cpu_hints(self, count: int) -> Hints:
        node = self.node
        return admission_cpu.hints(node.cpus, self.state.shared & ~node.reserved, self.cpus_left, count, node.options.by_socket)

    def _memory_hints(self, requests: Amounts, left: Mapping[int, Amounts]) -> List[Hints]:
        """The same hints for each kind of memory: where no set is preferred, kubelet combines different ones of several kinds."""
        if self.state.memory is None or self.left_alone or not requests:
            return []
        hints = self.state.memory.hints(requests, left)
        return [hints] * len(requests) if hints else []

    def _device_hints(self, limits: Amounts, left: Mapping[str, Mapping[int, int]]) -> List[Hints]:
        node = self.node
        return [
            admission_devices.hints(
                node.devices[resource], self.state.free_devices[resource], left.get(resource, {}), count, node.numa_nodes, node.minor
            )
            for resource, count in limits.items()
            if resource in node.devices and admission_devices.has_affinity(node.devices[resource])
        ]

    # --- devices

    def _allocate_devices(self, container: Container, affinity: Affinity) -> None:
        placement = self.placements[container.name]
        for resource, count in container.limits.items():
            if resource not in self.node.devices:
                continue
            if not any(self.node.devices[resource].values()):
                raise Refused(UNEXPECTED, "No healthy device of %s is there." % resource)
            left, free = self.devices_left.get(resource, {}), self.state.free_devices[resource]
            try:
                grant = admission_devices.take(self.node.devices[resource], free, left, count, affinity.nodes or 0)
            except admission_devices.NoDevices as problem:
                raise Refused(UNEXPECTED, "Devices of %s can't be allocated: %s." % (resource, problem)) from None
            if not count:
                continue
            fresh = Counter(grant.counts) - Counter(grant.again)
            self.state.free_devices[resource] = dict(Counter(free) - fresh)
            held = self.state.devices.get(self.pod.key, {})
            self.state.devices[self.pod.key] = {**held, resource: dict(Counter(held.get(resource, {})) + fresh)}
            again = Counter(left) + fresh if container.kind == "init" else Counter(left) - Counter(grant.again)
            self.devices_left[resource] = dict(again)
            placement.devices[resource] = dict(grant.counts)
            placement.certain = placement.certain and grant.certain

    # --- CPUs

    def _exclusive(self, container: Container) -> int:
        """How many CPUs of its own the container gets: only Guaranteed pods, only whole numbers."""
        cpu = container.requests.get(CPU, 0)
        if not self.node.static or self.qos != GUARANTEED or cpu % 1000 or (self.managed_as_pod and not container.guaranteed):
            return 0
        return cpu // 1000

    def _exclusive_of_pod(self) -> int:
        if not self.managed_as_pod:
            return combined([(one.kind, {CPU: self._exclusive(one)}) for one in self.pod.containers]).get(CPU, 0)
        cpu = (self.pod.requests or {}).get(CPU, 0)
        return 0 if not self.node.static or self.qos != GUARANTEED or cpu % 1000 else cpu // 1000

    def _allocate_cpus(self, container: Container, affinity: Affinity) -> None:
        count = self._exclusive(container)
        if not count or self.left_alone:
            return
        self._check_smt(count)
        cpus = self._take_cpus(count, affinity, self.cpus_left)
        self._set_cpus(container, cpus, True)
        self.cpus_left = self.cpus_left | cpus if container.kind == "init" else self.cpus_left & ~cpus

    def _check_smt(self, count: int) -> None:
        if not self.node.options.full_cores:
            return
        per_core = self.node.cpus.per_core
        if count % per_core:
            raise Refused(SMT, "%d CPUs are no multiple of the %d threads of a core." % (count, per_core))
        free = popcount(self.state.shared & ~self.node.reserved_cores)
        if count > free:
            raise Refused(SMT, "%d CPUs are asked for, and whole cores that hold nothing reserved have %d free." % (count, free))

    def _take_cpus(self, count: int, affinity: Affinity, left: int) -> int:
        node = self.node
        free = self.state.shared & ~node.reserved | left
        taken = 0
        if affinity.nodes is not None:
            aligned = free & node.cpus.in_nodes(affinity.nodes)
            if node.options.by_socket:
                aligned = free & sum(node.cpus.sockets[one] for one in node.cpus.sockets_of_nodes(affinity.nodes))
            taken = admission_cpu.take(node.cpus, aligned, min(count, popcount(aligned)), node.options)
        taken |= admission_cpu.take(node.cpus, free & ~taken, count - popcount(taken), node.options)
        self.state.shared &= ~taken
        return taken

    def _set_cpus(self, container: Container, cpus: int, exclusive: bool) -> None:
        self.state.cpus[self.pod.key] = {**self.state.cpus.get(self.pod.key, {}), container.name: cpus}
        placement = self.placements[container.name]
        placement.cpus, placement.exclusive = cpus, exclusive

    def _cpu_pool_is_empty(self, count: int) -> bool:
        """Whether containers without CPUs of their own would find none left within their pod's."""
        own, sharing = 0, False
        for container in self.pod.containers:
            cpus = self._exclusive(container)
            if container.kind == "init":
                if not cpus and own >= count:
                    return True
            else:
                own += cpus
                sharing = sharing or not cpus
        return sharing and own >= count

    def _allocate_pod_cpus(self, affinity: Affinity) -> None:
        """CPUs for the pod, divided among its containers; those without CPUs of their own share the rest."""
        count = self._exclusive_of_pod()
        if not count:
            return
        if self._cpu_pool_is_empty(count):
            raise Refused(EMPTY_POOL, "Its containers take all CPUs of the pod, and one needs shared ones.")
        self._check_smt(count)
        pool = self._take_cpus(count, affinity, 0)
        self.state.pod_cpus[self.pod.key] = pool
        given: Dict[str, Tuple[int, bool]] = {}
        for container in self.pod.containers:
            own = self._exclusive(container)
            if own:
                given[container.name] = admission_cpu.take(self.node.cpus, pool, own, self.node.options), True
                if container.kind != "init":
                    pool &= ~given[container.name][0]
            elif container.kind == "init":
                given[container.name] = pool, False
        for container in self.pod.containers:
            self._set_cpus(container, *given.get(container.name, (pool, False)))

    # --- memory

    def _memory_of(self, container: Container) -> Dict[str, int]:
        """What the memory manager is to find for a container."""
        if self.qos != GUARANTEED or (self.managed_as_pod and not container.guaranteed):
            return {}
        return memory_requests(container.requests)

    def _memory_of_pod(self) -> Dict[str, int]:
        if self.qos != GUARANTEED:
            return {}
        if self.managed_as_pod:
            return {kind: size for kind, size in memory_requests(self.pod.requests or {}).items() if size}
        total = combined([(one.kind, self._memory_of(one)) for one in self.pod.containers])
        asked = {kind for one in self.pod.containers if one.kind == "app" for kind in self._memory_of(one)}
        return {kind: size for kind, size in total.items() if kind in asked}

    def _allocate_memory(self, container: Container, affinity: Affinity) -> None:
        memory, requests = self.state.memory, self._memory_of(container)
        if memory is None or self.qos != GUARANTEED or self.left_alone:
            return
        if not requests and self.node.minor >= NO_MEMORY_REQUEST_IS_FINE:
            return
        nodes = memory.place(affinity, requests, self.memory_left)
        blocks = tuple(Block(nodes, kind, size) for kind, size in sorted(requests.items()))
        left = self.memory_left.setdefault(nodes, {})
        for block in blocks:
            again = left.get(block.kind, 0)
            memory.assign(nodes, block.kind, max(0, block.size - again))
            left[block.kind] = max(again, block.size) if container.kind == "init" else max(0, again - block.size)
        self._set_memory(container, blocks)
        self._shrink_init_blocks(container, blocks)

    def _set_memory(self, container: Container, blocks: Tuple[Block, ...]) -> None:
        self.state.blocks[self.pod.key] = {**self.state.blocks.get(self.pod.key, {}), container.name: blocks}
        self.placements[container.name].memory = blocks

    def _shrink_init_blocks(self, container: Container, blocks: Tuple[Block, ...]) -> None:
        """Take what a container uses again out of the blocks of earlier init containers, so that each byte is counted once."""
        for block in blocks:
            size = block.size
            for earlier in self.pod.containers:
                if earlier.name == container.name:
                    break
                if earlier.kind != "init":
                    continue
                rest = []
                for old in self.state.blocks[self.pod.key].get(earlier.name, ()):
                    same = old.kind == block.kind and old.nodes == block.nodes
                    part = min(size, old.size) if same else 0
                    rest.append(Block(old.nodes, old.kind, old.size - part))
                    size -= part
                self._set_memory(earlier, tuple(rest))

    def _memory_pool_is_empty(self, total: Amounts) -> bool:
        """Whether containers without memory of their own would find none left within their pod's."""
        own: Counter[str] = Counter()
        sharing = False
        for container in self.pod.containers:
            amounts = self._memory_of(container)
            if container.kind != "init":
                own.update(amounts)
                sharing = sharing or not amounts
            elif not amounts and any(own[kind] >= size for kind, size in total.items()):
                return True
        return sharing and any(own[kind] >= size for kind, size in total.items())

    def _allocate_pod_memory(self, affinity: Affinity) -> None:
        """Memory for the pod on one set of NUMA nodes, divided among its containers."""
        memory, total = self.state.memory, self._memory_of_pod()
        if memory is None or self.qos != GUARANTEED:
            return
        if self._memory_pool_is_empty(total):
            raise Refused(EMPTY_POOL, "Its containers take all memory of the pod, and one needs shared memory.")
        nodes = memory.place(affinity, total, {})
        pool = Counter(total)
        given: Dict[str, Amounts] = {}
        for container in self.pod.containers:
            own = self._memory_of(container)
            if own:
                given[container.name] = own
                if container.kind != "init":
                    pool.subtract(own)
            elif container.kind == "init":
                given[container.name] = dict(pool)
        for kind, size in total.items():
            memory.assign(nodes, kind, size)
        self.state.pod_blocks[self.pod.key] = tuple(Block(nodes, kind, size) for kind, size in sorted(total.items()))
        for container in self.pod.containers:
            amounts = given.get(container.name, pool)
            self._set_memory(container, tuple(Block(nodes, kind, size) for kind, size in sorted(amounts.items()) if size > 0))

    # --- sums

    def _check_sums(self) -> None:
        """Whether what the node has suffices for the requests of all pods, whatever they use; for a critical pod others are ended."""
        node, others = self.node, list(self.state.pods.values())
        wanted = {"pods": 1, **self.pod.total_requests(node.pod_level)}
        used = Counter({"pods": len(others)})
        for other in others:
            used.update(other.total_requests(node.pod_level))
        lack = _lack_of(node, wanted, used)
        if not lack:
            return
        ended = victims(self.pod, others, lack, node.pod_level) if self.pod.critical else []
        if ended is None:
            raise Refused(UNEXPECTED, "It is critical, and no pods can be ended that ask for enough: %s more." % describe(lack))
        if not ended:
            resource = next(iter(lack))
            raise Refused(OUT_OF + resource, _lack_words(resource, wanted[resource], max(0, wanted[resource] - lack[resource])))
        for other in ended:
            self.ends.append(other.name)
            _without(self.state, other)


def _lack_of(node: Node, wanted: Mapping[str, int], used: Mapping[str, int]) -> Amounts:
    """How much more than what is left of the node is wanted, by resource in kubelet's order."""
    lack = {}
    for resource in sorted(wanted, key=lambda name: (name != "pods", name != CPU, name != MEMORY, name)):
        free = node.allocatable.get(resource, 0) - used.get(resource, 0)
        if wanted[resource] and wanted[resource] > free and _is_counted(resource, node):
            lack[resource] = wanted[resource] - free
    return lack


def _is_counted(resource: str, node: Node) -> bool:
    """kubelet leaves out what it doesn't know of (its node's other extended resources), and we ephemeral storage."""
    return resource in node.allocatable if is_extended(resource) else resource in ("pods", CPU, MEMORY) or resource.startswith(HUGEPAGES)


def _lack_words(resource: str, wanted: int, free: int) -> str:
    if resource == "pods":
        return "As many pods run as kubelet's maxPods allows."
    return "%s asked for, and %s not yet asked for by other pods." % (describe({resource: wanted}), describe({resource: free}))
