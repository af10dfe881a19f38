"""A node's root comes home as an archive: the same facts and plan, the same verdict by name and state, and nobody's names in it."""

from __future__ import annotations

import io
import re
import tarfile

import pytest
from module_answer import answer_of

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.edge.capture import read_everything
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.capture import RecordingRoot, capture
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import CONCERNS
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines import build
from machines.scratch import scratch

MACHINES = ["reference", "gracehopper", "power9", "nosmt", "halfcores", "cloudvm", "oddeven"]

# By kind: what is planted, the file that it is appended to where a machine has it, and the text. A "+" makes the file.
SECRETS = {
    "host name": ("gpu-host-17", "+etc/hostname", "gpu-host-17\n"),
    "domain": ("corp-secret.example", "+proc/sys/kernel/hostname", "gpu-host-17.corp-secret.example\n"),
    "user of the node": ("margarethe", "etc/fstab", "//nas/s /srv/s cifs uid=1000,forceuid,comment=margarethe 0 0\n"),
    "user of a directory": ("theodora", "etc/fstab", "/home/theodora/img /srv/img ext4 loop 0 0\n"),
    "user of a unit": ("wilhelmina", "+etc/systemd/system/%(kubelet)s.d/20-local.conf", "[Service]\nUser=wilhelmina\n"),
    "IPv4": ("10.47.11.8", "etc/fstab", "10.47.11.8:/export /data nfs4 rw 0 0\n"),
    "IPv6": ("fd12:3456:789a", "etc/fstab", "[fd12:3456:789a:1::1]:/export /data6 nfs4 rw 0 0\n"),
    "MAC": ("3c:ec:ef:12:34:56", "proc/cmdline", " ifname=boot0:3c:ec:ef:12:34:56\n"),
    "UUID": ("7c9f1d2e-0000-4bcd-8eee-123456789abc", "etc/fstab", "UUID=7c9f1d2e-0000-4bcd-8eee-123456789abc /x ext4 defaults 0 0\n"),
    "password": ("hunter2", "etc/fstab", "//nas/t /t cifs username=svc,password=hunter2 0 0\n"),
    "kernel argument": ("provisioner.internal", "proc/cmdline", " inst.ks=http://provisioner.internal/ks.cfg\n"),
    "argument in GRUB's defaults": ("ops-beacon", "etc/default/grub", 'GRUB_CMDLINE_RECOVERY="quiet monitor=ops-beacon"\n'),
    "serial of a disk": ("S4EVNX0N700017", "run/udev/data/b259:1", "E:ID_SERIAL_SHORT=S4EVNX0N700017\n"),
    "serial": ("1324718009", "proc/cpuinfo", "\nSerial\t\t: 1324718009\n"),
    "secret of an environment": (
        "wJalrXUtnFEMI",
        "+etc/systemd/system/%(kubelet)s.d/20-local.conf",
        'Environment="AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI" LANG=C\n',
    ),
    "variable": ("blue-harvest", "+etc/systemd/system/%(kubelet)s.d/20-local.conf", 'Environment="PROJECT=blue-harvest one"\n'),
    "variable after a comment": (
        "green-room",
        "+etc/systemd/system/%(kubelet)s.d/20-local.conf",
        "Environment=A=b \\\n# where it is\n  HALL=green-room\n",
    ),
    "node in kubelet's file": ("i-0feedbeef", "var/lib/kubelet/config.yaml", "providerID: aws:///i-0feedbeef\n"),
    "flag in an environment": ("acme-corp", "var/lib/kubelet/kubeadm-flags.env", 'EXTRA="--node-labels=customer=acme-corp --v=2"\n'),
    "token in an environment": (
        "abcdef.0123456789abcdef",
        "etc/systemd/system/k3s-agent.service.env",
        "K3S_TOKEN=abcdef.0123456789abcdef\n",
    ),
    "token in a file": ("K10f00d::server:cafe", "etc/rancher/k3s/config.yaml", "token: K10f00d::server:cafe\n"),
    "flag in a file": ("west-wing", "etc/rancher/k3s/config.yaml", "kubelet-arg:\n- node-labels=rack=west-wing\n"),
    "registry password": ("opensesame", "etc/containerd/config.toml", '[plugins."x".auth]\n  password = "opensesame"\n'),
}


def plant(root):
    """The secrets, each with the file that it was planted in."""
    kubelet = "k3s-agent.service" if (root / "etc/rancher/k3s").exists() else "kubelet.service"
    planted = {}
    for secret, path, text in SECRETS.values():
        target = root / (path.lstrip("+") % {"kubelet": kubelet})
        if not path.startswith("+") and not target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        present = target.read_text() if target.exists() and not path.endswith("hostname") else ""
        target.write_text((present.rstrip("\n") if path == "proc/cmdline" else present) + text)
        planted[secret] = str(target.relative_to(root))
    passwd = root / "etc/passwd"
    passwd.write_text((passwd.read_text() if passwd.exists() else "") + "margarethe:x:1007:1007::/home/margarethe:/bin/bash\n")
    return planted


def home(root, folder, plan):
    """The archive's members by name, unpacked into the folder too."""
    folder.mkdir()
    archive = capture(RecordingRoot(str(root)), lambda reader, command: read_everything(reader, command, plan))
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {member.name: tar.extractfile(member).read() if member.isreg() else member.linkname.encode() for member in tar}
        tar.extractall(folder, filter="fully_trusted")
    return members


def plan_for(root, variables=None):
    node = Root(str(root))
    return to_json(build_plan(read_topology(node, Command(node)), policy_from_variables(variables or {})))


def without_flags(plan):
    """The plan without the values of kubelet's flags: those that we don't read are replaced in a capture."""
    return {**plan, "kubelet": {**plan["kubelet"], "flags": list(plan["kubelet"].get("flags", ()))}}


def artifacts(plan, node):
    for concern in CONCERNS:
        section = {name: plan[name] for name in concern.sections}
        yield concern.artifacts(section, concern.read(node.root, node.command, section))


# A boot loader entry is named after the machine's id, which a capture has another for.
MACHINE_ID = re.compile(r"\b[0-9a-f]{32}\b")


def verdict(root, plan):
    """Every finding's name and state, and what it says."""
    node = Node.at(str(root))
    found = [(f.item, f.status, f.until, f.message) for wanted in artifacts(plan, node) for f in inspect(wanted, node)]
    return [(MACHINE_ID.sub("ID", item), status, until, MACHINE_ID.sub("ID", message)) for item, status, until, message in found]


def converge(root, plan):
    node = Node.at(str(root))
    for wanted in artifacts(plan, node):
        apply(wanted, node)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_capture_gives_the_same_plan_and_verdict_and_no_names(machine):
    with scratch() as folder:
        root = folder / "node"
        build.build(build.load(machine), root)
        planted = plant(root)
        plan = plan_for(root)
        for name in ("found", "converged"):
            copy = folder / name
            members = home(root, copy, plan)
            for secret, path in planted.items():
                assert path in members, "nothing is shown by a file that stays at home"
                assert [name for name, content in members.items() if secret in name or secret.encode() in content] == []
            brought = plan_for(copy)
            assert without_flags(brought) == without_flags(plan)
            said = verdict(copy, brought)
            assert said == verdict(root, plan) and len(said) > 20
            converge(root, plan)


@pytest.mark.parametrize("machine", ["cloudvm", "gracehopper", "nosmt"])
def test_a_file_behind_a_link_has_the_format_of_the_name_that_it_is_read_by(machine):
    with scratch() as folder:
        root = folder / "node"
        build.build(build.load(machine), root)
        planted = plant(root)
        (root / "data").mkdir()
        folders = {path.rpartition("/")[0] for path in planted.values()} - {"proc", "proc/sys/kernel", "etc"}
        for number, path in enumerate(sorted(folders, key=len, reverse=True)):
            (root / path).rename(root / "data" / str(number))
            (root / path).symlink_to("/data/%d" % number)
        members = home(root, folder / "home", plan_for(root))
        for secret in planted:
            assert [name for name, content in members.items() if secret in name or secret.encode() in content] == []


def test_what_the_user_calls_a_gpu_is_one_in_a_capture():
    with scratch() as folder:
        root, copy = folder / "node", folder / "home"
        build.build(build.load("cloudvm"), root)
        device = root / "sys/bus/pci/devices/0000:e0:00.0"
        device.mkdir()
        for name, text in {"class": "0x0b4000", "vendor": "0x1d0f", "device": "0x7164", "numa_node": "0"}.items():
            (device / name).write_text(text + "\n")
        archive = folder / "node.tar.gz"
        answer_of("node_capture", {"root": str(root), "dest": str(archive), "gpu_match": ["1d0f:7164"]})
        with tarfile.open(archive) as tar:
            tar.extractall(copy, filter="fully_trusted")
        there, here = (read_topology(Root(str(path)), Command(Root(str(path))), gpu_match=["1d0f:7164"]).gpus for path in (root, copy))
        assert here == there and [(gpu.vendor, gpu.device, gpu.numa_node) for gpu in here] == [("1d0f", "7164", 0)]


def test_interrupts_that_only_the_kernel_moves_are_read_only_in_a_capture(monkeypatch):
    monkeypatch.setattr("ansible_collections.gpufleet.node.plugins.module_utils.host.capture.managed", lambda root, irqs: set(irqs[:1]))
    with scratch() as folder:
        root, copy = folder / "node", folder / "home"
        build.build(build.load("cloudvm"), root)
        plan = plan_for(root)
        home(root, copy, plan)
        alone = {path for path in copy.glob("proc/irq/*/smp_affinity_list") if not path.stat().st_mode & 0o222}
        assert len(alone) == 1
        moved = [(item, status) for item, status, _until, _message in verdict(copy, plan) if item.startswith("interrupt ")]
        (number,) = (path.parent.name for path in alone)
        assert [(item, status) for item, status in moved if item.startswith("interrupt %s " % number) and status == "drift"] == []
        assert len([status for _item, status in moved if status == "drift"]) > 0


# Why verify can't say the same of a capture: what a user put into a service is the user's.
OTHERWISE = {"gpufleet-prep.service": "its user, its environment and its command's flags are replaced"}


def test_a_service_comes_home_without_what_its_user_put_into_it():
    environment = {"DB_URL": "db://acme", "OMP_NUM_THREADS": "2"}
    service = {"name": "prep", "command": ["/opt/prep", "--api-key", "k-777"], "user": "hildegard", "environment": environment}
    variables = {"profile": "colocation", "batch_services": [service]}
    with scratch() as folder:
        root, copy = folder / "node", folder / "home"
        build.build(build.load("cloudvm"), root)
        plan = plan_for(root, variables)
        converge(root, plan)
        members = home(root, copy, plan)
        for secret in (b"k-777", b"hildegard", b"db://acme"):
            assert [name for name, content in members.items() if secret in content] == []
        there, here = verdict(root, plan), verdict(copy, plan)
        assert {finding[0] for finding in {*there, *here} if finding not in there or finding not in here} == set(OTHERWISE)


def test_a_capture_holds_what_was_read_and_little_else():
    with scratch() as folder:
        build.build(build.load("cloudvm"), folder)
        (folder / "sys/kernel/debug").mkdir(parents=True)
        (folder / "sys/kernel/debug/trace_pipe").write_text("a file that would block\n")
        root = RecordingRoot(str(folder))
        with tarfile.open(fileobj=io.BytesIO(capture(root, read_everything))) as archive:
            members = archive.getnames()
        assert not [name for name in members if "debug" in name]
        assert "proc/interrupts" in members and "etc/passwd" not in members
