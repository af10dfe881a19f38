"""Where a machine has two NUMA nodes with CPUs: pages divide evenly, and none goes to memory without CPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from launcher.launching import build_program, run
from launcher.test_running import usable_nodes

NODES = usable_nodes() if Path("/sys/devices/system/node").is_dir() else []
MEBIBYTES = int(os.environ.get("NUMASPREAD_TEST_MEBIBYTES", "1024"))

pytestmark = pytest.mark.skipif(len(NODES) < 2, reason=f"this machine has {len(NODES)} NUMA node(s) with CPUs and memory, not two")


@pytest.fixture(scope="session")
def pages(built: Path) -> Path:
    """A command that touches memory and prints the pages on each node."""
    return build_program("pages", built)


def divided(*command: object) -> dict[int, int]:
    """The pages on each node."""
    result = run(*command)
    assert result.returncode == 0, result.stderr
    return {int(node): int(count) for node, count in (line.split() for line in result.stdout.splitlines())}


def test_pages_divide_evenly_over_cpu_nodes(numaspread: Path, pages: Path) -> None:
    on = divided(numaspread, pages, MEBIBYTES)
    assert set(on) == set(NODES)
    share = sum(on.values()) / len(NODES)
    assert all(abs(count / share - 1) <= 0.02 for count in on.values()), on


def test_bind_fills_one_node_only(numaspread: Path, pages: Path) -> None:
    for node in NODES:
        assert set(divided(numaspread, "--mode", "bind", "--nodes", node, pages, 64)) == {node}
