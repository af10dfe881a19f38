"""Reserved, isolated, pool: on every machine, disjoint sets of whole cores that are together exactly what is online."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import make_topology, reference, topologies

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet, union
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.notes import Notes
from ansible_collections.gpufleet.node.plugins.module_utils.core.partition import Partition, partition
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology


def divide(topology: Topology, **variables: object) -> Partition:
    return partition(topology, policy_from_variables(variables), Notes())


def whole(cpus: CpuSet, topology: Topology) -> bool:
    """Whether no core is divided."""
    return all(core <= cpus or core.isdisjoint(cpus) for core in topology.cores)


PROFILES = st.sampled_from(("colocation", "aligned", "isolated"))


@given(topologies(), PROFILES, st.integers(1, 3), st.booleans())
def test_the_sets_cover_exactly_what_is_online(topology: Topology, profile: str, cores: int, whole_l3: bool) -> None:  # A6, D4
    try:
        cpus = divide(topology, profile=profile, reserved_cores_per_numa=cores, reserved_whole_l3=whole_l3)
    except InvalidInput as error:
        assert "nothing is left" in error.problem or "would reserve all of NUMA node" in error.problem
        return
    parts = (cpus.reserved, cpus.isolated, cpus.pool)
    assert union(parts) == topology.cpus.online
    assert sum(map(len, parts)) == len(topology.cpus.online)
    assert all(whole(part, topology) for part in parts)
    assert topology.cpus.online.first in cpus.reserved
    assert bool(cpus.isolated) == (profile == "isolated")
    assert not (cpus.isolated and cpus.pool)


@given(topologies(), st.integers(1, 4))
def test_each_numa_node_gives_its_cores_from_as_few_l3_groups_as_can_be(topology: Topology, wanted: int) -> None:  # A15
    try:
        cpus = divide(topology, reserved_cores_per_numa=wanted)
    except InvalidInput:
        assume(False)
    for node in topology.cpu_nodes:
        cores = [core for core in topology.cores if core <= node.cpus]
        taken = [core for core in cores if core <= cpus.reserved]
        assert len(taken) == min(wanted, len(cores))
        sizes = sorted((sum(core <= group.cpus for core in cores) for group in topology.l3_groups), reverse=True)
        fewest = next((n for n in range(1, len(sizes) + 1) if sum(sizes[:n]) >= len(taken)), 1)
        touched = sum(not group.cpus.isdisjoint(cpus.reserved & node.cpus) for group in topology.l3_groups)
        # The boot CPU's core comes first, even from a small group.
        assert touched <= fewest + (topology.cpus.online.first in node.cpus)


@given(topologies(), st.data())
def test_an_explicit_reservation_of_whole_cores_is_taken_as_it_is(topology: Topology, data: st.DataObject) -> None:
    assume(len(topology.cores) > 1)
    chosen = data.draw(st.sets(st.sampled_from(topology.cores), min_size=1, max_size=len(topology.cores) - 1))
    assert divide(topology, reserved_cpus=union(chosen).to_list()).reserved == union(chosen)


def test_reference_machine() -> None:
    assert divide(reference()).reserved.to_list() == "0,96,192,288"
    assert divide(reference(), reserved_cores_per_numa=2).reserved.to_list() == "0-1,96-97,192-193,288-289"
    assert divide(reference(), reserved_whole_l3=True).reserved.to_list() == "0-7,96-103,192-199,288-295"
    assert divide(reference(), profile="isolated").isolated.to_list() == "1-95,97-191,193-287,289-383"


def test_percent_is_rounded_up_to_whole_cores() -> None:
    assert len(divide(reference(), reserved_cores_percent=1).reserved) == 4  # 0.96 of a core on each node
    assert len(divide(reference(), reserved_cores_percent=2).reserved) == 8


def test_percent_is_of_all_cores_of_the_node_those_that_are_isolated_too() -> None:
    cpus = divide(reference(), profile="isolated", isolated_cpus="48-95,240-287", reserved_cores_percent=25)
    assert [len(cpus.reserved & node.cpus) // 2 for node in reference().numa_nodes] == [24, 24]


def test_a_hole_in_the_online_cpus_is_no_reason_to_refuse() -> None:  # A3
    topology = make_topology(packages=1, cores=12, threads=3, l3_cores=12, offline=range(12, 24))
    assert topology.cpus.online.to_list() == "0-11,24-35"
    assert divide(topology, reserved_cpus="10-11,34-35").reserved.to_list() == "10-11,34-35"


def test_half_a_core_is_refused_with_its_sibling() -> None:  # A9
    topology = make_topology(packages=1, cores=6, l3_cores=6)
    with pytest.raises(InvalidInput, match="half a core") as refusal:
        divide(topology, reserved_cpus="1,6")
    assert refusal.value.remedy == "Name whole cores, here 0,6."


def test_a_core_with_an_offline_thread_is_whole_in_what_is_online() -> None:
    topology = make_topology(packages=1, cores=4, l3_cores=4, offline=[4])
    assert divide(topology).reserved.to_list() == "0"
    assert divide(make_topology(packages=1, cores=4, l3_cores=4, offline=[0])).reserved.to_list() == "1,5"


def test_cpu_zero_may_be_offline_with_its_whole_node() -> None:
    topology = make_topology(packages=2, cores=4, threads=1, l3_cores=4, offline=[0, 1, 2, 3])
    assert divide(topology).reserved.to_list() == "4"


def test_isolating_some_cpus_leaves_a_pool() -> None:
    cpus = divide(reference(), profile="isolated", isolated_cpus="8-15,200-207")
    assert (cpus.isolated.to_list(), len(cpus.pool)) == ("8-15,200-207", 384 - 16 - 4)


def test_reserved_cores_step_aside_for_isolated_ones() -> None:
    cpus = divide(reference(), profile="isolated", isolated_cpus="96-103,288-295")
    assert cpus.reserved.to_list() == "0,104,192,296"


def test_cpus_on_no_numa_node_are_not_reserved_by_guess() -> None:
    """kubelet's static policy needs a reservation, and interrupts need a CPU: an empty set is never the plan."""
    topology = make_topology()
    nowhere = topology.replace(numa_nodes=tuple(dataclasses.replace(node, cpus=CpuSet()) for node in topology.numa_nodes))
    with pytest.raises(InvalidInput, match="No NUMA node has a whole core for the system"):
        divide(nowhere)
    assert divide(nowhere, reserved_cpus="0,16").reserved == CpuSet.parse("0,16")


def test_why_these_cpus_is_in_the_notes() -> None:
    notes = Notes()
    partition(reference(), policy_from_variables({}), notes)
    note = next(note for note in notes if note.code == "reserved_cpus")
    assert note.facts == {"boot_cpu": 0, "numa_nodes": {"0": "0,192", "1": "96,288"}, "reserved": "0,96,192,288"}


def test_what_an_own_choice_lacks_is_said() -> None:
    notes = Notes()
    partition(reference(), policy_from_variables({"reserved_cpus": "1,193"}), notes)
    assert {"boot_cpu_not_reserved", "numa_node_without_reserved_cpus"} <= {note.code for note in notes}
