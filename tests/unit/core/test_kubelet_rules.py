"""What kubelet accepts, by version: every rule with an input that breaks it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_rules as rules
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput

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
    "kubeReserved": {"memory": "2Gi"},
    "systemReserved": {"memory": "4Gi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "6244Mi"}}],
}
NEWEST = rules.NEWEST_MINOR


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
    ({**GOOD, "cpuManagerPolicy": "none"}, "exits when CPU manager policy none has options"),
    ({**GOOD, "reservedSystemCPUs": ""}, "needs a reservation of CPUs"),  # A20
    ({**GOOD, "reservedSystemCPUs": "", "kubeReserved": {"memory": "1Gi"}}, "needs a reservation of CPUs"),
    ({**GOOD, "systemReservedCgroup": "/system.slice"}, "together with systemReservedCgroup"),  # A21
    # B7
    ({**GOOD, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "true"}}, 'max-allowable-numa-nodes is "true"'),
    ({**GOOD, "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "4"}}, "Write a number from 8 on"),
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
        rules.check({**configuration, **gates}, NEWEST)


def test_eviction_in_a_drop_in_joins_the_defaults() -> None:
    given_map = {**STATIC_MEMORY, "evictionHard": {"nodefs.available": "10%"}}
    rules.check(given_map, NEWEST, eviction_defaults_join=True)
    rules.check({**given_map, "mergeDefaultEvictionSettings": True}, NEWEST)


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
    known = {name: "true" for name in chosen if rules.CPU_OPTIONS[name].stage(minor)}
    assert set(rules.gates_for(known, {}, minor)) <= {"CPUManagerPolicyAlphaOptions"}


def test_versions() -> None:
    assert rules.minor_of("1.34.4") == rules.minor_of("v1.34.1+k3s1") == 34
    assert rules.minor_of("1.99.0") == NEWEST
    for old in ("1.27.9", "1.23.0"):  # A13: 1.23.0 misplaced CPUs under distribute-cpus-across-numa
        with pytest.raises(InvalidInput, match=r"older than 1\.28"):
            rules.minor_of(old)
