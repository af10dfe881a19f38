# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the API server refuses in the resources of a pod, which no kubelet therefore ever sees.

Source: pkg/apis/core/validation/validation.go (validateResourceRequirements, ValidateContainerResourceName, validateInitContainers,
validatePodResourceConsistency).
"""

from __future__ import annotations

from typing import Optional, Tuple

from .errors import InvalidInput
from .pods import CPU, HUGEPAGES, MEMORY, Amounts, Pod, combined, describe, is_extended
from .quantity import parse_bytes

_STANDARD = (CPU, MEMORY, "ephemeral-storage")


def check_pod(pod: Pod, what: str) -> None:
    """Refuse a pod that the API server would refuse. ``what`` names it.

    :raises InvalidInput: names the container and the resource
    """
    names = set()
    for container in pod.containers:
        whose = "%s: container %s" % (what, container.name)
        if container.name in names:
            raise InvalidInput("%s is there twice, which the API server refuses." % whose, "Give every container a name of its own.")
        names.add(container.name)
        _check_amounts(container.requests, container.limits, whose)
    if pod.has_pod_level:
        _check_amounts(pod.requests or {}, pod.limits or {}, what)
        _check_sums(pod, what)


def _check_amounts(requests: Amounts, limits: Amounts, whose: str) -> None:
    """``requests`` have the API server's defaults: whatever is limited is asked for."""
    for name, amount in requests.items():
        found = _problem(name, amount, limits.get(name), requests)
        if found:
            problem, remedy = found
            raise InvalidInput("%s asks for %s %s, which the API server refuses." % (whose, describe({name: amount}), problem), remedy)


def _problem(name: str, amount: int, limit: Optional[int], requests: Amounts) -> Optional[Tuple[str, str]]:
    """What is wrong with a request, and what to do; None: nothing is."""
    if name in _STANDARD:
        return (_limited(name, limit), "Ask for no more than the limit.") if limit is not None and amount > limit else None
    if name.startswith(HUGEPAGES):
        if amount % (parse_bytes(name[len(HUGEPAGES) :], "the page size of %s" % name) or 1):
            return "in no whole pages", "Ask for a multiple of the page size."
        if not {CPU, MEMORY} & set(requests):
            return "without CPUs or memory", "Ask for one of them, too."
    elif "/" not in name:
        return "by a name without its domain", "Write one like nvidia.com/gpu."
    elif not is_extended(name):
        return None
    return None if amount == limit else (_limited(name, limit), "Make request and limit equal.")


def _limited(name: str, limit: Optional[int]) -> str:
    return "without a limit" if limit is None else "with a limit of %s" % describe({name: limit})


def _check_sums(pod: Pod, what: str) -> None:
    """What a pod asks for as a whole is enough for its containers."""
    for name, amount in combined([(one.kind, one.requests) for one in pod.containers]).items():
        whole = (pod.requests or {}).get(name, amount)
        if amount > whole:
            raise InvalidInput(
                "%s asks for %s, and its containers for %s together, which the API server refuses."
                % (what, describe({name: whole}), describe({name: amount})),
                "Ask for no less in spec.resources.",
            )
