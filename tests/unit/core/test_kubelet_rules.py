"""What kubelet accepts, by version: every rule with an input that breaks it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_rules as rules
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_fields import EARLIER_GATES
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_gates import GATE_DEPENDENCIES, GATE_STAGES
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_version import minor_of

GOOD: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
    "reservedSystemCPUs": "0,8",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "best-effort",
    "topologyManagerScope": "container",
}
STATIC_MEMORY: dict[str, Any] = {
    **GOOD,
    "memoryManagerPolicy": "Static",
    "evictionHard": {"memory.available": "100Mi"},
    "kubeReserved": {"memory": "2Gi"},
    "systemReserved": {"memory": "4Gi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "6244Mi"}}],
}
GIB = 1 << 30
NEWEST = rules.NEWEST_MINOR


MACHINE = rules.Machine(CpuSet.parse("0-15"), 2, 128 * GIB, {0: (64 * GIB, 0), 1: (64 * GIB, 8 * GIB)}, 2)


def options(**on: str) -> dict[str, Any]:
    return {**GOOD, "cpuManagerPolicyOptions": {name.replace("_", "-"): value for name, value in on.items()}}


def test_good_configurations_pass() -> None:
    for minor in range(rules.OLDEST_MINOR, NEWEST + 1):
        rules.check(GOOD, minor)
        rules.check(STATIC_MEMORY, minor)


BAD = [
    # B21: case matters, and differently for each manager
    ({**GOOD, "cpuManagerPolicy": "Static"}, 'cpuManagerPolicy is "Static", which kubelet refuses. Write "static".'),
    ({**GOOD, "memoryManagerPolicy": "static"}, 'memoryManagerPolicy is "static", which kubelet refuses. Write "Static".'),
    ({**GOOD, "topologyManagerPolicy": "single-numa"}, 'topologyManagerPolicy is "single-numa", which kubelet refuses.'),
    ({**GOOD, "topologyManagerScope": "Pod"}, 'Write "pod".'),
    # A16: conflicts, unknown options, truths that Go doesn't read
    (options(full_pcpus_only="true", distribute_cpus_across_cores="true"), "refuses full-pcpus-only together"),
    (options(prefer_align_cpus_by_uncorecache="true", distribute_cpus_across_numa="true"), "refuses prefer-align-cpus-by"),
    (options(full_pcpus="true"), 'not a known policy option of kubelet. Did you mean "full-pcpus-only"?'),
    (options(full_pcpus_only="yes"), 'is "yes", which kubelet can\'t read'),
    ({**options(align_by_socket="true"), "topologyManagerPolicy": "single-numa-node"}, "align-by-socket under the topology policy"),
    ({**GOOD, "cpuManagerPolicy": "none"}, "cpuManagerPolicy is none, and kubelet exits on any cpuManagerPolicyOptions"),
    ({**GOOD, "reservedSystemCPUs": ""}, "needs a reservation of CPUs"),  # A20
    ({**GOOD, "reservedSystemCPUs": "", "kubeReserved": {"memory": "1Gi"}}, "needs a reservation of CPUs"),
    ({**GOOD, "systemReservedCgroup": "/system.slice"}, "together with systemReservedCgroup"),  # A21
    ({**GOOD, "reservedSystemCPUs": "0,x"}, 'reservedSystemCPUs is "0,x", which is no list of CPUs'),
    ({**GOOD, "reservedSystemCPUs": "", "kubeReserved": {"cpu": "0"}}, "needs a reservation of CPUs"),
    ({**GOOD, "reservedSystemCPUs": "8-4"}, 'reservedSystemCPUs can\'t be: The range "8-4"'),
    ({**GOOD, "kubeReserved": {"hugepages-2Mi": "10Mi"}}, "kubeReserved holds hugepages-2Mi, which kubelet can't reserve"),  # B1
    ({**GOOD, "systemReserved": {"memory": "1 Gi"}}, 'systemReserved.memory is "1 Gi", which is not a Kubernetes quantity'),
    ({**GOOD, "systemReserved": {"memory": "-1Gi"}}, "which is negative"),
    ({**GOOD, "enforceNodeAllocatable": ["pods", "system-reserved"]}, "Set systemReservedCgroup"),
    ({**GOOD, "enforceNodeAllocatable": ["pods", "none"]}, "Write .pods., or ..none.. alone"),
    ({**GOOD, "enforceNodeAllocatable": ["pod"]}, "enforceNodeAllocatable is pod, which kubelet refuses"),
    ({**GOOD, "cgroupsPerQOS": False}, "Set cgroupsPerQOS: true"),
    ({**GOOD, "evictionHard": {"memory.avail": "1Gi"}}, 'Did you mean "memory.available"'),
    ({**GOOD, "evictionHard": {"memory.available": "0"}}, "refuses a threshold of nothing"),
    ({**GOOD, "evictionHard": {"memory.available": "101%"}}, "which is no share"),
    ({**GOOD, "evictionHard": {"pid.available": "٣%"}}, "which is no share"),
    ({**options(distribute_cpus_across_numa="true"), "featureGates": {"CPUManagerPolicyAlphaOptions": True, "AllBeta": False}},
     "needs the feature gate CPUManagerPolicyBetaOptions"),
    # B7
    ({**GOOD, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "true"}}, 'max-allowable-numa-nodes is "true"'),
    ({**GOOD, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "4"}}, "Write a number from 8 on"),
    ({**GOOD, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9223372036854775808"}}, "Write a number from 8 on"),
    ({**GOOD, "memorySwap": {"swapBehavior": "UnlimitedSwap"}}, '"UnlimitedSwap", which kubelet 1.37 refuses. Write NoSwap or'),
    # B1, B2, B3
    ({**STATIC_MEMORY, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "6Gi"}}]}, "adds up to 6144Mi, but .* are 6244Mi"),
    ({**STATIC_MEMORY, "reservedMemory": []}, "adds up to 0Mi, but"),
    ({**STATIC_MEMORY, "reservedMemory": [{"numaNode": 0, "limits": {"hugepages-2Mi": "10Mi"}}]}, "holds hugepages-2Mi"),
    ({**STATIC_MEMORY, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Mi"}}] * 2}, "names NUMA node 0 twice"),
    ({**STATIC_MEMORY, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "0"}}]}, "NUMA node 0 is zero"),
    ({**STATIC_MEMORY, "evictionHard": {"memory.available": "5%"}}, "differ between boots"),
    ({**STATIC_MEMORY, "evictionHard": {"nodefs.available": "10%"}}, "adds up to 6244Mi, but .* are 6144Mi"),
]  # fmt: skip


@pytest.mark.parametrize(("configuration", "sentence"), BAD, ids=[sentence[:40] for _configuration, sentence in BAD])
def test_what_kubelet_refuses_is_refused(configuration: dict[str, Any], sentence: str) -> None:
    gates = {"featureGates": {"CPUManagerPolicyAlphaOptions": True, "TopologyManagerPolicyAlphaOptions": True}}
    with pytest.raises(InvalidInput, match=sentence):
        rules.check({**gates, **configuration}, NEWEST)


BAD_HERE = [
    ({**GOOD, "reservedSystemCPUs": "0,16"}, "holds CPUs 16, which are not online. Online are 0-15"),
    ({**GOOD, "reservedSystemCPUs": "", "kubeReserved": {"cpu": "15500m"}, "systemReserved": {"cpu": "1"}}, "more than the 16 CPUs"),
    ({**GOOD, "kubeReserved": {"memory": "100Gi"}, "systemReserved": {"memory": "29Gi"}}, "more than the node's memory"),
    ({**STATIC_MEMORY, "reservedMemory": [{"numaNode": 2, "limits": {"memory": "6244Mi"}}]}, "names NUMA node 2, which isn't there"),
    ({**STATIC_MEMORY, "kubeReserved": {"memory": "53Gi"}, "reservedMemory": [{"numaNode": 1, "limits": {"memory": "58468Mi"}}]},
     "NUMA node 1 has 57344 MiB beside its hugepages; 58468 MiB can't be reserved there"),
]  # fmt: skip


@pytest.mark.parametrize(("configuration", "sentence"), BAD_HERE, ids=[sentence[:40] for _configuration, sentence in BAD_HERE])
def test_what_kubelet_refuses_on_this_machine(configuration: dict[str, Any], sentence: str) -> None:
    rules.check(configuration, NEWEST)
    with pytest.raises(InvalidInput, match=sentence):
        rules.check(configuration, NEWEST, MACHINE)


def test_what_a_machine_has_is_all_it_takes() -> None:
    rules.check(GOOD, NEWEST, MACHINE)
    rules.check(STATIC_MEMORY, NEWEST, MACHINE)
    holes = dataclasses.replace(MACHINE, cpus=CpuSet.parse("0-11,24-35"))  # A3: a number above the count of CPUs is no fault
    rules.check({**GOOD, "reservedSystemCPUs": "28-35"}, NEWEST, holes)


def test_swap_that_stays_needs_a_kubelet_that_bears_it() -> None:  # F27
    swapping = dataclasses.replace(MACHINE, swap=True)
    with pytest.raises(InvalidInput, match="Set failSwapOn: false"):
        rules.check(GOOD, NEWEST, swapping)
    rules.check({**GOOD, "failSwapOn": False}, NEWEST, swapping)


def test_numa_nodes_beyond_what_is_allowed() -> None:  # B7
    many = dataclasses.replace(MACHINE, numa_nodes=dict.fromkeys(range(9), (GIB, 0)))
    with pytest.raises(InvalidInput, match="9 NUMA nodes; kubelet exits above 8"):
        rules.check(GOOD, NEWEST, many)
    rules.check({**GOOD, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "9"}}, NEWEST, many)
    rules.check({**GOOD, "topologyManagerPolicy": "none"}, NEWEST, many)


def test_more_sockets_than_numa_nodes() -> None:
    by_socket = {**options(align_by_socket="true"), "featureGates": {"CPUManagerPolicyAlphaOptions": True}}
    rules.check(by_socket, NEWEST, MACHINE)
    with pytest.raises(InvalidInput, match=r"more sockets \(4\) than NUMA nodes \(2\)"):
        rules.check(by_socket, NEWEST, dataclasses.replace(MACHINE, packages=4))


def test_options_that_kubelet_does_not_look_at() -> None:
    rules.check({**GOOD, "topologyManagerPolicy": "none", "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "no"}}, NEWEST)
    rules.check({**GOOD, "kubeReserved": {"cpu": "many"}}, NEWEST)  # A21: the number of reservedSystemCPUs takes its place
    rules.check({**GOOD, "reservedMemory": [{"numaNode": 7, "limits": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}]}, NEWEST, MACHINE)


def test_one_gate_for_all() -> None:
    rules.check({**options(align_by_socket="true"), "featureGates": {"AllAlpha": True}}, 34)
    with pytest.raises(InvalidInput, match="needs the feature gate CPUManagerPolicyAlphaOptions"):
        rules.check({**options(align_by_socket="true"), "featureGates": {"AllAlpha": True, "CPUManagerPolicyAlphaOptions": False}}, 34)


@pytest.mark.parametrize(
    ("gates", "minor", "sentence"),
    [
        ({"Nothing": True}, 37, "kubelet 1.37 has no feature gate Nothing, and exits on it. Take featureGates.Nothing out"),
        ({"CPUManager": True}, 33, "kubelet 1.33 has no feature gate CPUManager"),  # A17
        ({"KubeletTracing": False}, 34, "has the feature gate KubeletTracing locked to true"),
        # What depends on it is on by default. kubelet 1.37 panics while it loads such a file.
        ({"PodLevelResources": False}, 37, "Set featureGates.*: false or featureGates.PodLevelResources: true"),
        ({"PodLevelResourceManagers": True, "PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False,
          "PodLevelResourcesFixDefaulting": False, "PodLevelResourcesFixKubeletQOSClass": False}, 37, "ResourceManagers on, which needs"),
        ({"GracefulNodeShutdown": False}, 37, "BasedOnPodPriority on, which needs GracefulNodeShutdown, and that is off"),
        ({"AllAlpha": True}, 37, "which needs GenericWorkload, and that is off; it would exit"),  # a beta that is off by default
    ],
)  # fmt: skip
def test_gates_of_others(gates: dict[str, bool], minor: int, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        rules.check({**GOOD, "featureGates": gates}, minor)


def test_gates_that_kubelet_takes() -> None:
    rules.check({**GOOD, "featureGates": {"CPUManager": True, "PodLevelResources": False}}, 32)
    rules.check({**GOOD, "featureGates": {"PodLevelResources": False}}, 34)  # dependencies are looked at from 1.35 on
    for gates in ({"PodLevelResourceManagers": True}, {"AllBeta": False}, {"AllAlpha": True, "AllBeta": True}):
        rules.check({**GOOD, "featureGates": gates}, 37)


def test_no_gate_needs_those_of_options() -> None:
    """The plan sets no others, so that nodes needn't look at all gates there are."""
    linked = {name for gate, rows in GATE_DEPENDENCIES.items() for unused, needs in rows for name in (gate, *needs)}
    assert not linked & rules.OPTION_GATES and set(GATE_STAGES) >= linked | set(rules.GATES)


def test_options_as_such_have_a_gate() -> None:
    """kubelet looks at it under any policy; at 1.32 AllBeta still switches the CPU manager's off."""
    for gates in ({"CPUManagerPolicyOptions": False}, {"AllBeta": False}):
        with pytest.raises(InvalidInput, match="without the feature gate CPUManagerPolicyOptions"):
            rules.check({**GOOD, "featureGates": gates}, 32)
    closest = {"topologyManagerPolicy": "none", "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"}}
    with pytest.raises(InvalidInput, match="without the feature gate TopologyManagerPolicyOptions"):
        rules.check({**closest, "featureGates": {"TopologyManagerPolicyOptions": False}}, 35)
    rules.check({**GOOD, "featureGates": {"TopologyManagerPolicyOptions": False}}, 35)


def test_enforcement_by_version() -> None:
    compressible = {"enforceNodeAllocatable": ["kube-reserved-compressible"], "kubeReservedCgroup": "/kube.slice"}
    rules.check(compressible, 32)
    with pytest.raises(InvalidInput, match="enforceNodeAllocatable is kube-reserved-compressible, which kubelet refuses"):
        rules.check(compressible, 31)
    nothing = {**GOOD, "enforceNodeAllocatable": ["none"], "cgroupsPerQOS": False}
    rules.check(nothing, 31)
    with pytest.raises(InvalidInput, match="Set cgroupsPerQOS: true"):
        rules.check(nothing, 30)


def test_gates_that_are_switched_off_too_late() -> None:
    """kubelet has set a default by the gate when it read its main file, and refuses it without the gate."""
    off = {"featureGates": {"KubeletEnsureSecretPulledImages": False}}
    rules.check({**GOOD, **off}, NEWEST)
    with pytest.raises(InvalidInput, match="KubeletEnsureSecretPulledImages is switched off after kubelet has set a default by it"):
        rules.check({**GOOD, **off, EARLIER_GATES: ({}, {})}, NEWEST)
    rules.check({**GOOD, **off, EARLIER_GATES: ({}, {})}, 34)  # off by default there
    with pytest.raises(InvalidInput, match="has no feature gate Nothing"):
        rules.check({**GOOD, **off, EARLIER_GATES: ({"Nothing": True}, {})}, NEWEST)


def test_swap_behaviour_by_version() -> None:
    limited = {**GOOD, "memorySwap": {"swapBehavior": "LimitedSwap"}}
    rules.check(limited, 30)
    rules.check({**limited, "memorySwap": {"swapBehavior": ""}}, 28)
    with pytest.raises(InvalidInput, match=r"kubelet 1\.29 refuses it without the feature gate NodeSwap"):
        rules.check(limited, 29)
    with pytest.raises(InvalidInput, match="without the feature gate NodeSwap"):
        rules.check({**limited, "featureGates": {"AllBeta": False}}, 33)
    rules.check({**limited, "featureGates": {"NodeSwap": True}}, 29)
    rules.check({**GOOD, "memorySwap": {"swapBehavior": "UnlimitedSwap"}, "featureGates": {"NodeSwap": True}}, 29)
    with pytest.raises(InvalidInput, match="Write LimitedSwap or UnlimitedSwap"):
        rules.check({**GOOD, "memorySwap": {"swapBehavior": "NoSwap"}, "featureGates": {"NodeSwap": True}}, 29)


def test_amounts_of_cpus_are_rounded() -> None:
    """From 1.37 on kubelet first rounds to thousandths: less than half of one is nothing, and the static policy refuses that."""
    little = {**GOOD, "reservedSystemCPUs": "", "kubeReserved": {"cpu": "0.0004"}}
    assert [rules.reserved_cpus(little, minor) for minor in (36, 37)] == [1, 0]
    assert rules.reserved_cpus({"kubeReserved": {"cpu": "0.9996"}, "systemReserved": {"cpu": "1.0001"}}, 37) == 2
    assert rules.reserved_cpus({"kubeReserved": {"cpu": "1500m"}, "systemReserved": {"cpu": "1"}}, 37) == 3
    with pytest.raises(InvalidInput, match="needs a reservation of CPUs"):
        rules.check(little, 37)


@pytest.mark.parametrize(
    ("percentage", "memory", "size"),
    [("5%", 100, 5), ("10%", 64 * GIB, 6871947776), ("0%", GIB, 0), ("100%", GIB, 0), ("99.9%", 1000, 999), ("0.5%", 1 << 40, 5497558016)],
)
def test_a_percentage_is_a_32_bit_float(percentage: str, memory: int, size: int) -> None:
    """As kubelet resolves it: the share as a float32, the product cut to an integer."""
    assert rules.threshold_of({"evictionHard": {"memory.available": percentage}}, memory) == size


@pytest.mark.parametrize(
    ("option", "minor", "gate"),
    [("distribute-cpus-across-numa", 28, True), ("distribute-cpus-across-numa", 32, True), ("distribute-cpus-across-numa", 33, False),
     ("strict-cpu-reservation", 32, True), ("strict-cpu-reservation", 33, False), ("prefer-align-cpus-by-uncorecache", 33, True),
     ("prefer-align-cpus-by-uncorecache", 34, False), ("align-by-socket", 37, True), ("full-pcpus-only", 28, False)],
)  # fmt: skip
def test_only_the_gate_that_the_version_needs(option: str, minor: int, gate: bool) -> None:  # A17
    assert rules.gates_for({option: "true"}, {}, minor) == ({"CPUManagerPolicyAlphaOptions": True} if gate else {})
    assert rules.gates_for({option: "false"}, {}, minor) == rules.gates_for({option: "true"}, {}, minor)  # A16: "false" needs it too


def test_an_option_that_the_version_lacks() -> None:
    with pytest.raises(
        InvalidInput, match=r"kubelet 1\.31 has no policy option strict-cpu-reservation. Leave it out, or upgrade kubelet to 1\.32"
    ):
        rules.gates_for({"strict-cpu-reservation": "true"}, {}, 31)
    with pytest.raises(InvalidInput, match=r"kubelet 1\.30 has no policy option max-allowable-numa-nodes"):
        rules.gates_for({}, {"max-allowable-numa-nodes": "12"}, 30)


def test_an_unknown_version_gets_every_gate_that_it_may_need() -> None:
    assert rules.gates_for_unknown({"distribute-cpus-across-numa": "true"}, {}) == {"CPUManagerPolicyAlphaOptions": True}
    assert rules.gates_for_unknown({"full-pcpus-only": "true"}, {"max-allowable-numa-nodes": "9"}) == {}


@given(st.integers(rules.OLDEST_MINOR, NEWEST), st.sets(st.sampled_from(sorted(rules.CPU_OPTIONS))))
def test_no_gate_that_a_release_has_removed(minor: int, chosen: set[str]) -> None:
    known = {name: "true" for name in chosen if rules.stage_of(name, minor)}
    assert set(rules.gates_for(known, {}, minor)) <= {"CPUManagerPolicyAlphaOptions"}


def test_versions() -> None:
    assert minor_of("1.34.4") == minor_of("v1.34.1+k3s1") == 34
    assert minor_of("1.99.0") == NEWEST
    for old in ("1.27.9", "1.23.0"):  # A13: 1.23.0 misplaced CPUs under distribute-cpus-across-numa
        with pytest.raises(InvalidInput, match=r"older than 1\.28"):
            minor_of(old)
