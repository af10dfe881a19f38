"""node_verify as a task without a plan: facts, plan and verdict at once, always made anew."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from machines import build
from machines.scratch import scratch

pytestmark = pytest.mark.ansible

OUT = "{{ {'one': one, 'other': other, 'given': given, 'misspelt': misspelt, 'facts': ansible_facts} | to_json }}"
ISOLATED = {"gpufleet_profile": "isolated"}


@pytest.fixture(scope="module")
def results(ansible_env: dict[str, str]) -> Iterator[dict[str, Any]]:
    with scratch() as folder:
        build.build(build.load("cloudvm"), folder / "node")
        verify = {"gpufleet.node.node_verify": {"root": f"{folder}/node"}}
        tasks: list[dict[str, Any]] = [
            {**verify, "register": "one"},
            {**verify, "register": "other", "vars": ISOLATED},
            {**verify, "register": "given", "vars": {"gpufleet_plan": {"fingerprint": "0123456789abcdef"}}, "ignore_errors": True},
            {**verify, "register": "misspelt", "vars": {"gpufleet_profil": "isolated"}, "ignore_errors": True},
            {"ansible.builtin.copy": {"dest": f"{folder}/out.json", "content": OUT, "mode": "0644"}},
        ]
        play = {"hosts": "all", "gather_facts": False, "connection": "local", "tasks": tasks}
        (folder / "play.yml").write_text(yaml.safe_dump([play], sort_keys=False))
        program = str(Path(sys.executable).with_name("ansible-playbook"))
        command = [program, "-i", "node,", "-e", f"ansible_python_interpreter={sys.executable}", f"{folder}/play.yml"]
        done = subprocess.run(command, env=ansible_env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield json.loads((folder / "out.json").read_text())


def test_facts_and_plan_become_facts_of_the_host(results: dict[str, Any]) -> None:
    found = results["one"]["ansible_facts"]
    assert set(found) == {"gpufleet_topology", "gpufleet_plan"}
    assert found["gpufleet_plan"]["fingerprint"] == found["gpufleet_topology"]["fingerprint"]
    assert "tuning" in results["one"]["differing"] and not results["one"]["changed"]
    assert results["facts"]["gpufleet_topology"] == found["gpufleet_topology"]


def test_the_plan_of_an_earlier_task_is_not_taken_again(results: dict[str, Any]) -> None:
    assert results["one"]["ansible_facts"]["gpufleet_plan"]["profile"] == "colocation"
    assert results["other"]["ansible_facts"]["gpufleet_plan"]["profile"] == "isolated"


def test_a_plan_that_is_handed_in_is_the_one_that_counts(results: dict[str, Any]) -> None:
    assert results["given"]["failed"] and "its fingerprint is 0123456789ab" in results["given"]["problem"]


def test_a_misspelt_variable_is_refused_here_too(results: dict[str, Any]) -> None:
    assert results["misspelt"]["remedy"] == 'Did you mean "gpufleet_profile"?'
