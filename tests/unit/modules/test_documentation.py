"""What ansible-doc shows is what modules do: samples have the documented type and the keys of answers, examples take facts as facts."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from module_answer import MODULES, answer_of
from strategies import reference

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, Finding
from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_fit import Question, predict
from ansible_collections.gpufleet.node.plugins.module_utils.edge.reconcile import as_item, report
from machines.build import build, load

REPOSITORY = Path(__file__).resolve().parents[3]
PLUGINS = REPOSITORY / "plugins"
NAMES = sorted(path.stem for path in (PLUGINS / "modules").glob("*.py"))
PLAN = json.loads((REPOSITORY / "tests" / "golden" / "reference" / "colocation.json").read_text(encoding="utf-8"))
TYPES = {"bool": bool, "dict": dict, "int": int, "list": list, "str": str}
OF_EVERY_RESULT = {"changed", "diff", "invocation"}
OF_A_REPORT = set(report([]))
FACTS_BY_ANOTHER_NAME = re.compile(r"(?<!ansible_facts\.)\bgpufleet_(plan|topology)\b(?!\s*:)")


def documented(module: str) -> dict[str, Any]:
    """RETURN of a module; empty for one that returns nothing of its own."""
    found: dict[str, Any] = yaml.safe_load(getattr(importlib.import_module(f"{MODULES}.{module}"), "RETURN", "")) or {}
    return found


def entries(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every described value, those inside others too."""
    for name, entry in values.items():
        yield f"{path}{name}", entry
        yield from entries(entry.get("contains", {}), f"{path}{name}.")


def leaves(value: Any) -> Iterator[Any]:
    """What lists and dictionaries hold in the end."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        yield value
    else:
        for item in inner:
            yield from leaves(item)


@pytest.mark.parametrize("module", NAMES)
def test_samples_have_the_documented_type(module: str) -> None:
    found = dict(entries(documented(module)))
    assert found
    for path, entry in found.items():
        sample = entry.get("sample")
        assert "sample" in entry or "contains" in entry, path
        assert sample is None or {type(sample)} == {TYPES[entry["type"]]}, path
        if entry["type"] == "list":
            assert {type(item) for item in sample or ()} <= {TYPES[entry["elements"]]}, path
        # 0000:02:00.0 without quotes is 120.0 to YAML, which takes it for hours, minutes and seconds.
        assert not [leaf for leaf in leaves(sample) if isinstance(leaf, float)], path


@pytest.mark.parametrize("module", NAMES)
def test_samples_of_findings_have_their_keys(module: str) -> None:
    of_concerns = [result["findings"] for result in documented(module).get("concerns", {}).get("sample", {}).values()]
    for findings in [*of_concerns, documented(module).get("findings", {}).get("sample", [])]:
        for sample in findings:
            assert set(sample) == set(as_item(Finding("item", DRIFT)))


@pytest.mark.parametrize("module", ["host_tuning", "interleave_service", "irq_affinity", "kernel_args", "launcher"])
def test_a_module_of_a_concern_returns_a_report(module: str) -> None:
    assert set(documented(module)) == OF_A_REPORT


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A small machine of the fleet."""
    return build(load("cloudvm"), tmp_path / "node")


@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("kubelet_config", {"kubelet": {}}),
        ("node_capture", {"dest": "/archive.tar.gz", "_ansible_check_mode": True}),
        ("node_rollback", {}),
        ("node_verify", {"plan": PLAN}),
    ],
)
def test_what_is_returned_is_documented(module: str, options: dict[str, Any], node: Path) -> None:
    answer = answer_of(module, {"root": str(node), **options})
    assert "msg" not in answer, answer["msg"]
    by_the_action = {"ansible_facts", "module_calls"} if module == "node_verify" else set()
    assert set(documented(module)) - by_the_action == set(answer) - OF_EVERY_RESULT


def test_a_verdict_on_a_concern_is_a_report() -> None:
    samples = documented("node_verify")["concerns"]["sample"].values()
    assert {frozenset(sample) for sample in samples} == {frozenset(OF_A_REPORT), frozenset({"in_place", "findings", "refused"})}


def check_keys(described: dict[str, Any], real: dict[str, Any], path: str = "") -> None:
    """Every key is documented, and the sample of a structure has its keys (of one whose keys are names, like a sysctl's, some)."""
    assert set(described) == set(real), path
    for name, entry in described.items():
        value = real[name][0] if isinstance(real[name], list) and real[name] else real[name]
        sample = entry.get("sample")
        sample = sample[0] if isinstance(sample, list) and sample else sample
        if "contains" in entry and isinstance(value, dict):
            check_keys(entry["contains"], value, f"{path}{name}.")
        elif isinstance(value, dict) and isinstance(sample, dict) and all(key.isidentifier() for key in sample):
            assert set(sample) == set(value), f"{path}{name}"


def test_the_plan_is_documented() -> None:
    check_keys(documented("node_plan")["ansible_facts"]["contains"]["gpufleet_plan"]["contains"], PLAN)


def test_the_answers_about_pods_are_documented() -> None:
    pods = [{"name": "train", "cpus": 16, "memory": "64Gi", "gpus": 4}, {"name": "prepare", "cpus": 90, "memory": "600Gi"}]
    configuration = {**PLAN["kubelet"]["configuration"], "memoryManagerPolicy": "Static"}
    configuration["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": "100Mi"}}]
    check_keys(documented("pod_fit"), predict(Question(reference(), configuration, "1.37.2", pods)))


def test_examples_take_facts_as_facts() -> None:
    # As variables they are deprecated, and without inject_facts_as_vars they aren't there.
    examples = {name: getattr(importlib.import_module(f"{MODULES}.{name}"), "EXAMPLES", "") for name in NAMES}
    examples.update((path.name, yaml.safe_load(path.read_text())["EXAMPLES"]) for path in (PLUGINS / "filter").glob("*.yml"))
    assert len([text for text in examples.values() if "ansible_facts.gpufleet_" in text]) > 8
    for name, text in examples.items():
        assert not FACTS_BY_ANOTHER_NAME.search(text), name
