"""The plan of the reference machine: 384 CPUs, 8 GPUs, 10 NICs and 8 NVMe drives with 2,000 interrupts.

    python tests/benchmarks plan

Facts and policy are values in memory: what is measured is build_plan alone, the median over all profiles. The way from and to JSON,
which a task has to go as well, is shown beside it.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

from strategies import device, reference
from table import Row

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import from_json, to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology

ROUNDS = 30
LIMIT_MS = 20.0


def machine() -> Topology:
    """The reference machine with its devices."""
    nic = {"vendor": "15b3", "pci_class": "020000", "speed_mbps": 400_000, "vectors": 128}
    nics = tuple(device(f"000{n % 2}:{0x40 + n:02x}:00.0", n % 2, **nic) for n in range(10))
    nvmes = tuple(device(f"000{n % 2}:{0x80 + n:02x}:00.0", n % 2, vendor="144d", pci_class="010802", vectors=90) for n in range(8))
    return reference(nics=nics, nvmes=nvmes)


def milliseconds(call: Callable[[], object]) -> float:
    """The median CPU time of a call."""
    times = []
    for _round in range(ROUNDS):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return statistics.median(times) * 1000


def rows() -> list[Row]:
    """build_plan, and the JSON on both of its sides."""
    topology = machine()
    policies = [policy_from_variables({"profile": profile, "hugepages": {"1G": 8}}) for profile in PROFILES]
    facts = json.loads(json.dumps(to_json(topology)))
    plan = build_plan(topology, policies[0])
    building = milliseconds(lambda: [build_plan(topology, policy) for policy in policies]) / len(policies)
    return [
        Row("plan: build_plan for 384 CPUs", building, LIMIT_MS, "ms", f"median of {ROUNDS}, {len(PROFILES)} profiles"),
        Row("plan: facts from JSON", milliseconds(lambda: from_json(Topology, facts)), None, "ms", f"{len(json.dumps(facts)):,} bytes"),
        Row("plan: plan to JSON", milliseconds(lambda: to_json(plan)), None, "ms", f"{len(json.dumps(to_json(plan))):,} bytes"),
    ]
