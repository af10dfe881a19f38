"""Memory that the launcher spreads"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest

Figure = Callable[[str], None]
PROGRAM = Path(__file__).resolve().parents[2] / "launcher" / "programs" / "pages.c"
MEBIBYTES = 1024


@pytest.fixture(scope="module")
def pages(node: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[int, int]]:
    """Run the program that touches memory under the launcher; the pages on each NUMA node."""
    if not node.plan["launcher"]:
        pytest.skip("this profile has no launcher")
    program = tmp_path_factory.mktemp("pages") / "pages"
    subprocess.run(["cc", "-static", "-O1", "-o", str(program), str(PROGRAM)], check=True)
    with program.open("rb") as file:
        subprocess.run(node.machine.ssh("cat >/root/pages && chmod 755 /root/pages"), stdin=file, check=True)

    def measure(options: str) -> dict[int, int]:
        lines = node.run(f"numaspread {options} -- /root/pages {MEBIBYTES}").split()
        return {int(id_): int(count) for id_, count in zip(lines[::2], lines[1::2])}

    return measure


def test_interleave(node: Any, pages: Callable[[str], dict[int, int]], figure: Figure) -> None:
    """1 GiB is divided evenly over the NUMA nodes with CPUs, nothing on a node without"""
    found = pages("")
    with_cpus = {entry["id"] for entry in node.plan["numa_nodes"] if entry["cpus"]}
    assert set(found) == with_cpus
    assert sum(found.values()) == MEBIBYTES * 256
    assert max(found.values()) / min(found.values()) <= 1.02
    figure(" + ".join(f"{count} pages on node {id_}" for id_, count in sorted(found.items())))


def test_weighted(node: Any, pages: Callable[[str], dict[int, int]], figure: Figure) -> None:
    """Weighted interleave with weights 3 and 1 divides 1 GiB three to one"""
    folder = "/sys/kernel/mm/mempolicy/weighted_interleave"
    if not node.read(f"{folder}/node0"):
        pytest.skip("this kernel has no weighted interleave (6.9 or later)")
    before = node.run(f"cat {folder}/node0 {folder}/node1").split()
    node.run(f"echo 3 >{folder}/node0; echo 1 >{folder}/node1")
    try:
        found = pages("--mode weighted")
    finally:
        node.run("; ".join(f"echo {weight} >{folder}/node{id_}" for id_, weight in enumerate(before)))
    ratio = found[0] / found[1]
    assert 2.94 <= ratio <= 3.06
    figure(f"{found[0]} + {found[1]} pages, ratio {ratio:.3f}")
