"""The launcher's column of the comparison with numactl, on each of its cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher.head_to_head import CASES, Case, compare, missing


def test_cases_are_enough() -> None:
    assert len(CASES) >= 25


@pytest.mark.skipif(bool(missing()), reason=missing() or "nothing is missing")
@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_case(numaspread: Path, refuse: Path, tmp_path: Path, case: Case) -> None:
    (ours, said), (theirs, unused) = compare(case, tmp_path, numaspread, refuse)
    assert ours == case.expected, said
    if "GPU memory" in case.title:
        assert theirs != ours, "numactl leaves GPU memory out as well now: bring the table in docs/launcher.md up to date"
