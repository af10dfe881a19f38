"""Which CPUs batch services have while kubelet gives some of them to pods."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_follow import decide
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet

RESERVED, POOL = CpuSet([0, 8]), CpuSet.parse("1-7,9-15")


def state(default: str, policy: str = "static", **more: object) -> str:
    """kubelet's file."""
    return json.dumps({"policyName": policy, "defaultCpuSet": default, "checksum": 1353318690, **more})


# Whose each CPU is, and whether a pod has it for itself. The first is reserved and the second in the pool, so neither is empty.
owners = st.lists(st.tuples(st.sampled_from(["reserved", "isolated", "pool"]), st.booleans()), max_size=38)


@given(owners, st.booleans())
def test_never_empty_never_isolated_never_a_pods_own(others: list[tuple[str, bool]], taken: bool) -> None:
    cpus_of = {"reserved": [0], "isolated": [], "pool": [1]}
    for cpu, (owner, _taken) in enumerate(others, start=2):
        cpus_of[owner].append(cpu)
    reserved, isolated, pool = (CpuSet(cpus_of[owner]) for owner in ("reserved", "isolated", "pool"))
    online = reserved | isolated | pool
    # kubelet gives none of the reserved CPUs away.
    exclusive = CpuSet(cpu for cpu, (_owner, gone) in enumerate([("pool", taken), *others], start=1) if gone) - reserved
    # Strict reservation or not, kubelet's shared pool knows nothing of isolation (A7).
    for default in (online - exclusive, online - exclusive - reserved):
        cpus = decide(state(default.to_list()), pool, reserved).cpus
        assert cpus and cpus.isdisjoint(isolated) and cpus.isdisjoint(exclusive)
        assert cpus == (pool - exclusive or reserved)


def test_pods_come_and_go() -> None:
    assert decide(state("0-15"), POOL, RESERVED).cpus == POOL
    entries = {"pod": {"trainer": "1-4,9-12"}}
    assert decide(state("0,5-8,13-15", entries=entries), POOL, RESERVED).cpus.to_list() == "5-7,13-15"
    assert decide(state("0,8"), POOL, RESERVED).cpus == RESERVED
    assert decide(state("", "none"), POOL, RESERVED).cpus == POOL  # static isn't in force yet


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "missing"),
        ("", "not JSON"),
        ('{"policyName":"static","defaultCpuS', "not JSON"),
        ("[]", "of an unknown form"),
        ('{"policyName":"static","defaultCpuSet":7}', "of an unknown form"),
        (state("0-15", "dynamic"), "of an unknown policy"),
        ("{}", "of an unknown policy"),
        (state("0-x"), "not a CPU or a range"),
        (state("0-999999"), "larger than any Linux kernel has"),
    ],
)
def test_what_cant_be_read_leaves_the_reserved_cpus(text: str | None, reason: str) -> None:
    decision = decide(text, POOL, RESERVED)
    assert decision.cpus == RESERVED and reason in decision.reason
