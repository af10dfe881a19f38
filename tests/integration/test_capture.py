"""A node's root comes home as an archive: the same facts and plan, every concern readable, and nobody's names in it."""

from __future__ import annotations

import io
import tarfile

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.edge.capture import read_everything
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.capture import RecordingRoot, capture
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import CONCERNS
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines import build
from machines.scratch import scratch

MACHINES = ["reference", "gracehopper", "power9", "nosmt", "halfcores", "cloudvm", "oddeven"]

# What is planted in a root, and the file it is planted in (appended).
SECRETS = {
    "gpu-host-17": ("etc/hostname", "gpu-host-17\n"),
    "corp-secret.example": ("proc/sys/kernel/hostname", "gpu-host-17.corp-secret.example\n"),
    "margarethe": ("etc/passwd", "margarethe:x:1007:1007::/home/margarethe:/bin/bash\n"),
    "/home/margarethe": ("etc/fstab", "/home/margarethe/img /srv/img ext4 loop 0 0\n"),
    "10.47.11.8": ("etc/fstab", "10.47.11.8:/export /data nfs4 rw 0 0\n"),
    "fd12:3456:789a": ("etc/fstab", "[fd12:3456:789a:1::1]:/export /data6 nfs4 rw 0 0\n"),
    "3c:ec:ef:12:34:56": ("proc/cmdline", " ifname=boot0:3c:ec:ef:12:34:56\n"),
    "7c9f1d2e-0000-4bcd-8eee-123456789abc": ("etc/fstab", "UUID=7c9f1d2e-0000-4bcd-8eee-123456789abc /x ext4 defaults 0 0\n"),
    "hunter2": ("etc/fstab", "//nas/s /s cifs username=svc,password=hunter2 0 0\n"),
    "provisioner.internal": ("proc/cmdline", " inst.ks=http://provisioner.internal/ks.cfg\n"),
}


def home(root, folder):
    """The archive's members by name, unpacked into the folder too."""
    archive = capture(RecordingRoot(str(root)), read_everything)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {member.name: tar.extractfile(member).read() if member.isreg() else member.linkname.encode() for member in tar}
        tar.extractall(folder, filter="fully_trusted")
    return members


def plant(root):
    for path, text in SECRETS.values():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        present = target.read_text() if target.exists() else ""
        target.write_text(text if path.endswith("hostname") else present.rstrip("\n") + text if path == "proc/cmdline" else present + text)


def facts(root):
    node = Root(str(root))
    return read_topology(node, Command(node))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_capture_gives_the_same_plan_and_no_names(machine):
    with scratch() as folder:
        root, copy = folder / "node", folder / "home"
        build.build(build.load(machine), root)
        plant(root)
        copy.mkdir()
        members = home(root, copy)
        for secret in SECRETS:
            assert [name for name, content in members.items() if secret in name or secret.encode() in content] == []
        policy = policy_from_variables({})
        original, brought = to_json(build_plan(facts(root), policy)), to_json(build_plan(facts(copy), policy))
        assert brought == original
        verdicts = [[(f.item, f.status) for c in CONCERNS for f in verdict(c, original, place)] for place in (root, copy)]
        assert len(verdicts[0]) == len(verdicts[1]) > 20


def verdict(concern, plan, root):
    node = Node.at(str(root))
    section = {name: plan[name] for name in concern.sections}
    return inspect(concern.artifacts(section, concern.read(node.root, node.command, section)), node)


def test_a_capture_holds_what_was_read_and_little_else():
    with scratch() as folder:
        build.build(build.load("reference"), folder)
        (folder / "sys/kernel/debug").mkdir(parents=True)
        (folder / "sys/kernel/debug/trace_pipe").write_text("a file that would block\n")
        root = RecordingRoot(str(folder))
        with tarfile.open(fileobj=io.BytesIO(capture(root, read_everything))) as archive:
            members = archive.getnames()
        assert not [name for name in members if "debug" in name]
        assert "proc/interrupts" in members and "etc/passwd" not in members
