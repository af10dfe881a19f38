"""Machines of one shape have one fingerprint, whatever runs on them; another shape has another."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.fingerprint import fingerprint, shape, with_offline
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import (
    Boot,
    Cpus,
    Device,
    L3Group,
    NumaNode,
    Package,
    Swap,
    Topology,
)
from machines.build import expected, load, names
from machines.strategies import descriptions

GIB, MIB = 1 << 30, 1 << 20


def topology(description: dict[str, Any]) -> Topology:
    """The facts of a machine, straight from its description."""
    facts = expected(description)
    cpus = {key: CpuSet.parse(facts["cpus"][key]) for key in ("online", "present", "offline")}

    def devices(kind: str) -> tuple[Device, ...]:
        return tuple(
            Device(d["address"], d["vendor"], d["device"], d["class"], d["pci_root"], numa_node=d["numa_node"]) for d in facts[kind]
        )

    return Topology(
        architecture=facts["architecture"], page_size=facts["page_size"], kernel_release=facts["kernel_release"], cpu_vendor="",
        cpus=Cpus(**cpus), threads_per_core=facts["threads_per_core"], cores=tuple(map(CpuSet.parse, facts["cores"])),
        packages=tuple(Package(p["id"], CpuSet.parse(p["cpus"])) for p in facts["packages"]),
        l3_groups=tuple(L3Group(CpuSet.parse(g["cpus"]), g["size_bytes"]) for g in facts["l3_groups"]),
        numa_nodes=tuple(
            NumaNode(n["id"], n["kind"], CpuSet.parse(n["cpus"]), n["memory_bytes"], n["distances"]) for n in facts["numa_nodes"]
        ),
        gpus=devices("gpus"), nics=devices("nics"), nvmes=devices("nvmes"),
    )  # fmt: skip


def without(description: dict[str, Any], cpu: int) -> dict[str, Any]:
    """The same machine with one CPU offline."""
    return {**description, "cpu": {**description["cpu"], "offline": str(cpu)}}


def with_memory(facts: Topology, more: int) -> Topology:
    """The same machine with so much more memory on each node that has some."""
    nodes = [dataclasses.replace(n, memory_bytes=n.memory_bytes + more) if n.memory_bytes else n for n in facts.numa_nodes]
    return facts.replace(numa_nodes=tuple(nodes), memory_bytes=facts.memory_bytes + more)


@pytest.mark.parametrize("name", names())
def test_it_survives_a_boot(name: str) -> None:
    facts = topology(load(name))
    same = fingerprint(facts)
    assert fingerprint(facts.replace(kernel_release="7.1.0", page_size=4096, command_line="quiet", boot=Boot("grub"))) == same
    assert fingerprint(facts.replace(swaps=(Swap("/swap.img", "file", GIB, 0),), fingerprint="")) == same
    moved = tuple(dataclasses.replace(gpu, address="0100" + gpu.address[4:], driver="vfio-pci") for gpu in facts.gpus)
    assert fingerprint(facts.replace(gpus=moved)) == same


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("more", [-64 * MIB, -1, 64 * MIB])
def test_it_survives_64_mib(name: str, more: int) -> None:
    facts = topology(load(name))
    assert fingerprint(with_memory(facts, more)) == fingerprint(facts)


@given(st.integers(64 * MIB, 4096 * GIB), st.integers(-64 * MIB, 64 * MIB))
def test_memory_counts_in_gib_and_rounds_half_way(memory: int, more: int) -> None:
    facts = topology({})
    facts = facts.replace(numa_nodes=(dataclasses.replace(facts.numa_nodes[0], memory_bytes=memory),))
    assume(abs(memory % GIB - GIB // 2) > 64 * MIB)  # nearer to a half GiB it may tip over
    assert fingerprint(with_memory(facts, more)) == fingerprint(facts)
    assert fingerprint(with_memory(facts, GIB)) != fingerprint(facts)


@pytest.mark.parametrize("name", sorted(set(names()) - {"halfcores"}))
def test_it_survives_an_offlined_cpu(name: str) -> None:
    description = load(name)
    facts = topology(description)
    for cpu in list(facts.cpus.online)[1 :: max(1, len(facts.cpus.online) // 8)]:
        assert fingerprint(topology(without(description, cpu))) == fingerprint(facts), f"CPU {cpu}"


@given(descriptions(devices=False, offline=False), st.data())
def test_any_machine_survives_an_offlined_cpu(description: dict[str, Any], data: st.DataObject) -> None:
    facts = topology(description)
    cpu = data.draw(st.sampled_from(list(facts.cpus.online)))
    # Its node must keep a CPU; cores and L3 groups are of one pattern each, which others must be left to show.
    assume(all(len(node.cpus) > 1 for node in facts.numa_nodes if cpu in node.cpus))
    for groups in (facts.cores, [group.cpus for group in facts.l3_groups]):
        assume(len({group.bits >> group.first for group in groups}) <= 1)
        assume(len(groups) > 2 or not groups or len(groups[0]) > 2)
    offlined = topology(without(description, cpu))
    assert shape(offlined) == shape(facts)


def test_other_shapes_differ() -> None:
    seen = {name: fingerprint(topology(load(name))) for name in names()}
    assert len(set(seen.values())) == len(seen)
    facts = topology(load("reference"))
    same = fingerprint(facts)
    others = {
        "a GPU less": facts.replace(gpus=facts.gpus[1:]),
        "a GPU on the other node": facts.replace(gpus=(dataclasses.replace(facts.gpus[0], numa_node=1), *facts.gpus[1:])),
        "another GPU": facts.replace(gpus=(dataclasses.replace(facts.gpus[0], device="2335"), *facts.gpus[1:])),
        "larger L3 groups": facts.replace(
            l3_groups=tuple(L3Group(CpuSet((*a.cpus, *b.cpus))) for a, b in zip(facts.l3_groups[::2], facts.l3_groups[1::2]))
        ),
        "no second threads": facts.replace(cores=tuple(CpuSet((cpu,)) for cpu in facts.cpus.online)),
        "half the memory": with_memory(facts, -512 * GIB),
        "other distances": facts.replace(numa_nodes=tuple(dataclasses.replace(n, distances={0: 10, 1: 21}) for n in facts.numa_nodes)),
    }
    for what, other in others.items():
        assert fingerprint(other) != same, what


def test_virtual_functions_are_a_setting() -> None:
    facts = topology(load("reference"))
    virtual = dataclasses.replace(facts.nics[0], address="0000:01:00.7", virtual_function=True)
    assert fingerprint(facts.replace(nics=(*facts.nics, virtual))) == fingerprint(facts)


def sets(text: str) -> list[CpuSet]:
    return [CpuSet.parse(part) for part in text.split()]


@pytest.mark.parametrize(
    "groups,offline,whole",
    [
        ("0,4 1 2,6 3,7", "5", "0,4 1,5 2,6 3,7"),
        ("0,4 2,6 3,7", "1,5", "0,4 1,5 2,6 3,7"),  # a whole core
        ("0-1 2 4-5", "3", "0-1 2-3 4-5"),
        ("0-3 4-6", "7", "0-3 4-7"),
        ("0-3", "4-6", "0-6"),  # a single group holds all …
        ("0-3", "4-7", "0-3 4-7"),  # … unless another may have vanished
        ("0-1 2 3 4", "5", "0-1 2 3 4-5"),  # P and E cores: the nearest pattern counts
        ("0 1 2", "3", "0 1 2 3"),
        ("", "1", ""),
    ],
)
def test_groups_are_completed_by_the_pattern_of_the_others(groups: str, offline: str, whole: str) -> None:
    assert with_offline(sets(groups), CpuSet.parse(offline)) == sets(whole)
