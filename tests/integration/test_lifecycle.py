"""A node's way there and back on every example machine: each profile is applied, and rollback leaves what was there, byte for byte."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import FOREIGN
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import CONCERNS
from ansible_collections.gpufleet.node.plugins.module_utils.host.rollback import roll_back
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines import build
from machines.scratch import scratch

# Everything but /var/lib/gpufleet, and device folders that nobody writes to.
TOPS = ("etc", "usr", "boot", "run", "var/lib/kubelet", "var/lib/rancher", "proc/sys", "proc/irq", "sys/kernel", "sys/devices/system")


def tree(root: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    """Every folder, file and link below TOPS: mode, and content or target."""
    found = {}
    for top in TOPS:
        for folder, folders, names in os.walk(root / top):
            for path in (pathlib.Path(folder, name) for name in (*folders, *names)):
                mode = path.lstat().st_mode
                content = b""
                if stat.S_ISLNK(mode):
                    content = os.readlink(path).encode()
                elif stat.S_ISREG(mode):
                    content = path.read_bytes()
                found[str(path.relative_to(root))] = (mode, content)
    return found


def bring_to(root: pathlib.Path, profile: str) -> None:
    """Apply the profile, unless the machine refuses it; test_fleet.py says which do."""
    reader = Root(str(root))
    try:
        plan = to_json(build_plan(read_topology(reader, Command(reader)), policy_from_variables({"profile": profile})))
    except GpufleetError:
        return
    node = Node.at(str(root))
    for concern in CONCERNS:
        section = {name: plan[name] for name in concern.sections}
        apply(concern.artifacts(section, concern.read(node.root, node.command, section)), node)


def differing(before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]) -> list[str]:
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


@pytest.mark.parametrize("machine", build.names())
def test_there_and_back(machine):
    with scratch() as root:
        build.build(build.load(machine), root)
        before = tree(root)
        for profile in (*PROFILES, "isolated"):
            bring_to(root, profile)
        assert differing(before, tree(root))
        done = roll_back(Node.at(str(root)))
        assert differing(before, tree(root)) == []
        assert done.left == {} and not [finding for finding in done.outcome.findings if finding.status == FOREIGN and finding.path]
        assert not roll_back(Node.at(str(root))).outcome.changed
        assert os.listdir(root / "var/lib/gpufleet") == []
