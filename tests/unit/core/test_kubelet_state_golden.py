"""Our rule for kubelet's state files against what kubelet itself wrote and said, by version (tests/oracle/golden_states.py asks it)."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_state import CHECKSUM_MINOR, Machine, stale_because
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_state_format import MANAGERS, Unusable, checksum, parse
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_tables import NEWEST_MINOR
from ansible_collections.gpufleet.node.plugins.module_utils.host.kubelet_state import read_machine
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from machines.build import build
from machines.scratch import scratch

GOLDEN = sorted((Path(__file__).resolve().parents[2] / "oracle/golden/state").glob("v1.*.json.gz"))
# Which CPUs are reserved by a mere number is kubelet's choice; our rule doesn't follow it there.
BY_NUMBER = "static, a number of CPUs reserved"


@cache
def golden(path: Path) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress(path.read_bytes())))


@cache
def machine(path: Path, node: str) -> Machine:
    described = dict(golden(path)["nodes"][node]["machine"])
    pages = described.get("hugepages", {})
    described["hugepages"] = {size: {int(id): count for id, count in counts.items()} for size, counts in pages.items()}
    with scratch() as folder:
        return read_machine(Root(str(build(described, folder / "root"))))


def test_each_kubelet_is_there_whose_checksum_counts() -> None:
    assert [golden(path)["minor"] for path in GOLDEN] == list(range(CHECKSUM_MINOR, NEWEST_MINOR + 1))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_who_starts_on_what(path: Path) -> None:
    """Every file on every node, each manager by itself: we refuse where kubelet refuses, and nowhere else."""
    data, wrong, asked = golden(path), [], 0
    for case, by_node in data["verdicts"].items():
        for node, verdicts in by_node.items():
            for manager, message in verdicts.items():
                fields = data["nodes"][node]["configuration"]
                ours = stale_because(manager, data["files"][case][manager], fields, machine(path, node), data["minor"])
                by_number = node == BY_NUMBER and manager == MANAGERS[0] and message is not None and "reserved cpus" in message
                asked += 1
                if (ours is None) != (message is None) and not by_number:
                    wrong.append((case, node, manager, message, ours))
    assert not wrong and asked > 1000


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_checksums(path: Path) -> None:
    """Those that kubelet put on what it wrote, damaged files left out."""
    data, seen = golden(path), 0
    for case, files in data["files"].items():
        for manager in MANAGERS:
            if ":" in case or not files.get(manager):
                continue
            minor = int(case.split()[0].partition(".")[2])
            content, pod_level = json.loads(files[manager]), files["node"].startswith("pods as a whole") and minor == 36
            own = (content["checksum"], *([content["dataChecksum"]] if minor >= 37 else []))
            assert checksum(manager, files[manager], minor, pod_level) == own, (case, manager)
            seen += 1
    assert seen > 50


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.name)
def test_one_byte_is_enough(path: Path) -> None:
    """A digit of the state itself, changed: kubelet's checksum tells."""
    data = golden(path)
    for case, files in data["files"].items():
        if ":" in case or "defaultCpuSet" not in files[MANAGERS[0]]:
            continue
        text = files[MANAGERS[0]]
        changed = text.replace('"static', '"statik') if "static" in text else text.replace('"none', '"nine')
        changed = changed.replace('\\"static', '\\"statik').replace('\\"none', '\\"nine')
        with pytest.raises(Unusable):
            parse(MANAGERS[0], changed, data["minor"])
