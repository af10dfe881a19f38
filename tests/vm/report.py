"""docs/verification.md from what the checks noted: each run of checks writes its own part, the others stay."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional

OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "verification.md"
HEAD = """\
# What was verified on running kernels

Written by the checks themselves, on virtual machines that were provisioned by `playbooks/site.yml` over ssh and rebooted. Each line was
measured on the machine (/proc, /sys, systemd, the kernel's log), not read from the files that the collection wrote.

What a machine is, tests/vm says. They are emulated, without hardware acceleration: times are upper bounds.
"""
# In their order in the document: the target that writes a part, and what it is.
PARTS = {
    "nodes": "`make test-vm`: provisioned through a reboot, drifted, brought from profile to profile, rolled back.",
    "faults": "`make test-vm-faults`: one machine on which things go wrong.",
    "kubelet": "`make test-kubelet`: a real kubelet on the plan.",
}
_PART = "<!-- {} -->\n{}<!-- end of {} -->\n"


@dataclass(frozen=True)
class Took:
    """What a run took: seconds, and the load average over it on so many cores."""

    seconds: float
    load: float
    cores: int


def write(part: Optional[str], results: Path, took: Took) -> None:
    """Put what was noted in ``results`` into its part of the document; without a part it is only printed."""
    text = "\n".join(_lines(results, took))
    if part is None:
        print(text)
        return
    parts = dict(re.findall(r"<!-- (\w+) -->\n(.*?)<!-- end of \1 -->\n", OUTPUT.read_text(), re.DOTALL))
    parts[part] = f"\n{PARTS[part]} {text}\n"
    OUTPUT.write_text("\n".join([HEAD, *(_PART.format(name, parts[name], name) for name in PARTS if name in parts)]))
    print(f"wrote {OUTPUT}")


def _lines(results: Path, took: Took) -> Iterator[str]:
    entries = [json.loads(line) for line in (results / "checks.jsonl").read_text().splitlines()]
    yield f"One run of {took.seconds / 60:.0f} minutes, with an average load of {took.load:.1f} on {took.cores} cores."
    yield from ("", "| node | system | kernel | CPUs | NUMA nodes |", "| --- | --- | --- | --- | --- |")
    yield from (_machine(path.stem, json.loads(path.read_text())) for path in sorted(results.glob("*.json")))
    for group in dict.fromkeys(entry["group"] for entry in entries):
        yield from ("", f"## {group}", "", "| node | check | outcome | measured | seconds |", "| --- | --- | --- | --- | --- |")
        yield from _checks([entry for entry in entries if entry["group"] == group])


def _machine(name: str, said: dict[str, Any]) -> str:
    topology = said["topology"]
    nodes = ", ".join(f"{node['id']}: {node['cpus'] or 'no CPUs'}" for node in topology["numa_nodes"])
    return f"| {name} | {said['system']} | {topology['kernel_release']} | {topology['cpus']['online']} | {nodes} |"


def _checks(entries: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each check and node: the last time it was made."""
    for entry in {(entry["node"], entry["check"]): entry for entry in entries}.values():
        measured = "<br>".join(entry["figures"]) or entry["reason"].removeprefix("Skipped: ")
        outcome = {"skipped": "not applicable"}.get(entry["outcome"], entry["outcome"])
        yield f"| {entry['node']} | {entry['check']} | {outcome} | {measured.replace('|', '/')} | {entry['seconds']} |"
