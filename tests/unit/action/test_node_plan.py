"""node_plan as a task: where facts and variables come from, and what a refusal looks like."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from strategies import make_topology, reference

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.edge.launcher_source import launcher_source

pytestmark = pytest.mark.ansible

PLAY: dict[str, Any] = {
    "hosts": "all",
    "gather_facts": False,
    "connection": "local",
    "vars": {"gpufleet_profile": "{{ wanted }}", "wanted": "isolated", "gpufleet_found": {"x": "{{ undefined_and_unused }}"}},
    "tasks": [
        {"name": "none", "gpufleet.node.node_plan": {}, "register": "without", "ignore_errors": True},
        {"name": "facts", "ansible.builtin.set_fact": {"gpufleet_topology": "{{ facts }}", "cacheable": True}},
        {"name": "own", "gpufleet.node.node_plan": {}, "register": "own"},
        {
            "name": "over",
            "gpufleet.node.node_plan": {"policy": {"profile": "aligned", "system_reserved": {"memory": "1Gi"}}},
            "register": "over",
        },
        {"name": "other", "gpufleet.node.node_plan": {"topology": "{{ small }}"}, "register": "other"},
        {
            "name": "misspelt",
            "gpufleet.node.node_plan": {},
            "vars": {"gpufleet_reserve_cpus": "0"},
            "register": "misspelt",
            "ignore_errors": True,
        },
        {"name": "damaged", "gpufleet.node.node_plan": {"topology": {"cpus": 1}}, "register": "damaged", "ignore_errors": True},
        {
            "name": "out",
            "ansible.builtin.copy": {
                "dest": "{{ dest }}",
                "content": "{{ {'none': without, 'own': own, 'over': over, 'other': other, 'misspelt': misspelt, "
                "'damaged': damaged, 'fact': ansible_facts.gpufleet_plan.cpus.online} | to_json }}",
            },
        },
    ],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, ansible_env: dict[str, str]) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("plan")
    play, extra, dest = folder / "play.yml", folder / "extra.json", folder / "out.json"
    play.write_text(yaml.safe_dump([PLAY], sort_keys=False), encoding="utf-8")
    extra.write_text(
        json.dumps(
            {
                "facts": to_json(reference()),
                "small": to_json(make_topology()),
                "dest": str(dest),
                "ansible_python_interpreter": sys.executable,
            }
        ),
        encoding="utf-8",
    )
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "node,", "-e", f"@{extra}", str(play)]
    done = subprocess.run(command, env=ansible_env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(dest.read_text(encoding="utf-8"))


def plan(result: dict[str, Any]) -> dict[str, Any]:
    return result["ansible_facts"]["gpufleet_plan"]


def test_the_hosts_variables_are_the_policy(results: dict[str, Any]) -> None:
    assert plan(results["own"])["profile"] == "isolated"
    assert plan(results["own"])["cpus"]["reserved"] == "0,96,192,288"
    assert not results["own"]["changed"]


def test_the_option_stands_over_them(results: dict[str, Any]) -> None:
    assert plan(results["over"])["profile"] == "aligned"
    assert [node["reserved_memory_bytes"] for node in plan(results["over"])["numa_nodes"]] == [512 << 20, 612 << 20]


def test_a_given_topology_stands_over_the_facts(results: dict[str, Any]) -> None:
    assert plan(results["other"])["cpus"]["online"] == "0-31" == results["fact"]


def test_a_refusal_is_one_sentence_and_its_remedy(results: dict[str, Any]) -> None:
    assert results["none"]["failed"] and "no facts of this node yet" in results["none"]["problem"]
    assert results["misspelt"]["problem"] == '"gpufleet_reserve_cpus" is not a known variable.'
    assert results["misspelt"]["remedy"] == 'Did you mean "gpufleet_reserved_cpus"?'
    assert "topology.cpus is 1, which is not dict." in results["damaged"]["problem"]


def test_the_launcher_is_known_by_its_source(repository: Path, tmp_path: Path) -> None:
    assert launcher_source(str(tmp_path)) is None
    folder = tmp_path / "roles" / "launcher" / "files" / "numaspread"
    folder.mkdir(parents=True)
    (folder / "numaspread.c").write_text('#define PROGRAM_VERSION "1.2.3"\n', encoding="ascii")
    (folder / "build").mkdir()
    one = launcher_source(str(tmp_path))
    assert one is not None and one["version"] == "1.2.3"
    (folder / "Makefile").write_text("all:\n", encoding="ascii")
    assert launcher_source(str(tmp_path)) not in (None, one)
