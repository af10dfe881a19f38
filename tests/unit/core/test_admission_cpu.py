"""Which CPUs the static policy takes: each option by what it is for, and the two places where kubelet's own code slips."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GIB, make_topology, topologies

from ansible_collections.gpufleet.node.plugins.module_utils.core import admission_cpu as cpu
from ansible_collections.gpufleet.node.plugins.module_utils.core.admission_machine import bits_of, cpus_of, popcount
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology

TWO_SOCKETS = make_topology(packages=2, cores=8, threads=2, l3_cores=4, memory=GIB)


def taken(topology: Topology, count: int, without: str = "", minor: int = 37, **options: bool) -> str:
    cpus = cpus_of(topology)
    free = cpus.all & ~CpuSet.parse(without).bits
    return CpuSet.from_int(cpu.take(cpus, free, count, cpu.Options(minor, **options))).to_list()


@pytest.mark.parametrize(
    ("count", "without", "expected"),
    [
        (4, "", "0-1,16-17"),  # whole cores, from the first
        (3, "", "0-1,16"),
        (16, "", "0-7,16-23"),  # a whole NUMA node
        (18, "", "0-8,16-24"),  # and a core of the next
        (4, "0-3,16-19", "4-5,20-21"),  # where the fewest are free
        (1, "0,17", "16"),  # a core that is broken already
        (4, "8", "9-10,25-26"),  # the scarcer socket first, its broken core last
    ],
)
def test_packed(count: int, without: str, expected: str) -> None:
    assert taken(TWO_SOCKETS, count, without) == expected


def test_across_cores_takes_first_threads_first() -> None:
    assert taken(TWO_SOCKETS, 4, across_cores=True) == "0-3"


@pytest.mark.parametrize(
    ("count", "without", "expected"),
    [
        (8, "", "0-3,16-19"),  # a whole cache
        (8, "0,16", "4-7,20-23"),  # A15: the first that is whole
        (4, "0,16", "1-2,17-18"),  # a part of the scarcest that has it
        (12, "", "0-5,16-21"),
        (7, "", "0-3,16-18"),
    ],
)
def test_by_cache(count: int, without: str, expected: str) -> None:
    assert taken(TWO_SOCKETS, count, without, by_cache=True) == expected


def test_a_machine_whose_caches_have_no_number_has_none_for_kubelet() -> None:
    plain = TWO_SOCKETS.replace(l3_groups=tuple(type(one)(one.cpus, one.size_bytes) for one in TWO_SOCKETS.l3_groups))
    assert taken(plain, 8, "0,16", by_cache=True) == "1-4,17-20"


def test_across_numa_only_when_one_node_is_too_small() -> None:
    assert taken(TWO_SOCKETS, 14, across_numa=True) == "0-6,16-22"
    assert taken(TWO_SOCKETS, 20, across_numa=True) == "0-4,8-12,16-20,24-28"
    assert taken(TWO_SOCKETS, 22, across_numa=True, full_cores=True) == "0-5,8-12,16-21,24-28"


def test_align_by_socket_shares_within_a_socket_since_1_37() -> None:
    four = make_topology(packages=2, cores=8, threads=1, nodes_per_package=2, l3_cores=0)
    assert [taken(four, 6, "0-1,8-9", minor, across_numa=True, by_socket=True) for minor in (36, 37)] == ["4-6,12-14", "2-7"]


def test_too_few() -> None:
    with pytest.raises(cpu.NotEnoughCpus):
        taken(TWO_SOCKETS, 33)


def test_half_cores_are_whole_to_kubelet_when_cores_are_small_on_average() -> None:
    """Three of four cores have one thread: kubelet takes 1 for every core's size, finds the wide core never whole, and breaks it last."""
    halves = make_topology(packages=1, cores=4, threads=2, l3_cores=0, offline=(5, 6, 7))
    assert cpus_of(halves).per_core == 1
    assert taken(halves, 2) == "1-2"
    assert taken(halves, 4) == "0-3"


@given(st.lists(st.integers(0, 99), min_size=1, max_size=7, unique=True), st.integers(1, 7))
def test_combinations_are_those_of_the_book(members: Sequence[int], size: int) -> None:
    assert [tuple(one.now()) for one in cpu._combinations(members, size)] == list(itertools.combinations(members, size))


def test_a_remembered_combination_changes_from_the_fourth_member_on() -> None:
    """Go's append writes the last member into memory that the combination before shares."""
    for size, changed in ((3, False), (4, True), (5, False), (6, True)):
        found = list(cpu._combinations(range(8), size))
        assert (found[0].now() != list(range(size))) is changed
        assert found[0].now()[:3] == [0, 1, 2]


@given(
    st.sampled_from(((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1))),
    st.sampled_from((1, 2, 4)),
    st.integers(1, 4),
    st.sampled_from(("linear", "interleaved", "adjacent")),
    st.data(),
)
def test_a_request_that_fits_is_met_from_what_is_free(
    packages_nodes: tuple[int, int], threads: int, l3_cores: int, numbering: str, data: st.DataObject
) -> None:
    """On a machine of even parts; elsewhere kubelet's averages may mislead it."""
    packages, nodes = packages_nodes
    topology = make_topology(
        packages=packages, cores=4 * nodes, threads=threads, nodes_per_package=nodes, l3_cores=l3_cores, numbering=numbering
    )
    cpus = cpus_of(topology)
    free = CpuSet(data.draw(st.sets(st.sampled_from(sorted(bits_of(cpus.all)))))).bits
    count = data.draw(st.integers(0, popcount(free)))
    for options in ({}, {"by_cache": True}, {"across_numa": True}, {"across_cores": True}):
        got = cpu.take(cpus, free, count, cpu.Options(37, **options))
        assert (popcount(got), got & ~free) == (count, 0)


@given(topologies(), st.data())
def test_hints_can_give_what_they_promise(topology: Topology, data: st.DataObject) -> None:
    cpus = cpus_of(topology)
    if len(cpus.numa) > 8:
        return
    free = CpuSet(data.draw(st.sets(st.sampled_from(sorted(bits_of(cpus.all)))))).bits
    count = data.draw(st.integers(1, popcount(cpus.all)))
    hints = cpu.hints(cpus, free, 0, count, False)
    assert bool(hints) is (popcount(free) >= count)
    for mask, preferred in hints.items():
        assert popcount(cpus.in_nodes(mask) & free) >= count
        fewest = min(popcount(one) for one in range(1, 1 << 9) if popcount(_dense(cpus, one)) >= count) if preferred else 0
        assert not preferred or popcount(mask) == fewest


def _dense(cpus: object, positions: int) -> int:
    """The CPUs of the NUMA nodes at these positions."""
    nodes = sorted(cpus.numa.items())  # type: ignore[attr-defined]
    return sum(members for position, (_id, members) in enumerate(nodes) if positions >> position & 1)
