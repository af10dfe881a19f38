"""The list parser: where a malformed list is wrong, and a million random inputs against a second parser."""

from __future__ import annotations

from pathlib import Path

import pytest
from launcher.launching import Machine, Node, build_program, listed, run

MALFORMED = {
    "": (1, "missing"),
    ",": (1, "missing"),
    "0,": (3, "missing"),
    "0,,1": (3, "missing"),
    "x": (1, "missing"),
    "0x": (2, "neither a comma"),
    " 0": (1, "missing"),
    "0 ": (2, "neither a comma"),
    "-1": (1, "missing"),
    "1-": (3, "end of the range"),
    "0-3-5": (4, "neither a comma"),
    "3-1": (3, "backwards"),
    "0,5-2": (5, "backwards"),
    "1024": (1, "too large"),
    "0-1024": (3, "too large"),
    "99999999999999999999999": (1, "too large"),
    "4294967296": (1, "too large"),
    "0-3:2": (4, "neither a comma"),
    "+1": (1, "missing"),
    "!0": (1, "missing"),
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed(numaspread: Path, text: str) -> None:
    position, words = MALFORMED[text]
    result = run(numaspread, f"--nodes={text}", "echo", "ran")
    assert (result.returncode, result.stdout) == (125, "")
    assert f"position {position}: " in result.stderr
    assert words in result.stderr


def test_best_effort_does_not_forgive_a_malformed_list(numaspread: Path) -> None:
    assert run(numaspread, "--best-effort", "--nodes", "0-", "true").returncode == 125
    assert run(numaspread, "--best-effort", "--cpus", "0-", "true").returncode == 125


@pytest.mark.parametrize("text", ["0", "0-3", "3,0", "0-3,2-5", "007", "0,0,0", "1-1"])
def test_well_formed(numaspread: Path, tmp_path: Path, text: str) -> None:
    root = Machine({number: Node([number]) for number in range(8)}).write(tmp_path / "root")
    ids: set[int] = set()
    for part in text.split(","):
        first, unused, last = part.partition("-")
        ids.update(range(int(first), int(last or first) + 1))
    assert f"\nnodes: {listed(ids)}\n" in run(numaspread, "--root", root, "--nodes", text, "--dry-run").stdout


def test_a_million_inputs(built: Path) -> None:
    fuzz = build_program("fuzz_list", built)
    result = run(fuzz, "1000000", "1")
    assert result.returncode == 0, result.stdout


def test_inputs_under_the_sanitizers(built: Path, tmp_path: Path) -> None:
    fuzz = build_program("fuzz_list", tmp_path, "gcc", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    result = run(fuzz, "100000", "3")
    assert result.returncode == 0, result.stdout + result.stderr
