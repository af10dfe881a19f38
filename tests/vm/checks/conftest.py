"""The checks of a running node: what is measured on the node itself, over ssh, against the plan that site.yml applied.

``GPUFLEET_VM_NODE`` names the node, ``GPUFLEET_VM_RESULTS`` the folder with its plan and verdict (NODE.json, written by molecule's verify),
where each check's outcome and figures are put for docs/verification.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping

import pytest
from vm.machine import NODES, Machine, machines

REPOSITORY = Path(__file__).resolve().parents[3]
RESULTS = Path(os.environ.get("GPUFLEET_VM_RESULTS", "."))
_ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "playbooks" / "collections"),
    "ANSIBLE_NOCOLOR": "1",
}

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


@dataclass(frozen=True)
class Played:
    """How a playbook went: its exit status, how many tasks changed something, what it printed, its seconds."""

    status: int
    changed: int
    output: str
    seconds: float


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

    def until(self, script: str, holds: Callable[[str], bool], seconds: float) -> tuple[str, float]:
        """Ask until the answer is right; the last answer, and the seconds that it took."""
        start = time.monotonic()
        while True:
            answer = self.run(script, check=False)
            if holds(answer) or time.monotonic() - start > seconds:
                return answer, time.monotonic() - start

    def play(self, playbook: str, **variables: Any) -> Played:
        """Run one of the collection's playbooks on the node."""
        names = ("--inventory", str(NODES), "--limit", self.machine.name, "--extra-vars", json.dumps(variables))
        command = ("ansible-playbook", *names, f"playbooks/{playbook}")
        start = time.monotonic()
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=1500, env=_ENVIRONMENT)
        changed = re.search(r"^\w+ +: ok=\d+ +changed=(\d+)", done.stdout, re.MULTILINE)
        assert changed, done.stdout + done.stderr
        return Played(done.returncode, int(changed[1]), done.stdout, time.monotonic() - start)

    def verify(self, folder: Path, **variables: Any) -> tuple[Played, list[dict[str, str]]]:
        """Run verify.yml; what it said of every concern's items, from its report for programs."""
        played = self.play("verify.yml", gpufleet_report_dir=str(folder), **variables)
        verdict = json.loads((folder / f"{self.machine.name}.json").read_text())
        return played, [dict(item, concern=name) for name, result in verdict["concerns"].items() for item in result["findings"]]

    def findings(self, concern: str) -> list[dict[str, str]]:
        """What verify said of a concern, but for what is in place."""
        found: list[dict[str, str]] = self.verdict["concerns"][concern]["findings"]
        return found


@pytest.fixture(scope="session")
def node() -> Node:
    name = os.environ["GPUFLEET_VM_NODE"]
    said = json.loads((RESULTS / f"{name}.json").read_text())
    return Node(machines()[name], said["plan"], said["verdict"])


@pytest.fixture(scope="session")
def live(node: Node) -> dict[str, str]:
    """What the kernel says of itself, read once."""
    sysctls = [f"/proc/sys/{name.replace('.', '/')}" for name in node.plan["sysctl"]]
    return node.read(
        *sysctls,
        *("/proc/cmdline", "/proc/swaps", "/proc/irq/default_smp_affinity", "/etc/fstab", "/root/before/etc/fstab"),
        *("/sys/devices/system/cpu/isolated", "/sys/devices/system/cpu/nohz_full", "/proc/sys/kernel/osrelease"),
        *("/sys/kernel/mm/transparent_hugepage/*", "/sys/devices/system/node/node*/hugepages/*/nr_hugepages"),
    )


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Note a measured figure for the report."""
    return lambda text: record_property("figure", text)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = (yield).get_result()
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        entry = {
            "node": os.environ["GPUFLEET_VM_NODE"],
            "group": (item.module.__doc__ or "").split("\n")[0],
            "check": (item.function.__doc__ or item.name).split("\n")[0],
            "outcome": report.outcome,
            "figures": [value for name, value in report.user_properties if name == "figure"],
            "reason": report.longrepr[2] if report.outcome == "skipped" else "",
            "seconds": round(report.duration, 1),
        }
        with (RESULTS / "checks.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")
