"""The kubelet role around its module: when the node is drained, and when it is taken back. The module is a stand-in that keeps a log: the
real one asks for a drain on a live node only, where kubelet and its pods run (tests/vm does that)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.node.plugins.modules import kubelet_config
from machines.scratch import scratch

REPOSITORY = Path(__file__).resolve().parents[2]
MODULE = """\
from ansible.module_utils.basic import AnsibleModule
spec = {name: {"type": kind} for name, kind in (("root", "path"), ("kubelet", "dict"), ("restart_timeout", "int"))}
module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
with open(%r, "a") as log:
    log.write("ask\\n" if module.check_mode else "configure\\n")
if module.params["kubelet"].get("fails") and not module.check_mode:
    module.fail_json(msg="it failed")
module.exit_json(changed=True, drain_required=module.params["kubelet"]["holds"])
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with scratch() as place:
        role = place / "roles/kubelet"
        shutil.copytree(REPOSITORY / "roles/kubelet", role)
        tasks = role / "tasks/main.yml"
        tasks.write_text(tasks.read_text().replace("gpufleet.node.kubelet_config", "kubelet_config"))
        (role / "library").mkdir()
        (role / "library/kubelet_config.py").write_text(MODULE % str(place / "log"))
        for hook in ("drain", "uncordon"):
            (place / f"{hook}.yml").write_text(f"- name: Hook\n  ansible.builtin.shell: echo {hook} >> {place}/log\n")
        (place / "play.yml").write_text("- name: Play\n  hosts: localhost\n  gather_facts: false\n  roles: [kubelet]\n")
        yield place


def play(folder: Path, environment: dict[str, str], *options: str, hooks: bool = True, **kubelet: Any) -> tuple[int, list[str]]:
    (folder / "log").write_text("")
    planned = {"restart": "when_needed", "holds": True, **kubelet}
    variables: dict[str, Any] = {"gpufleet_plan": {"kubelet": planned}, "ansible_python_interpreter": sys.executable}
    if hooks:
        variables.update({"gpufleet_%s" % hook: "%s/%s.yml" % (folder, hook) for hook in ("drain", "uncordon")})
    command = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(folder / "play.yml"), "-e", json.dumps(variables), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, (folder / "log").read_text().split()


def test_drained_only_where_pods_are_in_the_way(folder, ansible_env):
    assert play(folder, ansible_env) == (0, ["ask", "drain", "configure", "uncordon"])
    assert play(folder, ansible_env, holds=False) == (0, ["ask", "configure"])
    assert play(folder, ansible_env, restart="never") == (0, ["configure"])
    assert play(folder, ansible_env, hooks=False) == (0, ["configure"])
    assert play(folder, ansible_env, "--check") == (0, ["ask", "ask"])


def test_a_node_whose_kubelet_fails_stays_drained(folder, ansible_env):
    assert play(folder, ansible_env, fails=True) == (2, ["ask", "drain", "configure"])


def test_the_real_module_has_what_the_stand_in_has():
    taken = re.search(r"spec = .*? in \((.*)\)\}", MODULE)[1]
    spec = dict(re.findall(r'\("(\w+)", "(\w+)"\)', taken))
    options = yaml.safe_load(kubelet_config.DOCUMENTATION)["options"]
    assert len(spec) == 3 and {name: options[name]["type"] for name in spec if name in options} | {"root": "path"} == spec
    assert yaml.safe_load(kubelet_config.RETURN)["drain_required"]["type"] == "bool"
