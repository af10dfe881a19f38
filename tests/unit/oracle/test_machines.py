"""We take every captured machine, the example fleet and machines with something odd for what kubelet takes them for.

`python tests/oracle/machine_agreement.py` asks kubelet anew, about random machines too. Its table names what differs, who is right and why.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ORACLE = Path(__file__).resolve().parents[2] / "oracle"
sys.path.insert(0, str(ORACLE))

import machine_agreement as agreement  # noqa: E402
from captures.unpack import unpacked  # noqa: E402

from machines.build import build, load  # noqa: E402
from machines.build import names as fleet  # noqa: E402
from machines.scratch import scratch  # noqa: E402

ANSWERS = json.loads(gzip.decompress(agreement.GOLDEN.read_bytes()))["machines"]
CAPTURED = [name for name in ANSWERS if ": " not in name]


@pytest.mark.captures
@pytest.mark.parametrize("name", CAPTURED)
def test_a_captured_machine_is_what_kubelet_takes_it_for(name: str, captures: Path) -> None:
    assert agreement.differences(name, unpacked(name), ANSWERS[name]) == []


def others(folder: Path) -> Iterator[tuple[str, Path]]:
    """The machines that are built."""
    yield from agreement.example_fleet(folder)
    yield from agreement.odd_machines(folder)


def test_a_described_machine_is_what_kubelet_takes_it_for() -> None:
    with scratch() as folder:
        found = [agreement.differences(name, root, ANSWERS[name]) for name, root in others(folder)]
    assert found == [[]] * len(found)


def test_kubelet_was_asked_about_all_machines() -> None:
    assert set(ANSWERS) - set(CAPTURED) == {f"fleet: {name}" for name in fleet()} | {f"odd: {name}" for name in agreement.ODD}
    assert len(CAPTURED) == 79


def test_each_row_of_the_table_is_about_machines_that_are_asked_about() -> None:
    rows = [agreement.explained(side) for side in (agreement.VIEW, agreement.FACTS, agreement.NODE_CHECK, agreement.RULES)]
    assert sum(map(len, rows)) == sum(len(row.machines.split("; ")) * len(row.fields.split("; ")) for row in agreement.DIFFERENCES)
    assert {name for side in rows for name, field in side} <= set(ANSWERS)


def test_a_difference_is_told() -> None:
    with scratch() as folder:
        root = build(load("reference"), folder / "root")
        answer = {**ANSWERS["fleet: reference"], "sockets": 3}
        told = agreement.differences("fleet: reference", root, answer)
    assert told == ["fleet: reference, view, sockets: we 2, kubelet 3", "fleet: reference, rules, sockets: we 2, kubelet 3"]
