"""A node as the checks see it: a machine, reached over ssh, that the collection's playbooks are run on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping

from vm.machine import NODES, Machine

REPOSITORY = Path(__file__).resolve().parents[2]
_ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "playbooks" / "collections"),
    "ANSIBLE_FORCE_COLOR": "false",  # molecule sets it, and then the next doesn't count
    "ANSIBLE_NOCOLOR": "1",
}

_PLAY_TIME = 1500  # seconds, on two busy cores
_LIVE_VALUES = Path(__file__).with_name("live_values.py").read_text()

# Run on the node: the texts of the files below the given patterns.
_READ = """
import glob, json, sys
def text(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError as problem:
        return problem.strerror
print(json.dumps({path: text(path) for pattern in sys.argv[1:] for path in glob.glob(pattern)}))
"""


def sysctl_path(name: str) -> str:
    """The file of a sysctl."""
    return f"/proc/sys/{name.replace('.', '/')}"


@dataclass(frozen=True)
class Played:
    """How a playbook went: its exit status, how many tasks changed something, what it printed, its seconds."""

    status: int
    changed: int
    output: str
    seconds: float


@dataclass(frozen=True)
class Playing:
    """A playbook at work."""

    process: subprocess.Popen[str]
    begin: float = field(default_factory=time.monotonic)

    def wait(self) -> Played:
        """Its end."""
        try:
            output, unused = self.process.communicate(timeout=_PLAY_TIME)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
        changed = re.search(r"^\w+ +: ok=\d+ +changed=(\d+)", output, re.MULTILINE)
        assert changed, output
        return Played(self.process.returncode, int(changed[1]), output, time.monotonic() - self.begin)


@dataclass(frozen=True)
class Node:
    """A node, its plan and the verdict of playbooks/verify.yml."""

    machine: Machine
    plan: Mapping[str, Any]
    verdict: Mapping[str, Any]

    def run(self, script: str, *, check: bool = True) -> str:
        """What a shell script prints on the node."""
        done = subprocess.run(self.machine.ssh("bash -s"), input=script, capture_output=True, text=True, check=False, timeout=400)
        if check:
            assert done.returncode == 0, f"{script}\nended with status {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def read(self, *patterns: str) -> dict[str, str]:
        """The texts of the files that match."""
        found: dict[str, str] = json.loads(self.run(f"python3 - {' '.join(repr(p) for p in patterns)} <<'END'\n{_READ}\nEND"))
        return found

    def live_values(self) -> dict[str, str]:
        """What the node has now of what a run may change; of the sysctls those of the plan."""
        return self._of_the_plan(json.loads(self.run(f"python3 - <<'END'\n{_LIVE_VALUES}\nEND")))

    def first_live_values(self) -> dict[str, str]:
        """The same before the first run, as the scenario's prepare.yml noted it."""
        return self._of_the_plan(json.loads(self.run("cat /root/before/live.json")))

    def _of_the_plan(self, values: Mapping[str, str]) -> dict[str, str]:
        planned = set(map(sysctl_path, self.plan["sysctl"]))
        return {name: value for name, value in values.items() if name in planned or not name.startswith("/proc/sys/")}

    def until(self, script: str, holds: Callable[[str], bool], seconds: float) -> tuple[str, float]:
        """Ask until the answer is right; the last answer, and the seconds that it took."""
        start = time.monotonic()
        while True:
            answer = self.run(script, check=False)
            if holds(answer) or time.monotonic() - start > seconds:
                return answer, time.monotonic() - start

    def play(self, playbook: str, **variables: Any) -> Played:
        """Run one of the collection's playbooks on the node."""
        return self.start(playbook, **variables).wait()

    def start(self, playbook: str, **variables: Any) -> Playing:
        """Start one of the collection's playbooks on the node, or one at another path."""
        path = REPOSITORY / "playbooks" / playbook
        command = ("ansible-playbook", "-i", str(NODES), "--limit", self.machine.name, "--extra-vars", json.dumps(variables), str(path))
        # A group of its own, so that nothing of it outlives a check that fails.
        process = subprocess.Popen(
            command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=_ENVIRONMENT, start_new_session=True
        )
        return Playing(process)

    def verify(self, folder: Path, **variables: Any) -> tuple[Played, list[dict[str, str]]]:
        """Run verify.yml; what it said of every concern's items, from its report for programs."""
        played = self.play("verify.yml", gpufleet_report_dir=str(folder), **variables)
        verdict = json.loads((folder / f"{self.machine.name}.json").read_text())
        return played, [dict(item, concern=name) for name, result in verdict["concerns"].items() for item in result["findings"]]

    def findings(self, concern: str) -> list[dict[str, str]]:
        """What verify said of a concern, but for what is in place."""
        found: list[dict[str, str]] = self.verdict["concerns"][concern]["findings"]
        return found
