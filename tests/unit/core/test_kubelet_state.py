"""kubelet's state files: what each minor reads, and when it would refuse to start on one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubelet_states import cpu_state, memory_state, sealed

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_state import (
    CHECKSUM_MINOR,
    Machine,
    NodeMemory,
    holders,
    stale_because,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_state_format import (
    CPU,
    MANAGERS,
    MEMORY,
    Unusable,
    checksum,
    fnv1a,
    parse,
)

GIB, MIB = 1 << 30, 1 << 20
MINORS = st.sampled_from(range(28, 38))
MINOR = 34
# Two NUMA nodes with four CPUs each, one with hugepages.
MACHINE = Machine(
    CpuSet.parse("0-7"), {0: NodeMemory(64 * GIB, {2 * MIB: 512, GIB: 0}), 1: NodeMemory(64 * GIB + 4096, {2 * MIB: 0, GIB: 0})}
)
STATIC = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0,4",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 1, "limits": {"memory": "1124Mi"}}],
}
NODES = {0: (64 * GIB, {2 * MIB: 512, GIB: 0}), 1: (64 * GIB + 4096, {2 * MIB: 0, GIB: 0})}
RESERVED = {0: GIB, 1: 1124 * MIB}
BLOCK = {"numaAffinity": [0], "type": "memory", "size": GIB}


def cpu_stale(text: str, minor: int = MINOR, machine: Machine = MACHINE, **fields: Any) -> str | None:
    return stale_because(CPU, text, {**STATIC, **fields}, machine, minor)


def memory_stale(text: str, minor: int = MINOR, machine: Machine = MACHINE, **fields: Any) -> str | None:
    return stale_because(MEMORY, text, {**STATIC, **fields}, machine, minor)


# Forms and checksums ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", range(28, 38))
def test_the_checksums_that_every_node_with_policy_none_has(minor: int) -> None:
    assert parse(CPU, '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}', minor).policy == "none"
    assert parse(MEMORY, '{"policyName":"None","machineState":{},"checksum":4236770233}', minor).policy == "None"


def test_the_hash_is_fnv1a() -> None:
    assert (fnv1a(""), fnv1a("a"), fnv1a("foobar")) == (0x811C9DC5, 0xE40C292C, 0xBF9CF968)


names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=6)
cpu_lists = st.sets(st.integers(0, 300), min_size=1, max_size=8).map(lambda cpus: CpuSet(cpus).to_list())
cpu_contents = st.fixed_dictionaries(
    {"policyName": st.sampled_from(["static", "none"]), "defaultCpuSet": cpu_lists},
    optional={"entries": st.dictionaries(names, st.dictionaries(names, cpu_lists, max_size=3), min_size=1, max_size=3)},
)
sizes = st.integers(0, (1 << 64) - 1)
tables = st.fixed_dictionaries(dict.fromkeys(("total", "systemReserved", "allocatable", "reserved", "free"), sizes))
numa_nodes = st.fixed_dictionaries(
    {
        "numberOfAssignments": st.integers(0, 9),
        "memoryMap": st.dictionaries(st.sampled_from(["memory", "hugepages-2Mi", "hugepages-1Gi"]), tables),
        "cells": st.lists(st.integers(0, 20), max_size=3),
    }
)
blocks = st.fixed_dictionaries({"numaAffinity": st.lists(st.integers(0, 20), max_size=3), "type": st.just("memory"), "size": sizes})
memory_contents = st.fixed_dictionaries(
    {
        "policyName": st.sampled_from(["Static", "None"]),
        "machineState": st.dictionaries(st.integers(0, 20).map(str), numa_nodes, max_size=12),
    },
    optional={"entries": st.dictionaries(names, st.dictionaries(names, st.lists(blocks, max_size=3)), min_size=1, max_size=3)},
)
contents = st.one_of(st.tuples(st.just(CPU), cpu_contents), st.tuples(st.just(MEMORY), memory_contents))


@given(contents, MINORS, MINORS)
def test_what_one_kubelet_writes_every_other_reads(one: tuple[str, dict[str, Any]], writer: int, reader: int) -> None:
    manager, content = one
    state = parse(manager, sealed(manager, content, writer), reader)
    assert state.policy == content["policyName"]
    if manager == CPU:
        assert state.shared == CpuSet.parse(content["defaultCpuSet"])
        assert {pod: {name: str(cpus) for name, cpus in given.items()} for pod, given in state.cpus.items()} == content.get("entries", {})
    else:
        assert {str(id) for id in state.nodes} == set(content["machineState"])
        assert {pod: list(given) for pod, given in state.blocks.items()} == {p: list(g) for p, g in content.get("entries", {}).items()}


@given(contents, MINORS, st.data())
def test_a_changed_file_is_refused_or_says_the_same(one: tuple[str, dict[str, Any]], minor: int, data: st.DataObject) -> None:
    """One character of it, what a disk or an editor may do. What is not part of the sum (blanks, for instance) may change."""
    manager, content = one
    text = sealed(manager, content, minor)
    position = data.draw(st.integers(0, len(text) - 1))
    changed = text[:position] + data.draw(st.sampled_from('09a",:{}x ')) + text[position + 1 :]
    try:
        found = parse(manager, changed, minor)
    except Unusable:
        return
    before = parse(manager, text, minor)
    # kubelet accepts a file without a checksum, and from 1.37 on one whose older part alone is left.
    assert found == before or json.loads(changed).get("checksum") in (0, None) or minor >= 36


keys = st.sampled_from(
    ["policyName", "defaultCpuSet", "entries", "podEntries", "machineState", "checksum", "data", "dataChecksum", "x", "0"]
)
documents = st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(keys, inner))


@given(st.sampled_from(MANAGERS), st.text() | documents.map(json.dumps), MINORS, st.booleans())
@example("memory_manager_state", '{"podEntries": {"": null}}', 28, False)
@example("cpu_manager_state", '{"data": "null", "dataChecksum": %d}' % fnv1a("(string)null"), 37, False)
def test_any_text_is_a_state_or_a_reason(manager: str, text: str, minor: int, pod_level: bool) -> None:
    fields = {**STATIC, "featureGates": {"PodLevelResourceManagers": pod_level}}
    reason = stale_because(manager, text, fields, MACHINE, minor)
    assert reason is None or reason.startswith(("it ", "its "))
    holders(manager, text, minor)


@pytest.mark.parametrize("text", ["", "\n", "{", "[]", "null", "{}", "\udcff\udcff", '{"policyName": NaN}', "[" * 100000])
@pytest.mark.parametrize("manager", MANAGERS)
def test_a_damaged_file_is_refused(manager: str, text: str) -> None:  # A27: cut short by a crash, or emptied
    assert stale_because(manager, text, STATIC, MACHINE, MINOR)


def test_from_137_on_the_data_counts_and_the_rest_is_for_older_ones() -> None:
    text = cpu_state("0-7", 37)
    assert parse(CPU, text, 37).form == "v4"
    tampered = text.replace('"defaultCpuSet":"0-7"', '"defaultCpuSet":"0-3"', 1)
    assert parse(CPU, tampered, 37).shared == CpuSet.parse("0-7")
    with pytest.raises(Unusable, match="checksum"):
        parse(CPU, tampered, 35)
    with pytest.raises(Unusable, match="checksum"):
        parse(CPU, text.replace('\\"defaultCpuSet\\":\\"0-7\\"', '\\"defaultCpuSet\\":\\"0-3\\"'), 37)


@pytest.mark.parametrize(
    ("manager", "content"),
    [
        (CPU, {"policyName": "static", "defaultCpuSet": "0-3", "podEntries": {"p": {"cpuSet": "4-7"}}}),
        (MEMORY, {"policyName": "Static", "machineState": {}, "podEntries": {"p": {"memoryBlocks": [BLOCK]}}}),
    ],
)
def test_pod_level_entries_are_beyond_older_kubelets(manager: str, content: dict[str, Any]) -> None:
    text = sealed(manager, content, 36, pod_level=True)
    assert parse(manager, text, 36, pod_level=True).form in ("v2", "v3")
    assert parse(manager, text, 37).form in ("v2", "v3")
    for minor, gate in ((28, False), (35, False), (36, False)):  # a downgrade, or the gate taken back
        with pytest.raises(Unusable, match="of a newer kubelet"):
            parse(manager, text, minor, gate)


@pytest.mark.parametrize(
    ("minor", "gates", "starts"),
    [
        (36, {"PodLevelResourceManagers": True}, True),
        (36, {"AllAlpha": True}, True),
        (36, {"AllAlpha": True, "PodLevelResourceManagers": False}, False),
        (36, {"AllBeta": True}, False),
        (37, {"AllBeta": True}, True),
        (37, {}, False),
    ],
)
def test_pod_level_entries_with_the_gates_of_a_stage(minor: int, gates: dict[str, bool], starts: bool) -> None:
    content = {"policyName": "static", "defaultCpuSet": "0-3", "podEntries": {"p": {"cpuSet": "4-7"}}}
    text = sealed(CPU, content, minor, pod_level=True)
    assert (cpu_stale(text, minor, reservedSystemCPUs="0", featureGates=gates) is None) == starts


def test_a_real_kubelet_s_pod_entries() -> None:
    """Written by kubelet 1.37's own code."""
    text = '{"policyName":"static","defaultCpuSet":"0-3","podEntries":{"p":{"cpuSet":"4-5"}},"checksum":%d}'
    own = checksum(CPU, text % 0, 36, pod_level=True)[0]
    assert parse(CPU, text % own, 37).pod_cpus == {"p": CpuSet.parse("4-5")}
    assert parse(CPU, text % 3101907233, 37) is not None


@pytest.mark.parametrize("minor", range(28, 38))
def test_a_checksum_counts_where_files_of_that_kubelet_have_proven_it(minor: int) -> None:
    cpus = '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'
    memory = json.dumps({**json.loads(memory_state(NODES, RESERVED, minor)), "checksum": 1, "data": "", "dataChecksum": 0})
    for reason in (cpu_stale(cpus, minor), memory_stale(memory, minor)):
        assert reason == (None if minor < CHECKSUM_MINOR else "it is damaged: its checksum doesn't fit")
    # What needs no checksum to be told is a reason for all of them.
    assert cpu_stale(cpus.replace("0-7", "0-7x"), minor) and cpu_stale(cpus[:-1], minor)
    if minor < CHECKSUM_MINOR:
        assert cpu_stale(cpus.replace("0-7", "0-3"), minor, reservedSystemCPUs="0") == "it is for CPUs 0-3, and kubelet would divide 0-7"
        assert holders(CPU, cpus, minor) is None  # any pod may hold CPUs by such a file


def test_containers_by_id_are_of_the_past() -> None:
    text = '{"policyName":"static","defaultCpuSet":"0-3","entries":{"0123abc":"4-7"},"checksum":0}'
    assert cpu_stale(text, 28) == "it names containers as kubelet before 1.18 did, and those are gone"
    assert "of an older kubelet" in str(cpu_stale(text, 37))
    assert holders(CPU, text, 34) is None


# CPUs ------------------------------------------------------------------------------------------------------------------------


@given(MINORS, MINORS)
def test_what_kubelet_wrote_it_reads_again(writer: int, reader: int) -> None:
    entries = {"pod": {"main": "1,5", "init": "2"}}
    assert cpu_stale(cpu_state("0-7", writer), reader) is None
    assert cpu_stale(cpu_state("0,3-4,6-7", writer, entries=entries), reader) is None
    assert memory_stale(memory_state(NODES, RESERVED, writer), reader) is None


@pytest.mark.parametrize(
    ("text", "fields", "reason"),
    [
        (cpu_state("0-7", MINOR), {"cpuManagerPolicy": "none"}, "it is of policy static, and none is configured"),  # A1
        (cpu_state("", MINOR, policy="none"), {}, "it is of policy none, and static is configured"),  # A1
        (cpu_state("0-3", MINOR), {"reservedSystemCPUs": "0"}, "it is for CPUs 0-3, and kubelet would divide 0-7"),  # A2
        (cpu_state("0-15", MINOR), {}, "it is for CPUs 0-15, and kubelet would divide 0-7"),  # A5
        (cpu_state("2-7", MINOR, entries={"p": {"c": "0-1"}}), {}, "its shared CPUs 2-7 lack 0, which are reserved"),  # A6, A19
        (cpu_state("0-7", MINOR), {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}},
         "its shared CPUs 0-7 hold 0,4, which are strictly reserved"),  # A18, A19
        (cpu_state("1-3,5-7", MINOR), {}, "its shared CPUs 1-3,5-7 lack 0,4, which are reserved"),  # A19: taken back
        (cpu_state("1-3,5-7", MINOR), {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}, None),
        (cpu_state("1-3,5", MINOR), {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}},
         "it is for CPUs 1-3,5, and kubelet would divide 1-3,5-7"),
        (cpu_state("", MINOR, entries={"p": {"c": "0-1"}}), {}, "it gives CPUs to pods and has no shared ones"),  # A19
        (cpu_state("0-7", MINOR, entries={"p": {"c": "1"}}), {}, "it gives CPUs 1 to container c of pod p and shares them"),
        (cpu_state("", MINOR), {}, None),
        (cpu_state("0-7", MINOR), {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}, None),  # options alone are no reason
        (cpu_state("0-7", MINOR), {"reservedSystemCPUs": "", "systemReserved": {"cpu": "2"}}, None),  # A26: by number
    ],
)  # fmt: skip
def test_cpus(text: str, fields: dict[str, Any], reason: str | None) -> None:
    assert cpu_stale(text, **fields) == reason


def test_strict_reservation_is_of_132() -> None:
    strict = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
    assert [cpu_stale(cpu_state("0-7", minor), minor, **strict) is None for minor in (31, 32)] == [True, False]


# Memory ----------------------------------------------------------------------------------------------------------------------


def drifted(node: int, bytes: int) -> Machine:
    old = MACHINE.nodes[node]
    return Machine(MACHINE.online, {**MACHINE.nodes, node: NodeMemory(old.memory_bytes + bytes, old.hugepages)})


@pytest.mark.parametrize(
    ("machine", "fields", "reason"),
    [
        (drifted(0, 43_696_128), {}, "it has 68719476736 bytes of memory on NUMA node 0, and the machine has 68763172864"),  # B4
        (Machine(MACHINE.online, {**MACHINE.nodes, 0: NodeMemory(64 * GIB, {2 * MIB: 0, GIB: 0})}), {},
         "it has 1073741824 bytes of hugepages-2Mi on NUMA node 0, and the machine has 0"),  # B14
        (Machine(MACHINE.online, {**MACHINE.nodes, 2: NodeMemory(96 * GIB, {})}), {}, "it is for NUMA nodes 0-1, and the machine has 0-2"),
        (Machine(MACHINE.online, {0: MACHINE.nodes[0]}), {}, "it is for NUMA nodes 0-1, and the machine has 0"),
        (Machine(MACHINE.online, {**MACHINE.nodes, 0: NodeMemory(64 * GIB, {2 * MIB: 512})}), {},
         "it knows hugepages-1Gi, hugepages-2Mi, memory of NUMA node 0, and the machine has hugepages-2Mi, memory"),
        (MACHINE, {"reservedMemory": STATIC["reservedMemory"][:1]},
         "it has 1178599424 bytes of memory reserved on NUMA node 1, and 0 are configured"),
        (MACHINE, {"memoryManagerPolicy": "None"}, "it is of policy Static, and None is configured"),
        (Machine(MACHINE.online, {}), {}, None),
    ],
)  # fmt: skip
def test_memory(machine: Machine, fields: dict[str, Any], reason: str | None) -> None:
    assert memory_stale(memory_state(NODES, RESERVED, MINOR), machine=machine, **fields) == reason


def assigned(free: tuple[int, int], taken: tuple[int, int], assignments: int = 1) -> str:
    """Both nodes in one group, with a container that has 100 GiB of both."""
    content = json.loads(memory_state(NODES, RESERVED, MINOR))
    for node in (0, 1):
        state = content["machineState"][str(node)]
        state["memoryMap"]["memory"].update(free=free[node], reserved=taken[node])
        state.update(numberOfAssignments=assignments, cells=[0, 1])
    block = {"numaAffinity": [0, 1], "type": "memory", "size": 100 * GIB}
    return sealed(MEMORY, {**content, "entries": {"pod": {"main": [block]}}}, MINOR)


def test_from_132_on_a_group_is_compared_as_one() -> None:
    room = 62 * GIB, 64 * GIB + 4096 - 1124 * MIB
    usual, other = (room[0], 100 * GIB - room[0]), (100 * GIB - room[1], room[1])
    for taken, accepted in ((usual, (True, True)), (other, (False, True))):
        text = assigned((room[0] - taken[0], room[1] - taken[1]), taken)
        assert tuple(memory_stale(text, minor) is None for minor in (31, 32)) == accepted
    assert "counts 2 assignments" in str(memory_stale(assigned((0, 0), (0, 0), assignments=2)))
    assert "isn't what its entries leave" in str(memory_stale(assigned((0, 0), (0, 0))))


def test_a_pod_entry_without_its_containers() -> None:  # B6
    content = json.loads(memory_state(NODES, RESERVED, MINOR))
    content["machineState"]["0"]["memoryMap"]["memory"].update(free=61 * GIB, reserved=GIB)
    content["machineState"]["0"]["numberOfAssignments"] = 1
    pod = {"pod": {"memoryBlocks": [BLOCK]}}
    for key in ("checksum", "data", "dataChecksum"):
        content.pop(key, None)
    reason = memory_stale(sealed(MEMORY, {**content, "podEntries": pod}, 37), 37, featureGates={"PodLevelResourceManagers": True})
    assert reason == "it counts 1 assignments on NUMA node 0 and lists 0"


def test_memory_of_nodes_that_are_gone() -> None:
    block = {"numaAffinity": [7], "type": "memory", "size": 1}
    text = memory_state(NODES, RESERVED, MINOR, entries={"pod": {"main": [block]}})
    assert memory_stale(text) == "it gives pod pod memory of NUMA nodes 7, which aren't there"


# Who holds what --------------------------------------------------------------------------------------------------------------


def test_holders() -> None:
    entries = {"uid": {"main": "1,5", "side": "2"}, "done": {"gone": ""}}
    assert holders(CPU, cpu_state("0,3-4,6-7", 35, entries=entries), 35) == {"uid": ["main", "side"]}
    assert holders(MEMORY, memory_state(NODES, RESERVED, 37, entries={"uid": {"main": [BLOCK], "none": []}}), 37) == {"uid": ["main"]}
    # Of whatever kubelet could have written it: a downgrade doesn't make the pods of the newer one disappear.
    newer = sealed(CPU, {"policyName": "static", "defaultCpuSet": "0-3", "podEntries": {"p": {"cpuSet": "4-7"}}}, 36, pod_level=True)
    assert holders(CPU, newer, 30) == {"p": []}
    assert holders(CPU, "{", 35) is None
