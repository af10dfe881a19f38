"""Every captured machine as a node: each profile and workload is planned for it and applied to a copy of it, one after the other.

A plan either holds on the machine, converges in one run and leaves the next run nothing to do, or is refused for a reason in REFUSALS.
The captures bring /sys and /proc; /etc, /boot and kubelet's files are those of an Ubuntu server that kubeadm joined.
"""

from __future__ import annotations

import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from captures.unpack import names, unpacked

from ansible_collections.gpufleet.node.plugins.module_utils.core import kernel_args
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import Plan, build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, WORKLOADS, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import CONCERNS
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines.machine import Machine
from machines.scratch import scratch
from machines.writer import Tree, write_layers

pytestmark = pytest.mark.captures

SERVER = Machine(
    {
        "layers": ["debian-base", "ubuntu", "kubeadm", "kubelet-deb", "irqbalance-deb"],
        "variables": {
            "root_uuid": "3f1c9a52-7b1e-4d0a-9a55-0c7d5e8b1a01",
            "grub_default": "quiet",
            "grub_linux": "",
            "kubelet_version": "1.34.1",
            "kubelet_environment": "/etc/default/kubelet",
        },
        "files": {"/etc/fstab": "/swap.img none swap sw 0 0\n"},
    }
)

# Why a plan can't be: the sentence, the profile ("": any), and whether the machine's own facts give that reason.
REFUSALS = (
    ("all that this node has", "", lambda t: len(t.cores) == len(t.cpu_nodes)),
    ("No NUMA node has a whole core", "", lambda t: not t.cpu_nodes),
    ("how much memory NUMA node", "aligned", lambda t: not all(node.memory_bytes for node in t.cpu_memory_nodes)),
    ("place pods into GPU memory", "aligned", lambda t: any(node.kind == "device_memory" for node in t.numa_nodes)),
    ("shows no NUMA nodes", "aligned", lambda t: not t.has_numa),
    ("would find no CPUs", "", lambda t: t.kubelet_cores == ()),
    ("can't be reserved there", "aligned", lambda t: any(node.memory_bytes < 4 << 30 for node in t.cpu_memory_nodes)),
)


@pytest.mark.parametrize("name", names())
def test_each_plan_converges_or_is_refused_for_a_reason(name: str) -> None:
    with scratch() as folder:
        write_layers(SERVER, Tree(folder))
        shutil.copytree(unpacked(name), folder, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("dmi", "config"))
        root = Root(str(folder))
        topology = read_topology(root, Command(root))
        for profile, workload in product(PROFILES, WORKLOADS):
            plan = plan_or_reason(topology, profile, workload)
            if plan is not None:
                assert_holds(plan, topology)
                assert_converges(to_json(plan), folder)


def plan_or_reason(topology: Topology, profile: str, workload: str) -> Plan | None:
    """The plan; None when it is refused for a reason that is in the table."""
    try:
        return build_plan(topology, policy_from_variables({"profile": profile, "workload": workload}))
    except InvalidInput as refusal:
        if any(sentence in refusal.problem and only in ("", profile) and reason(topology) for sentence, only, reason in REFUSALS):
            return None
        raise


def assert_holds(plan: Plan, topology: Topology) -> None:
    """What must be true of any plan on any machine."""
    cpus, online = plan.cpus, topology.cpus.online
    assert cpus.reserved and cpus.reserved | cpus.isolated | cpus.pool == online
    assert len(cpus.reserved) + len(cpus.isolated) + len(cpus.pool) == len(online)
    assert online.first in cpus.reserved
    assert all(core <= part or core.isdisjoint(part) for core in topology.cores for part in (cpus.reserved, cpus.isolated, cpus.pool))
    assert all(not cpus.reserved.isdisjoint(node.cpus) for node in topology.cpu_nodes)

    assert kernel_args.check(plan.kernel_arguments, (5, 0)) == plan.kernel_arguments
    assert bool(cpus.isolated) == any(token.startswith("irqaffinity=") for token in plan.kernel_arguments)
    for affinity in (plan.interrupts["default_affinity"], *(row["cpus"] for row in plan.interrupts["devices"])):
        assert affinity and affinity <= online - cpus.isolated
    assert plan.confine["cpus"] == cpus.reserved

    configuration = plan.kubelet["configuration"]
    assert CpuSet.parse(configuration["reservedSystemCPUs"]) == cpus.reserved
    by_node = {node.id: node for node in topology.numa_nodes}
    for entry in configuration.get("reservedMemory", []):
        assert by_node[entry["numaNode"]].kind == "cpu_memory"
        size = re.fullmatch(r"(\d+)Mi", entry["limits"]["memory"])
        assert size and 0 < int(size[1]) << 20 <= by_node[entry["numaNode"]].memory_bytes
    assert all(len(note.message) > 20 and note.message.endswith((".", ")")) for note in plan.notes)


def assert_converges(plan: dict[str, Any], folder: Path) -> None:
    for concern in CONCERNS:
        section = {name: plan[name] for name in concern.sections}

        def wanted(node: Node) -> Any:
            return concern.artifacts(section, concern.read(node.root, node.command, section))  # noqa: B023

        node = Node.at(str(folder))
        apply(wanted(node), node)
        again = Node.at(str(folder))
        drift = [(finding.item, finding.path, finding.message) for finding in inspect(wanted(again), again) if finding.status == DRIFT]
        assert not drift, f"{concern.name} has not converged"
        assert not apply(wanted(again), again).changed, f"{concern.name} changes again"
