"""Every profile on every example machine, one after the other on one root: each applies, is idempotent, and leaves nothing of the last.

A machine that refuses a profile says so in one sentence; which ones do, and why, stands in REFUSALS.
"""

from __future__ import annotations

import os
import pathlib

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import CONCERNS
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines import build
from machines.scratch import scratch

# (machine, profile): part of the sentence that it gets.
_GPU_MEMORY = r"kubelet may then place pods into GPU memory"
REFUSALS = {("gracehopper", "aligned"): _GPU_MEMORY, ("gb200", "aligned"): _GPU_MEMORY}

JOURNEY = ("colocation", "aligned", "isolated", "colocation")


def plan_for(root: pathlib.Path, profile: str) -> dict:
    node = Root(str(root))
    return to_json(build_plan(read_topology(node, Command(node)), policy_from_variables({"profile": profile})))


def artifacts(node: Node, plan: dict):
    for concern in CONCERNS:
        section = {name: plan[name] for name in concern.sections}
        yield concern.name, concern.artifacts(section, concern.read(node.root, node.command, section))


def tree(root: pathlib.Path) -> dict[str, bytes]:
    """What lies below /etc, /usr and /boot, and the kernel's values; our own memory left out."""
    found = {}
    for top in ("etc", "usr", "boot", "var/lib/kubelet", "proc/sys", "proc/irq", "sys/kernel"):
        for folder, _folders, names in os.walk(root / top):
            for name in names:
                path = pathlib.Path(folder, name)
                found[str(path.relative_to(root))] = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
    return found


def test_every_profile_is_on_the_journey():
    assert set(JOURNEY) == set(PROFILES)


@pytest.mark.parametrize("machine", build.names())
def test_profiles_converge_one_after_the_other_and_leave_nothing(machine):
    with scratch() as root:
        build.build(build.load(machine), root)
        travel(machine, root)


def travel(machine: str, root: pathlib.Path) -> None:
    first = None
    for profile in JOURNEY:
        if (machine, profile) in REFUSALS:
            before = tree(root)
            with pytest.raises(GpufleetError, match=REFUSALS[machine, profile]):
                plan_for(root, profile)
            assert tree(root) == before
            continue
        plan = plan_for(root, profile)
        node = Node.at(str(root))
        for _name, wanted in artifacts(node, plan):
            apply(wanted, node)
        again = Node.at(str(root))
        found = [(name, finding) for name, wanted in artifacts(again, plan) for finding in inspect(wanted, again)]
        drifted = [(name, finding) for name, finding in found if finding.status == DRIFT]
        assert drifted == []
        written = tree(root)
        for name, wanted in artifacts(again, plan):
            assert not apply(wanted, again).changed, name
        assert tree(root) == written
        first = first or written
    changed = sorted(path for path in {*first, *written} if first.get(path) != written.get(path))
    assert changed == []
