"""docs/verification.md from what the checks noted: `python tests/vm/report.py RESULTS`, run at the end of the molecule scenario `vm`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Iterator

OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "verification.md"
HEAD = """\
# What was verified on running kernels

Written by `make test-vm`: virtual machines with NUMA nodes, provisioned by `playbooks/site.yml` over ssh and rebooted. Each line was
measured on the machine itself (/proc, /sys, systemd, the kernel's log), not read from the files that the collection wrote.

What a machine is, tests/vm/nodes.yml says. They are emulated, without hardware acceleration: times are upper bounds.
"""


def main(results: Path) -> None:
    entries = [json.loads(line) for line in (results / "checks.jsonl").read_text().splitlines()]
    lines = [HEAD, "| node | system | kernel | CPUs | NUMA nodes |", "| --- | --- | --- | --- | --- |"]
    lines.extend(_machine(path.stem, json.loads(path.read_text())) for path in sorted(results.glob("*.json")))
    lines.append("")
    for group in dict.fromkeys(entry["group"] for entry in entries):
        lines.extend([f"## {group}", "", "| node | check | outcome | measured | seconds |", "| --- | --- | --- | --- | --- |"])
        lines.extend(_lines([entry for entry in entries if entry["group"] == group]))
        lines.append("")
    OUTPUT.write_text("\n".join(lines).rstrip() + "\n")
    print(f"wrote {OUTPUT}")


def _machine(name: str, said: dict[str, Any]) -> str:
    topology = said["topology"]
    nodes = ", ".join(f"{node['id']}: {node['cpus'] or 'no CPUs'}" for node in topology["numa_nodes"])
    return f"| {name} | {said['system']} | {topology['kernel_release']} | {topology['cpus']['online']} | {nodes} |"


def _lines(entries: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each check and node: the last time it was made."""
    for entry in {(entry["node"], entry["check"]): entry for entry in entries}.values():
        measured = "<br>".join(entry["figures"]) or entry["reason"].removeprefix("Skipped: ")
        outcome = {"skipped": "not applicable"}.get(entry["outcome"], entry["outcome"])
        yield f"| {entry['node']} | {entry['check']} | {outcome} | {measured.replace('|', '/')} | {entry['seconds']} |"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
