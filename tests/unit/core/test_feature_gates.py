"""Which feature gates kubelet has on."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.feature_gates import is_on


@pytest.mark.parametrize(
    ("gate", "minor", "gates", "on"),
    [
        ("PodLevelResourceManagers", 36, {"AllAlpha": True}, True),
        ("PodLevelResourceManagers", 36, {"AllBeta": True}, False),
        ("PodLevelResourceManagers", 37, {"AllBeta": True}, True),
        ("PodLevelResourceManagers", 37, {"AllAlpha": True}, False),
        ("PodLevelResourceManagers", 37, {"AllBeta": True, "PodLevelResourceManagers": False}, False),
        ("PodLevelResourceManagers", 35, {"PodLevelResourceManagers": True}, False),  # not there yet
        ("PodLevelResources", 34, None, True),
        ("PodLevelResources", 34, {"AllBeta": False}, False),
        ("PodLevelResources", 33, {"AllBeta": True}, False),
        ("CPUManagerPolicyOptions", 33, {"AllBeta": False}, True),  # stable
        ("MemoryManager", 36, {"AllBeta": True}, False),  # gone
    ],
)
def test_a_gate_s_own_name_then_all_of_its_stage_then_its_default(gate: str, minor: int, gates: dict[str, bool] | None, on: bool) -> None:
    assert is_on(gate, gates, minor) is on
