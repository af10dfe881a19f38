# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which pods fit a node: the question as people ask it, kubelet's answer to each, and what would have to change.

`predict` is gpufleet.node.pod_fit without Ansible: facts, a KubeletConfiguration, pods, and what already runs or is free.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from . import admission_topology
from .admission import AFFINITY, CRASHES, HANGS, NO_POD_LEVEL, OUT_OF, SMT, Node, Placement, State, Verdict, admit, beyond, node_of, start
from .admission_machine import bits_of, popcount
from .admission_memory import memory_of
from .codec import to_json
from .cpuset import CpuSet, union
from .errors import InvalidInput
from .kubelet_plan import noted_minor
from .kubelet_rules import MAX_NUMA_NODES
from .kubelet_view import as_kubelet
from .notes import Notes
from .pod_fit_node import as_found, devices_of, free_of, gpu_resource, in_force
from .pod_rules import check_pod
from .pods import CPU, MEMORY, Pod, copies, describe, has_ended, makes_pods, parse_pod, title, unpacked
from .quantity import format_bytes
from .start_order import Job, StartOrder, start_orders
from .topology import CPU_MEMORY, Topology

# Orders of start are told for so many pods; three have six orders.
MAX_ORDERED = 3
# The oldest minor whose answers tests/oracle compares with kubelet's own.
OLDEST_PROVEN = 34


@dataclass(frozen=True)
class Fit:
    """A pod's answer: the verdict, what would have to change (a sentence, or ""), and what a topology-aware scheduler would do."""

    verdict: Verdict
    change: str
    scheduler: Dict[str, str]


@dataclass(frozen=True)
class Question:
    """What is asked. ``configuration``: a plan's KubeletConfiguration; ``version`` like "1.34.4".

    ``flags``: those that kubelet is started with, by name (Kubelet.flags of the facts). ``what_if``: fields as kubelet is to have them in
    the end, over the plan's and over flags; with a whole configuration here no plan is needed.
    ``running`` pods are there already, in the order of their start. ``free``: what no pod has, these neither, when more are there than
    ``running`` tells: {"gpus": indexes or PCI addresses, "cpus": a cpulist}. ``devices``: {resource: {NUMA node: count}}, over those of
    the facts. ``in_turn``: each pod comes after those before it, not instead of them.
    """

    topology: Topology
    configuration: Mapping[str, Any]
    version: str
    pods: Sequence[Any]
    running: Sequence[Any] = ()
    free: Mapping[str, Any] = field(default_factory=dict)
    devices: Mapping[str, Any] = field(default_factory=dict)
    in_turn: bool = True
    flags: Mapping[str, str] = field(default_factory=dict)
    what_if: Mapping[str, Any] = field(default_factory=dict)


def predict(question: Question) -> Dict[str, Any]:
    """The answer as a JSON value; gpufleet.node.pod_fit documents it.

    :raises InvalidInput: names what can't be meant
    """
    notes = Notes()
    topology, minor = as_kubelet(question.topology), noted_minor(question.version, notes)
    if minor < OLDEST_PROVEN:
        notes.warning(
            "kubelet_version_unproven",
            "kubelet %s is older than 1.%d, the oldest whose answers were compared: others may come from it."
            % (question.version, OLDEST_PROVEN),
            version=question.version,
        )
    configuration = in_force(question.topology, question.configuration, question.flags, question.what_if, minor)
    node = node_of(topology, configuration, minor, devices_of(topology, question.devices))
    gpu = gpu_resource(topology)
    running, pods = _pods(question.running, "running", gpu, notes), _pods(question.pods, "pods", gpu, notes)
    twice = [key for key, count in Counter(pod.key for pod in [*running, *pods]).items() if count > 1]
    if twice:
        raise InvalidInput("There is more than one pod %s." % twice[0], "Give each pod a name of its own.")
    before = state = as_found(node, running, free_of(node, topology, question.free))
    fits = []
    for pod in pods:
        verdict, after = admit(node, state, pod)
        answers = _Answers(node, state, pod, verdict)
        fits.append((pod, Fit(verdict, change(answers), scheduler(answers))))
        state = start(node, after, pod) if question.in_turn else before
    return {
        "pods": [_pod_answer(topology, pod, fit) for pod, fit in fits],
        "free": _free(node, state),
        "start_orders": to_json(_orders(_usable_memory(question.topology, configuration), node, before, running, pods)),
        "notes": to_json(notes.freeze()),
    }


def _pods(values: Sequence[Any], what: str, gpu: str, notes: Notes) -> List[Pod]:
    """One pod of each object; those without pods (Services in a manifest) or with an ended one are noted, as are those with several."""
    objects = list(unpacked(values, what))
    asked = [(name, value) for name, value in objects if makes_pods(value) and not has_ended(value)]
    for code, words, some in (
        ("objects_without_pods", "Left out of %s, since they make no pods: %s.", [one for _name, one in objects if not makes_pods(one)]),
        ("pods_that_ended", "Left out of %s, since they have ended: %s.", [one for _name, one in objects if has_ended(one)]),
        ("one_pod_of_several", "In %s one pod of each of these counts: %s.", [one for _name, one in asked if copies(one) > 1]),
    ):
        if some:
            titles = [title(one) for one in some]
            notes.info(code, words % (what, ", ".join(titles)), objects=titles)
    pods = [(name, parse_pod(value, name, gpu)) for name, value in asked]
    for name, pod in pods:
        check_pod(pod, name)
    return [pod for _name, pod in pods]


# --- what would have to change, and what others would do ----------------------------------------------------------------------------------


class _Answers:
    """kubelet's answers to one pod: the verdict, and what it would be under other settings or on the empty node, each asked for once."""

    def __init__(self, node: Node, state: State, pod: Pod, verdict: Verdict) -> None:
        self.node, self.state, self.pod, self.verdict = node, state, pod, verdict
        self._known = {self._key(node, False): verdict}

    @staticmethod
    def _key(node: Node, empty: bool) -> Tuple[str, str, bool, bool]:
        return node.policy.name, node.scope, node.memory is None, empty

    def of(self, node: Node, empty: bool = False) -> Verdict:
        """The answer of this node under other settings (``_under``, ``_other_settings``)."""
        key = self._key(node, empty)
        if key not in self._known:
            self._known[key] = admit(node, node.empty() if empty else self.state, self.pod)[0]
        return self._known[key]


def scheduler(answers: _Answers) -> Dict[str, str]:
    """What a topology-aware scheduler does with the pod: required alignment it waits for, without preferred alignment the pod runs too.

    Answers: "runs", "degraded" (runs, but not aligned), "pending" (would run on the empty node), "never", "unknown" (there are more NUMA
    nodes than kubelet aligns, and what it would do with them isn't computed).
    """
    node = answers.node
    if _lacking(node, answers.pod) or beyond(node, answers.pod):
        return {"required": "never", "preferred": "never"}
    if not _may_align(node):
        return {"required": "unknown", "preferred": "unknown"}
    # Aligned is what kubelet's policy calls so; under a policy that lets everything run, as few NUMA nodes as can do.
    strict = node if node.policy.name == admission_topology.SINGLE else _under(node, admission_topology.RESTRICTED)
    loose = _under(node, admission_topology.BEST_EFFORT)
    if answers.of(strict).admitted:
        return {"required": "runs", "preferred": "runs"}
    # The two agree on the NUMA nodes, and best-effort takes them in any case: what it refuses on the empty node restricted refuses, too.
    degraded = answers.of(loose).admitted
    ever = degraded or answers.of(loose, empty=True).admitted
    required = "pending" if ever and answers.of(strict, empty=True).admitted else "never"
    return {"required": required, "preferred": "degraded" if degraded else "pending" if ever else "never"}


def _may_align(node: Node) -> bool:
    """Whether kubelet would start under another topology policy than none: with few NUMA nodes, or where it is allowed to have more."""
    return node.policy.name != admission_topology.NONE or popcount(node.numa_nodes) <= MAX_NUMA_NODES


def _lacking(node: Node, pod: Pod) -> List[str]:
    """Device resources of the pod that the node isn't known to have. kubelet doesn't look at them (removeMissingExtendedResources)."""
    return sorted(name for name in pod.total_limits() if "/" in name and name not in node.devices)


def _under(node: Node, policy: str) -> Node:
    return dataclasses.replace(node, policy=dataclasses.replace(node.policy, name=policy))


def change(answers: _Answers) -> str:
    """What would have to change for the pod to be admitted and get all that it asks for, in a sentence or two; "" where it does."""
    node, pod, verdict = answers.node, answers.pod, answers.verdict
    if verdict.admitted:
        words = "kubelet doesn't look at %s, which this node isn't known to have: name it in devices, or ask a node that has it."
        return words % ", ".join(_lacking(node, pod)) if _lacking(node, pod) else ""
    if verdict.reason in (HANGS, CRASHES):
        return "Change the pod, or choose another configuration for this machine: no kubelet of this version survives the two."
    if verdict.reason == NO_POD_LEVEL:
        return "Turn kubelet's feature gate PodLevelResources on, or leave spec.resources out and give each container its own."
    for resource in beyond(node, pod):
        return "The node has %s for pods altogether." % describe({resource: node.allocatable.get(resource, 0)})
    empty = answers.of(node, empty=True)
    if empty.admitted:
        what = "the sums allow it" if verdict.reason.startswith(OUT_OF) else "enough is free together"
        return "It fits the empty node: other pods have to end until %s. Free now: %s." % (what, _free_words(node, answers.state))
    if SMT in (verdict.reason, empty.reason) and _odd(node, pod):
        return "Let %s." % ", ".join("%s ask for %s" % odd for odd in _odd(node, pod))
    for words, other in _other_settings(node):
        answer = answers.of(other)
        if answer.admitted:
            return "With %s kubelet would admit it, %s." % (words, _where(other, answer))
    if verdict.reason == AFFINITY:
        return "No state of this node fits it under this policy: ask for less, or for what one NUMA node has."
    return "Not even the empty node fits it: ask for less."


def _odd(node: Node, pod: Pod) -> List[Tuple[str, str]]:
    """The containers that ask for whole CPUs and not for whole cores, each with the numbers of CPUs nearest to that."""
    per_core, found = node.cpus.per_core, []
    for container in pod.containers:
        count, part = divmod(container.requests.get(CPU, 0), 1000)
        if count and not part and count % per_core:
            below = count - count % per_core
            found.append((container.name, "%d CPUs or %d" % (below, below + per_core) if below else "%d CPUs" % per_core))
    return found


def _other_settings(node: Node) -> List[Tuple[str, Node]]:
    """Configurations near this one, with their names, those that give up least first."""
    aligning = [
        *([("topologyManagerScope container", dataclasses.replace(node, scope="container"))] if node.scope == "pod" else []),
        ("topologyManagerPolicy restricted", _under(node, admission_topology.RESTRICTED)),
        ("topologyManagerPolicy best-effort", _under(node, admission_topology.BEST_EFFORT)),
    ]
    return [*(aligning if _may_align(node) else []), ("memoryManagerPolicy None", dataclasses.replace(node, memory=None))]


def _where(node: Node, verdict: Verdict) -> str:
    nodes = sorted({one for placement in verdict.containers for one in _nodes_of(node, placement)})
    return "on NUMA node %s" % nodes[0] if len(nodes) == 1 else "across NUMA nodes %s" % ", ".join(map(str, nodes)) if nodes else "anywhere"


def _nodes_of(node: Node, placement: Placement) -> List[int]:
    devices = [one for counts in placement.devices.values() for mask in counts for one in bits_of(mask)]
    return [*bits_of(node.cpus.nodes_of(placement.cpus)), *placement.memory_nodes, *devices]


def _free_words(node: Node, state: State) -> str:
    words = []
    for id_, cpus in sorted(node.cpus.numa.items()):
        parts = ["%d CPUs" % popcount(state.shared & cpus & ~node.reserved)] if node.static else []
        if state.memory:
            parts.append("%s memory" % format_bytes(state.memory.nodes[id_].free[MEMORY] >> 20 << 20))
        parts += ["%d %s" % (counts.get(1 << id_, 0), name) for name, counts in state.free_devices.items()]
        words.append("NUMA node %d %s" % (id_, ", ".join(parts)))
    return "; ".join(words)


# --- the answer ---------------------------------------------------------------------------------------------------------------------------


def _pod_answer(topology: Topology, pod: Pod, fit: Fit) -> Dict[str, Any]:
    verdict = fit.verdict
    containers = [_container_answer(topology, one) for one in verdict.containers]
    return {
        "name": verdict.pod,
        "asks_for": describe(pod.total_requests(True)),
        "qos": verdict.qos,
        "admitted": verdict.admitted,
        "reason": verdict.reason,
        "message": verdict.message,
        "ends": list(verdict.ends),
        "change": fit.change,
        "scheduler": fit.scheduler,
        "containers": containers,
    }


def _container_answer(topology: Topology, placement: Placement) -> Dict[str, Any]:
    cpus = CpuSet.from_int(placement.cpus)
    return {
        "name": placement.name,
        "kind": placement.kind,
        "cpus": cpus.to_list(),
        "exclusive": placement.exclusive,
        "cpu_numa_nodes": [node.id for node in topology.numa_nodes if not node.cpus.isdisjoint(cpus)],
        "l3_aligned": _aligned(topology, cpus),
        "memory": [{"numa_nodes": list(bits_of(block.nodes)), "type": block.kind, "bytes": block.size} for block in placement.memory],
        "memory_numa_nodes": placement.memory_nodes,
        "devices": {resource: _by_node(counts) for resource, counts in placement.devices.items()},
        "devices_certain": placement.certain,
    }


def _by_node(counts: Mapping[int, int]) -> Dict[str, int]:
    return {CpuSet.from_int(mask).to_list() or "unknown": count for mask, count in sorted(counts.items())}


def _aligned(topology: Topology, cpus: CpuSet) -> Optional[bool]:
    """Whether CPUs are whole L3 groups, or lie within one; None without CPUs or without L3 groups."""
    touched = [group.cpus for group in topology.l3_groups if not group.cpus.isdisjoint(cpus)]
    if not cpus or not touched:
        return None
    return cpus <= touched[0] if len(touched) == 1 else union(touched) <= cpus


def _free(node: Node, state: State) -> Dict[str, Any]:
    """What is left when all admitted pods run."""
    return {
        "cpus": CpuSet.from_int(state.shared & ~node.reserved).to_list(),
        "devices": {
            resource: _by_node({mask: state.free_devices[resource].get(mask, 0) for mask in counts})
            for resource, counts in node.devices.items()
        },
        "memory_bytes": {str(id_): one.free[MEMORY] for id_, one in sorted(state.memory.nodes.items())} if state.memory else {},
    }


def _usable_memory(topology: Topology, configuration: Mapping[str, Any]) -> Dict[int, int]:
    """Memory for jobs by NUMA node in bytes: that of nodes with CPUs, less what is reserved and hugepages."""
    memory = memory_of(topology, {**configuration, "memoryManagerPolicy": "Static"})
    return {one.id: memory.nodes[one.id].free[MEMORY] for one in topology.numa_nodes if one.kind == CPU_MEMORY} if memory else {}


def _orders(usable: Mapping[int, int], node: Node, state: State, running: Sequence[Pod], pods: Sequence[Pod]) -> Tuple[StartOrder, ...]:
    """Which order of start is safe for the pods' memory beside those that run; none for one pod, for many, or where one isn't admitted."""
    if not usable or not 2 <= len(pods) <= MAX_ORDERED:
        return ()
    names = {pod.key: pod.name for pod in [*running, *pods]}
    if len(set(names.values())) < len(names):
        names = {key: key for key in names}
    there = [_job(names, node, pod, state.cpus.get(pod.key, {}).values()) for pod in running]
    jobs = []
    for pod in pods:
        verdict, state = admit(node, state, pod)
        if not verdict.admitted:
            return ()
        own = [placement.cpus for placement in verdict.containers if placement.exclusive and placement.kind != "init"]
        jobs.append(_job(names, node, pod, own))
    return start_orders(usable, jobs, there)


def _job(names: Mapping[str, str], node: Node, pod: Pod, own: Collection[int]) -> Job:
    """A pod in the terms of start_order; ``own`` are its containers' exclusive CPUs."""
    by_node = {id_: sum(popcount(members & cpus) for cpus in own) for id_, members in node.cpus.numa.items()}
    memory = pod.total_requests(node.pod_level).get(MEMORY, 0)
    return Job(names[pod.key], memory, {id_: count for id_, count in by_node.items() if count})
