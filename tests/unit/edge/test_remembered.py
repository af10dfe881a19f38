"""node_verify remembers the plan that nothing differs from, and answers for it together with the facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from module_answer import answer_of

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import digest
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import NOTHING
from machines.build import build, load

TUNING = ("sysctl", "transparent_hugepage", "hugepages", "governor", "swap", "limits", "confine")


class Machine:
    """A small machine of the fleet, which is as the plan of nothing has it."""

    def __init__(self, folder: Path) -> None:
        self.root = build(load("cloudvm"), folder)
        self.fingerprint = self.ask()["ansible_facts"]["gpufleet_topology"]["fingerprint"]
        self.plan: dict[str, Any] = {"fingerprint": self.fingerprint, **NOTHING}

    @property
    def file(self) -> Path:
        return self.root / "var/lib/gpufleet/plan.json"

    def ask(self, **options: Any) -> dict[str, Any]:
        answer = answer_of("node_verify", {"root": str(self.root), **options})
        assert not answer["changed"]
        return answer

    def remember(self, **options: Any) -> dict[str, Any]:
        return self.ask(plan=self.plan, remember=True, **options)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "node")


def test_the_next_facts_bring_the_verdict(machine: Machine) -> None:
    verdict = machine.remember()
    assert json.loads(machine.file.read_text()) == machine.plan and machine.file.stat().st_mode & 0o777 == 0o600
    answer = machine.ask()
    assert answer["remembered"]["plan"] == digest(machine.plan)
    assert answer["remembered"]["verdict"] == {key: verdict[key] for key in answer["remembered"]["verdict"]}
    assert not answer["remembered"]["verdict"]["differing"]


def test_the_verdict_is_on_the_node_as_it_is_now(machine: Machine) -> None:
    (machine.root / "proc/sys/vm/swappiness").write_text("7\n")
    machine.plan["sysctl"] = {"vm.swappiness": "7"}
    answer_of("host_tuning", {"root": str(machine.root), **{key: machine.plan[key] for key in TUNING}})
    machine.remember()
    (machine.root / "proc/sys/vm/swappiness").write_text("60\n")
    assert machine.ask()["remembered"]["verdict"]["differing"] == ["tuning"]


def test_the_questions_options_count(machine: Machine) -> None:
    machine.remember()
    found = machine.ask(concerns=["irq"], list_in_place=True)["remembered"]["verdict"]
    assert list(found["concerns"]) == ["irq"]


def test_a_plan_that_something_differs_from_is_not_remembered(machine: Machine) -> None:
    machine.plan["sysctl"] = {"vm.swappiness": "7"}
    assert machine.remember()["differing"] == ["tuning"]
    assert not machine.file.exists()


def test_nothing_is_remembered_unasked_or_in_check_mode(machine: Machine) -> None:
    machine.ask(plan=machine.plan)
    machine.remember(_ansible_check_mode=True)
    assert not machine.file.exists() and "remembered" not in machine.ask()


@pytest.mark.parametrize(
    "content",
    ["", "{", "null", "[]", "{}", '{"fingerprint": null}', json.dumps(NOTHING), "another machine's", "another version's"],
)
def test_what_it_cant_answer_for_is_left_to_the_next_question(machine: Machine, content: str) -> None:
    machine.remember()
    others = {
        "another machine's": {**machine.plan, "fingerprint": "0123456789abcdef"},
        "another version's": {**machine.plan, "kernel_arguments": [{"argument": "quiet"}], "interrupts": {"way": ["another"]}},
    }
    machine.file.write_text(json.dumps(others[content]) if content in others else content)
    answer = machine.ask()
    assert "remembered" not in answer and answer["ansible_facts"]["gpufleet_topology"]["fingerprint"] == machine.fingerprint


def test_a_folder_in_its_place_is_no_plan(machine: Machine) -> None:
    machine.file.mkdir(parents=True)
    assert machine.remember()["differing"] == []
    assert "remembered" not in machine.ask()


def test_a_node_that_cant_be_written_to_is_asked_again(machine: Machine) -> None:
    machine.file.parent.parent.mkdir(exist_ok=True, parents=True)
    machine.file.parent.write_text("a file where the folder should be")
    assert machine.remember()["differing"] == []
    assert "remembered" not in machine.ask()
