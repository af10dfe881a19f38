"""Batch and pinned services on every example machine: they apply, are idempotent and leave nothing, or are refused for a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet, union
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import Plan, build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
from ansible_collections.gpufleet.node.plugins.module_utils.host.batch import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines import build
from machines.scratch import scratch

PREP = {"name": "prep", "command": ["/usr/bin/prep", "a b"], "user": "jobs", "memory_max": "8Gi"}
FEED = {"name": "feed", "command": "/usr/bin/feed", "user": "jobs"}
LAUNCHER = {"version": "1.0.0", "source_sha256": "ab" * 32}


def plan_for(topology: Topology, **variables: Any) -> Plan:
    return build_plan(topology, policy_from_variables(variables), LAUNCHER)


def run(root: Path, units: dict[str, Any]) -> bool:
    node = Node.at(str(root))
    section = {"units": units}
    return apply(CONCERN.artifacts(section, CONCERN.read(node.root, node.command, section)), node).changed


def files(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): None if path.is_symlink() else path.read_bytes()
        for top in ("etc", "usr/local", "var/lib/kubelet")
        for path in (root / top).rglob("*")
        if path.is_symlink() or path.is_file()
    }


def slice_of(root: Path) -> dict[str, str]:
    lines = (root / "etc/systemd/system/gpufleet-batch.slice").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.mark.parametrize("machine", build.names())
def test_services_on_every_machine(machine: str) -> None:
    with scratch() as root:
        build.build(build.load(machine), root)
        node = Node.at(str(root))
        topology = read_topology(node.root, node.command)
        before = files(root)
        with_cpus = union(one.cpus for one in topology.cpu_nodes)

        plan = plan_for(topology, batch_services=[PREP])
        units = to_json(plan.units)
        assert run(root, units) and not run(root, units)
        allowed = CpuSet.parse(slice_of(root)["AllowedCPUs"])
        assert allowed and allowed <= with_cpus and allowed == (plan.cpus.reserved if units["slice"]["follows_kubelet"] else plan.cpus.pool)
        # Never the memory of a GPU, of CXL or of an empty node.
        memory = CpuSet.parse(slice_of(root).get("AllowedMemoryNodes", ""))
        assert memory == CpuSet(one.id for one in topology.cpu_memory_nodes)

        with pytest.raises(InvalidInput, match=r"Profile isolated leaves no shared pool|gpufleet_isolated_cpus"):
            plan_for(topology, profile="isolated", batch_services=[PREP])
        gpu = next((gpu.address for gpu in topology.gpus if gpu.numa_node is not None), "")
        isolated = plan_for(
            topology, profile="isolated", batch_services=[PREP], batch_on_reserved=True, pinned_services=[{**FEED, "gpu": gpu or None}]
        )
        units = to_json(isolated.units)
        assert run(root, units) and not run(root, units)
        assert CpuSet.parse(slice_of(root)["AllowedCPUs"]) == isolated.cpus.reserved
        (feed,) = isolated.units["pinned"]
        assert feed["cpus"] and feed["cpus"] <= isolated.cpus.isolated
        assert run(root, {}) and files(root) == before
