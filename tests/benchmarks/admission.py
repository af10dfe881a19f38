"""Predictions for the reference machine: 384 CPUs, 2 NUMA nodes, 8 GPUs.

    python tests/benchmarks admission

A prediction is what gpufleet.node.pod_fit answers to a question about one pod, on a node where another runs: kubelet's verdict, what would
have to change, what a scheduler would do. Facts and configuration are values in memory, and nothing is kept from one question to the next.
The figure is the mean over pods that are admitted or refused for each reason, under the slowest of three configurations. Beside it: the
pod that takes longest, and what kubelet's answer alone takes (hints, allocation and sums).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from strategies import reference
from table import Row

from ansible_collections.gpufleet.node.plugins.module_utils.core.admission import admit, node_of
from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_fit import Question, predict
from ansible_collections.gpufleet.node.plugins.module_utils.core.pods import GPU, parse_pod

ROUNDS, SECONDS = 5, 0.1
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


THERE = {"name": "there", "cpus": 16, "memory": "100Gi", "gpus": 1}
PODS = {
    "small": {"cpus": 60, "memory": "128Gi", "gpus": 2},
    "odd": {"cpus": 61, "memory": "128Gi", "gpus": 2},
    "across NUMA nodes": {"cpus": 200, "memory": "128Gi", "gpus": 2},
    "all GPUs, and one isn't free": {"cpus": 60, "memory": "128Gi", "gpus": 8},
    "all CPUs, and some aren't free": {"cpus": 376, "memory": "128Gi", "gpus": 2},
    "more memory than is free": {"cpus": 60, "memory": "2000Gi"},
    "more than the node has": {"cpus": 400, "memory": "128Gi", "gpus": 2},
    "burstable": {"cpus": 60, "memory": "128Gi", "qos": "Burstable"},
}


def configuration(fields: dict[str, object]) -> dict[str, object]:
    """The KubeletConfiguration of one of CONFIGURATIONS."""
    given = {name: value for name, value in fields.items() if name != "options"}
    options = dict.fromkeys(str(fields["options"]).split(), "true")
    return {**given, "cpuManagerPolicy": "static", "cpuManagerPolicyOptions": options, "reservedSystemCPUs": "0,96,192,288"}


def milliseconds(work: Callable[[], object]) -> float:
    """The CPU time of one call: the least of the rounds, since what else runs on the machine only adds to it."""
    return min(_round(work) for unused in range(ROUNDS))


def _round(work: Callable[[], object]) -> float:
    count, started = 0, time.process_time()
    while time.process_time() - started < SECONDS:
        work()
        count += 1
    return (time.process_time() - started) / count * 1000


def prediction(fields: dict[str, object], pod: dict[str, object]) -> float:
    """The time of a question about one pod."""
    question = Question(reference(), configuration(fields), "1.37.0", [{"name": "asks", **pod}], running=[THERE])
    return milliseconds(lambda: predict(question))


def answer(fields: dict[str, object]) -> float:
    """The time of kubelet's answer alone."""
    node = node_of(reference(), configuration(fields), 37, {GPU: {0b01: 4, 0b10: 4}})
    _verdict, state = admit(node, node.empty(), parse_pod(THERE))
    pod = parse_pod({"name": "asks", **PODS["small"]})
    return milliseconds(lambda: admit(node, state, pod))


def rows() -> list[Row]:
    """The slowest configuration."""
    times = {name: {pod: prediction(fields, asked) for pod, asked in PODS.items()} for name, fields in CONFIGURATIONS.items()}
    means = {name: sum(of_pods.values()) / len(of_pods) for name, of_pods in times.items()}
    slowest = max(means, key=lambda name: means[name])
    mean, longest = means[slowest], max(times[slowest], key=lambda pod: times[slowest][pod])
    return [
        Row("pod_fit: one prediction for 384 CPUs", mean, LIMIT_MS, "ms", f"{1000 / mean:,.0f} a second; {slowest}"),
        Row("pod_fit: the longest of them", times[slowest][longest], None, "ms", longest),
        Row("pod_fit: kubelet's answer of it", max(map(answer, CONFIGURATIONS.values())), None, "ms", "one pod that is admitted"),
    ]
