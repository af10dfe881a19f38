"""core/admission.py decides as kubelet's own code did: a sample of random cases, and every case in which the two once differed.

`python tests/oracle/agreement.py` asks kubelet anew, about as many cases as one likes; tests/oracle/README.md says how.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ORACLE = Path(__file__).resolve().parents[2] / "oracle"
sys.path.insert(0, str(ORACLE))

from predict import Case, comparable, difference, facts, from_json, predict  # noqa: E402

from machines.build import build  # noqa: E402
from machines.scratch import scratch  # noqa: E402

GOLDEN = ORACLE / "golden" / "decisions"


def answered() -> Iterator[tuple[Case, list[dict[str, Any]]]]:
    """The committed cases with kubelet's decisions."""
    for path in sorted(GOLDEN.glob("v1.*.json.gz")):
        golden = json.loads(gzip.decompress(path.read_bytes()))
        for kept in golden["cases"]:
            case = Case(golden["minor"], golden["machines"][kept["machine"]], kept["configuration"], kept["devices"], kept["events"])
            yield case, kept["decisions"]
    for kept in json.loads((GOLDEN / "differed.json").read_text(encoding="utf-8")):
        yield Case(kept["minor"], kept["machine"], kept["configuration"], kept["devices"], kept["events"]), kept["decisions"]


def by_machine() -> dict[str, list[tuple[Case, list[dict[str, Any]]]]]:
    """The cases of each machine, so that it is built once."""
    found: dict[str, list[tuple[Case, list[dict[str, Any]]]]] = {}
    for case, decisions in answered():
        found.setdefault(json.dumps(case.machine, sort_keys=True), []).append((case, decisions))
    return found


CASES = by_machine()


@pytest.mark.parametrize("machine", range(len(CASES)))
def test_we_decide_as_kubelet(machine: int) -> None:
    description, cases = list(CASES.items())[machine]
    with scratch() as folder:
        topology = facts(build(from_json(json.loads(description)), folder / "root"))
    for case, decisions in cases:
        prediction = predict(case, topology)
        at = difference(prediction, decisions)
        assert at is None, (case, comparable(prediction.decisions[at]), comparable(decisions[at]))
        beyond = [decision for number, decision in enumerate(decisions) if number in prediction.beyond]
        assert not any(decision["admitted"] for decision in beyond), case


def test_the_sample_has_all_kinds_of_answers() -> None:
    """A comparison in which nothing is refused, or nothing gets CPUs, would prove little."""
    decisions = [decision for unused, some in answered() for decision in some]
    reasons = {decision.get("reason") for decision in decisions}
    assert {"TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods"} <= reasons
    containers = [container for decision in decisions for container in decision.get("containers", ())]
    for part in ("cpus", "memory", "devices"):
        assert sum(bool(container.get(part)) for container in containers) > 100, part
