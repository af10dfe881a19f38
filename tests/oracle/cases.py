"""Random nodes and what happens on them: machines, kubelet's configurations, device plugins and sequences of pods."""

from __future__ import annotations

import random
from typing import Any

from ansible_collections.gpufleet.node.plugins.module_utils.core.feature_gates import is_on
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_rules import threshold_of
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_tables import CPU_OPTIONS, TOPOLOGY_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology

MIB = 1 << 20
GPU, NIC = "nvidia.com/gpu", "example.com/nic"
Json = dict[str, Any]

# Feature gates belong to a process: few sets, so that few processes do. Some depend on one that is off here.
WITHOUT_POD_LEVEL = {
    "PodLevelResources": 34,
    "InPlacePodLevelResourcesVerticalScaling": 36,
    "PodLevelResourcesFixDefaulting": 37,
    "PodLevelResourcesFixKubeletQOSClass": 37,
}


def gates_of(rng: random.Random, minor: int) -> dict[str, bool]:
    """One of the sets of feature gates."""
    known: list[dict[str, bool]] = [
        {},
        {"CPUManagerPolicyAlphaOptions": True},
        {name: False for name, since in WITHOUT_POD_LEVEL.items() if minor >= since},
        {"AllBeta": False},
        {"AllBeta": True},
        {"AllAlpha": True} if minor < 37 else {"AllAlpha": True, "AllBeta": True},  # 1.37 has alpha gates that need betas which are off
    ]
    if minor >= 36:
        known.append({"CPUManagerPolicyAlphaOptions": True, "PodLevelResourceManagers": True})
    return rng.choices(known, (12, 4, 2, 1, 2, 2, 6)[: len(known)])[0]


def machine(rng: random.Random) -> Json:
    """The description of a small machine, for tests/machines."""
    packages, threads = rng.choice((1, 1, 2, 2, 2, 3)), rng.choice((1, 2, 2, 2, 4))
    nodes_per_package = rng.choice((1, 1, 1, 2)) if packages > 1 else rng.choice((1, 1, 2, 4))
    cores = nodes_per_package * rng.randint(2, 6)
    with_cpus = packages * nodes_per_package
    extra = rng.choice((0, 0, 0, 1)) if with_cpus < 4 else 0
    ids = sorted(rng.sample(range(12), with_cpus + extra)) if rng.random() < 0.2 else list(range(with_cpus + extra))
    numbering = rng.choice(("linear", "linear", "interleaved", "adjacent"))
    every = range(packages * cores * threads)
    offline = rng.sample(every[1:], rng.randint(1, 3)) if rng.random() < 0.15 and len(every) > 8 else []
    cpu = {"packages": packages, "cores": cores, "threads": threads, "numbering": numbering, "offline": ",".join(map(str, sorted(offline)))}
    description: Json = {
        "cpu": cpu,
        "caches": {"l3_cores": rng.choice((0, 1, 2, 2, 3, 4, cores))},
        "cpufreq": None,
        "numa": {
            "nodes": [
                {"id": id_, "cores": cores // nodes_per_package if number < with_cpus else 0, "memory": f"{rng.choice((1, 2, 4, 8))}GiB"}
                for number, id_ in enumerate(ids)
            ],
            "distances": {"near": rng.choice((11, 12, 20)), "far": rng.choice((20, 21, 32)), "cpuless": 40},
        },
    }
    if rng.random() < 0.3:
        description["hugepages"] = {"2MiB": {id_: rng.choice((0, 32, 64)) for id_ in ids}}
    return description


def devices(rng: random.Random, topology: Topology) -> list[Json]:
    """What device plugins report."""
    found = []
    for resource, chance in ((GPU, 0.7), (NIC, 0.2)):
        if rng.random() < chance:
            unknown = rng.random() < 0.1
            for node in topology.numa_nodes:
                for number in range(rng.choice((0, 1, 2, 4)) if node.cpus else 0):
                    place = None if unknown or rng.random() < 0.03 else node.id
                    found.append({"id": f"{resource[-3:]}-{node.id}-{number}", "numa": place, "resource": resource})
    return found


def configuration(rng: random.Random, minor: int, topology: Topology) -> Json:
    """A KubeletConfiguration. kubelet may refuse it: some options exclude others."""
    gates = gates_of(rng, minor)
    chosen: Json = {"featureGates": gates} if gates else {}
    cpus = list(topology.cpus.online)
    policy = rng.choice(("none", "best-effort", "best-effort", "restricted", "restricted", "single-numa-node", "single-numa-node"))
    chosen["topologyManagerPolicy"] = policy
    chosen["topologyManagerScope"] = rng.choice(("container", "pod"))
    reserved: Json = {}
    if rng.random() < 0.9:
        chosen["cpuManagerPolicy"] = "static"
        options = cpu_options(rng, minor, gates)
        if options:
            chosen["cpuManagerPolicyOptions"] = options
    if rng.random() < 0.6:
        cores = [list(core) for core in topology.cores]
        whole = rng.random() < 0.7
        taken = rng.sample(cores, min(len(cores) - 1, rng.randint(1, 2))) if whole else [rng.sample(cpus, rng.randint(1, 2))]
        chosen["reservedSystemCPUs"] = ",".join(str(cpu) for core in taken for cpu in core)
    else:
        reserved["cpu"] = rng.choice(("500m", "1", "1500m", "2"))
    chosen.update(memory(rng, topology, reserved))
    if policy != "none" and rng.random() < 0.25:
        values = {"max-allowable-numa-nodes": "9", "prefer-closest-numa-nodes": rng.choice(("true", "true", "false"))}
        chosen["topologyManagerPolicyOptions"] = {name: values[name] for name in rng.sample(sorted(TOPOLOGY_OPTIONS), rng.randint(1, 2))}
    if rng.random() < 0.1:
        chosen["maxPods"] = rng.randint(2, 5)
    if rng.random() < 0.05:
        chosen["podsPerCore"] = 1
    return chosen


def cpu_options(rng: random.Random, minor: int, gates: dict[str, bool]) -> dict[str, str]:
    """Options of the static CPU policy that this minor offers under these gates."""
    stages = {name: [stage for since, stage in stages if since <= minor] for name, stages in CPU_OPTIONS.items()}
    opened = {stage: is_on(f"CPUManagerPolicy{stage.title()}Options", gates, minor) for stage in ("alpha", "beta")}
    offered = [name for name, known in stages.items() if known and opened.get(known[-1], True)]
    count = min(rng.choice((0, 1, 1, 1, 2, 2, 3)), len(offered))
    return {name: "true" if rng.random() < 0.9 else "false" for name in rng.sample(offered, count)}


def memory(rng: random.Random, topology: Topology, reserved: Json) -> Json:
    """Reserves of memory, exact where the memory manager is Static."""
    threshold = rng.choice(("100Mi", "100Mi", "64Mi", "1%", "2%"))
    evicted = threshold_of({"evictionHard": {"memory.available": threshold}}, topology.memory_bytes)
    kube = rng.choice((0, 0, 32)) * MIB
    places = [node for node in topology.numa_nodes if node.memory_bytes]
    chosen: Json = {"evictionHard": {"memory.available": threshold}, "systemReserved": reserved}
    system = rng.randint(64, 256) * MIB
    if kube:
        chosen["kubeReserved"] = {"memory": str(kube)}
    if rng.random() < 0.65:
        total = system + kube + evicted
        chosen["memoryManagerPolicy"] = "Static"
        shares = [rng.choice((0, 1, 1, 2)) for unused in places]
        shares[0] = shares[0] or 1
        amounts = [total * share // sum(shares) for share in shares]
        amounts[0] += total - sum(amounts)
        chosen["reservedMemory"] = [
            {"numaNode": node.id, "limits": {"memory": str(amount)}} for node, amount in zip(places, amounts) if amount
        ]
    if system or kube:
        reserved["memory"] = str(system)
    return chosen


def events(rng: random.Random, minor: int, topology: Topology, reported: list[Json], whole_pods: bool) -> list[Json]:
    """Pods that come and go."""
    made, running = [], []
    sizes = Sizes(rng, topology, sorted({device["resource"] for device in reported}))
    for number in range(rng.randint(3, 14)):
        if running and rng.random() < 0.3:
            made.append({"remove": running.pop(rng.randrange(len(running)))})
        name = f"p{number}"
        made.append({"add": pod(rng, name, sizes, minor >= 34 and rng.random() < (0.3 if whole_pods else 0.05))})
        running.append(name)
    return made


class Sizes:
    """Amounts that make a node tight."""

    def __init__(self, rng: random.Random, topology: Topology, resources: list[str]) -> None:
        self.rng = rng
        self.per_core = topology.threads_per_core
        self.online = len(topology.cpus.online)
        self.memory = [node.memory_bytes // MIB for node in topology.numa_nodes if node.memory_bytes]
        self.pages = any(pool.total for node in topology.numa_nodes for pool in node.hugepages.values())
        self.resources = resources
        self.large = rng.random() < 0.5

    def cpus(self) -> int:
        """Whole CPUs."""
        rng = self.rng
        most = max(1, self.online // (2 if self.large else 6))
        whole = rng.randint(1, most)
        return max(1, whole // self.per_core) * self.per_core if rng.random() < 0.6 else whole

    def mebibytes(self) -> int:
        """An amount of memory."""
        rng = self.rng
        most = rng.choice(self.memory) // (1 if self.large else 4)
        return rng.choice((16, 64, rng.randint(16, max(17, most)), most * 7 // 8))

    def more(self) -> dict[str, str]:
        """Hugepages and devices."""
        rng, found = self.rng, {}
        if self.pages and rng.random() < 0.3:
            found["hugepages-2Mi"] = f"{rng.choice((2, 8, 32, 64, 96))}Mi"
        for resource in self.resources:
            if rng.random() < 0.45:
                found[resource] = str(rng.choice((1, 1, 1, 2, 2, 3, 4, 6)))
        return found


def pod(rng: random.Random, name: str, sizes: Sizes, whole: bool) -> Json:
    """A pod of any kind."""
    kind = rng.choices(("whole", "part", "mixed", "burstable", "nothing"), (60, 10, 10, 12, 5))[0]
    spec: Json = {"containers": [container(rng, f"c{number}", kind, sizes) for number in range(rng.choice((1, 1, 1, 2, 2, 3)))]}
    starters = [container(rng, f"i{number}", kind, sizes) for number in range(rng.choice((0, 0, 0, 0, 1, 1, 2, 3)))]
    for one in starters:
        if rng.random() < 0.4:
            one["restartPolicy"] = "Always"
    if starters:
        spec["initContainers"] = starters
    if whole:
        spec["resources"] = of_the_pod(rng, [*starters, *spec["containers"]])
    return {"metadata": {"name": name}, "spec": spec}


def container(rng: random.Random, name: str, kind: str, sizes: Sizes) -> Json:
    """A container of a pod of this kind."""
    if kind == "mixed":
        kind = rng.choice(("whole", "part", "burstable"))
    memory_ = f"{sizes.mebibytes()}Mi"
    if kind == "nothing":
        return {"name": name, "resources": {}}
    if kind == "burstable":
        requests = {"cpu": rng.choice(("100m", "1", "2", str(sizes.cpus())))}
        if rng.random() < 0.7:
            requests["memory"] = memory_
        more = sizes.more() if rng.random() < 0.4 else {}
        return {"name": name, "resources": {"requests": {**requests, **more}, "limits": more}}
    cpu = str(sizes.cpus()) if kind == "whole" else rng.choice(("500m", "1500m", "2500m"))
    return {"name": name, "resources": {"limits": {"cpu": cpu, "memory": memory_, **sizes.more()}}}


def of_the_pod(rng: random.Random, containers: list[Json]) -> Json:
    """Resources of the pod as a whole, enough for its containers; some of those lose their own."""
    cpus = 0
    memory_ = 0
    for one in containers:
        limits = one["resources"].get("limits", {})
        limits.pop(GPU, None), limits.pop(NIC, None), limits.pop("hugepages-2Mi", None)
        requests = one["resources"].get("requests", {})
        requests.pop(GPU, None), requests.pop(NIC, None), requests.pop("hugepages-2Mi", None)
        if rng.random() < 0.4:
            one["resources"] = {}
        asked = {**one["resources"].get("limits", {}), **one["resources"].get("requests", {})}
        cpu = asked.get("cpu", "0")
        cpus += int(cpu[:-1]) if cpu.endswith("m") else int(cpu) * 1000
        memory_ += int(asked.get("memory", "0Mi")[:-2])
    cpus += rng.choice((0, 0, 1000, 2000))
    cpus = max(cpus, 1000)
    memory_ += rng.choice((0, 16, 64))
    total = {"cpu": f"{cpus}m" if rng.random() < 0.2 else str(-(-cpus // 1000)), "memory": f"{memory_ or 16}Mi"}
    return {"requests": total, "limits": total} if rng.random() < 0.85 else {"limits": total}
