"""The kubelet concern on folders that stand for nodes: written, found in place, changed, taken out, put back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from strategies import KUBEADM, make_topology

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, PENDING, RESTART, Finding
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Kubelet
from ansible_collections.gpufleet.node.plugins.module_utils.host import kubelet as concern
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, Outcome, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.written import PATH

MAIN = "/var/lib/kubelet/config.yaml"
RKE2 = Kubelet("rke2", "rke2-agent.service", "1.33.1", config_dir="/var/lib/rancher/rke2/agent/etc/kubelet.conf.d")
BASE = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n"


def section(kubelet: Kubelet = KUBEADM, **variables: Any) -> dict[str, Any]:
    return {"kubelet": build_plan(make_topology(kubelet=kubelet), policy_from_variables(variables)).kubelet}


def run(root: Path, wanted: dict[str, Any], check_mode: bool = False) -> Outcome:
    node = Node.at(str(root))
    return apply(concern.CONCERN.artifacts(wanted, concern.read(node.root, node.command, wanted)), node, check_mode)


def look(root: Path, wanted: dict[str, Any]) -> list[Finding]:
    node = Node.at(str(root))
    return inspect(concern.CONCERN.artifacts(wanted, concern.read(node.root, node.command, wanted)), node)


def write(root: Path, path: str, text: str) -> Path:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text, encoding="utf-8")
    return place


def test_a_second_run_changes_nothing_and_a_change_of_profile_leaves_nothing(tmp_path: Path) -> None:
    main = write(tmp_path, MAIN, BASE)
    for profile in ("colocation", "aligned", "isolated", "colocation"):
        wanted = section(profile=profile)
        assert run(tmp_path, wanted).changed
        assert not run(tmp_path, wanted).changed
        assert yaml.safe_load(main.read_text()) == {**yaml.safe_load(BASE), **wanted["kubelet"]["configuration"]}
    assert run(tmp_path, {"kubelet": {}}).changed
    assert main.read_text() == BASE


@pytest.mark.parametrize("by", ["main", "drop-in", "flag"])
def test_kernel_values_that_kubelet_demands(tmp_path: Path, by: str) -> None:
    """With protectKernelDefaults kubelet sets nothing: it exits."""
    kubelet = RKE2 if by == "drop-in" else replace(KUBEADM, flags={"protect-kernel-defaults": "true"}) if by == "flag" else KUBEADM
    path = RKE2.config_dir + "/00-rke2-defaults.conf" if by == "drop-in" else MAIN
    write(tmp_path, path, BASE if by == "flag" else BASE + "protectKernelDefaults: true\n")
    values = {"vm.overcommit_memory": "1", "vm.panic_on_oom": "0", "kernel.panic": "10", "kernel.panic_on_oops": "1",
              "kernel.keys.root_maxkeys": "1000000", "kernel.keys.root_maxbytes": "25000000"}  # fmt: skip
    for name, value in values.items():
        write(tmp_path, "/proc/sys/" + name.replace(".", "/"), value + "\n")
    assert run(tmp_path, section(kubelet)).changed
    for name, value in values.items():
        live = write(tmp_path, "/proc/sys/" + name.replace(".", "/"), "7\n")
        with pytest.raises(GpufleetError, match="protectKernelDefaults is true and %s is 7: kubelet exits unless it is %s" % (name, value)):
            look(tmp_path, section(kubelet))
        assert not run(tmp_path, section(kubelet, sysctl={name: value})).changed  # before this concern comes the one that sets it
        live.unlink()
        look(tmp_path, section(kubelet))  # not known here
        live.write_text(value)


def test_kernel_values_that_kubelet_sets_itself(tmp_path: Path) -> None:
    write(tmp_path, "/proc/sys/vm/panic_on_oom", "1\n")
    write(tmp_path, MAIN, BASE + "protectKernelDefaults: false\n")
    assert run(tmp_path, section()).changed


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    main = write(tmp_path, MAIN, BASE)
    before = sorted(tmp_path.rglob("*"))
    outcome = run(tmp_path, section(), check_mode=True)
    assert outcome.changed
    assert (main.read_text(), sorted(tmp_path.rglob("*"))) == (BASE, before)
    assert any(finding.status == DRIFT and "cpuManagerPolicy" in finding.after for finding in outcome.found)


def test_a_drop_in_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    packaged = write(tmp_path, RKE2.config_dir + "/00-rke2-defaults.conf", BASE)
    run(tmp_path, section(RKE2))
    ours = packaged.with_name("zz-gpufleet.conf")
    assert yaml.safe_load(ours.read_text())["reservedSystemCPUs"] == "0,8,16,24"
    assert packaged.read_text() == BASE
    assert not (tmp_path / MAIN.lstrip("/")).exists()
    run(tmp_path, {"kubelet": {}})
    assert [path.name for path in packaged.parent.iterdir()] == ["00-rke2-defaults.conf"]


def test_a_node_without_a_kubelet_is_left_alone(tmp_path: Path) -> None:
    assert not run(tmp_path, {"kubelet": {}}).changed
    assert not (tmp_path / "var/lib/kubelet").exists()


def test_nothing_is_written_when_kubelet_would_refuse(tmp_path: Path) -> None:
    main = write(tmp_path, MAIN, BASE + "systemReservedCgroup: /system.slice\n")
    with pytest.raises(GpufleetError, match="systemReservedCgroup"):
        run(tmp_path, section())
    assert main.read_text().startswith(BASE)
    assert not (tmp_path / "var/lib/gpufleet").exists()


class Running(Command):
    """systemd's answer on a node whose kubelet runs as process 7."""

    def __init__(self, root: Root) -> None:
        super().__init__(root)
        self.live = True

    def query(self, argv: Any) -> str | None:
        return "ActiveState=active\nMainPID=7\n" if "--property=ActiveState,MainPID" in argv else None


@pytest.mark.parametrize(("written", "stale"), [(1000, True), (10, False)])
def test_a_kubelet_that_runs_since_before_its_file_was_written(tmp_path: Path, written: int, stale: bool) -> None:
    write(tmp_path, MAIN, BASE)
    run(tmp_path, section())
    write(tmp_path, PATH, json.dumps({MAIN: written}))  # seconds since the boot, as the start of a process
    write(tmp_path, "/proc/7/stat", "7 (kube let) S " + " ".join(["0"] * 18) + " 4200 0\n")
    root = Root(str(tmp_path))
    found = concern.CONCERN.artifacts(section(), concern.read(root, Running(root), section()))
    assert [one.item for one in found if getattr(one, "until", "") == RESTART] == (["kubelet.service"] if stale else [])


def test_only_news_make_a_running_kubelet_stale(tmp_path: Path) -> None:
    """When a file is written with the same in other words, that isn't noted as what kubelet has yet to read."""
    main = write(tmp_path, MAIN, BASE)
    write(tmp_path, "/proc/uptime", "1000.00 1.00\n")

    def noted(wanted: dict[str, Any]) -> list[str]:
        (tmp_path / PATH.lstrip("/")).unlink(missing_ok=True)
        node = Node.at(str(tmp_path))
        node.root.is_live = True
        assert apply(concern.CONCERN.artifacts(wanted, concern.read(node.root, node.command, wanted)), node).changed
        return [path for path in json.loads(node.root.read(PATH) or "{}") if path == MAIN]

    assert noted(section()) == [MAIN]
    main.write_text(yaml.safe_dump(yaml.safe_load(main.read_text())))
    assert noted(section()) == []
    assert noted(section(topology_manager_scope="pod")) == [MAIN]


def test_a_state_file_of_another_policy_is_seen(tmp_path: Path) -> None:  # A1
    write(tmp_path, MAIN, BASE)
    state = write(tmp_path, "/var/lib/kubelet/cpu_manager_state", '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}')
    run(tmp_path, section())
    assert [(finding.item, finding.status) for finding in look(tmp_path, section()) if finding.status == PENDING] == [
        ("cpu_manager_state", PENDING)
    ]
    assert state.exists()
