"""What Ansible's side of a run costs: module calls per node, a converged fleet against a floor, facts against setup.

The floor is a playbook with the same number of no-op module calls (ping) on the same nodes, run in turn with ours.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

from table import Row

from machines import build
from machines.scratch import scratch

REPOSITORY = Path(__file__).resolve().parents[2]
PLAYBOOK = [str(Path(sys.executable).parent / "ansible-playbook")]
NODES = int(os.environ.get("GPUFLEET_BENCHMARK_NODES", "50"))
ROUNDS = 2

CALLBACK = '''
import json, os
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: calls
type: aggregate
short_description: counts module calls per host
description: Counts tasks that ran a module on a host; actions that run on the controller alone are no module calls.
"""

ON_THE_CONTROLLER = {
    "gpufleet.node.node_plan",
    "ansible.builtin.assert",
    "ansible.builtin.debug",
    "ansible.builtin.include_role",
    "ansible.builtin.validate_argument_spec",
}


def modules_of(task, told):
    """The module calls of a task: an action may make several."""
    if "module_calls" in told:  # node_verify says so itself
        return [task.action] * told["module_calls"]
    if task.action == "gpufleet.node.launcher":  # it looks first and brings the program along then
        return [task.action] * 2
    return [task.action]


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "calls"

    def __init__(self):
        super().__init__()
        self.calls = {}

    def v2_runner_on_ok(self, result):
        task = result._task if hasattr(result, "_task") else result.task
        host = (result._host if hasattr(result, "_host") else result.host).get_name()
        if task.action not in ON_THE_CONTROLLER:
            told = result._result if hasattr(result, "_result") else result.result
            ran = sum(not item.get("skipped") for item in told["results"]) if task.loop else 1
            self.calls.setdefault(host, []).extend(modules_of(task, told) * ran)

    def v2_playbook_on_stats(self, stats):
        with open(os.environ["GPUFLEET_CALLS"], "w", encoding="utf-8") as stream:
            json.dump(self.calls, stream)
'''

PING = """
- hosts: all
  gather_facts: false
  tasks:
{tasks}
"""


class Fleet:
    """Copies of one example machine, as inventory hosts with a local connection."""

    def __init__(self, folder: Path, machine: str, count: int, extra_collections: tuple[Path, ...] = ()) -> None:
        self.folder = folder
        self.collections = ":".join(map(str, (REPOSITORY / "playbooks" / "collections", *extra_collections)))
        self.hosts = [f"node{number:02}" for number in range(count)]
        for host in self.hosts:
            build.build(build.load(machine), folder / host)
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "gpufleet_root": f"{folder}/{{{{ inventory_hostname }}}}",
        }
        self.inventory = folder / "inventory.json"
        self.inventory.write_text(json.dumps({"all": {"hosts": {host: {} for host in self.hosts}, "vars": variables}}))
        (folder / "callbacks").mkdir(parents=True)
        (folder / "callbacks" / "calls.py").write_text(CALLBACK)

    def run(self, playbook: Path, *extra: str) -> tuple[float, dict[str, list[str]], str]:
        """CPU seconds of the whole run, the module calls per host, and the output."""
        calls = self.folder / "calls.json"
        environment = {
            **os.environ,
            "ANSIBLE_CALLBACK_PLUGINS": str(self.folder / "callbacks"),
            "ANSIBLE_CALLBACKS_ENABLED": "calls",
            "ANSIBLE_COLLECTIONS_PATH": self.collections,
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "0",
            "ANSIBLE_FORKS": "2",
            "ANSIBLE_NOCOLOR": "1",
            "GPUFLEET_CALLS": str(calls),
        }
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*PLAYBOOK, "-i", str(self.inventory), str(playbook), *extra], env=environment, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode != 0:
            raise SystemExit(f"{playbook} failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return seconds, json.loads(calls.read_text()), done.stdout


def rows() -> list[Row]:
    with scratch() as folder:
        site = REPOSITORY / "playbooks" / "site.yml"
        single = Fleet(folder / "one", "reference", 1)
        first_calls = single.run(site)[1]
        unused, second_calls, second_output = single.run(site)
        if re.search(r"changed=[1-9]", second_output):
            raise SystemExit(f"the second run changed something:\n{second_output[-3000:]}")
        many = Fleet(folder / "many", "cloudvm", NODES)
        many.run(site)
        floor_playbook = folder / "ping.yml"
        per_node = len(second_calls["node00"])
        floor_playbook.write_text(PING.format(tasks="    - ansible.builtin.ping:\n" * per_node))
        ratios, ours, floor = [], 0.0, 0.0
        for _round in range(ROUNDS):
            ours, calls, output = many.run(site)
            assert not re.search(r"changed=[1-9]", output), output[-2000:]
            assert {len(done) for done in calls.values()} == {per_node}
            floor = many.run(floor_playbook)[0]
            ratios.append(ours / floor)
        ratios.sort()
        return [
            Row(
                "first run: module calls per node",
                len(first_calls["node00"]),
                12,
                detail=", ".join(name.split(".")[-1] for name in first_calls["node00"]),
            ),
            Row(
                "converged run: module calls per node",
                per_node,
                3,
                detail=", ".join(name.split(".")[-1] for name in second_calls["node00"]),
            ),
            Row(
                f"converged site.yml on {NODES} nodes / as many pings",
                ratios[len(ratios) // 2],
                1.5,
                detail=f"CPU {ours:.0f} s against {floor:.0f} s in the last of {ROUNDS} rounds",
            ),
        ]
