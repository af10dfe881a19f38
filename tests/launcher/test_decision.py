"""Which nodes `auto` takes and which lists are refused, on machines of many shapes: a fake root and --dry-run."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launcher.launching import EIGHT_GPUS, GB200, GRACE_HOPPER, POWER9, TWO_SOCKETS, Machine, Node, listed, run

Decide = Callable[..., dict[str, Any]]

MACHINES = {
    "one node": (Machine({0: Node(range(8))}), [0]),
    "two sockets": (Machine(TWO_SOCKETS), [0, 1]),
    "four nodes per socket": (Machine({n: Node(range(8 * n, 8 * n + 8)) for n in range(8)}), range(8)),
    "Grace Hopper: GPU memory on 1, MIG placeholders on 2-8": (Machine(GRACE_HOPPER), [0]),  # H24
    "two Grace Hoppers: 8 nodes without CPUs": (
        Machine({0: Node(range(72)), 1: Node(range(72, 144)), **{n: Node(gib=96 if n < 4 else 0) for n in range(2, 10)}}),
        [0, 1],
    ),  # H24
    "GB200: 34 nodes": (Machine(GB200), [0, 1]),
    "POWER9: sparse ids, GPU memory on 252-255": (Machine(POWER9), [0, 8]),  # H24
    "a node with CPUs and no memory": (Machine({0: Node(range(4)), 1: Node(range(4, 8), gib=0)}), [0]),  # I3
    "node 0 isn't there": (Machine({1: Node(range(4)), 2: Node(range(4, 8))}), [1, 2]),
    "CXL memory": (Machine({**TWO_SOCKETS, 2: Node(gib=128)}), [0, 1]),
    "more than 64 nodes": (Machine({n: Node([n]) for n in range(0, 200, 2)}), range(0, 200, 2)),
    "the last id a kernel can have": (Machine({0: Node([0]), 1023: Node([1])}), [0, 1023]),
    "cpuset on node 1": (Machine(TWO_SOCKETS, mems_allowed=[1]), [1]),  # I1
    "cpuset on GPU memory alone": (Machine(GRACE_HOPPER, mems_allowed=[1]), [1]),
}


@pytest.mark.parametrize(("machine", "nodes"), MACHINES.values(), ids=MACHINES.keys())
@pytest.mark.parametrize("lists", [True, False], ids=["kernel lists", "no lists"])
def test_auto(decide: Decide, machine: Machine, nodes: list[int], lists: bool) -> None:
    """The allowed nodes with memory and CPUs; also when has_memory and has_cpu are missing and each node is asked."""
    decision = decide(machine, lists=lists)
    assert decision["nodes"] == [listed(nodes)]
    assert int(decision["mask"][0], 16) == sum(1 << node for node in nodes)
    assert decision["said"] == []


def test_who_was_left_out_and_why(decide: Decide) -> None:
    decision = decide(Machine({**GB200, 34: Node(range(144, 150))}, mems_allowed=range(34)))
    assert decision["left out"][0].split("), ") == [
        "3-9,11-17,19-25,27-33 (no memory",
        "34 (outside the cpuset of this process",
        "2,10,18,26 (no CPUs: GPU, CXL or other memory, taken by --nodes or --cpuless)",
    ]


def test_memory_without_cpus_on_request(decide: Decide) -> None:
    assert decide(Machine({**TWO_SOCKETS, 2: Node(gib=128)}), "--cpuless")["nodes"] == ["0-2"]


def test_memory_without_cpus_by_list(decide: Decide) -> None:
    assert decide(Machine({**TWO_SOCKETS, 2: Node(gib=128)}), "--nodes", "2")["nodes"] == ["2"]


def test_no_node_with_cpus_takes_them_all_and_says_so(decide: Decide) -> None:
    decision = decide(Machine({2: Node(gib=8), 3: Node(gib=8)}))
    assert decision["nodes"] == ["2-3"]
    assert "GPU memory" in decision["said"][0]


def test_kernel_without_numa(numaspread: Path, tmp_path: Path) -> None:
    """I9: no /sys/devices/system/node. One node, nothing to place; any other node is refused."""
    result = run(numaspread, "--root", tmp_path, "--verbose", "--", "echo", "ran")
    assert (result.returncode, result.stdout) == (0, "ran\n")
    assert "without NUMA" in result.stderr
    assert run(numaspread, "--root", tmp_path, "--", "echo", "ran").stderr == ""
    assert run(numaspread, "--root", tmp_path, "--nodes", "0", "true").returncode == 0
    assert run(numaspread, "--root", tmp_path, "--nodes", "1", "true").returncode == 125


@pytest.mark.parametrize(
    ("machine", "nodes", "named"),
    [
        (Machine(TWO_SOCKETS), "0-2", "asks for 2 (not on this machine);"),
        (Machine(GRACE_HOPPER), "0-8", "asks for 2-8 (no memory);"),  # I3
        (Machine(TWO_SOCKETS, mems_allowed=[0]), "0-1", "asks for 1 (outside the cpuset of this process);"),  # I1
        (Machine(TWO_SOCKETS, mems_allowed=[0]), "0-1", "name nodes among 0,"),
        (Machine({**TWO_SOCKETS, 2: Node(gib=0)}, mems_allowed=[0, 2]), "0-3", "3 (not on this machine), 2 (no memory), 1 (outside"),
    ],
)
def test_a_list_with_unusable_nodes_is_refused(numaspread: Path, tmp_path: Path, machine: Machine, nodes: str, named: str) -> None:
    """The kernel would drop these nodes silently."""
    root = machine.write(tmp_path / "root")
    result = run(numaspread, "--root", root, "--nodes", nodes, "echo", "ran")
    assert (result.returncode, result.stdout) == (125, "")
    assert named in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_best_effort_takes_the_usable_rest_of_a_list(decide: Decide) -> None:
    decision = decide(Machine(TWO_SOCKETS, mems_allowed=[0]), "--nodes", "0-1", "--best-effort")
    assert decision["nodes"] == ["0"]
    assert len(decision["said"]) == 1


def test_no_usable_node_at_all(numaspread: Path, tmp_path: Path) -> None:
    root = Machine({0: Node([0], gib=0)}).write(tmp_path / "root")
    assert run(numaspread, "--root", root, "true").returncode == 125
    assert run(numaspread, "--root", root, "--best-effort", "true").returncode == 0
    assert run(numaspread, "--root", root, "--mode", "local", "true").returncode == 0


def test_weights_in_force(decide: Decide, tmp_path: Path) -> None:
    Machine(TWO_SOCKETS).write(tmp_path / "root")
    weights = tmp_path / "root/sys/kernel/mm/mempolicy/weighted_interleave"
    weights.mkdir(parents=True)
    (weights / "node0").write_text("5\n")
    decision = decide(Machine({}), "--mode", "weighted")
    assert decision["weight of node 0"] == ["5"]
    assert decision["weight of node 1"] == ["not listed by this kernel"]


def test_local_takes_no_nodes(numaspread: Path, tmp_path: Path) -> None:
    root = Machine(TWO_SOCKETS).write(tmp_path / "root")
    assert run(numaspread, "--root", root, "--mode", "local", "--nodes", "0", "true").returncode == 125
    assert run(numaspread, "--root", root, "--mode", "local", "--nodes", "auto", "true").returncode == 0


def test_a_machine_with_eight_gpus_spreads_over_its_cpu_nodes(decide: Decide) -> None:
    assert decide(Machine(TWO_SOCKETS, EIGHT_GPUS))["nodes"] == ["0-1"]


@settings(max_examples=50)
@given(
    st.dictionaries(st.integers(0, 1023), st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=40),
    st.data(),
)
def test_auto_takes_what_it_should_on_any_machine(
    numaspread: Path, tmp_path_factory: pytest.TempPathFactory, nodes: dict[int, tuple[bool, bool, bool]], data: st.DataObject
) -> None:
    """Allowed with memory and CPUs; if there is none, allowed with memory; never anything else."""
    machine = Machine(
        {n: Node([index] if cpus else [], int(memory)) for index, (n, (cpus, memory, unused)) in enumerate(sorted(nodes.items()))},
        mems_allowed=[number for number, (unused, unused, allowed) in nodes.items() if allowed],
    )
    root = machine.write(tmp_path_factory.mktemp("machine") / "root", lists=data.draw(st.booleans()))
    usable = {number for number, (unused, memory, allowed) in nodes.items() if memory and allowed}
    wanted = {number for number in usable if nodes[number][0]} or usable
    result = run(numaspread, "--root", root, "--dry-run")
    assert result.returncode == (0 if wanted else 125)
    if wanted:
        assert f"\nnodes: {listed(wanted)}\n" in result.stdout


@pytest.mark.captures
def test_auto_on_captures_of_real_machines(numaspread: Path, captures: Path, tmp_path: Path) -> None:
    """Captures lack has_memory and has_cpu, older ones more: the nodes whose own files tell of memory and CPUs are taken."""
    seen, files = 0, [f"*/system/node/{name}" for name in ("online", "has_*", "node*/meminfo", "node*/cpumap", "node*/cpulist")]
    for archive in sorted(captures.glob("*.tar.xz")):
        root = tmp_path / archive.name
        root.mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", root, "--wildcards", *files], stderr=subprocess.DEVNULL, check=False)
        folders = list(root.glob("**/sys/devices/system/node"))
        if not folders:
            continue
        machine = folders[0].parents[3]
        wanted = set()
        for node in folders[0].glob("node[0-9]*"):
            meminfo, cpumap = ((node / name).read_text() if (node / name).is_file() else "" for name in ("meminfo", "cpumap"))
            if re.search(r"MemTotal: +[1-9]", meminfo) and cpumap.strip("0,\n"):
                wanted.add(int(node.name[4:]))
        result = run(numaspread, "--root", machine, "--dry-run")
        if wanted:
            assert f"\nnodes: {listed(wanted)}\n" in result.stdout, (archive.name, result.stdout, result.stderr)
            seen += 1
    assert seen >= 20, json.dumps({"machines with nodes": seen})
