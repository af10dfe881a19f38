# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A pod as kubelet's resource managers see it: containers, amounts and the QoS class.

Amounts are integers by resource name: "cpu" in thousandths of a CPU, "memory" and "hugepages-<size>" in bytes, anything else a count.
Sources: pkg/apis/core/v1/defaults.go, pkg/apis/core/v1/helper/qos/qos.go, k8s.io/component-helpers/resource/helpers.go, KEP-753, KEP-2837.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .errors import InvalidInput, unknown_name
from .quantity import format_bytes, parse_quantity

CPU, MEMORY, HUGEPAGES = "cpu", "memory", "hugepages-"
GPU = "nvidia.com/gpu"

GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"

Amounts = Mapping[str, int]

_NOTHING: Amounts = {}
# Source: pkg/kubelet/types/pod_update.go, pkg/apis/scheduling/types.go.
_SOURCE, _MIRROR = "kubernetes.io/config.source", "kubernetes.io/config.mirror"
_SYSTEM_PRIORITY, _SYSTEM_CLASSES = 2_000_000_000, ("system-cluster-critical", "system-node-critical")
# Where objects of Kubernetes have the spec of their pods.
_POD_SPECS = {
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    **dict.fromkeys(("DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"), ("spec", "template", "spec")),
    "PodTemplate": ("template", "spec"),
    "Pod": ("spec",),
}
_SHORT_FORM = ("name", "namespace", "cpus", "memory", "gpus", "resources", "qos")


@dataclass(frozen=True)
class Container:
    """A container. ``kind``: "app", "init" (runs to its end before the next starts) or "sidecar" (an init container that keeps running)."""

    name: str
    requests: Amounts
    limits: Amounts
    kind: str = "app"

    @property
    def guaranteed(self) -> bool:
        """CPU and memory are requested, and limited to the request."""
        return all(self.requests.get(name, 0) and self.requests.get(name) == self.limits.get(name) for name in (CPU, MEMORY))


@dataclass(frozen=True)
class Pod:
    """A pod. ``key`` tells it from others: its uid where it has one, else namespace/name.

    ``containers`` are in the order of admission: init containers and sidecars first. ``requests`` and ``limits`` are those of the pod
    level; both None when the pod has no such field. ``qos`` is the class that the API server has written into its status.
    ``critical``: a static pod, or one of a system priority, for which kubelet ends others.
    """

    key: str
    name: str
    containers: Tuple[Container, ...]
    requests: Optional[Amounts] = None
    limits: Optional[Amounts] = None
    overhead: Amounts = field(default_factory=dict)
    qos: Optional[str] = None
    priority: Optional[int] = None
    critical: bool = False

    @property
    def has_pod_level(self) -> bool:
        """Whether requests or limits of the pod as a whole are set."""
        return any(_is_pod_level(name) for name in (*(self.requests or ()), *(self.limits or ())))

    def qos_class(self, pod_level: bool) -> str:
        """The QoS class; ``pod_level``: kubelet knows pod-level resources, which then decide alone."""
        if self.qos:
            return self.qos
        if pod_level and self.has_pod_level:
            return _qos(self.requests or {}, self.limits or {})
        classes = {_qos(one.requests, one.limits) for one in self.containers} or {BEST_EFFORT}
        return classes.pop() if len(classes) == 1 else BURSTABLE

    def total_requests(self, pod_level: bool) -> Dict[str, int]:
        """What scheduler and kubelet count the pod for."""
        total = combined([(one.kind, one.requests) for one in self.containers])
        if pod_level:
            total.update((name, amount) for name, amount in (self.requests or {}).items() if _is_pod_level(name))
        for name, amount in self.overhead.items():
            total[name] = total.get(name, 0) + amount
        return total

    def total_limits(self) -> Dict[str, int]:
        """The containers' limits taken together: what kubelet counts devices by."""
        return combined([(one.kind, one.limits) for one in self.containers])


def combined(parts: List[Tuple[str, Amounts]]) -> Dict[str, int]:
    """The amounts of (kind, amounts) of a pod's containers, in order, taken together.

    Containers and sidecars add up; an init container needs its own amount beside the sidecars that were started before it, and only
    the largest of those counts.
    """
    long_running: Dict[str, int] = {}
    sidecars: Dict[str, int] = {}
    peak: Dict[str, int] = {}
    for kind, amounts in parts:
        if kind != "init":
            for name, amount in amounts.items():
                long_running[name] = long_running.get(name, 0) + amount
        if kind == "sidecar":
            for name, amount in amounts.items():
                sidecars[name] = sidecars.get(name, 0) + amount
        if kind != "app":
            own = amounts if kind == "init" else _NOTHING
            for name in {**own, **sidecars}:
                peak[name] = max(peak.get(name, 0), own.get(name, 0) + sidecars.get(name, 0))
    return {name: max(long_running.get(name, 0), peak.get(name, 0)) for name in {**long_running, **peak}}


def is_extended(resource: str) -> bool:
    """Whether a resource is one of a device plugin or of a node's owner, not of Kubernetes."""
    return "/" in resource and "kubernetes.io/" not in resource


def _is_pod_level(resource: str) -> bool:
    return resource in (CPU, MEMORY) or resource.startswith(HUGEPAGES)


def _qos(requests: Amounts, limits: Amounts) -> str:
    classes = set()
    for name in (CPU, MEMORY):
        wanted, limit = requests.get(name, 0), limits.get(name, 0)
        classes.add(BURSTABLE if wanted != limit else GUARANTEED if wanted else BEST_EFFORT)
    return classes.pop() if len(classes) == 1 else BURSTABLE


# --- reading ------------------------------------------------------------------------------------------------------------------------------


def unpacked(values: Iterable[Any], what: str) -> Iterator[Tuple[str, Any]]:
    """Objects with their names for refusals; a list of Kubernetes (what `kubectl get -o yaml` prints) counts as its items."""
    for index, value in enumerate(values):
        name = "%s[%d]" % (what, index)
        if isinstance(value, Mapping) and str(value.get("kind")).endswith("List") and isinstance(value.get("items"), (list, tuple)):
            yield from unpacked(value["items"], name + ".items")
        else:
            yield name, value


def makes_pods(value: Any) -> bool:
    """Whether an object is to be taken for a pod or for one that makes pods: all but those of a kind without them (a Service)."""
    return not isinstance(value, Mapping) or value.get("kind") in (None, *_POD_SPECS) or bool(_pod_spec(value))


def has_ended(value: Any) -> bool:
    """Whether an object is a pod, as kubectl prints it, whose containers run no longer: it has nothing of the node any more."""
    status = value.get("status") if isinstance(value, Mapping) else None
    return isinstance(status, Mapping) and status.get("phase") in ("Succeeded", "Failed")


def copies(value: Any) -> int:
    """How many pods an object of Kubernetes makes at a time, where it says so with a number; else 1."""
    spec = value.get("spec") if isinstance(value, Mapping) else None
    found = [spec.get(name) for name in ("replicas", "parallelism")] if isinstance(spec, Mapping) else []
    return max((count for count in found if isinstance(count, int)), default=1)


def title(value: Mapping[str, Any]) -> str:
    """An object by its kind and name."""
    return "%s %s" % (value.get("kind"), _mapping(value, "metadata", str(value.get("kind"))).get("name"))


def _pod_spec(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec of the pods that an object makes; of a kind that isn't known here, the first that has containers. {}: there is none."""
    kind = str(value.get("kind"))
    for path in [_POD_SPECS[kind]] if kind in _POD_SPECS else _POD_SPECS.values():
        spec: Any = value
        for part in path:
            spec = spec.get(part) if isinstance(spec, Mapping) else None
        if isinstance(spec, Mapping) and spec.get("containers"):
            return spec
    return {}


def parse_pod(value: Any, what: str = "pod", gpu: str = GPU) -> Pod:
    """A pod from a Kubernetes object (a Pod, or anything with a pod template) or from the short form.

    The short form is {name, cpus, memory, gpus, resources: {…}, qos: Guaranteed or Burstable}: one container. ``gpu``: the resource that
    gpus are of.

    :raises InvalidInput: names the field
    """
    if not isinstance(value, Mapping):
        raise InvalidInput("%s is %r, not a mapping." % (what, value), "Give a Kubernetes Pod or {name: …, cpus: …, memory: …, gpus: …}.")
    if not {"kind", "spec"} & set(value):
        return _short_form(value, what, gpu)
    spec, metadata, status = _pod_spec(value), _mapping(value, "metadata", what), _mapping(value, "status", what)
    containers = tuple(
        _container(one, kind, "%s.spec.%s[%d]" % (what, part, index))
        for part, kind in (("initContainers", "init"), ("containers", "app"))
        for index, one in enumerate(_list(spec, part, what + ".spec"))
    )
    if not containers:
        raise InvalidInput("%s has no containers." % what, "Give spec.containers.")
    name = str(metadata.get("name") or what)
    requests, limits = _pod_level(spec, containers, what)
    return Pod(
        str(metadata.get("uid") or "%s/%s" % (metadata.get("namespace") or "default", name)),
        name,
        containers,
        requests,
        limits,
        _amounts(spec, "overhead", what + ".spec"),
        status.get("qosClass"),
        spec.get("priority"),
        _is_critical(spec, _mapping(metadata, "annotations", what + ".metadata")),
    )


def _is_critical(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    if annotations.get(_SOURCE, "api") != "api" or _MIRROR in annotations:
        return True
    return (spec.get("priority") or 0) >= _SYSTEM_PRIORITY or spec.get("priorityClassName") in _SYSTEM_CLASSES


def _short_form(value: Mapping[str, Any], what: str, gpu: str) -> Pod:
    for name in value:
        if name not in _SHORT_FORM:
            raise unknown_name("field of a pod in short form", str(name), _SHORT_FORM)
    wanted = dict(_mapping(value, "resources", what))
    for short, resource in (("cpus", CPU), ("memory", MEMORY), ("gpus", gpu)):
        if value.get(short) is not None:
            wanted[resource] = value[short]
    qos = value.get("qos", GUARANTEED)
    if qos not in (GUARANTEED, BURSTABLE):
        raise InvalidInput('%s.qos is "%s".' % (what, qos), "Write Guaranteed (limits equal requests) or Burstable.")
    requests = _amounts({"resources": wanted}, "resources", what)
    if qos == GUARANTEED and not (requests.get(CPU) and requests.get(MEMORY)):
        raise InvalidInput("%s is Guaranteed and lacks cpus or memory." % what, "Give both, or write qos: Burstable.")
    limits = requests if qos == GUARANTEED else {name: amount for name, amount in requests.items() if name not in (CPU, MEMORY)}
    name = str(value.get("name") or what)
    return Pod("%s/%s" % (value.get("namespace") or "default", name), name, (Container(name, requests, limits),))


def _container(value: Any, kind: str, what: str) -> Container:
    if not isinstance(value, Mapping) or not value.get("name"):
        raise InvalidInput("%s has no name." % what, "Give every container a name.")
    resources = _mapping(value, "resources", what)
    limits = _amounts(resources, "limits", what + ".resources")
    requests = {**limits, **_amounts(resources, "requests", what + ".resources")}  # the API server's default
    if kind == "init" and value.get("restartPolicy") == "Always":
        kind = "sidecar"
    return Container(str(value["name"]), requests, limits, kind)


def _pod_level(spec: Mapping[str, Any], containers: Tuple[Container, ...], what: str) -> Tuple[Optional[Amounts], Optional[Amounts]]:
    """The pod's own requests and limits with the API server's defaults."""
    if spec.get("resources") is None:
        return None, None
    resources = _mapping(spec, "resources", what + ".spec")
    requests = dict(_amounts(resources, "requests", what + ".spec.resources"))
    limits = dict(_amounts(resources, "limits", what + ".spec.resources"))
    if limits:
        totals = combined([(one.kind, one.requests) for one in containers])
        requests = {**limits, **{name: totals[name] for name in (CPU, MEMORY) if name in totals}, **requests}
    return requests, limits


def _mapping(value: Mapping[str, Any], part: str, what: str) -> Mapping[str, Any]:
    found = value.get(part)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidInput("%s.%s is %r, not a mapping." % (what, part, found), "Write it as Kubernetes does.")
    return found


def _list(value: Mapping[str, Any], part: str, what: str) -> Sequence[Any]:
    found = value.get(part) or ()
    if not isinstance(found, (list, tuple)):
        raise InvalidInput("%s.%s is %r, not a list." % (what, part, found), "Write it as Kubernetes does.")
    return found


def _amounts(value: Mapping[str, Any], part: str, what: str) -> Amounts:
    """A resource list; like kubelet, a fraction of the smallest unit counts as a whole one."""
    amounts = {}
    for name, quantity in _mapping(value, part, what).items():
        exact = parse_quantity(str(quantity) if isinstance(quantity, float) else quantity, "%s.%s.%s" % (what, part, name))
        if exact.denominator != 1 and is_extended(str(name)):
            raise InvalidInput(
                '%s.%s.%s is "%s", and the API server takes whole numbers of it only.' % (what, part, name, quantity), "Write one."
            )
        amounts[str(name)] = -int(-exact * (1000 if name == CPU else 1) // 1)
    return amounts


def describe(amounts: Amounts) -> str:
    """Amounts for people: "16 CPUs, 128Gi memory, 4 nvidia.com/gpu"."""
    words = []
    for name, amount in amounts.items():
        if name == CPU:
            words.append("%g CPUs" % (amount / 1000))
        elif name == MEMORY or name.startswith(HUGEPAGES):
            words.append("%s %s" % (format_bytes(amount), name))
        else:
            words.append("%d %s" % (amount, name))
    return ", ".join(words)
