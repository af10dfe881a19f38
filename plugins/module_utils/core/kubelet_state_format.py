# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's state files, as each minor of kubelet reads them: forms, checksums, contents.

A checksum is the 32-bit FNV-1a hash of a Go structure printed in full, with the names of its types, so the structures stand here as data:
one decoder reads JSON by them, as encoding/json does, and one printer prints them. Since 1.37 the checksum that counts is that of a text
with the whole state (``data``) inside the file; what older kubelets read stands beside it.

Sources, read at v1.28.0, v1.32.0, v1.34.4, v1.35.4, v1.36.3 and v1.37.2: pkg/kubelet/cm/{cpumanager,memorymanager}/state (checkpoint.go,
state_checkpoint.go), pkg/kubelet/checkpointmanager/checksum, k8s.io/utils/dump. What kubelet 1.34 to 1.37 wrote proves the sums
(tests/oracle/golden/state).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .cpuset import CpuSet
from .errors import InvalidInput

CPU, MEMORY = "cpu_manager_state", "memory_manager_state"
MANAGERS = (CPU, MEMORY)


class Unusable(Exception):
    """A file that kubelet can't read; the text says why, as the end of a sentence."""


class WrongChecksum(Unusable):
    """A file that kubelet doesn't take for its checksum alone; ``state`` is what it would read."""

    def __init__(self, state: State) -> None:
        super().__init__("it is damaged: its checksum doesn't fit")
        self.state = state


@dataclass(frozen=True)
class Block:
    """Memory of a container: ``kind`` is memory or hugepages-<size>, ``size`` in bytes, ``nodes`` in the order in which they are filled."""

    nodes: Tuple[int, ...]
    kind: str
    size: int


@dataclass(frozen=True)
class Table:
    """Memory of one kind on a NUMA node, in bytes."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True)
class NodeState:
    """A NUMA node in the memory manager's eyes. ``cells`` are the nodes that it forms a group with, itself included."""

    assignments: int
    cells: Tuple[int, ...]
    memory: Dict[str, Table]


@dataclass(frozen=True)
class State:
    """What a file holds, the entries by pod UID and container name; ``form`` is the name of its format ("v2")."""

    form: str
    policy: str
    shared: CpuSet = CpuSet()
    cpus: Dict[str, Dict[str, CpuSet]] = field(default_factory=dict)
    pod_cpus: Dict[str, CpuSet] = field(default_factory=dict)
    nodes: Dict[int, NodeState] = field(default_factory=dict)
    blocks: Dict[str, Dict[str, Tuple[Block, ...]]] = field(default_factory=dict)
    pod_blocks: Dict[str, Tuple[Block, ...]] = field(default_factory=dict)


# Go's types -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Type:
    """A Go type. ``kind``: text, int, uint64, map, slice, struct, cpus (a set of CPUs, in JSON its cpulist). ``numbers``: a map's keys are
    numbers; ``pointer``: its values are pointers. ``fields``: Go's name, the name in JSON, the type."""

    name: str
    kind: str
    of: Optional[_Type] = None
    numbers: bool = False
    pointer: bool = False
    fields: Tuple[Tuple[str, str, _Type], ...] = ()


def _struct(name: str, *fields: Tuple[str, str, _Type]) -> _Type:
    return _Type(name, "struct", fields=fields)


_TEXT, _INT, _UINT64 = _Type("string", "text"), _Type("int", "int"), _Type("uint64", "uint64")
_CHECKSUM, _RESOURCE = _Type("checksum.Checksum", "uint64"), _Type("v1.ResourceName", "text")
_INTS = _Type("[]int", "slice", _INT)
_POLICY = ("PolicyName", "policyName", _TEXT)
_SUM = ("Checksum", "checksum", _CHECKSUM)

_CPU_TEXTS = _Type("map[string]string", "map", _TEXT)
_DEFAULT = ("DefaultCPUSet", "defaultCpuSet", _TEXT)
_CPU_ENTRIES = ("Entries", "entries", _Type("map[string]map[string]string", "map", _CPU_TEXTS))
_CPU_POD = _struct("state.PodEntry", ("CPUSet", "cpuSet", _Type("cpuset.CPUSet", "cpus")))
_CPU_PODS = ("PodEntries", "podEntries", _Type("state.PodCPUAssignments", "map", _CPU_POD))

_TABLE = _struct(
    "state.MemoryTable",
    ("TotalMemSize", "total", _UINT64),
    ("SystemReserved", "systemReserved", _UINT64),
    ("Allocatable", "allocatable", _UINT64),
    ("Reserved", "reserved", _UINT64),
    ("Free", "free", _UINT64),
)
_NODE = _struct(
    "state.NUMANodeState",
    ("NumberOfAssignments", "numberOfAssignments", _INT),
    ("MemoryMap", "memoryMap", _Type("map[v1.ResourceName]*state.MemoryTable", "map", _TABLE, pointer=True)),
    ("Cells", "cells", _INTS),
)
_MACHINE = ("MachineState", "machineState", _Type("state.NUMANodeMap", "map", _NODE, numbers=True, pointer=True))
_BLOCKS = _Type(
    "[]state.Block",
    "slice",
    _struct("state.Block", ("NUMAAffinity", "numaAffinity", _INTS), ("Type", "type", _RESOURCE), ("Size", "size", _UINT64)),
)
_MEMORY_ENTRIES = (
    "Entries",
    "entries",
    _Type("state.ContainerMemoryAssignments", "map", _Type("map[string][]state.Block", "map", _BLOCKS)),
)
_MEMORY_PODS = (
    "PodEntries",
    "podEntries",
    _Type("state.PodMemoryAssignments", "map", _struct("state.PodEntry", ("MemoryBlocks", "memoryBlocks", _BLOCKS))),
)

_NAMES = {CPU: "CPUManagerCheckpoint", MEMORY: "MemoryManagerCheckpoint"}
_HEADS = {CPU: (_POLICY, _DEFAULT, _CPU_ENTRIES), MEMORY: (_POLICY, _MACHINE, _MEMORY_ENTRIES)}
_PODS = {CPU: _CPU_PODS, MEMORY: _MEMORY_PODS}
_BASELINES = ("Baselines", "baselines", _Type("", "map", _Type("", "map", _struct("", ("Baseline", "baseline", _TEXT)))))


@dataclass(frozen=True)
class _Form:
    """A format. ``names`` are the type names that its checksum may be of; ``without``: 0 stands for none and is accepted; ``whole``: the
    state stands in ``data``."""

    form: str
    type: _Type
    names: Tuple[str, ...] = ()
    without: bool = False
    whole: bool = False


def _forms(manager: str, minor: int, pod_level: bool) -> List[_Form]:
    """What a kubelet tries, in its order. ``pod_level``: its gate PodLevelResourceManagers is on (1.36 and newer)."""
    name, head, pods = _NAMES[manager], _HEADS[manager], _PODS[manager]
    flat, with_pods = _struct("", *head, _SUM), _struct("", *head, pods, _SUM)
    if manager == CPU:
        containers = _struct("", _POLICY, _DEFAULT, ("Entries", "entries", _CPU_TEXTS), _SUM)
        v1 = _Form("v1", containers, (name,), without=True)
        if minor < 36:
            return [v1, _Form("v2", flat, (name,), without=True)]
        v2 = _Form("v2", flat, (name,) if pod_level else (name + "V2", name), without=True)
        if minor == 36:
            return [_Form("v3", with_pods, (name,)), v2, v1] if pod_level else [v2, v1]
        return [_Form("v4", _struct("", *head, pods, _BASELINES), whole=True), _Form("v3", with_pods, (name + "V3", name)), v2]
    if minor < 36:
        return [_Form("v1", flat, (name,))]
    v1 = _Form("v1", flat, (name,) if pod_level or minor > 36 else (name + "V1", name), without=True)
    v2 = _Form("v2", with_pods, (name,))
    if minor == 36:
        return [v2, v1] if pod_level else [v1]
    return [_Form("v3", _struct("", *head, pods), whole=True), v2, v1]


_RANGES = {"int": (-(1 << 63), 1 << 63), "uint64": (0, 1 << 64)}


# Reading --------------------------------------------------------------------------------------------------------------------


def parse(manager: str, text: str, minor: int, pod_level: bool = False) -> State:
    """The state in a file (``manager``: its name) as kubelet of this minor reads it.

    :raises Unusable: it reads none
    """
    try:
        content = json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        raise Unusable("it is empty" if not text.strip() else "it is damaged: it isn't JSON") from None
    if not isinstance(content, dict):
        raise Unusable("it is damaged: it isn't a JSON object")
    problem = Unusable("it is of an unknown form")
    for form in _forms(manager, minor, pod_level):
        if form.whole and not content.get("data") and not content.get("dataChecksum"):
            continue
        try:
            return _state(form.form, _checked(form, content))
        except Unusable as unusable:
            problem = unusable
            if form.whole:  # kubelet doesn't fall back either
                raise
    raise _explained(manager, content, minor) or problem


def _no_json(word: str) -> None:
    raise ValueError(word)


def _explained(manager: str, content: Mapping[str, Any], minor: int) -> Optional[Unusable]:
    """Whether another kubelet could read it: then it isn't damaged."""
    if content.get("podEntries"):
        form, who = _forms(manager, 36, True)[0], "it is of a newer kubelet, or of one with the gate PodLevelResourceManagers"
    else:
        form, who = _forms(manager, 35, False)[0], "it is of an older kubelet"
    try:
        _checked(form, content)
    except Unusable:
        return None
    return Unusable("%s, in a form that 1.%d doesn't read" % (who, minor))


def _checked(form: _Form, content: Mapping[str, Any]) -> Dict[str, Any]:
    """The content in this form, its checksum verified."""
    if form.whole:
        data, checksum = content.get("data", ""), content.get("dataChecksum", 0)
        if not isinstance(data, str) or checksum != fnv1a("(string)" + data):
            raise Unusable("it is damaged: its checksum doesn't fit")
        try:
            content = json.loads(data, parse_constant=_no_json)
        except (ValueError, RecursionError):
            raise Unusable("it is damaged: its data isn't JSON") from None
        return dict(_decode(form.type, content, made=True))
    value = dict(_decode(form.type, content, made=True))
    found = value["Checksum"]
    if not (form.without and found == 0) and found not in _sums(form, value):
        raise WrongChecksum(_state(form.form, value))
    return value


def _decode(go: _Type, value: Any, made: bool = False) -> Any:
    """A JSON value as encoding/json puts it into this type; nothing (None) is nil, and where a struct has to be, one of zero values.
    ``made``: maps are made before.

    :raises Unusable: the value is of another type
    """
    if value is None and go.kind == "struct":
        value = {}
    if value is None:
        return {"text": "", "int": 0, "uint64": 0, "cpus": CpuSet()}.get(go.kind)
    if go.kind == "text" and isinstance(value, str):
        return value
    if go.kind == "cpus" and isinstance(value, str):
        return cpus_of(value)
    if go.kind in _RANGES and isinstance(value, int) and not isinstance(value, bool):
        lowest, beyond = _RANGES[go.kind]
        if lowest <= value < beyond:
            return value
    if go.kind == "slice" and go.of and isinstance(value, list):
        return [_decode(go.of, one) for one in value]
    if go.kind == "map" and go.of and isinstance(value, dict):
        if go.pointer and None in value.values():
            raise Unusable("it is damaged: an entry is empty")
        try:
            return {int(key) if go.numbers else key: _decode(go.of, one) for key, one in value.items()}
        except ValueError:
            raise Unusable("it is damaged: a NUMA node is no number") from None
    if go.kind == "struct" and isinstance(value, dict):
        by_name = {**{key.lower(): one for key, one in value.items()}, **value}
        return {
            name: ({} if made and of.kind == "map" and tag not in by_name else _decode(of, by_name.get(tag, by_name.get(tag.lower()))))
            for name, tag, of in go.fields
        }
    raise Unusable("it is damaged: it holds %s where kubelet expects %s" % (json.dumps(value)[:40], go.name or go.kind))


def cpus_of(text: str) -> CpuSet:
    """A cpulist of a state file; kubelet reads no other notation there.

    :raises Unusable: it is none
    """
    try:
        if text.strip("0123456789,-"):
            raise InvalidInput("", "")
        return CpuSet.parse(text)
    except InvalidInput:
        raise Unusable('it is damaged: "%s" is no list of CPUs' % text[:40]) from None


def _state(form: str, value: Mapping[str, Any]) -> State:
    """The content in our terms. Entries of v1 stand by container id: the pod is unknown ("")."""
    state = State(form, value["PolicyName"])
    entries, pods = value["Entries"] or {}, value.get("PodEntries") or {}
    if "DefaultCPUSet" in value:
        by_pod = {"": entries} if form == "v1" and entries else {} if form == "v1" else entries
        return replace(
            state,
            shared=cpus_of(value["DefaultCPUSet"]),
            cpus={pod: {name: cpus_of(cpus) for name, cpus in (containers or {}).items()} for pod, containers in by_pod.items()},
            pod_cpus={pod: entry["CPUSet"] for pod, entry in pods.items()},
        )
    return replace(
        state,
        nodes={id: _node(node) for id, node in (value["MachineState"] or {}).items()},
        blocks={pod: {name: _blocks(blocks) for name, blocks in (containers or {}).items()} for pod, containers in entries.items()},
        pod_blocks={pod: _blocks(entry["MemoryBlocks"]) for pod, entry in pods.items()},
    )


def _node(node: Mapping[str, Any]) -> NodeState:
    tables = {
        kind: Table(table["TotalMemSize"], table["SystemReserved"], table["Allocatable"], table["Reserved"], table["Free"])
        for kind, table in (node["MemoryMap"] or {}).items()
    }
    return NodeState(node["NumberOfAssignments"], tuple(node["Cells"] or ()), tables)


def _blocks(blocks: Optional[List[Mapping[str, Any]]]) -> Tuple[Block, ...]:
    return tuple(Block(tuple(block["NUMAAffinity"] or ()), block["Type"], block["Size"]) for block in blocks or ())


# Checksums ------------------------------------------------------------------------------------------------------------------


def checksum(manager: str, text: str, minor: int, pod_level: bool = False) -> Tuple[int, ...]:
    """The checksums that kubelet of this minor puts on a file with this content (its own are not looked at): ``checksum``, and from 1.37
    on ``dataChecksum`` too.

    :raises Unusable: the content is of another form
    """
    content, name = json.loads(text), _NAMES[manager]
    pods = (_PODS[manager],) if pod_level and minor == 36 else ()
    type = _struct("", *_HEADS[manager], *pods, _SUM)
    own = fnv1a(_printed(name, type, _decode(type, content, made=True)))
    return (own, fnv1a("(string)" + content["data"])) if minor >= 37 else (own,)


def _sums(form: _Form, value: Mapping[str, Any]) -> List[int]:
    return [fnv1a(_printed(name, form.type, value)) for name in form.names]


def _printed(name: str, go: _Type, value: Mapping[str, Any]) -> str:
    return "(*state.%s)%s" % (name, _dump(go, {**value, "Checksum": 0}, typed=False))


def _dump(go: _Type, value: Any, typed: bool) -> str:
    """The value as kubelet prints it to hash it: types before the values of fields only, maps by key, nil maps and slices as <nil>."""
    head = "(%s)" % go.name if typed else ""
    if go.kind == "cpus":
        return head + "{elems:(map[int]struct {})map[%s]}" % " ".join("%d:{}" % cpu for cpu in value)
    if go.kind == "struct":
        return head + "{%s}" % " ".join("%s:%s" % (name, _dump(of, value[name], typed=True)) for name, _tag, of in go.fields)
    if value is None:
        return head + "<nil>"
    if go.kind == "slice" and go.of:
        return head + "[%s]" % " ".join(_dump(go.of, one, typed=False) for one in value)
    if go.kind == "map" and go.of:
        pointer = "<*>" if go.pointer else ""
        return head + "map[%s]" % " ".join("%s:%s%s" % (key, pointer, _dump(go.of, value[key], typed=False)) for key in sorted(value))
    return head + str(value)


def fnv1a(text: str) -> int:
    """The 32-bit FNV-1a hash of a text."""
    result = 0x811C9DC5
    for byte in text.encode("utf-8", "surrogateescape"):
        result = (result ^ byte) * 0x01000193 & 0xFFFFFFFF
    return result
