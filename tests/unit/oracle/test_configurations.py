"""The rules for kubelet's configuration say what kubelet's own code said: about what our plan renders, and about mutations of it.

`python tests/oracle/configuration_agreement.py` asks kubelet anew; tests/oracle/README.md says how.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ORACLE = Path(__file__).resolve().parents[2] / "oracle"
sys.path.insert(0, str(ORACLE))

from configuration_agreement import DELIBERATE, GOLDEN, ending, ours  # noqa: E402
from configurations import Setup  # noqa: E402

from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_fields import FIELDS, FLAGS, HEADER  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_gates import OTHER_GATES  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_tables import (  # noqa: E402
    CPU_OPTIONS,
    GATES,
    NEWEST_MINOR,
    TOPOLOGY_OPTIONS,
)

MINORS = sorted(int(path.name.split(".")[1]) for path in GOLDEN.glob("v1.*.json.gz"))
RENDERED, MUTATED = 687, 2500  # cases of each minor: what our plan renders for the fleet, and mutations of it (some change nothing)
# What can be looked up in kubelet's configuration or on its command line.
NAMES = (*FIELDS, *HEADER, *("--" + flag for flag in FLAGS), *CPU_OPTIONS, *TOPOLOGY_OPTIONS, *GATES, *OTHER_GATES)
NAMED = re.compile(r"(?<![\w-])(?:%s)(?![\w-])" % "|".join(map(re.escape, NAMES)))


def golden(minor: int) -> dict[str, Any]:
    return json.loads(gzip.decompress((GOLDEN / f"v1.{minor}.json.gz").read_bytes()))


@pytest.mark.parametrize("minor", MINORS)
def test_we_refuse_what_kubelet_refuses(minor: int) -> None:
    kept = golden(minor)
    endings: set[str] = set()
    for case in kept["cases"]:
        setup = Setup(case["machine"], case.get("main"), case.get("drop_ins"), tuple(case.get("flags", ())))
        verdict = ours(setup, minor, kept["machines"][case["machine"]])
        how = ending(verdict, case)
        assert not how.startswith("differs"), (case["change"], case["stage"], case.get("message"), verdict.refusal, setup)
        where = ("the main file", *(setup.drop_ins or {}))
        assert not verdict.refusal or NAMED.search(verdict.refusal) or any(file in verdict.refusal for file in where), verdict.refusal
        endings.add(how)
    assert {"both refuse", "both take it"} < endings


@pytest.mark.parametrize("minor", MINORS)
def test_the_sample_has_all_kinds_of_answers(minor: int) -> None:
    """A comparison in which nothing is refused, or only by one stage, would prove little."""
    cases = golden(minor)["cases"]
    rendered = [case for case in cases if not case["change"]]
    assert (len(cases), len({json.dumps(case, sort_keys=True) for case in rendered})) == (RENDERED + MUTATED, RENDERED)
    stages = [case["stage"] for case in cases if case["change"]]
    for stage, least in (("load", 200), ("gates", 20), ("validation", 100), ("constructors", 200), ("start", 1), ("", 500)):
        assert stages.count(stage) >= least, stage
    assert not any(case["stage"] for case in rendered), "kubelet refuses what our plan renders"


def test_the_newest_kubelet_has_been_asked() -> None:
    assert NEWEST_MINOR in MINORS


def test_each_refusal_of_ours_alone_has_a_reason() -> None:
    assert len({name for name, part, reason in DELIBERATE}) == len(DELIBERATE)
    assert all(reason.endswith(".") for name, part, reason in DELIBERATE)
