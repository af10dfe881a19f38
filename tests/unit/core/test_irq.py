"""One CPU per interrupt: even, by device and queue, never by IRQ number; what holds or can't be changed is told, not written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import irq
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import (
    DRIFT,
    IN_PLACE,
    NOT_APPLICABLE,
    PENDING,
    KernelValue,
    Observation,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.interrupts import Interrupt

EVERYWHERE = CpuSet(range(16))


def section(cpus, **changes):
    """A plan's section with one device for each cpulist."""
    devices = [{"device": "0000:%02x:00.0" % n, "kind": "nic", "numa_node": 0, "cpus": one} for n, one in enumerate(cpus)]
    return {"placement": "housekeeping", "irqbalance": "off", "default_affinity": "0-3", "isolated": "", "devices": devices, **changes}


def live(*irqs, affinity=EVERYWHERE, **more):
    """Devices with these IRQ numbers."""
    return irq.Live({"0000:%02x:00.0" % n: tuple(Interrupt(i, affinity, affinity) for i in one) for n, one in enumerate(irqs)}, **more)


def own_cpus(plan, state):
    """IRQ to its CPU."""
    return {place.interrupt.irq: place.own for places in irq.assign(irq.parse(plan), state).values() for place in places}


def after(state, artifacts, effective=None):
    """The state when the kernel took every first wish. ``effective``: what the controller delivers to; by default it follows at once."""
    values = {a.path: CpuSet.parse(a.wanted[0]) for a in artifacts if isinstance(a, KernelValue) and a.path != irq.DEFAULT_AFFINITY}
    moved = {}
    for device, interrupts in state.interrupts.items():
        moved[device] = tuple(
            Interrupt(i.irq, values[irq.AFFINITY_LIST % i.irq], effective or values[irq.AFFINITY_LIST % i.irq])
            if irq.AFFINITY_LIST % i.irq in values
            else i
            for i in interrupts
        )
    return irq.Live(moved, state.online, state.managed)


def told(artifacts):
    """(status, message) of the observations."""
    return [(a.status, a.message) for a in artifacts if not isinstance(a, KernelValue)]


def written(artifacts):
    """Path to wishes, without the default affinity."""
    return {a.path: a.wanted for a in artifacts if isinstance(a, KernelValue) and a.path != irq.DEFAULT_AFFINITY}


@st.composite
def nodes(draw):
    """A section and a state: devices of two NUMA nodes, up to forty interrupts each, some of them kernel-managed."""
    homes = draw(st.lists(st.sampled_from(["0-1", "2-3", "2-3,7"]), min_size=1, max_size=6))
    counts = draw(st.lists(st.integers(0, 40), min_size=len(homes), max_size=len(homes)))
    numbers = iter(draw(st.permutations(range(20, 21 + sum(counts)))))
    groups = [sorted(next(numbers) for unused in range(count)) for count in counts]
    managed = draw(st.sets(st.sampled_from([n for group in groups for n in group]))) if any(counts) else set()
    return section(homes), live(*groups, managed=frozenset(managed))


@given(nodes())
def test_every_interrupt_gets_one_cpu_of_its_device_and_the_load_is_even(node):
    plan, state = node
    places = irq.assign(irq.parse(plan), state)
    load: dict[str, dict[int, int]] = {}
    for planned in irq.parse(plan).devices:
        placed = [place.interrupt.irq for place in places[planned.device]]
        assert placed == [i.irq for i in state.interrupts[planned.device] if i.irq not in state.managed]
        for place in places[planned.device]:
            assert CpuSet([place.own, *place.others]) == planned.cpus
            mine = load.setdefault(str(planned.cpus), dict.fromkeys(planned.cpus, 0))
            mine[place.own] += 1
    if {"2-3", "2-3,7"} - set(load):  # sets that overlap share their CPUs
        assert all(max(mine.values()) - min(mine.values()) <= 1 for mine in load.values())


@given(nodes(), st.integers(1, 1000))
def test_irq_numbers_decide_nothing(node, shift):
    plan, state = node
    renumbered = irq.Live(
        {d: tuple(Interrupt(i.irq * 3 + shift, i.affinity, i.effective_affinity) for i in found) for d, found in state.interrupts.items()},
        managed=frozenset(n * 3 + shift for n in state.managed),
    )
    assert list(own_cpus(plan, state).values()) == list(own_cpus(plan, renumbered).values())


@given(nodes())
def test_nothing_is_left_to_write_after_a_run(node):
    plan, state = node
    artifacts = irq.placement(plan, state)
    assert not written(irq.placement(plan, after(state, artifacts)))
    # The old CPU still gets them: neither drift nor written again.
    waiting = irq.placement(plan, after(state, artifacts, effective=CpuSet([15])))
    assert not written(waiting) and not any(status == DRIFT for status, unused in told(waiting))
    moved = len(written(artifacts))
    assert not moved or any(status == PENDING and "next interrupt" in message for status, message in told(waiting))


def test_two_devices_fill_each_others_gaps():
    assert list(own_cpus(section(["0,8", "0,8"]), live([30], [41])).values()) == [0, 8]


def test_a_shared_line_goes_with_the_first_device():
    assert own_cpus(section(["0", "1"]), live([19], [19, 20])) == {19: 0, 20: 1}


def test_offline_cpus_take_none():
    assert set(own_cpus(section(["0-3"]), live([30, 31, 32], online=CpuSet([1, 2]))).values()) == {1, 2}
    alone = irq.placement(section(["8-9"]), live([30], online=CpuSet([1, 2])))
    assert not written(alone) and [status for status, unused in told(alone)] == [NOT_APPLICABLE]


def test_each_state_is_told_apart():
    state = irq.Live(
        {
            "0000:00:00.0": (
                Interrupt(30, CpuSet([0]), CpuSet([0])),
                Interrupt(31, CpuSet([1]), CpuSet([9])),
                Interrupt(32, EVERYWHERE, CpuSet([5])),
                Interrupt(33, EVERYWHERE, CpuSet([6])),
                Interrupt(34, CpuSet([1]), CpuSet()),  # not started: nothing to move
            )
        },
        managed=frozenset([33]),
    )
    artifacts = irq.placement(section(["0-1"]), state)
    assert [(a.item, a.status) for a in artifacts if isinstance(a, Observation)] == [
        ("interrupts of 0000:00:00.0 (IRQ 33)", NOT_APPLICABLE),
        ("interrupts of 0000:00:00.0 (IRQ 31)", PENDING),
        ("interrupts of 0000:00:00.0", IN_PLACE),
    ]
    assert written(artifacts) == {"/proc/irq/32/smp_affinity_list": ("0", "1")}


def test_on_another_cpu_of_its_device_it_may_only_move_to_its_own():
    # The next CPU is for an interrupt that is nowhere yet: here it would be the one it is on, and the spread would never come.
    state = irq.Live({"0000:00:00.0": (Interrupt(30, CpuSet([1]), CpuSet([1])), Interrupt(31, CpuSet([1]), CpuSet([1])))})
    assert written(irq.placement(section(["0-1"]), state)) == {"/proc/irq/30/smp_affinity_list": ("0",)}


def test_refusals_are_facts_not_faults():
    (value,) = [a for a in irq.placement(section(["0-1"]), live([57])) if isinstance(a, KernelValue) and a.path != irq.DEFAULT_AFFINITY]
    assert {name: status for name, (status, unused) in value.refusals.items()} == dict.fromkeys(
        ("EIO", "EPERM", "ENOSPC", "ENOENT"), NOT_APPLICABLE
    )  # E1 E2 E4


@pytest.mark.parametrize(
    ("wanted", "shown", "same"),
    [
        ("0-3,14-15,28-31,42-43", "000c00,f000c00f", True),  # E7
        ("0-3,14-15,28-31,42-43", "00000000,00000c00,f000c00f\n", True),
        ("0-3", "0000000e", False),
        ("0", "unreadable", False),
    ],
)
def test_masks_are_compared_as_sets(wanted, shown, same):
    value = irq.default_affinity(CpuSet.parse(wanted))
    assert value.same(shown, value.wanted[0]) is same


def test_a_device_without_interrupts_is_said():
    assert told(irq.placement(section(["0-1"]), irq.Live({})))[0][1].startswith("it has none now")


@pytest.mark.parametrize("nothing", [{}, section(["0"], placement="none", default_affinity="", devices=[])])
def test_nothing_planned_is_nothing_wanted(nothing):
    assert irq.placement(nothing, live([30])) == []


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (section(["0"], placement="housekeping"), 'Did you mean "housekeeping"?'),
        (section(["0"], irqbalance="on"), "is not a known value of irqbalance"),
        (section([""]), "gives 0000:00:00.0 no CPU"),
        (section(["0-3"], isolated="2-5"), "isolated CPUs 2-3"),  # D1
        (section(["0"], default_affinity="0-9", isolated="8-9"), "isolated CPUs 8-9"),  # D1
        (section(["0"], default_affinity=""), "default interrupt affinity is empty"),
        ({"placement": "local"}, "lacks default_affinity"),
        (section(["3-1"]), "runs backwards"),
    ],
)
def test_a_wrong_section_is_refused_in_one_sentence(wrong, sentence):
    with pytest.raises(InvalidInput, match=sentence.replace("?", r"\?").replace(".", r"\.")):
        irq.placement(wrong, live([30]))
