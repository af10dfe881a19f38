"""The kernel command line as an ordered token list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import kernel_args
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError, InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kernel_args import NO_RECORD, Record, merge, split

OLD = (5, 15)
ISOLATED = ("isolcpus=managed_irq,2-7", "nohz_full=2-7", "rcu_nocbs=2-7", "irqaffinity=0-1")
POOLS = ("default_hugepagesz=1G", "hugepagesz=1G", "hugepages=32", "hugepagesz=2M", "hugepages=1024")
PLANS = [(), ISOLATED, POOLS, (*ISOLATED, *POOLS), ("intel_idle.max_cstate=0", "processor.max_cstate=1"), ("idle=poll",), ISOLATED[:1]]
FOREIGN = [
    "quiet", "ro", "root=UUID=3f1c-9a52", "foobar", "bizbuz", "crashkernel=256M", "rhgb", 'dyndbg="file a.c +p; isolcpus=1"',
    "$tuned_params", "isolcpusx=3", "hugepages_treat_as_movable", "a=b=c", "console=ttyS0,115200n8",
]  # fmt: skip
RIVALS = [
    "isolcpus=2-3",
    "isolcpus",
    "nohz-full=1",
    '"isolcpus=5"',
    "hugepages=7",
    "hugepagesz=2M",
    "default-hugepagesz=2M",
    "idle=nomwait",
]

plans = st.sampled_from(PLANS)
lines = st.lists(st.sampled_from(FOREIGN + RIVALS), max_size=12)


def test_tokens_are_whole_words_outside_quotes() -> None:
    # C8: "buz" is no part of "foobar bizbuz", and a quoted value with blanks is one token
    assert split('foobar bizbuz\tdyndbg="file a.c +p" x\n') == ["foobar", "bizbuz", 'dyndbg="file a.c +p"', "x"]
    assert merge(["foobar", "bizbuz"], ["buz"]) == ["foobar", "bizbuz", "buz"]
    assert split('a "b c') == ["a", '"b c']  # the kernel takes an open quote to the end of the line


@given(st.text(alphabet="ab=\"' \t\n$-"))
def test_splitting_loses_nothing_but_blanks(line: str) -> None:
    assert split(" ".join(split(line))) == split(line)
    assert "".join(split(line)).replace(" ", "").replace("\t", "").replace("\n", "") == "".join(line.split())


def test_the_kernel_does_not_tell_dash_from_underscore() -> None:
    assert kernel_args.key("nohz-full=1-3") == kernel_args.key('"nohz_full=1-3"') == "nohz_full"
    assert merge(["nohz-full=1-3", "quiet"], ["nohz_full=2-3"]) == ["quiet", "nohz_full=2-3"]


def test_hugepages_stay_with_their_size() -> None:
    # C10: sorted or made a set, 32 pages of 1 GiB become 32 of 2 MiB
    assert merge(["hugepagesz=2M", "quiet", "hugepages=1", "hugepages=2"], POOLS) == ["quiet", *POOLS]
    mixed = ["hugepagesz=1G", "hugepagesz=2M", "hugepages=32", "hugepages=1024"]
    assert kernel_args.differing(mixed, ["hugepagesz=1G", "hugepages=32", "hugepagesz=2M", "hugepages=1024"]) == ["hugepages"]


def test_repeated_foreign_arguments_are_no_difference() -> None:
    # C5: crashkernel and rhgb quiet stand twice; the second run has nothing to do
    line = split("ro crashkernel=auto rhgb quiet crashkernel=auto rhgb quiet")
    once = merge(line, ISOLATED)
    assert once == [*line, *ISOLATED]
    assert merge(once, ISOLATED) == once


def test_a_value_in_place_keeps_its_place() -> None:
    line = ["isolcpus=managed_irq,2-7", "quiet", "nohz_full=2-7", "rcu_nocbs=2-7", "ro", "irqaffinity=0-1"]
    assert merge(line, ISOLATED) == line


def test_arguments_of_init_are_left_to_it() -> None:
    assert merge(["quiet", "--", "isolcpus=1"], ["isolcpus=2"]) == ["quiet", "isolcpus=2", "--", "isolcpus=1"]


@given(lines, plans)
def test_merging_is_idempotent_and_keeps_what_is_not_ours(line: list[str], wanted: tuple[str, ...]) -> None:
    merged = merge(line, wanted)
    assert merge(merged, wanted) == merged
    assert kernel_args.of(merged, wanted) == wanted
    keys = kernel_args.keys_of(wanted)
    assert [t for t in merged if kernel_args.key(t) not in keys] == [t for t in line if kernel_args.key(t) not in keys]
    assert kernel_args.differing(merged, wanted) == []


@given(lines, st.lists(plans, min_size=1, max_size=4))
def test_a_node_ends_the_same_whatever_plans_it_had_before(line: list[str], path: list[tuple[str, ...]]) -> None:
    current, record = list(line), NO_RECORD
    for wanted in path:
        record = record.next(wanted, kernel_args.displaced_by(wanted, current, record))
        current = merge(current, wanted, record)
    direct = merge(line, path[-1])
    assert set(current) == set(direct)
    assert kernel_args.of(current, path[-1]) == kernel_args.of(direct, path[-1])
    settled = [token for token in current if token in FOREIGN]
    assert settled == [token for token in direct if token in FOREIGN]


@given(lines, plans, plans, st.integers(0, 2))
def test_a_run_killed_half_way_is_finished_by_the_next(line: list[str], first: Any, second: Any, done: int) -> None:
    record = NO_RECORD.next(first, kernel_args.displaced_by(first, line))
    entries = [merge(line, first, record) for unused in range(2)]
    record = record.next(second, kernel_args.displaced_by(second, entries[0], record))
    entries = [merge(entry, second, record) if position < done else entry for position, entry in enumerate(entries)]
    again = Record.parse(record.render())
    again = again.next(second, kernel_args.displaced_by(second, entries[1], again))
    entries = [merge(entry, second, again) for entry in entries]
    assert entries[0] == entries[1]
    assert not set(first) - set(second) - set(line) & set(entries[0])


def test_displaced_values_are_named_and_come_back() -> None:
    line = ["isolcpus=2-3", "quiet"]
    record = NO_RECORD.next(ISOLATED, kernel_args.displaced_by(ISOLATED, line))
    assert record.displaced == ("isolcpus=2-3",)
    isolated = merge(line, ISOLATED, record)
    assert kernel_args.displaced_by(ISOLATED, isolated, record) == ()
    assert merge(isolated, (), record.next((), ())) == ["quiet", "isolcpus=2-3"]


def test_the_value_displaced_last_is_the_one_that_comes_back() -> None:
    record = NO_RECORD.next(ISOLATED, ["isolcpus=2-3", "nohz_full=3"]).next((), ()).next(ISOLATED, ["isolcpus=4"])
    assert record.displaced == ("nohz_full=3", "isolcpus=4")


def test_the_record_survives_its_file() -> None:
    record = Record(ISOLATED, ("idle=poll",), ("isolcpus=2-3",))
    assert Record.parse(record.render()) == record
    assert Record.parse(None) == NO_RECORD
    with pytest.raises(GpufleetError, match="record"):
        Record.parse("{}")


def test_differences_are_named_by_key() -> None:
    running = split("BOOT_IMAGE=/vmlinuz ro isolcpus=2-3 idle=poll rcu-nocbs=2-7 irqaffinity=0-1")
    assert kernel_args.differing(running, ISOLATED, ["idle=poll", "nohz=on"]) == ["isolcpus", "nohz_full", "rcu_nocbs", "idle"]


@pytest.mark.parametrize("tokens", [t for t in PLANS if t] + [("hugepages=4",), ("iommu=pt", "mitigations=off"), ("quiet",)])
def test_accepted(tokens: tuple[str, ...]) -> None:
    assert kernel_args.check(tokens, OLD) == tokens


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["isolcpus=2 3"], "blank"),
        (["isolcpus=2\n"], "blank"),
        (['dyndbg="x"'], "quote"),
        (["a='b'"], "quote"),
        (["a=$b"], "character"),
        (["a=b;c"], "character"),
        (["--"], "character"),
        ([""], "character"),
        (["=2"], "character"),
        (["root=/dev/sda1"], "isn't ours"),
        (["console=ttyS0"], "isn't ours"),
        (["isolcpus=7-2"], "backwards"),
        (["isolcpus=domain,x"], "not a CPU"),
        (["nohz_full="], "names no CPU"),
        (["isolcpus=managed_irq"], "names no CPU"),
        (["isolcpus=4-N"], "not a CPU"),  # D1
        (["isolcpus=2", "isolcpus=3"], "takes the first"),
        (["nohz_full=2", "nohz-full=3"], "twice"),
        (["hugepagesz=1G"], "number of pages"),
        (["hugepagesz=1G", "hugepagesz=2M", "hugepages=1", "hugepages=2"], "number of pages"),  # C10
        (["hugepagesz=1G", "hugepages=1", "hugepages=2"], "follow"),
        (["hugepagesz=1G", "hugepages=1", "hugepagesz=1G", "hugepages=2"], "twice"),
        (["isolcpus=2-7", "irqaffinity=0-2"], "isolated CPUs 2"),  # D1
        (["nohz_full=2-5", "rcu_nocbs=2-4"], "leaves out the CPUs 5"),  # D7
        (["nohz_full=2-5", "isolcpus=domain,2-7"], "isolcpus names the CPUs 2-7 and nohz_full 2-5, and kernels before 5.18 ignore one"),
    ],
)
def test_refused_in_one_sentence(tokens: list[str], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        kernel_args.check(tokens, OLD)


def test_isolations_may_differ_where_the_kernel_takes_both() -> None:
    tokens = ("isolcpus=domain,2-7", "nohz_full=2-5")
    assert kernel_args.check(tokens, (5, 18)) == tokens


def test_one_isolation_takes_the_place_of_the_other() -> None:
    # A kernel before 5.18 ignores the second of two sets that differ.
    line = ["nohz_full=8-15", "quiet"]
    wanted = ("isolcpus=managed_irq,2-7", "irqaffinity=0-1")
    record = NO_RECORD.next(wanted, kernel_args.displaced_by(wanted, line))
    assert record.displaced == ("nohz_full=8-15",)
    assert kernel_args.differing(line, wanted) == ["isolcpus", "irqaffinity", "nohz_full"]
    isolated = merge(line, wanted, record)
    assert isolated == ["quiet", *wanted]
    assert merge(isolated, (), record.next((), ())) == ["quiet", "nohz_full=8-15"]
