"""kubelet's restart as one step, below a real systemd: what is stopped, taken away, written, started, and put back when it fails."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import user_systemd
import yaml
from kubelet_states import cpu_state, sealed
from strategies import KUBEADM, make_topology

from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables

TESTS = Path(__file__).resolve().parents[2]
MAIN, CPU, MEMORY = "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
ASIDE = "/var/lib/gpufleet/set-aside"
NOTE = "/run/gpufleet/kubelet.stopped"
ONLINE = "0-31"
POD = "/sys/fs/cgroup/kubepods.slice/kubepods-pod1234.slice/cgroup.events"
GIVEN = {"1234": {"main": "1,17"}}

pytestmark = pytest.mark.skipif(not user_systemd.runs(), reason="no systemd can be run in name spaces here")

UNIT = """\
[Service]
ExecStart=%(python)s %(tests)s/kubelet_stand_in.py %(folder)s/var/lib/kubelet/config.yaml %(folder)s/var/lib/kubelet %(online)s %(port)d \\
  %(flags)s
Environment=PYTHONPATH=%(path)s
StandardOutput=append:%(folder)s/kubelet.log
StandardError=append:%(folder)s/kubelet.log
Restart=always
RestartSec=100ms
StartLimitIntervalSec=0
"""
DRIVER = """\
[Unit]
SuccessAction=exit-force
FailureAction=exit-force
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=%(python)s %(tests)s/kubelet_driver.py %(folder)s
Environment=PYTHONPATH=%(path)s
"""


def section(flags: dict[str, str] | None = None, **variables: Any) -> dict[str, Any]:
    topology = make_topology(kubelet=replace(KUBEADM, flags=flags or {}))
    return dict(build_plan(topology, policy_from_variables({"kubelet_restart": "when_needed", **variables})).kubelet)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Node:
    """A folder that stands for a node; its kubelet unit is real. ``run`` does steps of tests/kubelet_driver.py beside it."""

    def __init__(self, folder: Path, home: Path, flags: str = "") -> None:
        self.folder, self.home, port = folder, home, free_port()
        head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        self.write(MAIN, head + "healthzPort: %d\n" % port)
        self.write("/sys/devices/system/cpu/online", ONLINE)
        self.write("/usr/bin/python3.11", "")
        values = {"python": os.path.realpath(sys.executable), "tests": TESTS, "folder": folder, "online": ONLINE, "port": port}
        values["flags"] = flags
        packages = [path for path in sys.path if "site-packages" in path]
        values["path"] = ":".join((str(TESTS), str(TESTS.parent / "playbooks/collections"), *packages))
        self.units = {"kubelet.service": UNIT % values, "driver.service": DRIVER % values}

    def write(self, path: str, text: str) -> None:
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def run(self, *steps: list[Any]) -> list[Any]:
        self.write("/steps.json", json.dumps(steps))
        with user_systemd.start(self.home, "driver.service", self.units) as process:
            process.wait()
        answers = json.loads((self.folder / "answers.json").read_text())
        assert not isinstance(answers[-1], str), answers[-1]
        return list(answers)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "node").mkdir()
    return Node(tmp_path / "node", tmp_path / "home")


def test_another_policy(node: Node) -> None:  # A1
    wanted = section()
    _started, before, first, after, second, kept = node.run(
        ["start"], ["read", CPU, MEMORY], ["configure", wanted], ["read", CPU, MEMORY, MAIN, NOTE], ["configure", wanted],
        ["read", ASIDE + CPU, ASIDE + MEMORY],
    )  # fmt: skip
    assert first["restarted"] and first["changed"] and first["left"] == [] and first["ActiveState"] == "active"
    assert [command for command in first["commands"] if "reset-failed" not in command] == [
        "stop kubelet.service", "--no-block start kubelet.service"]  # fmt: skip
    assert json.loads(after[0])["policyName"] == "static" and after[1] == before[1]
    assert "cpuManagerPolicy: static" in after[2] and after[3] is None
    assert kept == [before[0], None]  # the memory manager's file still fits, and stayed
    assert not second["restarted"] and not second["changed"] and second["MainPID"] == first["MainPID"] and second["commands"] == []


def test_a_flag_that_beats_the_plan_is_what_kubelet_has(tmp_path: Path) -> None:
    """It is told as somebody else's; a kubelet that is well with it isn't put back."""
    node = Node(tmp_path, tmp_path / "home", "memoryManagerPolicy=Static")
    wanted = section({"memory-manager-policy": "Static", "reserved-memory": "0:memory=100Mi"})
    _started, done, states = node.run(["start"], ["configure", wanted], ["read", CPU, MEMORY])
    assert done["restarted"] and [json.loads(text)["policyName"] for text in states] == ["static", "Static"]
    assert done["left"] == [["kubelet flag --memory-manager-policy", "owned_by_someone_else"]]


def test_the_same_in_other_words_is_written_without_a_restart(node: Node) -> None:
    wanted = section()
    told = {**yaml.safe_load((node.folder / MAIN.lstrip("/")).read_text()), **wanted["configuration"]}
    rewritten = yaml.safe_dump(told)
    _started, first, _rewritten, second, after = node.run(
        ["start"], ["configure", wanted], ["write", MAIN, rewritten], ["configure", wanted], ["read", MAIN],
    )  # fmt: skip
    assert first["restarted"] and second["changed"] and not second["restarted"] and second["commands"] == second["left"] == []
    assert yaml.safe_load(after[0]) == told and after[0] != rewritten


def with_a_pod(node: Node) -> None:
    """The node's kubelet has the plan's configuration and a pod with CPUs of its own, which runs."""
    plan = section()["configuration"]
    node.write(
        MAIN,
        (node.folder / MAIN.lstrip("/")).read_text() + "cpuManagerPolicy: static\nreservedSystemCPUs: %s\n" % plan["reservedSystemCPUs"],
    )
    node.write(CPU, cpu_state("0,2-16,18-31", 34, entries=GIVEN))
    node.write(MEMORY, sealed("memory_manager_state", {"policyName": "None", "machineState": {}}, 34))
    node.write(POD, "populated 1\nfrozen 0\n")
    (node.folder / "var/log/pods/prod_trainer-0_1234").mkdir(parents=True)


def test_a_mere_change_keeps_the_state(node: Node) -> None:
    with_a_pod(node)
    _started, before, first, second, after = node.run(
        ["start"],
        ["read", CPU, MEMORY],
        ["configure", section()],
        ["configure", section(topology_manager_scope="pod")],
        ["read", CPU, MEMORY],
    )
    assert first["restarted"] and second["restarted"] and second["left"] == []
    assert second["MainPID"] != first["MainPID"]
    assert after == before and json.loads(after[0])["entries"] == GIVEN


def test_pods_that_hold_cpus_are_in_the_way_until_they_are_gone(node: Node) -> None:  # A27
    with_a_pod(node)
    wanted = section(reserved_cpus="0-1,16-17")  # those of the pod
    _started, running, ahead, before, refused, untouched, _drained, done, after = node.run(
        ["start"], ["seen"], ["configure", wanted, True], ["read", CPU, MAIN, NOTE], ["configure", wanted], ["read", CPU, MAIN, NOTE],
        ["write", POD, "populated 0\nfrozen 0\n"], ["configure", wanted], ["read", CPU, MAIN, NOTE],
    )  # fmt: skip
    assert ahead["drain_required"] and ahead["changed"] and not ahead["restarted"] and ahead["commands"] == []
    assert "pod prod/trainer-0 (main)" in refused["error"] and "Nothing was changed. Drain the node" in refused["error"]
    assert before == untouched and refused["MainPID"] == running["MainPID"]
    assert done["restarted"] and done["left"] == []
    assert json.loads(after[0])["defaultCpuSet"] == ONLINE and "reservedSystemCPUs: 0-1,16-17" in after[1].replace('"', "")


def test_a_pod_of_the_other_file_is_in_the_way_too(node: Node) -> None:
    """The CPU manager's file fits; but kubelet would admit its pod anew, with a memory manager that knows nothing of it."""
    with_a_pod(node)
    node.write(MEMORY, sealed("memory_manager_state", {"policyName": "Static", "machineState": {}}, 34))
    node.write(MAIN, (node.folder / MAIN.lstrip("/")).read_text() + "memoryManagerPolicy: Static\n")
    _started, before, done, after = node.run(["start"], ["read", CPU, MEMORY, MAIN], ["configure", section()], ["read", CPU, MEMORY, MAIN])
    assert "would not start on memory_manager_state" in done["error"] and "prod/trainer-0" in done["error"] and after == before


def test_the_old_configuration_comes_back_with_the_reason(node: Node) -> None:
    wanted = section(topology_manager_policy="restricted")
    _started, _first, before, failed, after, again = node.run(
        ["start"], ["configure", section(cpu_manager_policy="none", cpu_manager_policy_options={})], ["read", MAIN, CPU, MEMORY, NOTE],
        ["configure", wanted], ["read", MAIN, CPU, MEMORY, NOTE], ["seen"],
    )  # fmt: skip
    assert failed["error"].startswith("The restart of kubelet.service failed: ")
    assert "this kubelet takes no topology policy restricted" in failed["error"]
    assert "The old configuration and state are back, and it runs with that." in failed["error"]
    assert before == after
    assert again["ActiveState"] == "active" and again["MainPID"] == failed["MainPID"]


def test_a_kubelet_in_a_crash_loop_is_mended(node: Node) -> None:  # A1
    node.write(CPU, cpu_state("", 34, policy="none"))
    plan = section()["configuration"]
    node.write(
        MAIN,
        (node.folder / MAIN.lstrip("/")).read_text() + "cpuManagerPolicy: static\nreservedSystemCPUs: %s\n" % plan["reservedSystemCPUs"],
    )
    _started, done, states = node.run(["systemctl", "start"], ["configure", section()], ["read", CPU, ASIDE + CPU])
    assert done["restarted"] and done["left"] == []
    assert [json.loads(text)["policyName"] for text in states] == ["static", "none"]


def test_a_run_that_was_killed_with_kubelet_stopped_is_finished(node: Node) -> None:
    _started, _first, _killed, _note, done, note = node.run(
        ["start"], ["configure", section()], ["systemctl", "stop"], ["write", NOTE, ""],
        ["configure", section(topology_manager_scope="pod")], ["read", NOTE],
    )  # fmt: skip
    assert done["restarted"] and done["ActiveState"] == "active" and note == [None]


def test_a_kubelet_that_somebody_stopped_stays_stopped(node: Node) -> None:
    _started, _stopped, done = node.run(["start"], ["systemctl", "stop"], ["configure", section()])
    assert not done["restarted"] and done["changed"] and done["ActiveState"] == "inactive"
    assert done["left"] == [["cpu_manager_state", "pending"]]


def test_never_is_never(node: Node) -> None:
    _started, done, config = node.run(["start"], ["configure", section(kubelet_restart="never")], ["read", MAIN])
    assert not done["restarted"] and done["commands"] == [] and "cpuManagerPolicy: static" in config[0]
    assert done["left"] == [["cpu_manager_state", "pending"]]
