"""Batch and pinned services on folders that stand for nodes, judged by systemd's own tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from strategies import KUBEADM, device, reference

from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_names import OWN_UNITS, PROGRAM
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, IN_PLACE, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.systemd import UNIT_FOLDER
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Kubelet
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.batch import CONCERN

GPU = "0000:19:00.0"
UNITS = "etc/systemd/system"
LAUNCHER = {"version": "1.0.0", "source_sha256": "ab" * 32}
PREP = {
    "name": "prep",
    "description": "Images, 50% of them",
    "command": ["/usr/bin/env", "a b", "100%", "$HOME", ";", 'say "é"', "back\\", "two\nlines"],
    "user": "jobs",
    "group": "staff",
    "environment": {"TITLE": 'a "b" $c 5%', "EMPTY": ""},
    "environment_file": "/etc/prep secrets",
    "working_directory": "/srv/pre processed",
    "memory_max": "64Gi",
    "restart": "always",
    "io_limits": [{"device": "/dev/nvme0n1", "read_bytes": "200Mi", "write_iops": 1000}],
    "devices": ["/dev/fuse", "char-infiniband"],
}
NIGHT = {
    "name": "night",
    "command": "/usr/bin/env true",
    "user": "jobs",
    "nodes": "0",
    "mode": "weighted",
    "best_effort": True,
    "restart": "no",
    "page_migration": True,
    "timer": {"on_calendar": "*-*-* 02:00", "persistent": True, "randomized_delay_seconds": 600},
}
SOON = {**NIGHT, "name": "soon", "timer": {"on_boot_seconds": 60, "every_seconds": 3600}}
FEED = {"name": "feed", "command": "/usr/bin/env feed", "user": "jobs", "gpu": GPU, "threads": 4}
SPIN = {"name": "spin", "command": "/usr/bin/env spin", "user": "jobs", "gpu": GPU, "threads": 1, "policy": "fifo", "priority": 20}


def plan(*, kubelet: Kubelet | None = KUBEADM, launcher: dict[str, str] | None = None, **variables) -> dict:
    """The section that a plan of the reference machine has."""
    topology = reference(gpus=(device(GPU, 1),), kubelet=kubelet)
    return to_json(build_plan(topology, policy_from_variables(variables), launcher)).get("units")


def artifacts(root: Path, units: dict):
    node = Node.at(str(root))
    section = {"units": units}
    return CONCERN.artifacts(section, CONCERN.read(node.root, node.command, section)), node


def run(root: Path, units: dict):
    return apply(*artifacts(root, units))


def drift(root: Path, units: dict) -> list[str]:
    return [finding.item for finding in inspect(*artifacts(root, units)) if finding.status == DRIFT]


def ours(root: Path) -> list[str]:
    """What lies below the root, our memory left out; links by their target."""
    found = []
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if (path.is_file() or path.is_symlink()) and not name.startswith("var/lib/gpufleet"):
            found.append(f"{name} -> {os.readlink(path)}" if path.is_symlink() else name)
    return found


def test_a_second_run_changes_nothing_and_an_empty_section_leaves_nothing(tmp_path):
    units = plan(batch_services=[PREP, NIGHT], launcher=LAUNCHER)
    assert run(tmp_path, units).changed
    assert ours(tmp_path) == [
        f"{UNITS}/gpufleet-batch-cpus.path",
        f"{UNITS}/gpufleet-batch-cpus.service",
        f"{UNITS}/gpufleet-batch-cpus.timer",
        f"{UNITS}/gpufleet-batch.slice",
        f"{UNITS}/gpufleet-night.service",
        f"{UNITS}/gpufleet-night.timer",
        f"{UNITS}/gpufleet-prep.service",
        f"{UNITS}/gpufleet.slice",
        f"{UNITS}/multi-user.target.wants/gpufleet-batch-cpus.path -> /{UNITS}/gpufleet-batch-cpus.path",
        f"{UNITS}/multi-user.target.wants/gpufleet-prep.service -> /{UNITS}/gpufleet-prep.service",
        f"{UNITS}/timers.target.wants/gpufleet-batch-cpus.timer -> /{UNITS}/gpufleet-batch-cpus.timer",
        f"{UNITS}/timers.target.wants/gpufleet-night.timer -> /{UNITS}/gpufleet-night.timer",
        "usr/local/lib/gpufleet/batch_cpus.pyz",
        "var/lib/kubelet/seccomp/gpufleet/numa.json",
    ]
    again = run(tmp_path, units)
    assert not again.changed and {finding.status for finding in again.findings} <= {"in_place", PENDING}
    assert run(tmp_path, {}).changed
    assert ours(tmp_path) == []
    assert not run(tmp_path, {}).changed


def test_services_that_are_no_longer_listed_go_and_nobody_elses(tmp_path):
    run(tmp_path, plan(batch_services=[PREP, NIGHT]))
    foreign = tmp_path / UNITS / "gpufleet-dashboard.service"
    foreign.write_text("[Service]\nExecStart=/bin/true\n")
    found = run(tmp_path, plan(batch_services=[{**PREP, "timer": "daily"}]))
    stopped = [finding.command for finding in found.findings if finding.command and finding.command[1] == "stop"]
    assert stopped == []  # on a folder nothing runs
    names = {path.name for path in (tmp_path / UNITS).iterdir() if path.is_file()}
    assert {"gpufleet-prep.service", "gpufleet-prep.timer", "gpufleet-dashboard.service"} <= names
    assert not names & {"gpufleet-night.service", "gpufleet-night.timer"}
    assert sorted(path.name for path in (tmp_path / UNITS / "multi-user.target.wants").iterdir()) == ["gpufleet-batch-cpus.path"]
    run(tmp_path, {})
    assert ours(tmp_path) == [f"{UNITS}/gpufleet-dashboard.service"]


def test_from_one_kind_of_service_to_the_other(tmp_path):
    """The slice stops following, then only pinned services are left, then kubelet's folder is another one."""
    moved = Kubelet("plain", "kubelet.service", "1.34.4", root_dir="/data/kubelet")
    for units in (
        plan(batch_services=[PREP], launcher=LAUNCHER),
        plan(batch_services=[PREP], profile="isolated", batch_on_reserved=True),
        plan(pinned_services=[FEED, SPIN], profile="isolated", kubelet=None),
        plan(kubelet=moved, launcher=LAUNCHER),
    ):
        assert run(tmp_path, units).changed
        assert drift(tmp_path, units) == []
        assert not run(tmp_path, units).changed
    assert ours(tmp_path) == ["data/kubelet/seccomp/gpufleet/numa.json"]
    run(tmp_path, {})
    assert ours(tmp_path) == []


def test_a_unit_edited_by_hand_is_drift_and_is_mended(tmp_path):
    units = plan(batch_services=[PREP])
    run(tmp_path, units)
    path = tmp_path / UNITS / "gpufleet-batch.slice"
    path.write_text(path.read_text().replace("AllowedCPUs=0,96,192,288", "AllowedCPUs="))
    assert drift(tmp_path, units) == ["gpufleet-batch.slice"]
    assert run(tmp_path, units).changed and drift(tmp_path, units) == []


def test_a_missing_allocator_is_refused_before_anything_is_written(tmp_path):
    units = plan(batch_services=[{**PREP, "allocator": "jemalloc"}])
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    with pytest.raises(
        InvalidInput, match=r"wants jemalloc, and /usr/lib/x86_64-linux-gnu/libjemalloc\.so\.2 is not there\. Install libjemalloc2"
    ):
        run(tmp_path, units)
    assert ours(tmp_path) == []
    library = tmp_path / "usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    library.parent.mkdir(parents=True)
    library.touch()
    run(tmp_path, units)
    assert '"LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"' in (tmp_path / UNITS / "gpufleet-prep.service").read_text()


def test_an_allocators_package_is_installed_on_request(tmp_path):
    units = plan(batch_services=[{**PREP, "allocator": "tcmalloc"}], batch_install_allocators=True)
    install = [finding.command for finding in run(tmp_path, units).findings if finding.item == "tcmalloc is installed"]
    assert install == [("dnf", "install", "-y", "gperftools-libs")]  # no dpkg here


# systemd's own tools ----------------------------------------------------------------------------------------------------

needs_analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze isn't installed")


@needs_analyze
@pytest.mark.parametrize(
    "variables",
    [
        {"batch_services": [PREP, NIGHT, SOON]},
        {"batch_services": [PREP], "pinned_services": [FEED, SPIN], "profile": "isolated", "batch_on_reserved": True},
    ],
)
def test_systemd_finds_no_fault_in_the_units(tmp_path, variables):
    units = plan(**variables)
    run(tmp_path, {**units, "launcher": "/usr/bin/env"})  # the launcher isn't installed where this test runs
    folder = tmp_path / UNITS
    follow = folder / "gpufleet-batch-cpus.service"
    if follow.exists():
        follow.write_text(follow.read_text().replace("ExecStart=/usr/bin/python3 ", "ExecStart=/usr/bin/env "))
    names = sorted(str(path) for path in folder.iterdir() if path.is_file())
    assert len(names) > 4
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, [line for line in found.stderr.splitlines() if "gpufleet" in line]) == (0, [])


@needs_analyze
def test_systemd_would_find_a_fault(tmp_path):
    """The check above can fail."""
    run(tmp_path, {**plan(batch_services=[PREP]), "launcher": "/usr/bin/env"})
    path = tmp_path / UNITS / "gpufleet-prep.service"
    path.write_text(path.read_text().replace("AllowedMemoryNodes=0-1", "AllowedMemoryNodes=x"))
    found = subprocess.run(["systemd-analyze", "verify", "--man=no", str(path)], capture_output=True, text=True, check=False)
    assert "gpufleet-prep.service:" in found.stderr


def test_the_profile_for_pods_is_one_for_the_nodes_architecture(tmp_path):
    run(tmp_path, plan(launcher=LAUNCHER))
    profile = json.loads((tmp_path / "var/lib/kubelet/seccomp/gpufleet/numa.json").read_text())
    assert profile["architectures"] == ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]


@pytest.mark.parametrize("left", [f"{UNIT_FOLDER}/{name}" for name in OWN_UNITS] + [PROGRAM])
def test_any_rest_of_ours_is_found_where_no_services_are_wanted(tmp_path, left):
    place = tmp_path / left[1:]
    place.parent.mkdir(parents=True)
    section, node = {"units": {}}, Node.at(str(tmp_path))
    none = inspect(CONCERN.artifacts(section, CONCERN.read(node.root, node.command, section)), node)
    assert {finding.status for finding in none} == {IN_PLACE}
    place.write_text("left\n")
    found = inspect(CONCERN.artifacts(section, CONCERN.read(node.root, node.command, section)), node)
    assert left in {finding.path for finding in found if finding.status == DRIFT}
