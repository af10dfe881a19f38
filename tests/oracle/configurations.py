"""Configurations of kubelet: those that our plan renders for the example fleet, and what becomes of them when something is changed.

A case is what a kubelet is started with on a machine: its main file, the drop-ins and flags beside it. Good ones come from the plan by the
same way as on a node, one for each machine, profile and set of variables; a mutation takes one and changes one thing, or two.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from predict import Json

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet, kubelet_merge
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import File
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.core.hugepage_plan import planned_bytes
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_gates import OTHER_GATES
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_plan import machine_section
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_tables import CPU_OPTIONS, GATES, TOPOLOGY_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.kubelet_files import drop_ins
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines.build import build, load, names

FOLDER = "/etc/kubernetes/kubelet.conf.d"  # of drop-ins, where a good one is rendered for a kubelet that is made to read them


@dataclass(frozen=True)
class Setup:
    """What a kubelet is started with on a machine of the fleet. ``main`` None: without --config; ``drop_ins`` None: without --config-dir.
    ``swap``: the machine keeps its swap. ``change`` says what was changed in a good one; "" in a good one."""

    machine: str
    main: str | None = None
    drop_ins: dict[str, str] | None = None
    flags: tuple[str, ...] = ()
    swap: bool = False
    change: str = ""

    def question(self, root: str) -> Json:
        """For the oracle."""
        asked: Json = {"ask": "configuration", "root": root, "fresh": True, "swap_off": not self.swap}
        # An empty text is no main file to the oracle; a blank one is as little a configuration.
        asked.update({"main": self.main or "\n"} if self.main is not None else {}, flags=list(self.flags))
        return {**asked, "drop_ins": self.drop_ins} if self.drop_ins is not None else asked


@dataclass(frozen=True)
class Place:
    """A machine of the fleet that has been built and read."""

    name: str
    root: str
    topology: Topology

    def section(self, swap: bool) -> Json:
        """What our rules hold a configuration against."""
        return machine_section(self.topology, planned_bytes(self.topology, {}), swap and bool(self.topology.swaps))


def fleet(folder: Path) -> dict[str, Place]:
    """The example fleet, built and read."""
    found = {}
    for name in names():
        path = str(build(load(name), folder / name))
        root = Root(path)
        found[name] = Place(name, path, read_topology(root, Command(root)))
    return found


# --- good ones ----------------------------------------------------------------------------------------------------------------------------

RESERVES = {"kube_reserved": {"memory": "2Gi"}, "system_reserved": {"memory": "1500M", "pid": "1000", "ephemeral-storage": "1Gi"}}
VARIABLES: tuple[Json, ...] = (
    {},
    {"memory_manager_policy": "Static", **RESERVES},
    {"memory_manager_policy": "None", "topology_manager_policy": "restricted", "topology_manager_scope": "pod"},
    {
        "memory_manager_policy": "Static",
        "eviction_hard": {"memory.available": "3%"},
        "eviction_absolute": True,
        "reserved_memory_percent": 3,
    },
    {"cpu_manager_policy": "none", "topology_manager_policy": "none", "eviction_hard": {"nodefs.available": "12.5%"}},
    {
        "cpu_manager_policy_options": {"strict-cpu-reservation": "true"},
        "topology_manager_policy_options": {"max-allowable-numa-nodes": "9"},
    },
    {"cpu_manager_policy_options": {"align-by-socket": "true"}, "topology_manager_policy": "best-effort", "workload": "inference"},
    {"cpu_manager_policy_options": {"distribute-cpus-across-cores": "true", "full-pcpus-only": "false"}},
    {"reserved_cores_percent": 4, "swap": "keep"},
)
FORMS: tuple[Json, ...] = ({}, {"kubelet_config_dir": FOLDER}, {"kubelet_distribution": "k3s"})


def good(places: dict[str, Place], version: str) -> list[Setup]:
    """What the plan renders for each machine, profile and set of variables: into kubelet's main file, and beside it."""
    found = []
    for place in places.values():
        for profile in PROFILES:
            for variables in VARIABLES:
                for form in FORMS:
                    asked = {"profile": profile, "kubelet_version": version, "kubelet_distribution": "kubeadm", **variables, **form}
                    setup = rendered(place, asked)
                    for one in [] if setup is None else [setup] if form else [setup, as_flags(setup)]:
                        if one not in found:
                            found.append(one)
    return found


def rendered(place: Place, variables: Json) -> Setup | None:
    """The configuration that kubelet has once the plan has been applied; None where the plan refuses to be made."""
    policy = policy_from_variables(variables)
    try:
        section = build_plan(place.topology, policy).kubelet
    except GpufleetError:
        return None
    root = Root(place.root)
    main_file, folder = kubelet.main_of(section), section["config_dir"]
    reading = kubelet.Reading(main=root.read(main_file) if main_file else None, drop_ins=drop_ins(root, folder), program="")
    texts = {**reading.drop_ins, **({main_file: reading.main} if reading.main is not None else {})}
    for artifact in kubelet.artifacts({"kubelet": section}, reading):
        if isinstance(artifact, File) and (artifact.path == main_file or (folder and artifact.path.startswith(folder))):
            texts[artifact.path] = artifact.edit(texts.get(artifact.path))
    main = texts.pop(main_file, None)
    beside = {path[len(folder) :].lstrip("/"): text for path, text in texts.items()} if folder else None
    words = tuple("--%s=%s" % item for item in section["flags"].items() if item[0] in kubelet_merge.FLAGS)
    return Setup(place.name, main, beside, words, policy.swap == "keep")


def as_flags(setup: Setup) -> Setup:
    """The same without files: every field of the rules that has a flag as one, as k3s and RKE2 before 1.32 get it."""
    fields = {**kubelet_merge.fields(setup.main, "main")} if setup.main else {}
    for name in kubelet_merge.in_order(setup.drop_ins or {}):
        fields.update(kubelet_merge.fields(setup.drop_ins[name], name))
    words = tuple("--" + word for word in kubelet_merge.as_flags(fields))
    return replace(setup, main=None, drop_ins=None, flags=(*setup.flags, *words))


# --- values -------------------------------------------------------------------------------------------------------------------------------

# Of another type than most fields have, and texts at the edge.
ODD: tuple[Any, ...] = (None, "", "x", 0, 1, -1, 2.5, True, False, [], ["a"], {}, {"a": "b"}, {"a": 1}, [{"a": "b"}], " ", "null", "~")
QUANTITIES: tuple[Any, ...] = (
    "0", "1", "2", "500m", "1Gi", "100Mi", "1.5Gi", "0.5", ".5Gi", "5.", "+1Gi", "-1Gi", "-0", "1e3", "1E3", "1e+3", "12e-1", "1e",
    "1 Gi", "1gi",
    "1GI", "1GB", "1Gib", "1K", "1k", "1Ki", "1M", "1T", "1Pi", "1Ei", "7Ei", "8Ei", "16Ei", "1E", "9223372036854775807",
    "9223372036854775808",
    "99999999999999999999999", "1e18", "1e19", "1e99", "1e100", "1e-9", "1n", "1u", "100n", "1.0000000001", "0x10", "1_000", "1,5",
    "many", "", " ",
    " 1Gi", "1Gi ", "1Gi\n", "٣", "½", "1m", "0.1", "0.0001", "NaN", "Inf", "1e1000", "1e-1000", "1i", "Gi", "i", ".", "+", "1..5", "1e5Ki",
    1, 2, 0, -1, 1.5, True, None, [], {}, ["1Gi"],
)  # fmt: skip
SHARES: tuple[Any, ...] = (
    "5%", "10%", "0%", "100%", "101%", "100.0%", "100.00001%", "99.99%", "-5%", "+5%", "-0%", "%", "%%", "5%%", "5 %", " 5%", "5% ",
    "5.5%", ".5%",
    "5.%", "0.0%", "00%", "1e1%", "1e2%", "1e3%", "1E-2%", "0x5%", "0x1p2%", "1_0%", "NaN%", "nan%", "Inf%", "inf%", "-inf%",
    "infinity%", "five%",
    "٣%", "1e-400%", "1e39%", "3.5e38%", "5%5", "5percent",
)  # fmt: skip
TRUTHS: tuple[Any, ...] = (
    "true", "false", "1", "0", "t", "f", "T", "F", "TRUE", "FALSE", "True", "False", "yes", "no", "on", "off", "y", "n", "tRUE", "",
    " true", "true ",
    "2", "null", True, False, 1, 0, None, [], {},
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    "8", "9", "16", "64", "7", "0", "-8", "+9", "08", "009", "9.0", "1e1", "0x10", "1_0", " 9", "9 ", "", "nine", "true", "٩", "2147483648",
    "9223372036854775807", "9223372036854775808", "99999999999999999999", 9, 8, True, None, [],
)  # fmt: skip
CPUS: tuple[Any, ...] = (
    "0", "0-1", "0,1", "0-3,8", "1", "0,0", "0-1,1-2", "3-0", "1-1", "0-", "-1", "0,", ",0", "0,,1", "0-1-2", "0 ,1", "0, 1", " 0", "0 ",
    "0-3:1/2",
    "0:3", "+1", "0-+1", "00", "01-02", "0x1", "a", "all", "", " ", "99999", "0-99999", "65536", "9223372036854775807",
    "9223372036854775808", "٠",
    "0;1", "0.0", "-0", "-0-1", 0, 1, True, None, [], [0], {},
)  # fmt: skip
WORDS: dict[str, tuple[Any, ...]] = {
    "cpuManagerPolicy": ("none", "static", "Static", "STATIC", "None", " static", "static ", "dynamic", "statics"),
    "memoryManagerPolicy": ("None", "Static", "none", "static", "NONE", "BestEffort", "Static\n", "Single"),
    "topologyManagerPolicy": (
        "none",
        "best-effort",
        "restricted",
        "single-numa-node",
        "None",
        "besteffort",
        "best_effort",
        "single-numa",
        "strict",
    ),
    "topologyManagerScope": ("container", "pod", "Pod", "Container", "node", "containers"),
    "cgroupDriver": ("systemd", "cgroupfs", "Systemd", "none"),
    "kubeReservedCgroup": ("/podruntime.slice", "podruntime.slice", "/", "kube"),
    "systemReservedCgroup": ("/system.slice", "system.slice", "/"),
}
NAMES = (
    "none",
    "pods",
    "pod",
    "Pods",
    "system-reserved",
    "kube-reserved",
    "system-reserved-compressible",
    "kube-reserved-compressible",
    "",
    "x",
    1,
)
SIGNALS = (
    "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "containerfs.available",
    "containerfs.inodesFree", "pid.available", "allocatableMemory.available", "memory", "memory.Available", "memory.avail",
    "nodefs.inodesfree",
    "cpu.available", "", "nodefs.free",
)  # fmt: skip
RESOURCES = ("cpu", "memory", "ephemeral-storage", "pid", "pids", "CPU", "hugepages-2Mi", "storage", "nvidia.com/gpu", "", "mem")
SWAPS: tuple[Any, ...] = ("NoSwap", "LimitedSwap", "UnlimitedSwap", "noswap", "", "limited", "None", 1, None, True, [])
LIMITS = (
    "memory",
    "memory",
    "memory",
    "hugepages-2Mi",
    "hugepages-1Gi",
    "hugepages-",
    "hugepages",
    "cpu",
    "Memory",
    "",
    "ephemeral-storage",
    "pid",
)
NODES: tuple[Any, ...] = (0, 1, 2, 8, 252, -1, 2147483647, 2147483648, -2147483649, "0", "1", 0.0, 1.5, None, True, [], "a")
OPTIONS = {
    "cpuManagerPolicyOptions": (*CPU_OPTIONS, "full-pcpus", "Full-PCPUs-Only", "", "prefer-closest-numa-nodes", "max-allowable-numa-nodes"),
    "topologyManagerPolicyOptions": (*TOPOLOGY_OPTIONS, "prefer-closest-numa", "full-pcpus-only", "", "Max-allowable-numa-nodes"),
}
TRUTH_FIELDS = ("cgroupsPerQOS", "failSwapOn", "mergeDefaultEvictionSettings", "protectKernelDefaults")
EVERY_GATE = sorted({**GATES, **OTHER_GATES})
KNOWN_FLAGS = tuple(kubelet_merge.FLAGS)

Change = Callable[[random.Random, Json], str]  # changes the fields of a file, and says what it did


def change_word(rng: random.Random, fields: Json) -> str:
    """A text that has to be one of some words, or a name."""
    name = rng.choice(sorted(WORDS))
    fields[name] = rng.choice((*WORDS[name], *WORDS[name], rng.choice(ODD)))
    return f"{name}: {fields[name]!r}"


def change_options(rng: random.Random, fields: Json) -> str:
    """Policy options: one more, one less, another value."""
    name = rng.choice(("cpuManagerPolicyOptions", "cpuManagerPolicyOptions", "topologyManagerPolicyOptions"))
    options = entries(fields, name)
    kind = rng.random()
    if kind < 0.1:
        fields[name] = rng.choice(ODD)
        return f"{name}: {fields[name]!r}"
    if kind < 0.3 and options:
        gone = rng.choice(sorted(options, key=str))
        del options[gone]
        return f"{name} without {gone}"
    option = rng.choice(OPTIONS[name])
    usual = ("8", "9", "16") if option == "max-allowable-numa-nodes" else ("true", "true", "false")
    odd = NUMBERS if option == "max-allowable-numa-nodes" or rng.random() < 0.1 else TRUTHS
    options[option] = rng.choice(usual) if rng.random() < 0.5 else rng.choice(odd)
    if rng.random() < 0.3:
        return f"{name}.{option}: {options[option]!r}, " + change_gates(rng, fields, True)
    return f"{name}.{option}: {options[option]!r}"


def change_gates(rng: random.Random, fields: Json, of_options: bool = False) -> str:
    """Feature gates, known or not."""
    gates = entries(fields, "featureGates")
    kind = rng.random()
    if kind < 0.04 and not of_options:
        fields["featureGates"] = rng.choice(ODD)
        return f"featureGates: {fields['featureGates']!r}"
    if of_options or kind < 0.35:
        gate = rng.choice([name for name in GATES if "Policy" in name] + ["AllAlpha", "AllBeta"])
    elif kind < 0.5:
        gate = rng.choice(
            ("Nothing", "CPUManager", "TopologyManager", "MemoryManager", "NodeSwap", "nodeswap", "", "KubeletNothing", "allAlpha")
        )
    else:
        gate = rng.choice(EVERY_GATE)
    gates[gate] = rng.choice((True, False)) if rng.random() < 0.93 else rng.choice(TRUTHS)
    return f"featureGates.{gate}: {gates[gate]!r}"


def change_cpus(rng: random.Random, fields: Json) -> str:
    """reservedSystemCPUs."""
    if rng.random() < 0.15:
        fields.pop("reservedSystemCPUs", None)
        if rng.random() < 0.6:
            entries(fields, rng.choice(("kubeReserved", "systemReserved")))["cpu"] = rng.choice(QUANTITIES)
        return "without reservedSystemCPUs"
    fields["reservedSystemCPUs"] = rng.choice(CPUS)
    return f"reservedSystemCPUs: {fields['reservedSystemCPUs']!r}"


def change_reserves(rng: random.Random, fields: Json) -> str:
    """kubeReserved and systemReserved."""
    name = rng.choice(("kubeReserved", "systemReserved"))
    if rng.random() < 0.08:
        fields[name] = rng.choice(ODD)
        return f"{name}: {fields[name]!r}"
    resource = rng.choice((*RESOURCES[:4], rng.choice(RESOURCES)))
    amounts = entries(fields, name)
    amounts[resource] = rng.choice(QUANTITIES)
    return f"{name}.{resource}: {amounts[resource]!r}"


def change_eviction(rng: random.Random, fields: Json) -> str:
    """evictionHard."""
    kind = rng.random()
    if kind < 0.08:
        fields["evictionHard"] = rng.choice(ODD)
        return f"evictionHard: {fields['evictionHard']!r}"
    if kind < 0.15:
        fields["mergeDefaultEvictionSettings"] = rng.choice((True, True, False, "true", 1))
        return f"mergeDefaultEvictionSettings: {fields['mergeDefaultEvictionSettings']!r}"
    signals = entries(fields, "evictionHard")
    if kind < 0.25 and signals:
        gone = rng.choice(sorted(signals, key=str))
        del signals[gone]
        return f"evictionHard without {gone}"
    signal = rng.choice((rng.choice(SIGNALS[:8]), rng.choice(SIGNALS[:8]), "memory.available", rng.choice(SIGNALS)))
    signals[signal] = rng.choice(SHARES if rng.random() < 0.55 else QUANTITIES)
    return f"evictionHard.{signal}: {signals[signal]!r}"


def change_memory(rng: random.Random, fields: Json) -> str:
    """reservedMemory: amounts, nodes, kinds, sums."""
    kind = rng.random()
    if kind < 0.06:
        fields["reservedMemory"] = rng.choice(ODD)
        return f"reservedMemory: {fields['reservedMemory']!r}"
    if kind < 0.12:
        fields.pop("reservedMemory", None)
        return "without reservedMemory"
    listed = fields.get("reservedMemory")
    listed = listed if isinstance(listed, list) else []
    fields["reservedMemory"] = listed
    entry: Any = rng.choice(listed) if listed and rng.random() < 0.7 else None
    if not isinstance(entry, dict) or not isinstance(entry.get("limits"), dict):
        entry = {"numaNode": rng.choice((0, 1, rng.choice(NODES))), "limits": {"memory": rng.choice(("1Gi", rng.choice(QUANTITIES)))}}
        listed.append(entry)
        return f"reservedMemory with {entry!r}"
    kind = rng.random()
    if kind < 0.3:
        entry["limits"]["memory"] = rng.choice(QUANTITIES)
    elif kind < 0.45:
        entry["numaNode"] = rng.choice(NODES)
    elif kind < 0.6:
        limit = rng.choice(LIMITS)
        entry["limits"][limit] = rng.choice(("1Gi", "0", rng.choice(QUANTITIES)))
    elif kind < 0.7:
        listed.append(copy.deepcopy(entry))
    elif kind < 0.8:
        entry[rng.choice(("limits", "numaNode", "extra"))] = rng.choice(ODD)
    elif kind < 0.9:
        amount = entry["limits"].get("memory")
        if isinstance(amount, str) and amount.endswith("Mi") and amount[:-2].isdigit():
            more = rng.choice((0, 0, 1, -1))  # the same in other words, or a byte more or less
            entry["limits"]["memory"] = str((int(amount[:-2]) << 20) + more)
    else:
        entry.pop(rng.choice(("limits", "numaNode")), None)
    return f"reservedMemory has {entry!r}"


def change_enforcement(rng: random.Random, fields: Json) -> str:
    """enforceNodeAllocatable and the cgroups that it needs."""
    if rng.random() < 0.1:
        fields["enforceNodeAllocatable"] = rng.choice(ODD)
    else:
        fields["enforceNodeAllocatable"] = [rng.choice(NAMES) for unused in range(rng.choice((0, 1, 1, 1, 2, 2, 3)))]
    for name in ("kubeReservedCgroup", "systemReservedCgroup"):
        if rng.random() < 0.4:
            fields[name] = "/%s.slice" % name[:4]
    if rng.random() < 0.3:
        fields.pop("reservedSystemCPUs", None)
        entries(fields, "kubeReserved")["cpu"] = "2"
    return f"enforceNodeAllocatable: {fields['enforceNodeAllocatable']!r}"


def change_swap(rng: random.Random, fields: Json) -> str:
    """memorySwap."""
    if rng.random() < 0.15:
        fields["memorySwap"] = rng.choice(ODD)
    else:
        fields["memorySwap"] = {rng.choice(("swapBehavior", "swapBehavior", "swapBehavior", "behavior")): rng.choice(SWAPS)}
    if rng.random() < 0.2:
        return f"memorySwap: {fields['memorySwap']!r}, " + set_gate(rng, fields, "NodeSwap")
    return f"memorySwap: {fields['memorySwap']!r}"


def set_gate(rng: random.Random, fields: Json, gate: str) -> str:
    """A certain gate."""
    gates = entries(fields, "featureGates")
    gates[gate] = rng.choice((True, False))
    return f"featureGates.{gate}: {gates[gate]!r}"


def change_truth(rng: random.Random, fields: Json) -> str:
    """A field that is true or false."""
    name = rng.choice(TRUTH_FIELDS)
    fields[name] = rng.choice((True, False, True, False, rng.choice(TRUTHS), rng.choice(ODD)))
    return f"{name}: {fields[name]!r}"


def change_unknown(rng: random.Random, fields: Json) -> str:
    """A field that no kubelet has, a field in another spelling, one less."""
    kind = rng.random()
    if kind < 0.5:
        name = rng.choice(
            ("reservedCpus", "cpumanagerPolicy", "CPUManagerPolicy", "gpu", "reservedSystemCpus", "memoryManagerpolicy", "extra")
        )
        fields[name] = rng.choice(("static", "0", *ODD))
        return f"{name}: {fields[name]!r}"
    name = rng.choice(sorted(set(fields) & {*kubelet_merge.FIELDS, *kubelet_merge.HEADER}) or ["kind"])
    if kind < 0.8:
        fields.pop(name, None)
        return f"without {name}"
    fields[name.upper() if kind < 0.9 else name[0].upper() + name[1:]] = fields.pop(name, None)
    return f"{name} in capitals"


def change_head(rng: random.Random, fields: Json) -> str:
    """apiVersion and kind."""
    name = rng.choice(sorted(kubelet_merge.HEADER))
    fields[name] = rng.choice(("kubelet.config.k8s.io/v1", "v1beta1", "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration",
                               "kubeletConfiguration", "Pod", "v1", "kubelet.config.k8s.io/v1alpha1", "", None, 1, []))  # fmt: skip
    return f"{name}: {fields[name]!r}"


CHANGES: tuple[tuple[Change, int], ...] = (
    (change_word, 10), (change_options, 16), (change_gates, 12), (change_cpus, 10), (change_reserves, 11), (change_eviction, 14),
    (change_memory, 15),
    (change_enforcement, 8), (change_swap, 6), (change_truth, 7), (change_unknown, 5), (change_head, 3),
)  # fmt: skip


def entries(fields: Json, name: str) -> Json:
    """The mapping of a field, made where there is none."""
    if not isinstance(fields.get(name), dict):
        fields[name] = {}
    return fields[name]


# --- whole setups -------------------------------------------------------------------------------------------------------------------------


def mutations(rng: random.Random, bases: list[Setup], wanted: int) -> Iterator[Setup]:
    """Changed setups, no two of them alike."""
    seen: set[str] = set()
    while len(seen) < wanted:
        setup = mutated(rng, rng.choice(bases))
        key = json.dumps([setup.machine, setup.main, setup.drop_ins, setup.flags, setup.swap])
        if key not in seen:
            seen.add(key)
            yield setup


def mutated(rng: random.Random, setup: Setup) -> Setup:
    """One thing changed, or two."""
    for unused in range(1 if rng.random() < 0.85 else 2):
        setup = rng.choices((in_a_file, in_flags, in_text, in_places), (70, 16, 10, 4))[0](rng, setup)
    return setup


def changed(setup: Setup, change: str, **values: Any) -> Setup:
    """The setup with other values and one more change."""
    return replace(setup, change=f"{setup.change}; {change}" if setup.change else change, **values)


def files(setup: Setup) -> list[str]:
    """Where its texts are: "" is the main file."""
    return [*([""] if setup.main is not None else []), *(setup.drop_ins or {})]


def text_of(setup: Setup, name: str) -> str:
    """The text of one of its files."""
    return (setup.main or "") if not name else (setup.drop_ins or {})[name]


def with_text(setup: Setup, name: str, text: str, change: str) -> Setup:
    """The setup with another text of a file."""
    change = f"{name}: {change}" if name else change
    if not name:
        return changed(setup, change, main=text)
    return changed(setup, change, drop_ins={**(setup.drop_ins or {}), name: text})


def in_a_file(rng: random.Random, setup: Setup) -> Setup:
    """A field changed in the main file, in a drop-in, or in a drop-in made for it."""
    known = files(setup)
    if rng.random() < 0.15 or not known:
        setup = replace(setup, drop_ins={**(setup.drop_ins or {}), "90-more.conf": yaml.safe_dump(kubelet_merge.HEADER)})
        known = ["90-more.conf"]
    name = rng.choice(known)
    try:
        fields = yaml.safe_load(text_of(setup, name))
    except yaml.YAMLError:
        return setup
    if not isinstance(fields, dict):
        return setup
    kinds, weights = zip(*CHANGES)
    change = rng.choices(kinds, weights)[0](rng, fields)
    return with_text(setup, name, dumped(rng, fields), change)


def dumped(rng: random.Random, fields: Json) -> str:
    """A file in one of the ways in which people and programs write them."""
    kind = rng.random()
    if kind < 0.08:
        return json.dumps(fields, indent=rng.choice((None, 2)))
    if kind < 0.16:
        return yaml.safe_dump(fields, default_flow_style=None, allow_unicode=True, width=1000)
    return yaml.safe_dump(fields, sort_keys=rng.random() < 0.5, allow_unicode=True, width=1000)


def in_flags(rng: random.Random, setup: Setup) -> Setup:
    """A flag more, mostly one that the rules know."""
    kind = rng.random()
    if kind < 0.04:
        word = rng.choice(("--v=2", "--node-labels=a=b", "--max-pods=200", "--register-node=false"))
        return changed(setup, word, flags=(*setup.flags, word))
    flag = rng.choice(KNOWN_FLAGS)
    value = flag_value(rng, flag)
    words: tuple[str, ...] = (f"--{flag}={value}",)
    truth = kubelet_merge.FIELDS[kubelet_merge.FLAGS[flag]] == kubelet_merge.TRUTH
    if kind < 0.1:
        words = (f"--{flag}",) if truth else (f"--{flag}", value)
    elif kind < 0.13:
        words = (f"--{flag.replace('-', '_')}={value}",)
    elif kind < 0.25:
        words = (words[0], f"--{flag}={flag_value(rng, flag)}")
    first = rng.random() < 0.3
    return changed(setup, " ".join(words), flags=(*words, *setup.flags) if first else (*setup.flags, *words))


def flag_value(rng: random.Random, flag: str) -> str:
    """A value for a flag, in its notation."""
    field = kubelet_merge.FLAGS[flag]
    kind = kubelet_merge.FIELDS[field]

    def text(values: tuple[Any, ...]) -> str:
        return str(rng.choice([value for value in values if isinstance(value, (str, int))]))

    if field == "reservedSystemCPUs":
        return text(CPUS)
    if kind == kubelet_merge.TEXT:
        return text(WORDS[field])
    if kind == kubelet_merge.TRUTH:
        return text(TRUTHS)
    if kind == kubelet_merge.NAMES:
        return rng.choice((",", ",", "", ", ", ";")).join(text(NAMES) for unused in range(rng.choice((0, 1, 1, 2))))
    if kind == kubelet_merge.RESERVATIONS:
        reservation = f"{text(NODES)}:{text(LIMITS)}={text(QUANTITIES)}"
        return rng.choice((reservation, reservation, "0:memory=1Gi", "0:memory=1Gi;1:memory=2Gi", "0:memory=1Gi,hugepages-2Mi=2Mi", "0",
                           "0:", ":", "memory=1Gi", "0:memory", "0:memory=1Gi,1:memory=1Gi", "0:memory=1Gi;", "",
                           "0:memory=1Gi:1"))  # fmt: skip
    if field == "featureGates":
        pairs = [(rng.choice((rng.choice(EVERY_GATE), rng.choice(sorted(GATES)))), text(TRUTHS)) for unused in range(rng.choice((1, 1, 2)))]
    elif field == "evictionHard":
        pairs = [(rng.choice((*SIGNALS[:8], text(SIGNALS))), text(SHARES if rng.random() < 0.5 else QUANTITIES)) for unused in range(2)]
    elif field in OPTIONS:
        pairs = [(text(OPTIONS[field]), rng.choice(("true", "9", text(TRUTHS)))) for unused in range(rng.choice((1, 1, 2)))]
    else:
        pairs = [(rng.choice((*RESOURCES[:4], text(RESOURCES))), text(QUANTITIES)) for unused in range(rng.choice((1, 1, 2)))]
    sign = "<" if (flag == "eviction-hard") != (rng.random() < 0.03) else "="
    return rng.choice((",", ",", ",", ", ", ";", ",,")).join(name + sign + value for name, value in pairs)


def in_text(rng: random.Random, setup: Setup) -> Setup:
    """The text of a file, as people damage or embellish it."""
    known = files(setup)
    if not known:
        return setup
    name = rng.choice(known)
    change, text = rng.choice(TEXTS)
    return with_text(setup, name, text(rng, text_of(setup, name)), change)


def of_ours(text: str) -> list[int]:
    """The numbers of the lines that hold what the rules look at. What others wrote is left to kubelet."""
    found, inside = [], False
    for number, line in enumerate(text.splitlines()):
        if line[:1] not in (" ", "-", "#", ""):
            inside = line.partition(":")[0].strip('"') in {*kubelet_merge.FIELDS, *kubelet_merge.HEADER}
        if inside:
            found.append(number)
    return found


def any_line(rng: random.Random, text: str, make: Callable[[str], str]) -> str:
    """The text with one of its lines made anew."""
    lines, known = text.splitlines(keepends=True), of_ours(text)
    number = rng.choice(known) if known else len(lines)
    return "".join([*lines[:number], *map(make, lines[number : number + 1]), *lines[number + 1 :]])


def cut_off(rng: random.Random, text: str) -> str:
    """The text up to somewhere in one of its lines."""
    lines, known = text.splitlines(keepends=True), of_ours(text)
    number = rng.choice(known) if known else 0
    return "".join(lines[:number]) + lines[number][: rng.randrange(len(lines[number]) + 1)] if lines else ""


TEXTS: tuple[tuple[str, Callable[[random.Random, str], str]], ...] = (
    ("empty", lambda rng, text: ""),
    ("blank", lambda rng, text: "\n\n"),
    ("comments only", lambda rng, text: "# nothing\n"),
    ("a line twice", lambda rng, text: any_line(rng, text, lambda line: line + line)),
    ("a line less", lambda rng, text: any_line(rng, text, lambda line: "")),
    ("cut off", cut_off),
    ("a tab before a line", lambda rng, text: any_line(rng, text, lambda line: "\t" + line)),
    ("a tab after a colon", lambda rng, text: any_line(rng, text, lambda line: line.replace(": ", ":\t", 1))),
    ("a tab at a line's end", lambda rng, text: any_line(rng, text, lambda line: line.rstrip("\n") + "\t\n")),
    ("a blank before a line", lambda rng, text: any_line(rng, text, lambda line: " " + line)),
    ("no blank after a colon", lambda rng, text: any_line(rng, text, lambda line: line.replace(": ", ":", 1))),
    ("a line without colon", lambda rng, text: any_line(rng, text, lambda line: line.replace(":", "", 1))),
    ("a quote more", lambda rng, text: any_line(rng, text, lambda line: line.rstrip("\n") + '"\n')),
    ("a comment at a line's end", lambda rng, text: any_line(rng, text, lambda line: line.rstrip("\n") + " # why\n")),
    ("a hash at a line's end", lambda rng, text: any_line(rng, text, lambda line: line.rstrip("\n") + "#why\n")),
    ("a document start", lambda rng, text: "---\n" + text),
    ("a directive", lambda rng, text: "%YAML 1.1\n---\n" + text),
    ("a second document", lambda rng, text: text + "---\nkind: Pod\n"),
    ("a document end", lambda rng, text: text + "...\n"),
    ("windows line ends", lambda rng, text: text.replace("\n", "\r\n")),
    ("no line end", lambda rng, text: text.rstrip("\n")),
    ("a byte order mark", lambda rng, text: "\ufeff" + text),
    ("a quoted key", lambda rng, text: any_line(rng, text, lambda line: re.sub(r"^([ -]*)([\w.-]+):", r'\1"\2":', line))),
    ("an anchor", lambda rng, text: any_line(rng, text, lambda line: line.replace(": ", ": &a ", 1))),
    ("a tag", lambda rng, text: any_line(rng, text, lambda line: line.replace(": ", ": !!str ", 1))),
    ("a text over lines", lambda rng, text: text + "clusterDomain: |\n  cluster\n  local\n"),
    ("a folded policy", lambda rng, text: text + "cpuManagerPolicy: >-\n  static\n"),
    ("a list", lambda rng, text: "- a\n- b\n"),
    ("a word", lambda rng, text: "static\n"),
    ("braces", lambda rng, text: "{" + text + "}"),
    ("JSON with a comma more", lambda rng, text: '{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",}'),
    ("JSON", lambda rng, text: json.dumps({**kubelet_merge.HEADER, "cpuManagerPolicy": rng.choice(WORDS["cpuManagerPolicy"])})),
    ("control character", lambda rng, text: any_line(rng, text, lambda line: "\x01" + line)),
    ("a key that is no text", lambda rng, text: text + "1: 2\ntrue: false\n"),
    ("a merge key", lambda rng, text: text + "<<: {cpuManagerPolicy: none}\n"),
)


def in_places(rng: random.Random, setup: Setup) -> Setup:
    """Files and the machine: drop-ins come, go and change their order; swap stays."""
    kind = rng.random()
    if kind < 0.25:
        return changed(setup, "swap stays" if not setup.swap else "swap goes", swap=not setup.swap)
    if kind < 0.4 and setup.main is not None:
        return changed(setup, "no main file", main=None)
    if kind < 0.55 and setup.drop_ins:
        name = rng.choice(sorted(setup.drop_ins))
        return changed(setup, f"without {name}", drop_ins={other: text for other, text in setup.drop_ins.items() if other != name})
    if kind < 0.75 and setup.main is not None:
        text = yaml.safe_dump({**kubelet_merge.HEADER, "cpuManagerPolicy": rng.choice(("none", "static"))})
        return changed(setup, "a drop-in with a policy", drop_ins={**(setup.drop_ins or {}), "50-policy.conf": text})
    text = yaml.safe_dump({**kubelet_merge.HEADER, "cpuManagerPolicyOptions": None, "reservedMemory": None})
    return changed(setup, "a drop-in that takes away", drop_ins={**(setup.drop_ins or {}), "zzz.conf": text})
