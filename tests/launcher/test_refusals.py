"""When the kernel refuses: one sentence with the remedy, and --best-effort. Real seccomp filters, real errors."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from launcher.launching import INTERLEAVE, SECCOMP, Machine, Node, found, refusals, run
from launcher.test_running import namespace

REFUSALS = {
    "EPERM": (SECCOMP, [], ["CAP_SYS_NICE", "allow-list"]),  # I6
    "ENOSYS": (refusals(set_mempolicy=errno.ENOSYS, get_mempolicy=errno.ENOSYS), [], ["without NUMA", "emulator"]),
    "EINVAL": (refusals(set_mempolicy=errno.EINVAL), [], ["none of nodes 0"]),
    "ENOMEM": (refusals(set_mempolicy=errno.ENOMEM), [], ["Cannot allocate memory"]),
    "affinity": (refusals(sched_setaffinity=errno.EPERM), ["--cpus", "0"], ["CPUs 0", "Operation not permitted"]),
    "verify": (refusals(get_mempolicy=errno.EPERM), ["--verify"], ["get_mempolicy"]),
}


@pytest.mark.parametrize(("calls", "options", "said"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refused(numaspread: Path, refuse: Path, calls: list[str], options: list[str], said: list[str]) -> None:
    result = run(refuse, *calls, numaspread, *options, "echo", "ran")
    assert (result.returncode, result.stdout) == (125, "")
    assert len(result.stderr.splitlines()) == 1
    assert all(words in result.stderr for words in said), result.stderr


@pytest.mark.parametrize(("calls", "options", "said"), REFUSALS.values(), ids=REFUSALS.keys())
def test_best_effort_runs_the_command_and_says_what_was_refused(
    numaspread: Path, refuse: Path, calls: list[str], options: list[str], said: list[str]
) -> None:
    result = run(refuse, *calls, numaspread, "--best-effort", *options, "echo", "ran")
    assert (result.returncode, result.stdout) == (0, "ran\n")
    assert all(words in result.stderr for words in [*said, "--best-effort"])


def test_weighted_falls_back_to_interleave_only_on_best_effort(numaspread: Path, refuse: Path, show: Path) -> None:
    """I7: a kernel before 6.9 answers EINVAL to mode 6 and takes mode 3."""
    older = [refuse, "set_mempolicy:6=22", "--", numaspread, "--mode", "weighted"]
    assert run(*older, "true").returncode == 125
    result = run(*older, "--best-effort", "--verify", show)
    assert f'"policy": {INTERLEAVE}' in result.stdout
    assert "falling back to interleave" in result.stderr


def test_weighted_without_best_effort_names_the_kernel(numaspread: Path, refuse: Path) -> None:
    """An old kernel is told apart from unusable nodes by its version; setarch --uname-2.6 lends one."""
    result = run("setarch", "--uname-2.6", refuse, "set_mempolicy:6=22", "--", numaspread, "--mode", "weighted", "true")
    if "setarch" in result.stderr:
        pytest.skip("no setarch --uname-2.6")
    assert result.returncode == 125
    assert "Linux 6.9" in result.stderr
    assert "2.6" in result.stderr


def test_verify_finds_what_the_kernel_dropped(numaspread: Path, tmp_path: Path) -> None:
    """A root that promises a node which this kernel hasn't: the kernel drops it without a word, --verify says so."""
    root = Machine({0: Node([0]), 1000: Node([1])}).write(tmp_path / "root")
    assert run(numaspread, "--root", root, "true").returncode == 0
    result = run(numaspread, "--root", root, "--verify", "echo", "ran")
    assert (result.returncode, result.stdout) == (125, "")
    assert "holds policy 3 over nodes 0;" in result.stderr


def test_a_kernel_without_numa_runs_the_command(numaspread: Path, refuse: Path) -> None:
    """I9: the calls answer ENOSYS and sysfs has no nodes. A note with -v, and nothing else."""
    calls = refusals(set_mempolicy=errno.ENOSYS, get_mempolicy=errno.ENOSYS)
    without_nodes = [*namespace("mount -t tmpfs none /sys"), refuse, *calls, numaspread]
    quiet, verbose = run(*without_nodes, "echo", "ran"), run(*without_nodes, "-v", "echo", "ran")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "ran\n", "")
    assert "without NUMA" in verbose.stderr


def test_a_profile_that_hides_get_mempolicy_only(numaspread: Path, refuse: Path, show: Path) -> None:
    """The allowed nodes then come from /proc/self/status."""
    result = run(refuse, *refusals(get_mempolicy=errno.EPERM), numaspread, "--dry-run")
    assert "nodes: 0" in result.stdout
    assert found(numaspread, show)["policy"] == INTERLEAVE
