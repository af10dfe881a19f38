"""All concerns on one node of each distribution: which files are touched, and that nobody else's are."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, Outcome, apply
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import CONCERNS
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines.build import build, load
from machines.scratch import scratch

# Ubuntu and GRUB, RHEL 9 with boot loader entries and zram, RHEL 8 with grubenv, an ostree, a cloud image.
MACHINES = ("reference", "nosmt", "power9", "halfcores", "cloudvm")

# Files that aren't called after us, and why they are touched all the same. Everything else is somebody else's: packaged units and
# drop-ins (B19), /etc/sysctl.conf (F14), GRUB's own output and the EFI system partition (C15).
TOUCHED = {
    "etc/fstab": "swap lines; systemd has no drop-ins for it",
    "etc/systemd/system/*.swap": "masks",
    "etc/systemd/system/swap.target": "a mask",
    "etc/systemd/system/irqbalance.service": "a mask",
    "etc/systemd/zram-generator.conf": "an empty file overrides the packaged one",
    "etc/default/grub": "where boot loader entries are: a kernel to come takes its arguments from it",
    "etc/kernel/cmdline": "the same",
    "boot/loader/entries/*.conf": "the arguments of a kernel that is there",
    "boot/grub2/grubenv": "the same on RHEL 8",
    "var/lib/kubelet/config.yaml": "a kubelet that reads no drop-ins",
}
# What a file of ours never says; programs say much.
NEVER = {
    b"CPUAffinity=": "containers inherit it, or lose it (D13, D14)",
    b"sched_domain": "gone since 5.13 (D9)",
    b"ip_forward": "CNI's (F17)",
    b"hugepages-": "kubelet can't reserve them (B1)",
    b"cpuset.cpus.partition": "not together with isolcpus (D12)",
}


def contents(root: Path) -> dict[str, bytes]:
    """Every file and link outside the kernel's file systems, by path."""
    found = {}
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name not in ("sys", "proc")]
        for name in names:
            path = Path(folder) / name
            found[path.relative_to(root).as_posix()] = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
    return found


def run(plan: dict[str, Any], root: Path, check_mode: bool) -> list[Outcome]:
    outcomes = []
    for concern in CONCERNS:
        section = {name: plan[name] for name in concern.sections}
        node = Node.at(str(root))
        outcomes.append(apply(concern.artifacts(section, concern.read(node.root, node.command, section)), node, check_mode))
    return outcomes


@pytest.mark.parametrize("machine", MACHINES)
def test_check_mode_foretells_and_only_our_files_change(machine: str) -> None:  # B19, C15, C18, F14, J5
    with scratch() as folder:
        root = build(load(machine), folder / "root")
        reader = Root(str(root))
        topology = read_topology(reader, Command(reader))
        plan = to_json(build_plan(topology, policy_from_variables({"profile": "isolated"})))
        before, kernel = contents(root), sorted((root / "proc").rglob("*"))
        foretold = run(plan, root, check_mode=True)
        assert contents(root) == before and sorted((root / "proc").rglob("*")) == kernel
        done = run(plan, root, check_mode=False)
        after = contents(root)
    for told, made in zip(foretold, done):
        assert (told.changed, told.found) == (made.changed, made.found)
        assert not any(finding.status == DRIFT for finding in made.findings)

    changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
    assert any("gpufleet" in path for path in changed)
    others = [path for path in changed if "gpufleet" not in path and not any(fnmatch.fnmatch(path, known) for known in TOUCHED)]
    assert not others
    ours = {
        path: after[path]
        for path in changed
        if path in after and not path.startswith("var/lib/gpufleet/originals") and not path.endswith(".pyz")
    }
    assert not [(path, word) for path, text in ours.items() for word in NEVER if word in text]


def test_every_unit_of_ours_is_pulled_in_by_something() -> None:  # J3: an order alone starts nothing
    services = [{"name": "prepare", "command": ["/bin/true"], "user": "nobody"}]
    timed = [{"name": "nightly", "command": ["/bin/true"], "user": "nobody", "timer": "daily"}]
    with scratch() as folder:
        root = build(load("reference"), folder / "root")
        reader = Root(str(root))
        topology = read_topology(reader, Command(reader))
        policy = policy_from_variables({"batch_services": [*services, *timed]})
        run(to_json(build_plan(topology, policy, {"version": "0", "source_sha256": "0"})), root, check_mode=False)
        found = {
            path: text.decode()
            for path, text in contents(root).items()
            if b"\0" not in text and "gpufleet" in path and "var/lib" not in path
        }
    units = {path.rpartition("/")[2]: text for path, text in found.items() if path.startswith("etc/systemd/system/gpufleet")}
    assert {"gpufleet-irq.service", "gpufleet-irq.timer", "gpufleet-prepare.service", "gpufleet-nightly.timer"} <= set(units)
    wanted = {path.rpartition("/")[2] for path in found if ".wants/" in path}
    named = "\n".join(text for path, text in found.items() if path.endswith((".timer", ".path", ".service", ".rules")))
    for name in units:
        if name.endswith((".service", ".timer", ".path")):
            timer = name.replace(".service", ".timer")
            assert name in wanted or timer in wanted or f"Unit={name}" in named, name
