"""Our answer to a question about decisions, in the oracle's form, and what it means for the two to agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.node.plugins.module_utils.core import admission
from ansible_collections.gpufleet.node.plugins.module_utils.core.pods import parse_pod
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology

Json = dict[str, Any]
NO_ANSWER = (admission.HANGS, admission.CRASHES)
ALWAYS_FIRST = ("OutOfpods", "OutOfcpu", "OutOfmemory")


@dataclass(frozen=True)
class Case:
    """A node of a minor, and pods that come to it and go. ``machine`` is a description for tests/machines."""

    minor: int
    machine: Json
    configuration: Json
    devices: Sequence[Json]
    events: Sequence[Json]

    def question(self, root: str) -> Json:
        """For the oracle."""
        return {"ask": "decisions", "root": root, "configuration": self.configuration, "devices": self.devices, "events": self.events}


@dataclass
class Prediction:
    """Decisions, one for each pod that came, and the numbers of some: about pods that ask for more than the node has; the first that isn't
    certain about devices, with the container; the first that never ends."""

    decisions: list[Json] = field(default_factory=list)
    beyond: list[int] = field(default_factory=list)
    uncertain: tuple[int, int] | None = None
    endless: int | None = None


def from_json(machine: Json) -> Json:
    """A description that has been JSON: NUMA nodes are numbers again where they are keys."""
    pools = {size: {int(node): pages for node, pages in pool.items()} for size, pool in machine.get("hugepages", {}).items()}
    return {**machine, "hugepages": pools}


def facts(root: str | Path) -> Topology:
    """What the project reads in a root."""
    place = Root(str(root))
    return read_topology(place, Command(place), ("cpu", "numa"))


def predict(case: Case, topology: Topology) -> Prediction:
    """What core/admission.py says."""
    counts: dict[str, Counter[int]] = {}
    for device in case.devices:
        mask = 0 if device["numa"] is None else 1 << device["numa"]
        counts.setdefault(device["resource"], Counter())[mask] += 1
    node = admission.node_of(topology, case.configuration, case.minor, counts)
    state, pods = node.empty(), {}
    prediction = Prediction()
    for event in case.events:
        if "remove" in event:
            if event["remove"] in pods:
                state = admission.remove(node, state, pods.pop(event["remove"]))
            continue
        pod = parse_pod(event["add"])
        verdict, state = admission.admit(node, state, pod)
        number = len(prediction.decisions)
        prediction.decisions.append(as_oracle(verdict))
        if admission.beyond(node, pod):
            prediction.beyond.append(number)
        if verdict.admitted:
            pods[pod.name] = pod
            state = admission.start(node, state, pod)
            doubts = [index for index, one in enumerate(verdict.containers) if not one.certain]
            if doubts and prediction.uncertain is None:
                prediction.uncertain = number, doubts[0]
        elif verdict.reason in NO_ANSWER and prediction.endless is None:
            prediction.endless = number
    return prediction


def as_oracle(verdict: admission.Verdict) -> Json:
    """A verdict in the oracle's form, without the message."""
    decision: Json = {"pod": verdict.pod, "admitted": verdict.admitted, "reason": verdict.reason}
    decision["containers"] = [
        {
            "name": one.name,
            "cpus": one.cpu_list,
            "memory": [{"numa": list(admission.bits_of(block.nodes)), "type": block.kind, "bytes": block.size} for block in one.memory],
            "devices": {
                resource: {str(mask.bit_length() - 1) if mask else "": count for mask, count in counts.items() if count}
                for resource, counts in one.devices.items()
            },
        }
        for one in verdict.containers
    ]
    return decision


def comparable(decision: Json) -> Json:
    """What has to be equal: all but messages. Where several resources of device plugins are short, kubelet names one of them by chance."""
    reason = decision.get("reason", "")
    if reason.startswith("OutOf") and reason not in ALWAYS_FIRST:
        reason = "OutOf…"
    containers = [
        {
            "name": one["name"],
            "cpus": one.get("cpus", ""),
            "memory": sorted(([*block["numa"]], block["type"], block["bytes"]) for block in one.get("memory") or ()),
            "devices": {resource: counts for resource, counts in (one.get("devices") or {}).items() if counts},
        }
        for one in decision.get("containers") or ()
    ]
    return {"pod": decision["pod"], "admitted": decision["admitted"], "reason": reason, "containers": containers}


def difference(prediction: Prediction, decisions: Sequence[Json]) -> int | None:
    """The first decision that isn't as predicted. From where kubelet chose devices by chance, and chose others, nothing is compared."""
    for number, (ours, theirs) in enumerate(zip(prediction.decisions, decisions)):
        mine, real = comparable(ours), comparable(theirs)
        if mine == real:
            continue
        if prediction.uncertain is not None and number >= prediction.uncertain[0]:
            decision, container = prediction.uncertain
            if number > decision or until(mine, container) == until(real, container):
                return None
        return number
    return None


def until(decision: Json, container: int) -> list[Json]:
    """What a decision says of the containers before this one, and of this one but for its devices."""
    containers = decision["containers"][: container + 1]
    return [*containers[:-1], *({**one, "devices": None} for one in containers[-1:])]
