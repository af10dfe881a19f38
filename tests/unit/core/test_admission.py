"""What kubelet does with a pod: the order of things, its reasons, and that no CPU or byte gets lost. kubelet's own answers to random cases
are replayed in tests/oracle; here is what they are to mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GIB, make_topology, reference

from ansible_collections.gpufleet.node.plugins.module_utils.core import admission as model
from ansible_collections.gpufleet.node.plugins.module_utils.core.admission_machine import popcount
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.pods import GPU, parse_pod
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import HugepagePool, Topology

GPUS = {GPU: {0b01: 4, 0b10: 4}}
STATIC = {"memoryManagerPolicy": "Static", "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}]}


def node(topology: Topology, policy: str = "none", minor: int = 37, options: str = "", devices: Any = None, **fields: Any) -> model.Node:
    """A node with the static CPU manager and ``options`` ("a b"), that reserves the first core of each of two NUMA nodes."""
    configuration = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict.fromkeys(options.split(), "true"),
        "reservedSystemCPUs": ",".join(core.to_list() for core in (topology.cores[0], topology.cores[len(topology.cores) // 2])),
        "topologyManagerPolicy": policy,
        **fields,
    }
    return model.node_of(topology, configuration, minor, GPUS if devices is None else devices)


def pod(name: str = "pod", cpus: Any = 2, memory: Any = "1Gi", gpus: int = 0, **more: Any) -> Any:
    return parse_pod({"name": name, "cpus": cpus, "memory": memory, **({"gpus": gpus} if gpus else {}), **more})


def containers(*specs: tuple[str, str, Any, Any], name: str = "pod", gpus: int = 0, **spec: Any) -> Any:
    """A pod of (kind, name, cpu, memory), the last of which gets the GPUs: requests are limits."""
    made: dict[str, list[Any]] = {"initContainers": [], "containers": []}
    for kind, container, cpu, memory in specs:
        one = {"name": container, "resources": {"limits": {"cpu": cpu, "memory": memory}}}
        made["containers" if kind == "app" else "initContainers"].append(
            {**one, **({"restartPolicy": "Always"} if kind == "sidecar" else {})}
        )
    made["containers"][-1]["resources"]["limits"].update({GPU: gpus} if gpus else {})
    return parse_pod({"metadata": {"name": name}, "spec": {**made, **spec}})


def run(where: model.Node, *pods: Any) -> list[model.Verdict]:
    state, verdicts = where.empty(), []
    for one in pods:
        verdict, state = model.admit(where, state, one)
        verdicts.append(verdict)
    return verdicts


def of(verdict: model.Verdict, container: str | None = None) -> model.Placement:
    return next(one for one in verdict.containers if container in (None, one.name))


SMALL = make_topology(packages=2, cores=48, threads=2, l3_cores=8, memory=512 * GIB, gpus_per_node=4)


def test_a_job_that_fits_one_numa_node_gets_everything_from_it() -> None:
    (verdict,) = run(node(SMALL, "single-numa-node", **STATIC), pod(cpus=16, memory="128Gi", gpus=4))
    placement = of(verdict)
    assert (verdict.admitted, placement.cpu_list, placement.memory_nodes, placement.devices) == (True, "1-8,97-104", [0], {GPU: {1: 4}})


def test_single_numa_node_refuses_what_no_numa_node_has() -> None:
    where = node(SMALL, "single-numa-node")
    assert run(where, pod(cpus=16, gpus=8))[0].reason == "TopologyAffinityError"
    two_and_two = run(where, pod("a", gpus=2), pod("b", gpus=2, cpus=80), pod("c", cpus=4, gpus=4), pod("d", cpus=4, gpus=4))
    assert [verdict.reason for verdict in two_and_two] == ["", "", "", "TopologyAffinityError"]


@pytest.mark.parametrize(
    ("policy", "admitted"), [("single-numa-node", False), ("restricted", False), ("best-effort", True), ("none", True)]
)
def test_four_gpus_when_two_are_free_on_each_numa_node(policy: str, admitted: bool) -> None:
    where = node(SMALL, policy)
    state = where.empty()
    state.free_devices[GPU] = {0b01: 2, 0b10: 2}
    verdict, _after = model.admit(where, state, pod(cpus=16, gpus=4))
    assert verdict.admitted is admitted
    if admitted:
        assert of(verdict).devices == {GPU: {0b01: 2, 0b10: 2}}
    else:
        assert verdict.reason == "TopologyAffinityError"


def test_the_topology_manager_speaks_before_the_sums() -> None:
    small = node(make_topology(cores=4, memory=8 * GIB), "restricted")
    assert run(small, pod(cpus=40, memory="64Gi"))[0].reason == "TopologyAffinityError"
    assert run(small, pod(cpus="40", memory="64Gi", qos="Burstable"))[0].reason == "OutOfcpu"
    assert run(small, pod(cpus="1500m", memory="64Gi"))[0].reason == "OutOfmemory"


def test_without_a_topology_policy_too_few_cpus_are_unexpected() -> None:
    assert run(node(make_topology(cores=4)), pod(cpus=40))[0].reason == "UnexpectedAdmissionError"


@pytest.mark.parametrize(("cpus", "qos"), [("1500m", "Guaranteed"), ("2", "Burstable"), ("500m", "Burstable")])
def test_fractions_and_burstable_pods_run_in_the_shared_pool(cpus: str, qos: str) -> None:
    (verdict,) = run(node(SMALL, "single-numa-node", options="full-pcpus-only"), pod(cpus=cpus, qos=qos))
    assert (verdict.admitted, verdict.qos, of(verdict).cpus) == (True, qos, 0)


def test_full_cores_only() -> None:
    where = node(SMALL, options="full-pcpus-only")
    assert [verdict.reason for verdict in run(where, pod("odd", cpus=3), pod("even", cpus=4))] == ["SMTAlignmentError", ""]  # A11
    half_reserved = node(make_topology(packages=1, cores=6, threads=2), options="full-pcpus-only", reservedSystemCPUs="1,6", devices={})
    assert run(half_reserved, pod(cpus=10))[0].reason == "SMTAlignmentError"  # A9
    assert of(run(half_reserved, pod(cpus=8))[0]).cpu_list == "2-5,8-11"


def test_sidecars_take_exclusive_cpus_and_init_containers_lend_theirs() -> None:  # B24
    (verdict,) = run(node(SMALL), containers(("init", "first", 4, "1Gi"), ("sidecar", "log", 2, "1Gi"), ("app", "main", 6, "1Gi")))
    first, log, main = (of(verdict, name) for name in ("first", "log", "main"))
    assert popcount(first.cpus) == 4 and log.cpus & ~first.cpus == 0 and log.cpus & main.cpus == 0
    assert popcount(first.cpus & main.cpus) == 2


def test_distribution_acts_only_when_one_numa_node_is_too_small() -> None:
    where = node(reference(), options="full-pcpus-only distribute-cpus-across-numa")
    one, both = run(where, pod("one", cpus=90), pod("both", cpus=192))
    assert where.cpus.nodes_of(of(one).cpus) == 0b01
    assert [popcount(of(both).cpus & members) for members in where.cpus.numa.values()] == [96, 96]


def test_best_effort_still_refuses_when_memory_cannot_be_joined() -> None:  # B12
    topology = make_topology(cores=8, memory=16 * GIB)
    where = node(topology, "best-effort", **STATIC)
    first, wide, both = run(where, pod("first", memory="2Gi"), pod("wide", memory="15Gi"), pod("both", memory="17Gi"))
    assert first.admitted and wide.admitted
    assert (both.admitted, both.reason) == (False, "UnexpectedAdmissionError")
    assert of(run(where, pod("both", memory="17Gi"))[0]).memory_nodes == [0, 1]


def test_hugepages_come_from_as_few_numa_nodes_as_have_them() -> None:  # B13
    topology = make_topology(cores=8, memory=16 * GIB)
    pools = {2 << 20: HugepagePool(512, 512)}
    topology = topology.replace(numa_nodes=tuple(type(one)(**{**vars(one), "hugepages": pools}) for one in topology.numa_nodes))
    where = node(topology, "best-effort", **STATIC)
    few, many = run(where, pod("few", resources={"hugepages-2Mi": "800Mi"}), pod("many", resources={"hugepages-2Mi": "1600Mi"}))
    assert [of(few).memory_nodes, many.reason] == [[0], "UnexpectedAdmissionError"]
    assert of(run(where, pod("many", resources={"hugepages-2Mi": "1600Mi"}))[0]).memory_nodes == [0, 1]


def test_a_page_size_that_a_numa_node_lacks_crashes_kubelet() -> None:
    (verdict,) = run(node(SMALL, "best-effort", **STATIC), pod(resources={"hugepages-1Gi": "1Gi"}))
    assert verdict.reason == "KubeletCrashes"


def test_init_containers_memory_is_free_again_when_the_pod_runs() -> None:
    where = node(make_topology(cores=8, memory=16 * GIB), "best-effort", **STATIC)
    one = containers(("init", "load", 2, "8Gi"), ("app", "main", 2, "2Gi"))
    verdict, state = model.admit(where, where.empty(), one)
    assert state.memory and verdict.admitted
    at_admission = state.memory.nodes[0].used["memory"]
    running = model.start(where, state, one)
    assert running.memory and (at_admission, running.memory.nodes[0].used["memory"]) == (8 * GIB, 2 * GIB)


def test_a_share_of_memory_is_a_32_bit_float_as_in_kubelet() -> None:
    where = model.node_of(make_topology(packages=1, memory=8 * GIB), {"evictionHard": {"memory.available": "1%"}}, 37, {})
    assert where.allocatable["memory"] == 8 * GIB - 85899344  # a hundredth would be 85899345


def test_strictly_reserved_cpus_are_nobodys() -> None:  # A18, A19
    loose, strict = node(SMALL), node(SMALL, options="strict-cpu-reservation")
    assert loose.empty().shared == SMALL.cpus.online.bits
    assert strict.empty().shared == SMALL.cpus.online.bits & ~strict.reserved


def test_reserved_cpus_by_number_are_taken_as_for_a_container() -> None:  # A26
    where = model.node_of(SMALL, {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1500m"}}, 37, {})
    assert CpuSet.from_int(where.reserved).to_list() == "0,96"


@pytest.mark.parametrize(
    ("minor", "managers", "cpus"), [(34, False, ""), (36, False, ""), (36, True, "1-2,97-98"), (37, True, "1-2,97-98")]
)
def test_pod_level_resources_by_version(minor: int, managers: bool, cpus: str) -> None:
    gates = {"featureGates": {"PodLevelResourceManagers": True}} if managers else {}
    where = node(SMALL, "restricted", minor, topologyManagerScope="pod", **gates)
    wanted = {"cpu": "4", "memory": "4Gi"}
    one = containers(("app", "main", 2, "1Gi"), ("app", "side", "500m", "1Gi"), resources={"requests": wanted, "limits": wanted})
    (verdict,) = run(where, one)
    assert verdict.admitted and verdict.qos == "Guaranteed"
    assert [(placement.cpu_list, placement.exclusive) for placement in verdict.containers] == (
        [("1,97", True), ("2,98", False)] if managers else [("", False), ("", False)]
    )
    whole = CpuSet.from_int(of(verdict, "main").cpus | of(verdict, "side").cpus).to_list()
    assert whole == cpus


def test_a_pod_whose_containers_leave_nothing_to_share_is_refused() -> None:
    where = node(SMALL, "best-effort", topologyManagerScope="pod", featureGates={"PodLevelResourceManagers": True})
    wanted = {"cpu": "2", "memory": "4Gi"}
    one = containers(("app", "main", 2, "1Gi"), ("app", "side", "500m", "1Gi"), resources={"requests": wanted, "limits": wanted})
    assert run(where, one)[0].reason == "EmptyPodSharedPoolError"


@pytest.mark.parametrize("gates", [{"PodLevelResources": False}, {"AllBeta": False}])
def test_pod_level_resources_need_their_gate(gates: dict[str, bool]) -> None:
    where = node(SMALL, featureGates=gates)
    one = containers(("app", "main", 2, "1Gi"), resources={"limits": {"cpu": "4", "memory": "4Gi"}})
    assert run(where, one)[0].reason == "PodLevelResourcesNotSupported"


@pytest.mark.parametrize(("minor", "gates", "managed"), [(36, {"AllAlpha": True}, True), (37, {"AllBeta": True}, True), (37, {}, False)])
def test_pods_as_a_whole_are_managed_under_the_gates_of_a_stage(minor: int, gates: dict[str, bool], managed: bool) -> None:
    assert node(SMALL, minor=minor, featureGates=gates).pod_managers == managed


def test_hints_of_devices_name_only_their_numa_nodes_since_1_36() -> None:  # B8
    wide = pod(cpus=150, gpus=1)
    placed = [of(run(node(SMALL, "best-effort", minor, devices={GPU: {0b01: 4}}), wide)[0]).nodes for minor in (35, 36)]
    assert placed == [0b11, 0b01]


def test_a_static_pod_ends_cheaper_ones() -> None:
    where = node(make_topology(cores=4, memory=8 * GIB), devices={})
    critical = parse_pod(
        {
            "metadata": {"name": "static", "annotations": {"kubernetes.io/config.source": "file"}},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "4"}}}]},
        }
    )
    cheap, dear = pod("cheap", cpus="4", qos="Burstable"), pod("dear", cpus=8)
    verdicts = run(where, dear, cheap, critical)
    assert [(one.admitted, one.ends) for one in verdicts] == [(True, ()), (True, ()), (True, ("cheap",))]
    alone = run(node(make_topology(cores=2, memory=8 * GIB), devices={}), parse_pod(
        {"metadata": {"name": "s", "annotations": {"kubernetes.io/config.source": "file"}},
         "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "40"}}}]}}))  # fmt: skip
    assert alone[0].reason == "UnexpectedAdmissionError"


def test_devices_that_kubelet_may_choose_are_no_promise() -> None:
    where = node(SMALL, "none")
    some, rest = run(where, pod("some", gpus=3), pod("rest", gpus=5))
    assert (of(some).certain, of(rest).certain) == (False, True)


def test_a_resource_that_kubelet_does_not_know_is_left_out() -> None:
    assert run(node(SMALL, devices={}), pod(gpus=4))[0].admitted


@given(
    st.sampled_from(("none", "best-effort", "restricted", "single-numa-node")),
    st.sampled_from(("container", "pod")),
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 12), st.integers(0, 3), st.sampled_from(("init", "sidecar", "app"))),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(("", "full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache", "align-by-socket")),
    st.integers(34, 37),
)
def test_nothing_is_given_twice_and_all_comes_back(policy: str, scope: str, asked: Any, options: str, minor: int) -> None:
    if options == "align-by-socket" and policy == "single-numa-node":
        return  # kubelet refuses the pair
    topology = make_topology(packages=2, cores=12, threads=2, nodes_per_package=2, l3_cores=3, memory=16 * GIB)
    where = node(topology, policy, minor, options, {GPU: {1 << n: 2 for n in range(4)}}, topologyManagerScope=scope, **STATIC)
    state, admitted, alone = where.empty(), [], True
    for number, (cpus, memory, gpus, kind) in enumerate(asked):
        one = containers((kind, "a", cpus, "%dGi" % memory), ("app", "b", 2, "1Gi"), name="pod%d" % number, gpus=gpus)
        before = (state.shared, state.free_devices)
        verdict, state = model.admit(where, state, one)
        alone &= verdict.admitted and all(popcount(block.nodes) == 1 for part in verdict.containers for block in part.memory)
        if verdict.admitted:
            admitted.append(one)
        else:
            assert (state.shared, state.free_devices) == before
            assert one.key not in {*state.pods, *state.cpus, *state.blocks, *state.devices}
        given_cpus = [cpus for held in state.cpus.values() for cpus in [_union(held.values())]]
        assert sum(map(popcount, given_cpus)) == popcount(_union(given_cpus))
        assert _union(given_cpus) & (state.shared | where.reserved) == 0
        assert _union(given_cpus) | state.shared == topology.cpus.online.bits
        assert state.memory is not None
        for id_, left in state.memory.nodes.items():
            assert left.free["memory"] + left.used["memory"] == state.memory.allocatable[id_]["memory"]
    for one in admitted:
        state = model.remove(where, state, one)
    assert (state.shared, state.free_devices) == (where.empty().shared, where.empty().free_devices)
    assert state.memory
    for id_, left in state.memory.nodes.items():
        assert left.assignments == 0 and left.free["memory"] + left.used["memory"] == state.memory.allocatable[id_]["memory"]
        # kubelet loses memory of blocks that lay on several NUMA nodes: one of its own answers among the golden decisions shows it.
        assert left.used["memory"] == 0 or not alone


def _union(masks: Any) -> int:
    total = 0
    for mask in masks:
        total |= mask
    return total
