"""CPU sets against Python's own, in every notation of the kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import MAX_CPU, CpuSet, union
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput

NUMBERS = st.frozensets(st.integers(0, 400) | st.integers(8000, 8191), max_size=60)


@given(NUMBERS)
def test_every_notation_leads_back(numbers: frozenset[int]) -> None:
    cpus = CpuSet(numbers)
    assert list(cpus) == sorted(numbers) and len(cpus) == len(numbers) and bool(cpus) == bool(numbers)
    assert CpuSet.parse(cpus.to_list()) == CpuSet.parse_mask(cpus.to_mask()) == CpuSet.from_int(cpus.bits) == cpus
    assert eval(repr(cpus)) == cpus and hash(CpuSet(numbers)) == hash(cpus)
    assert all((number in cpus) == (number in numbers) for number in range(402))
    if numbers:
        assert cpus.first == min(numbers)


@given(NUMBERS)
def test_a_list_is_as_short_as_the_kernels(numbers: frozenset[int]) -> None:
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    assert CpuSet(numbers).to_list() == ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


@given(NUMBERS, NUMBERS)
def test_algebra_is_that_of_sets(one: frozenset[int], other: frozenset[int]) -> None:
    a, b = CpuSet(one), CpuSet(other)
    assert (set(a | b), set(a & b), set(a - b)) == (one | other, one & other, one - other)
    assert (a <= b, a.isdisjoint(b), a == b) == (one <= other, one.isdisjoint(other), one == other)
    assert union([a, b, a]) == a | b


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 12), st.integers(1, 12))
def test_strides(first: int, length: int, used: int, group: int) -> None:
    used = min(used, group)
    expected = {cpu for cpu in range(first, first + length + 1) if (cpu - first) % group < used}
    assert set(CpuSet.parse(f"{first}-{first + length}:{used}/{group}")) == expected


def test_what_the_kernel_writes() -> None:
    assert not CpuSet.parse("\n") and not CpuSet.parse("(null)\n")
    assert CpuSet.parse("0-3,8\n") == CpuSet.parse(" 0-1, 2-3 ,8") == CpuSet([0, 1, 2, 3, 8])
    # Leading zeros and groups depend on the number of CPUs that the kernel is built for; long masks come in several lines.  # E7
    wanted = CpuSet.parse("0-3,14-15,28-31,42-43")
    assert CpuSet.parse_mask("000c00,f000c00f") == CpuSet.parse_mask("00000000,00000c00,f000c00f\n") == wanted
    assert CpuSet.parse_mask("fff\n,3fffffff") == CpuSet.parse_mask("0xfff,3fffffff")
    assert CpuSet([40]).to_mask() == "00000100,00000000" and CpuSet().to_mask() == "00000000"


@pytest.mark.parametrize(
    "text",
    ["a", "-", "0-", "-1", "3-1", "0,,1", "1 2", "0x3", "0-3:0/4", "0-3:5/4", "0-3:1/0", "0:1/2", str(MAX_CPU + 1), "0-99999999999", "１"],
)
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(InvalidInput):
        CpuSet.parse(text)


@pytest.mark.parametrize("text", ["", "g", "0x", "ff,", ",ff", "ff,123456789", "-1", "f f,g"])
def test_what_is_no_mask(text: str) -> None:
    with pytest.raises(InvalidInput):
        CpuSet.parse_mask(text)


def test_no_first_of_none_and_no_negative_cpu() -> None:
    with pytest.raises(InvalidInput, match="empty"):
        _unused = CpuSet().first
    with pytest.raises(InvalidInput, match="negative"):
        CpuSet([-1])
    assert -1 not in CpuSet([0]) and "0" not in CpuSet([0]) and CpuSet([0]) != {0}
