"""The plan of every example machine under every profile, from its files on, as committed in tests/golden.

When a plan is meant to change, write the new ones with

    GPUFLEET_REGOLD=1 .venv/bin/python -m pytest -n 0 tests/unit/core/test_golden_plans.py

and read the difference.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines.build import build, load, names

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
LAUNCHER = {"version": "1.0.0", "source_sha256": "0" * 64}


def facts(machine: str) -> Topology:
    """The facts of an example machine. Tens of thousands of small files are made in memory where that can be."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        root = Root(str(build(load(machine), folder)))
        return read_topology(root, Command(root))


def plan_or_refusal(topology: Topology, profile: str) -> dict[str, Any]:
    try:
        return to_json(build_plan(topology, policy_from_variables({"profile": profile}), LAUNCHER))
    except GpufleetError as error:
        return {"refused": str(error)}


@pytest.mark.parametrize("machine", names())
def test_plans_are_as_committed(machine: str) -> None:
    topology = facts(machine)
    for profile in PROFILES:
        golden = GOLDEN / machine / f"{profile}.json"
        rendered = json.dumps(plan_or_refusal(topology, profile), indent=1, ensure_ascii=False) + "\n"
        if os.environ.get("GPUFLEET_REGOLD"):
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(rendered, encoding="utf-8")
        assert json.loads(rendered) == json.loads(golden.read_text(encoding="utf-8"))


def test_nothing_is_kept_for_a_machine_that_is_gone() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == set(names())


def test_the_reference_plan_says_what_the_design_says() -> None:
    plan = json.loads((GOLDEN / "reference" / "colocation.json").read_text(encoding="utf-8"))
    assert plan["cpus"]["reserved"] == "0,96,192,288"
    assert [node["available_count"] for node in plan["numa_nodes"]] == [190, 190]
    wanted = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"},
        "reservedSystemCPUs": "0,96,192,288",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "best-effort",
    }
    assert wanted.items() <= plan["kubelet"]["configuration"].items()


def test_a_refusal_has_a_reason_in_the_machine() -> None:
    refused = {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in GOLDEN.glob("*/*.json")}
    assert {name for name, plan in refused.items() if "refused" in plan} <= {"gb200", "gracehopper"}
    reasons = {json.loads(path.read_text(encoding="utf-8")).get("refused", "GPU memory") for path in GOLDEN.glob("*/*.json")}
    assert all("GPU memory" in reason for reason in reasons)
