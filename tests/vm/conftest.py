"""What every check of a running node has: figures, and its outcome in the report (``GPUFLEET_VM_RESULTS``, checks.jsonl)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Callable, Iterator

import pytest

RESULTS = Path(os.environ.get("GPUFLEET_VM_RESULTS", "."))


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
