"""State files as a kubelet of a given minor writes them, for tests that need one that is right in all but one thing."""

from __future__ import annotations

import json
from typing import Any

from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_state_format import CPU, MEMORY, checksum


def sealed(manager: str, content: dict[str, Any], minor: int, pod_level: bool = False) -> str:
    """The content with the checksums of that minor. What only it can hold ("podEntries") stands where it puts it."""
    data = json.dumps(content, separators=(",", ":"))
    embedded = {key: value for key, value in content.items() if key != "podEntries"} if minor >= 37 else content
    outer = {**embedded, "checksum": 0, **({"data": data, "dataChecksum": 0} if minor >= 37 else {})}
    sums = checksum(manager, json.dumps(outer), minor, pod_level)
    outer.update(zip(("checksum", "dataChecksum"), sums))
    return json.dumps(outer, separators=(",", ":"))


def cpu_state(shared: str, minor: int, policy: str = "static", **more: Any) -> str:
    """A cpu_manager_state; ``more``: entries, podEntries."""
    return sealed(CPU, {"policyName": policy, "defaultCpuSet": shared, **more}, minor)


def memory_state(nodes: dict[int, tuple[int, dict[int, int]]], reserved: dict[int, int], minor: int, **more: Any) -> str:
    """A memory_manager_state without pods. ``nodes``: memory and number of pages by page size; ``reserved`` memory; all in bytes."""
    names = {2 << 20: "hugepages-2Mi", 1 << 30: "hugepages-1Gi"}
    machine = {}
    for node, (memory, pages) in nodes.items():
        tables = {names[size]: table(size * count) for size, count in pages.items()}
        kept = reserved.get(node, 0)
        tables["memory"] = {
            **table(memory - kept - sum(size * count for size, count in pages.items())),
            "total": memory,
            "systemReserved": kept,
        }
        machine[str(node)] = {"numberOfAssignments": 0, "memoryMap": tables, "cells": [node]}
    return sealed(MEMORY, {"policyName": "Static", "machineState": machine, **more}, minor)


def table(size: int) -> dict[str, int]:
    return {"total": size, "systemReserved": 0, "allocatable": size, "reserved": 0, "free": size}
