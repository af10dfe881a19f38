"""docs/verification.md from what the checks noted: each run writes the lines of its own machines, the others stay."""

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
_MACHINES = ("node", "system", "kernel", "CPUs", "NUMA nodes", "its run")
_CHECKS = ("node", "check", "outcome", "measured", "seconds")

# The rows of each table by its heading, the one of the machines by none.
Tables = dict[str, list[str]]


@dataclass(frozen=True)
class Took:
    """What a run took: seconds, and the load average over it on so many cores."""

    seconds: float
    load: float
    cores: int


def write(part: Optional[str], results: Path, took: Took) -> None:
    """Put what was noted in ``results`` into its part of the document; without a part it is only printed."""
    tables = _tables(results, took)
    if part is None:
        print("\n".join(_lines(tables)))
        return
    parts = dict(re.findall(r"<!-- (\w+) -->\n(.*?)<!-- end of \1 -->\n", OUTPUT.read_text(), re.DOTALL))
    both = _beside(_parsed(parts.get(part, "")), tables)
    parts[part] = "\n" + "\n".join([PARTS[part], *_lines(both)]) + "\n\n"
    OUTPUT.write_text("\n".join([HEAD, *(_PART.format(name, parts[name], name) for name in PARTS if name in parts)]))
    print(f"wrote {OUTPUT}")


def _tables(results: Path, took: Took) -> Tables:
    """A row for each machine, and one for each check and machine: the last time it was made."""
    entries = [json.loads(line) for line in (results / "checks.jsonl").read_text().splitlines()]
    nodes = sorted(results.glob("*.json"))
    names = ", ".join(path.stem for path in nodes)
    run = f"{took.seconds / 60:.0f} minutes with {names}, average load {took.load:.1f} on {took.cores} cores"
    tables = {"": [_row(path.stem, *_machine(json.loads(path.read_text())), run) for path in nodes]}
    for entry in {(entry["node"], entry["group"], entry["check"]): entry for entry in entries}.values():
        tables.setdefault(entry["group"], []).append(_row(*_check(entry)))
    return tables


def _machine(said: dict[str, Any]) -> tuple[str, ...]:
    topology = said["topology"]
    nodes = ", ".join(f"{node['id']}: {node['cpus'] or 'no CPUs'}" for node in topology["numa_nodes"])
    return said["system"], topology["kernel_release"], topology["cpus"]["online"], nodes


def _check(entry: dict[str, Any]) -> tuple[str, ...]:
    measured = "<br>".join(entry["figures"]) or entry["reason"].removeprefix("Skipped: ")
    outcome = {"skipped": "not applicable"}.get(entry["outcome"], entry["outcome"])
    return entry["node"], entry["check"], outcome, measured.replace("|", "/"), str(entry["seconds"])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _lines(tables: Tables) -> Iterator[str]:
    for heading, rows in tables.items():
        yield from ("", f"## {heading}") if heading else ()
        columns = _CHECKS if heading else _MACHINES
        yield from ("", _row(*columns), _row(*["---"] * len(columns)), *rows)


def _parsed(text: str) -> Tables:
    """The tables of a part as they stand in the document."""
    tables: Tables = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif line.startswith("| ") and line not in (_row(*columns) for columns in (_MACHINES, _CHECKS)) and not line.startswith("| ---"):
            tables.setdefault(heading, []).append(line)
    return tables


def _beside(known: Tables, new: Tables) -> Tables:
    """The new rows, with those known of other machines; in the order of the machines."""
    nodes = {_node(row) for row in new[""]}
    kept = {heading: [row for row in rows if _node(row) not in nodes] for heading, rows in known.items()}
    headings = dict.fromkeys(["", *(heading for heading, rows in kept.items() if rows), *new])
    return {heading: sorted([*kept.get(heading, []), *new.get(heading, [])], key=_node) for heading in headings}


def _node(row: str) -> str:
    return row.split(" | ")[0].removeprefix("| ")
