"""A node's way there and back on every example machine: each profile is applied, and rollback leaves what was there, byte for byte; also
where files lie behind links, or are named in another spelling."""

from __future__ import annotations

import functools
import os
import pathlib
import stat
from collections.abc import Iterable

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
TOPS = (
    "etc",
    "usr",
    "boot",
    "run",
    "data",
    "var/lib/kubelet",
    "var/lib/rancher",
    "proc/sys",
    "proc/irq",
    "sys/kernel",
    "sys/devices/system",
)


def tree(root: pathlib.Path) -> dict[str, tuple[int, bytes]]:
    """Every folder, file and link below TOPS: mode, and content or target."""
    found, memory = {}, "%s%s" % (root, Root(str(root)).resolve("/var/lib/gpufleet"))
    for top in TOPS:
        for folder, folders, names in os.walk(root / top):
            folders[:] = [name for name in folders if os.path.join(folder, name) != memory]
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


# Links and spellings -----------------------------------------------------------------------------------------------------

# Each boot loader and each place of a kubelet's configuration.
KINDS = ("nps4", "nosmt", "oddeven", "cloudvm", "halfcores")
# What every concern has files for.
EVERYTHING = {
    "profile": "isolated",
    "sysctl": {"vm.swappiness": 7},
    "batch_on_reserved": True,
    "batch_services": [{"name": "prep", "command": "/usr/bin/prep", "user": "jobs"}],
}


def changed(root: pathlib.Path) -> list[str]:
    """The concerns that a run of all of them changes something for."""
    node = Node.at(str(root))
    launcher = {"version": "1.0.0", "source_sha256": "ab" * 32}
    plan = to_json(build_plan(read_topology(node.root, node.command), policy_from_variables(EVERYTHING), launcher))
    (root / "numaspread").write_text("a program")
    plan["launcher"]["binary"] = str(root / "numaspread")
    found = []
    for concern in CONCERNS:
        section = {name: plan[name] for name in concern.sections}
        if apply(concern.artifacts(section, concern.read(node.root, node.command, section)), node).changed:
            found.append(concern.name)
    return found


def behind_links(root: pathlib.Path, paths: Iterable[str]) -> None:
    """Each of them moves below /data, and a link leads there: folders from within, so that a link may lie behind another one."""
    for path in sorted(paths, key=len, reverse=True):
        (root / "data").mkdir(exist_ok=True)
        there = "/data/" + path.replace("/", "_")
        (root / path[1:]).rename(root / there[1:])
        (root / path[1:]).symlink_to(there)


@functools.cache
def written(machine: str) -> list[str]:
    """The places that are written on the machine."""
    with scratch() as root:
        build.build(build.load(machine), root)
        changed(root)
        return [path for path in Node.at(str(root)).store.files if not path.startswith("/var/lib/gpufleet")]


def folders(root: pathlib.Path, paths: list[str], above: int) -> set[str]:
    """The folders of these files that are there, or those so many above them."""
    there = [[str(folder) for folder in pathlib.Path(path).parents if (root / str(folder)[1:]).is_dir()] for path in paths]
    return {found[above] for found in there if found[above] not in ("/", "/etc")}


def files(root: pathlib.Path, paths: list[str]) -> set[str]:
    return {path for path in paths if (root / path[1:]).is_file() and not (root / path[1:]).is_symlink()}


LAYOUTS = {
    "folders": lambda root, paths: folders(root, paths, 0),
    "folders above": lambda root, paths: folders(root, paths, 1),
    "files": files,
}


def assert_there_and_back(root: pathlib.Path, before: dict[str, tuple[int, bytes]]) -> None:
    """Nothing changes any more, and what was there comes back."""
    assert [changed(root) for unused in range(3)] == [[], [], []]
    assert differing(before, tree(root))
    done = roll_back(Node.at(str(root)))
    assert differing(before, tree(root)) == [] and done.left == {}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("machine", KINDS)
def test_behind_links(machine, layout):
    paths = written(machine)
    with scratch() as root:
        build.build(build.load(machine), root)
        behind_links(root, LAYOUTS[layout](root, paths))
        before = tree(root)
        assert changed(root) == [concern.name for concern in CONCERNS]
        assert_there_and_back(root, before)


@pytest.mark.parametrize("machine", KINDS)
def test_folders_that_moved_since_the_first_run(machine):
    paths = written(machine)
    with scratch() as root, scratch() as without_us:
        for place in (root, without_us):
            build.build(build.load(machine), place)
        moved = folders(root, paths, 0)
        changed(root)
        for place in (root, without_us):
            behind_links(place, moved)
        assert_there_and_back(root, tree(without_us))


# A machine's file, and what is another spelling in it.
SPELLINGS = {
    "nps4": ("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "/var/lib/kubelet/config.yaml",
             "/var//lib/./kubelet/pki/../config.yaml --root-dir=/var/lib//kubelet/"),
    "oddeven": ("usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "/var/lib/kubelet/config.yaml",
                "/var/lib/kubelet/config.yaml --config-dir=/etc//kubernetes/kubelet.conf.d//"),
    "cloudvm": ("etc/rancher/k3s/config.yaml", "", "data-dir: /var/lib/rancher/./k3s/\n"),
}  # fmt: skip


@pytest.mark.parametrize("machine", SPELLINGS)
def test_other_spellings(machine):
    path, old, new = SPELLINGS[machine]
    with scratch() as root:
        build.build(build.load(machine), root)
        (root / "etc/kubernetes/kubelet.conf.d").mkdir(parents=True, exist_ok=True)
        (root / "var/lib/kubelet/pki").mkdir(parents=True, exist_ok=True)
        text = (root / path).read_text()
        (root / path).write_text(text.replace(old, new) if old else text + new)
        before = tree(root)
        assert "kubelet" in changed(root) and "batch" not in changed(root)
        assert_there_and_back(root, before)


def test_a_folder_with_two_names():
    """k3s is told a folder that one of its usual place is a link to."""
    with scratch() as root:
        build.build(build.load("cloudvm"), root)
        behind_links(root, ["/var/lib/rancher/k3s"])
        with (root / "etc/rancher/k3s/config.yaml").open("a") as config:
            config.write("data-dir: /data/_var_lib_rancher_k3s/\n")
        before = tree(root)
        assert "kubelet" in changed(root)
        assert_there_and_back(root, before)
