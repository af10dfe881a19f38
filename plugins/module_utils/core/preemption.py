# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which pods kubelet ends so that the sums of requests leave room for a critical pod (a static one, or one of a system priority).

Of each QoS class only what the cheaper classes can't give; within a class first the pod that gives most of what is lacking.
Source: pkg/kubelet/preemption/preemption.go.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Optional, Sequence

from .pods import BEST_EFFORT, BURSTABLE, CPU, GUARANTEED, MEMORY, Pod

Lack = Mapping[str, int]


def victims(pod: Pod, others: Sequence[Pod], lack: Lack, pod_level: bool) -> Optional[List[Pod]]:
    """The pods to end; None when all of them together don't make room. ``lack``: what is missing by resource."""
    classes: Dict[str, List[Pod]] = {BEST_EFFORT: [], BURSTABLE: [], GUARANTEED: []}
    for other in others:
        if _may_end(pod, other):
            classes[other.qos_class(pod_level)].append(other)
    best_effort, burstable, guaranteed = classes[BEST_EFFORT], classes[BURSTABLE], classes[GUARANTEED]
    if _after(lack, [*best_effort, *burstable, *guaranteed], pod_level):
        return None
    costly = _fewest(guaranteed, _after(lack, [*best_effort, *burstable], pod_level), pod_level)
    medium = _fewest(burstable, _after(lack, [*best_effort, *costly], pod_level), pod_level)
    return [*_fewest(best_effort, _after(lack, [*medium, *costly], pod_level), pod_level), *medium, *costly]


def _may_end(pod: Pod, other: Pod) -> bool:
    if pod.critical and not other.critical:
        return True
    return pod.priority is not None and other.priority is not None and pod.priority > other.priority


def _gives(pod: Pod, resource: str, pod_level: bool) -> int:
    return 1 if resource == "pods" else pod.total_requests(pod_level).get(resource, 0)


def _after(lack: Lack, ended: Sequence[Pod], pod_level: bool) -> Dict[str, int]:
    """What is still missing when pods have ended."""
    left = {resource: amount - sum(_gives(pod, resource, pod_level) for pod in ended) for resource, amount in lack.items()}
    return {resource: amount for resource, amount in left.items() if amount > 0}


def _fewest(pods: Sequence[Pod], lack: Lack, pod_level: bool) -> List[Pod]:
    """Pods until nothing is missing, each time the one that leaves least missing; of equals the one that asks for less."""
    left, chosen = list(pods), []
    while lack and left:

        def distance(pod: Pod, lack: Lack = lack) -> float:
            missing = [(amount, amount - _gives(pod, resource, pod_level)) for resource, amount in lack.items()]
            return sum((rest / amount) ** 2 for amount, rest in missing if rest > 0)

        best = min(left, key=lambda pod: (distance(pod), _gives(pod, MEMORY, pod_level), _gives(pod, CPU, pod_level)))
        left.remove(best)
        chosen.append(best)
        lack = _after(lack, [best], pod_level)
    return chosen
