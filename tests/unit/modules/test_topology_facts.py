"""The module as Ansible starts it, and its documentation against the schema."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from module_answer import answer_of

from ansible_collections.gpufleet.node.plugins.module_utils.core import topology as model
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import from_json
from ansible_collections.gpufleet.node.plugins.modules import topology_facts
from machines.build import build, load


def run(options: dict[str, Any]) -> dict[str, Any]:
    """What the module answers to these options."""
    return answer_of("topology_facts", options)


def test_it_answers_in_check_mode_too(tmp_path: Path) -> None:
    root = build(load("cloudvm"), tmp_path / "cloudvm")
    answer = run({"root": str(root)})
    assert answer["changed"] is False
    facts = from_json(model.Topology, answer["ansible_facts"]["gpufleet_topology"])
    assert facts.gathered == ("cpu", "numa", "pci", "interrupts", "boot", "kubelet", "software", "tuning") and facts.fingerprint
    checked = run({"root": str(root), "_ansible_check_mode": True})
    assert checked["ansible_facts"] == answer["ansible_facts"]


@pytest.mark.parametrize(
    "options,sentence",
    [
        (
            {"root": "/no/such/folder"},
            'The root "/no/such/folder" is not a folder. Give the folder that holds the node\'s /etc, /proc and /sys.',
        ),
        ({"gpu_match": ["H100"]}, '"H100" is no pattern for a GPU. Write "10de:2330", "10de:*" or "class:0302".'),
    ],
)
def test_a_refusal_is_one_sentence_and_a_remedy(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    answer = run({"root": str(tmp_path), **options})
    assert answer["failed"] and answer["msg"] == sentence


def test_the_live_root_can_be_read() -> None:
    facts = from_json(model.Topology, run({})["ansible_facts"]["gpufleet_topology"])
    assert facts.architecture == os.uname().machine and facts.page_size == os.sysconf("SC_PAGE_SIZE")
    assert len(facts.cpus.online) == os.cpu_count() and facts.kernel_release == os.uname().release


DOCUMENTED = yaml.safe_load(topology_facts.RETURN)["ansible_facts"]["contains"]["gpufleet_topology"]["contains"]
CLASSES = {"cpus": model.Cpus, "numa_nodes": model.NumaNode, "gpus": model.Device, "boot": model.Boot, "kubelet": model.Kubelet}
SAMPLED = {
    "packages": model.Package,
    "l3_groups": model.L3Group,
    "shared_roots": model.SharedRoot,
    "interrupts": model.DeviceInterrupts,
    "software": model.Software,
    "cpufreq": model.Cpufreq,
    "transparent_hugepage": model.TransparentHugepage,
    "swaps": model.Swap,
}


def fields(cls: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(cls)}


def test_every_field_is_documented_with_a_sample() -> None:
    assert set(DOCUMENTED) == fields(model.Topology)
    for name, entry in DOCUMENTED.items():
        assert {"description", "type", "sample"} <= set(entry), name
    for name, cls in CLASSES.items():
        assert set(DOCUMENTED[name]["contains"]) == fields(cls), name
    for name, cls in SAMPLED.items():
        sample = DOCUMENTED[name]["sample"]
        assert set(sample[0] if isinstance(sample, list) else sample) == fields(cls), name
