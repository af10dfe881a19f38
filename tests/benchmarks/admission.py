"""Predictions for the reference machine: 384 CPUs, 2 NUMA nodes, 8 GPUs.

    python tests/benchmarks admission

A prediction is kubelet's whole answer to one pod (hints, allocation and sums) on a node where another runs; facts and pods are values in
memory. The slowest of three configurations counts.
"""

from __future__ import annotations

import time

from strategies import reference
from table import Row

from ansible_collections.gpufleet.node.plugins.module_utils.core.admission import admit, node_of
from ansible_collections.gpufleet.node.plugins.module_utils.core.pods import GPU, parse_pod

SECONDS = 0.5
LIMIT_MS = 1.0
STATIC = {
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": number, "limits": {"memory": "50Mi"}} for number in (0, 1)],
}
CONFIGURATIONS = {
    "best-effort, distributed": {"topologyManagerPolicy": "best-effort", "options": "full-pcpus-only distribute-cpus-across-numa"},
    "single-numa-node, by cache": {
        "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod",
        "options": "full-pcpus-only prefer-align-cpus-by-uncorecache", **STATIC,
    },
    "restricted": {"topologyManagerPolicy": "restricted", "options": "", **STATIC},
}  # fmt: skip


def milliseconds(fields: dict[str, object]) -> float:
    """The CPU time of one prediction under a configuration, the mean over pods of three sizes."""
    options = dict.fromkeys(str(fields["options"]).split(), "true")
    configuration = {**fields, "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": options, "reservedSystemCPUs": "0,96,192,288"}
    node = node_of(reference(), configuration, 37, {GPU: {0b01: 4, 0b10: 4}})
    _verdict, state = admit(node, node.empty(), parse_pod({"name": "there", "cpus": 16, "memory": "100Gi", "gpus": 1}))
    pods = [parse_pod({"name": "asks", "cpus": cpus, "memory": "128Gi", "gpus": 2}) for cpus in (16, 60, 128)]
    count, started = 0, time.process_time()
    while time.process_time() - started < SECONDS:
        for pod in pods:
            admit(node, state, pod)
        count += len(pods)
    return (time.process_time() - started) / count * 1000


def rows() -> list[Row]:
    """The slowest configuration."""
    times = {name: milliseconds(fields) for name, fields in CONFIGURATIONS.items()}
    slowest = max(times, key=lambda name: times[name])
    return [
        Row("admission: one prediction for 384 CPUs", times[slowest], LIMIT_MS, "ms", f"{1000 / times[slowest]:,.0f} a second; {slowest}")
    ]
