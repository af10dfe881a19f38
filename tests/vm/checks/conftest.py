"""The checks of a running node: what is measured on the node itself, over ssh, against the plan that site.yml applied.

``GPUFLEET_VM_NODE`` names the node, ``GPUFLEET_VM_RESULTS`` the folder with its plan and verdict (NODE.json, written by molecule's verify),
where each check's outcome and figures are put for docs/verification.md.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from vm.machine import machines
from vm.node import Node, sysctl_path

RESULTS = Path(os.environ.get("GPUFLEET_VM_RESULTS", "."))


@pytest.fixture(scope="session")
def node() -> Node:
    name = os.environ["GPUFLEET_VM_NODE"]
    said = json.loads((RESULTS / f"{name}.json").read_text())
    return Node(machines()[name], said["plan"], said["verdict"])


@pytest.fixture(scope="session")
def live(node: Node) -> dict[str, str]:
    """What the kernel says of itself, read once."""
    return node.read(
        *map(sysctl_path, node.plan["sysctl"]),
        *("/proc/cmdline", "/proc/swaps", "/proc/irq/default_smp_affinity", "/etc/fstab", "/root/before/etc/fstab", "/root/before/swaps"),
        *("/sys/devices/system/cpu/isolated", "/sys/devices/system/cpu/nohz_full", "/proc/sys/kernel/osrelease"),
        *("/sys/kernel/mm/transparent_hugepage/*", "/sys/devices/system/node/node*/hugepages/*/nr_hugepages"),
    )
