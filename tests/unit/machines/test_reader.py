"""The reader finds in a built root what the description says is there: on the fleet, and on machines that nobody has captured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines.build import build, expected, load
from machines.scratch import scratch
from machines.strategies import descriptions

PLAIN = ("architecture", "page_size", "kernel_release", "command_line", "threads_per_core", "cores", "packages", "l3_groups")
DEVICE = ("address", "vendor", "device", "driver", "numa_node", "local_cpus", "pci_root", "name", "speed_mbps", "vectors")


def answers(facts: dict[str, Any]) -> dict[str, Any]:
    """The answers of the description in the form of the facts."""
    return {
        **{key: facts[key] for key in PLAIN},
        "cpus": {key: facts["cpus"][key] for key in ("online", "present", "offline", "isolated")},
        "numa_nodes": [{**node, "distances": {str(id_): n for id_, n in node["distances"].items()}} for node in facts["numa_nodes"]],
        **{kind: [{**{key: device[key] for key in DEVICE}, "pci_class": device["class"],
                   "virtual_function": device["physical_function"] is not None} for device in facts[kind]]
           for kind in ("gpus", "nics", "nvmes")},
        "interrupts": facts["interrupts"],
    }


def found(root: Path) -> dict[str, Any]:
    """What the reader finds in a root, cut down to what a description can answer."""
    node = Root(str(root))
    facts = to_json(read_topology(node, Command(node)))
    return {
        **{key: facts[key] for key in PLAIN},
        "cpus": {key: facts["cpus"][key] for key in ("online", "present", "offline", "isolated")},
        "numa_nodes": [{**{key: item[key] for key in ("id", "kind", "cpus", "memory_bytes")},
                        "distances": {str(id_): n for id_, n in item["distances"].items()}} for item in facts["numa_nodes"]],
        **{kind: [{key: device[key] for key in (*DEVICE, "pci_class", "virtual_function")} for device in facts[kind]]
           for kind in ("gpus", "nics", "nvmes")},
        "interrupts": {item["device"]: [interrupt["irq"] for interrupt in item["interrupts"]] for item in facts["interrupts"]},
    }


def test_the_reader_finds_the_fleet(machine: tuple[str, Path]) -> None:
    name, root = machine
    assert found(root) == answers(expected(load(name)))


@settings(max_examples=40)
@given(descriptions())
def test_the_reader_finds_generated_machines(description: dict[str, Any]) -> None:
    with scratch() as folder:
        assert found(build(description, folder)) == answers(expected(description))
