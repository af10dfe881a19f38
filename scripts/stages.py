"""Run the stages of `make test`, all of them or those named, each in the environment of the Python that runs this script.

A failing stage doesn't stop the others: the table at the end shows every stage with its duration, and the exit status is 1
when any of them failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

STAGES: dict[str, list[str]] = {
    "ruff": ["ruff", "check", "."],
    "mypy": ["mypy"],
    "unit": ["pytest", "-n", "auto", "--dist", "worksteal"],
    "sanity": ["python", "scripts/sanity.py"],
    "ansible-lint": ["ansible-lint", "--offline", "--profile", "production", "--strict"],
    "molecule": ["molecule", "test", "--scenario-name", "default"],
    "demo": ["python", "playbooks/demo/demo.py", "--brief"],
    "figures": ["python", "tests/benchmarks", "--report"],
    "ansible": ["pytest", "-n", "auto", "--dist", "worksteal", "-m", "ansible"],
}
# `ansible` is the part of `unit` that another ansible-core can change.
ALL = [stage for stage in STAGES if stage != "ansible"]
GROUPS = {"lint": ["ruff", "mypy", "ansible-lint"]}


class Result(NamedTuple):
    """How one stage went."""

    stage: str
    passed: bool
    seconds: float


def environment(scratch: str) -> dict[str, str]:
    """The caller's environment with this virtual environment's programs first and this checkout as the collection.

    molecule names its folder after the checkout's; two runs at once, or two checkouts of the same name, would share it.
    """
    return {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "playbooks" / "collections"),
        "MOLECULE_EPHEMERAL_DIRECTORY": scratch,
        "PYTHONUNBUFFERED": "1",
    }


def run(stage: str) -> Result:
    """Run one stage with its output shown as it comes."""
    command = STAGES[stage]
    print(f"\n=== {stage}: {' '.join(command)}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"gpufleet-{stage}-") as scratch:
        status = subprocess.run([str(BIN / command[0]), *command[1:]], cwd=REPOSITORY, env=environment(scratch), check=False).returncode
    result = Result(stage, status == 0, time.monotonic() - start)
    print(f"=== {stage}: {'passed' if result.passed else f'FAILED with status {status}'} in {result.seconds:.1f} s", flush=True)
    return result


def main(names: list[str]) -> int:
    """Run the named stages and groups (all when none is named) and print the table."""
    wanted = [stage for name in names or ALL for stage in GROUPS.get(name, [name])]
    unknown = [stage for stage in wanted if stage not in STAGES]
    if unknown:
        print(f"No such stage: {', '.join(unknown)}. There are: {', '.join([*STAGES, *GROUPS])}.", file=sys.stderr)
        return 2
    results = [run(stage) for stage in wanted]
    print("\nstage          seconds")
    for result in results:
        print(f"{result.stage:<14} {result.seconds:7.1f}  {'passed' if result.passed else 'FAILED'}")
    print(f"{'all':<14} {sum(result.seconds for result in results):7.1f}")
    failed = [result.stage for result in results if not result.passed]
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
