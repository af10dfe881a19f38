"""A node's facts as kubelet has them: cores by number, packages in the place of NUMA nodes. tests/oracle asks kubelet itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from strategies import GIB, make_topology, topologies

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_rules as rules
from ansible_collections.gpufleet.node.plugins.module_utils.core.admission import node_of
from ansible_collections.gpufleet.node.plugins.module_utils.core.admission_machine import cpu_count, cpus_of
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_view import as_kubelet, cores_by_id
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import CPU_ONLY, Topology

TWO_SOCKETS = make_topology(packages=2, cores=2, threads=2, memory=GIB, gpus_per_node=1)
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
CLOSEST = {"topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}
MEMORY = {"systemReserved": {"memory": "1Gi"}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}]}


def by_id(topology: Topology, core_ids: dict[int, int], numa: bool = True) -> list[str] | None:
    nodes = [node.cpus for node in topology.numa_nodes] if numa else None
    found = cores_by_id(topology.cores, topology.packages, nodes, core_ids)
    return None if found is None else [core.to_list() for core in found]


def test_cores_with_numbers_of_their_own_are_those_that_there_are() -> None:
    assert by_id(TWO_SOCKETS, {0: 0, 4: 0, 1: 1, 5: 1, 2: 0, 6: 0, 3: 1, 7: 1}) is None


def test_the_same_number_in_a_package_is_one_core_but_not_on_two_nodes() -> None:
    same = dict.fromkeys(range(8), 0)
    assert by_id(TWO_SOCKETS, same) == ["0-1,4-5", "2-3,6-7"]
    dies = make_topology(packages=1, cores=4, threads=1, nodes_per_package=2, memory=GIB)
    assert by_id(dies, {0: 0, 1: 1, 2: 0, 3: 1}) is None
    assert by_id(dies, {0: 0, 1: 1, 2: 0, 3: 1}, numa=False) == ["0,2", "1,3"]


def test_threads_with_numbers_of_their_own_are_cores() -> None:
    assert by_id(TWO_SOCKETS, {cpu: cpu for cpu in range(8)}) == [str(cpu) for cpu in range(8)]


def test_a_cpu_without_number_or_node_is_not_seen() -> None:
    assert by_id(TWO_SOCKETS, {0: 0, 4: 0}) == ["0,4"]
    nowhere = TWO_SOCKETS.replace(numa_nodes=tuple(dataclasses.replace(node, cpus=CpuSet()) for node in TWO_SOCKETS.numa_nodes))
    assert by_id(nowhere, {cpu: cpu % 4 for cpu in range(8)}) == []


def test_without_numa_each_package_is_a_node_without_memory() -> None:
    seen = as_kubelet(TWO_SOCKETS.replace(has_numa=False, numa_nodes=make_topology(packages=1, cores=4, threads=2, memory=GIB).numa_nodes))
    assert [(node.id, node.kind, node.cpus.to_list(), node.memory_bytes) for node in seen.numa_nodes] == [
        (0, CPU_ONLY, "0-1,4-5", 0),
        (1, CPU_ONLY, "2-3,6-7", 0),
    ]
    assert not any(gpu.numa_node for gpu in seen.gpus) and as_kubelet(seen) == seen


def test_without_numa_offline_cpus_count() -> None:
    topology = make_topology(packages=1, cores=4, threads=1, memory=GIB, offline=(3,))
    assert [cpu_count(topology.replace(has_numa=numa)) for numa in (True, False)] == [3, 4]


@given(topologies())
def test_where_nothing_is_odd_the_view_is_the_facts(topology: Topology) -> None:
    assert as_kubelet(topology) is topology


def test_predictions_rest_on_the_view() -> None:
    merged = (CpuSet.parse("0-1,4-5"), CpuSet.parse("2-3,6-7"))
    node = node_of(TWO_SOCKETS.replace(kubelet_cores=merged), STATIC, 37, {})
    assert node.cpus.per_core == 4 and cpus_of(TWO_SOCKETS).per_core == 2


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [
        (TWO_SOCKETS.replace(kubelet_cores=()), "kubelet would find no CPUs on this machine."),
        (
            make_topology(packages=2, cores=2, threads=1, memory=GIB, node_ids=(0, 64)),
            "kubelet would find NUMA nodes 64, and it can't count",
        ),
        (
            TWO_SOCKETS.replace(has_numa=False, packages=tuple(dataclasses.replace(one, id=-1) for one in TWO_SOCKETS.packages)),
            "kubelet would find NUMA nodes -1, and",
        ),
    ],
)
def test_what_kubelet_makes_nothing_of_is_not_predicted(topology: Topology, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        node_of(topology, {**STATIC, "topologyManagerPolicy": "best-effort"}, 37, {})
    assert sentence in refusal.value.problem


def test_without_topology_policy_numbers_of_nodes_may_be_large() -> None:
    assert node_of(make_topology(packages=2, cores=2, threads=1, memory=GIB, node_ids=(0, 64)), STATIC, 37, {}).numa_nodes == 1 | 1 << 64


# kubelet 1.37 was seen to crash on these at the first pod with CPUs of its own.
@pytest.mark.parametrize(
    ("ids", "configuration", "problem"),
    [
        ((0, 64), {"topologyManagerPolicy": "best-effort"}, "topologyManagerPolicy is best-effort, and kubelet crashes on NUMA nodes"),
        ((-1,), {"topologyManagerPolicy": "single-numa-node"}, "whose numbers aren't 0 to 63 (-1 here)."),
        ((0, 64), {"memoryManagerPolicy": "Static", **MEMORY}, "memoryManagerPolicy is Static, and kubelet crashes on NUMA nodes"),
        ((0, 3), {"topologyManagerPolicy": "restricted", **CLOSEST}, "where numbers of NUMA nodes have gaps (0, 3 here)."),
        ((0, 64), {"topologyManagerPolicy": "none"}, ""),
        ((0, 3), {"topologyManagerPolicy": "single-numa-node", **CLOSEST}, ""),
        ((0, 1), {"topologyManagerPolicy": "restricted", **CLOSEST}, ""),
    ],
)
def test_numbers_of_nodes_on_which_kubelet_crashes_are_refused(ids: tuple[int, ...], configuration: dict[str, Any], problem: str) -> None:
    machine = rules.Machine(CpuSet((0, 1)), 1, 2 * GIB, dict.fromkeys(ids, (GIB, 0)), len(ids))
    if not problem:
        rules.check(configuration, 37, machine)
        return
    with pytest.raises(InvalidInput) as refusal:
        rules.check(configuration, 37, machine)
    assert problem in refusal.value.problem


def test_the_plan_keeps_off_what_crashes() -> None:
    def chosen(ids: tuple[int, ...], **variables: Any) -> tuple[str, dict[str, str], set[str]]:
        topology = make_topology(packages=4, node_ids=ids, memory=8 * GIB)
        near = {ids[0]: 10, ids[1]: 12, ids[2]: 32, ids[3]: 32}
        nodes = tuple(dataclasses.replace(node, distances=near if node.id == ids[0] else node.distances) for node in topology.numa_nodes)
        plan = build_plan(topology.replace(numa_nodes=nodes), policy_from_variables(variables))
        configuration = plan.kubelet["configuration"]
        return (
            configuration["topologyManagerPolicy"],
            configuration.get("topologyManagerPolicyOptions", {}),
            {note.code for note in plan.notes} & {"numa_ids"},
        )

    best_effort = {"topology_manager_policy": "best-effort"}
    assert chosen((0, 1, 2, 70), profile="aligned", memory_manager_policy="None") == ("none", {}, {"numa_ids"})
    assert chosen((0, 1, 2, 3), **best_effort)[1] == {"prefer-closest-numa-nodes": "true"}
    assert chosen((0, 1, 2, 4), **best_effort) == ("best-effort", {}, set())
    with pytest.raises(InvalidInput, match="whose numbers aren't 0 to 63"):
        chosen((0, 1, 2, 70), **best_effort)


def test_a_machine_that_kubelet_makes_nothing_of_gets_no_configuration() -> None:
    reference = make_topology(packages=2, cores=2, threads=2, memory=8 * GIB)
    with pytest.raises(InvalidInput, match="kubelet would find no CPUs"):
        build_plan(reference.replace(kubelet_cores=()), policy_from_variables({}))
    with pytest.raises(InvalidInput, match="its memory manager can't be Static here"):
        build_plan(reference.replace(has_numa=False), policy_from_variables({"profile": "aligned"}))
    merged = (CpuSet.parse("0-1,4-5"), CpuSet.parse("2-3,6-7"))
    notes = {note.code: note.message for note in build_plan(reference.replace(kubelet_cores=merged), policy_from_variables({})).notes}
    assert "multiples of 4 CPUs" in notes["whole_core_requests"] and "one of 2 cores, not 4" in notes["cores_by_id"]
