"""The real kubelet"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import pytest
from vm.kubelet.node import RealNode, Witnesses, static_pod
from vm.machine import machines

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.quantity import parse_quantity

Figure = Callable[[str], None]
DRAIN = Path(__file__).with_name("drain.yml")
HUGEPAGES, MORE_HUGEPAGES = ({"2Mi": {"0": count, "1": count}} for count in (8, 16))
OTHER_RESERVED = "2-3,4-5"  # by default it is the first core of each NUMA node


def _two(name: str, memory: str = "64Mi") -> dict[str, Any]:
    return static_pod(name, {"cpu": "2", "memory": memory})


# A NUMA node has two cores of two threads; one core is reserved. Static pods are critical: where requests exceed what the node has, kubelet
# looks for pods to end, and finds none among these. The last asks for all CPUs of the machine, none of its own, so that the sums decide.
SPREAD = (
    _two("first"),
    static_pod("half-a-core", {"cpu": "1", "memory": "64Mi"}),
    static_pod("burstable", {"memory": "64Mi"}, limits=False),
    _two("second"),
    _two("one-too-many"),
    static_pod("beyond-the-sums", {"cpu": "8"}, limits=False),
)
ALIGNED = (
    static_pod("across", {"cpu": "4", "memory": "64Mi"}),
    _two("first", "256Mi"),
    _two("too-large", "1450Mi"),
    _two("second", "256Mi"),
)


@pytest.fixture(scope="module")
def node() -> RealNode:
    (machine,) = machines().values()
    return RealNode(machine, {}, {})


def test_colocation(node: RealNode, figure: Figure) -> None:
    """site.yml with profile colocation: kubelet is healthy, and configz and its state say what was planned"""
    figure(", ".join(node.run("kubelet --version && containerd --version | cut -d' ' -f 1,3").splitlines()))
    _change(node, figure, gpufleet_profile="colocation")


def test_pods_when_spread(node: RealNode, figure: Figure) -> None:
    """Static pods get the CPUs that pod_fit said, by kubelet's state and by their cgroups, or are refused with the reason it said"""
    _as_predicted(node, SPREAD, figure, gpufleet_profile="colocation")


def test_in_use(node: RealNode, figure: Figure) -> None:
    """From colocation to aligned while pods have CPUs of their own: refused, and nothing of kubelet is touched"""
    before = node.witnesses()
    played = node.play("site.yml", gpufleet_profile="aligned")
    assert played.status != 0 and "may not go while pods hold CPUs or memory: pod default/first" in played.output, played.output
    after = node.witnesses()
    assert after == before
    figure(next(line.strip() for line in played.output.splitlines() if "first" in line))


def test_aligned(node: RealNode, figure: Figure) -> None:
    """From colocation to aligned with a drain: kubelet starts on it at once"""
    _change(node, figure, gpufleet_profile="aligned", gpufleet_drain=str(DRAIN))


def test_pods_when_aligned(node: RealNode, figure: Figure) -> None:
    """Static pods get the CPUs and the memory of the NUMA node that pod_fit said"""
    _as_predicted(node, ALIGNED, figure, gpufleet_profile="aligned")


def test_reserved(node: RealNode, figure: Figure) -> None:
    """Other CPUs reserved: kubelet starts on it at once, and pods get what pod_fit said"""
    node.remove_pods()
    changed = {"gpufleet_profile": "aligned", "gpufleet_reserved_cpus": OTHER_RESERVED}
    _change(node, figure, **changed)
    _as_predicted(node, (_two("first"),), figure, **changed)


def test_reboot(node: RealNode, figure: Figure) -> None:
    """After a reboot kubelet is healthy at its first start, and the static pod has the CPUs that it had"""
    before = node.witnesses()
    seconds = node.reboot()
    after = node.until_seen(lambda seen: seen.decided("first"), 300)
    _healthy(after)
    assert after.state_cpus("first") == before.state_cpus("first") != {}
    assert after.pods["first"]["containers"] == before.pods["first"]["containers"]
    figure(f"{after.pods['first']['containers']} again, {seconds:.0f} s")


def test_hugepages(node: RealNode, figure: Figure) -> None:
    """Hugepages while the node is up, with a drain: kubelet's memory manager would not start on its state, and starts on them at once"""
    changed = {"gpufleet_profile": "aligned", "gpufleet_reserved_cpus": OTHER_RESERVED, "gpufleet_hugepages": HUGEPAGES}
    _change(node, figure, **changed, gpufleet_drain=str(DRAIN))
    _as_predicted(node, (_two("first"),), figure, **changed)
    figure(f"hugepages in kubelet's state: {_has_hugepages(node.witnesses(), HUGEPAGES)}")


def test_boot_that_changes_the_machine(node: RealNode, figure: Figure) -> None:
    """Other hugepages, and nobody restarts kubelet before the boot: the state that it refuses is gone before its first start"""
    changed = {"gpufleet_profile": "aligned", "gpufleet_reserved_cpus": OTHER_RESERVED, "gpufleet_hugepages": MORE_HUGEPAGES}
    node.provision(**changed, gpufleet_kubelet_restart="never", gpufleet_reboot="when_needed")
    seen = node.until_seen(lambda witnesses: witnesses.decided("first"), 300)
    _healthy(seen)
    pools = _has_hugepages(seen, MORE_HUGEPAGES)
    figure(f"hugepages in kubelet's state: {pools}; the pod runs on CPUs {seen.pods['first']['containers']['c0']['cpus']}")


def test_back(node: RealNode, figure: Figure) -> None:
    """Back to colocation: kubelet starts on it at once"""
    node.remove_pods()
    _change(node, figure, gpufleet_profile="colocation")
    _as_predicted(node, (_two("first"),), figure, gpufleet_profile="colocation")


def _change(node: RealNode, figure: Figure, **variables: Any) -> None:
    """Another configuration: site.yml goes well, kubelet has it and didn't fail on the way; a second run has nothing to do."""
    before = node.witnesses()
    played = node.provision(**variables)
    seen = node.until_seen(lambda witnesses: witnesses.healthy and bool(witnesses.configz), 120)
    _healthy(seen, before)
    plan, unused = node.ask(**variables)
    _has_plan(seen, plan)
    again = node.provision(**variables)
    assert again.changed == 0, again.output
    policies = ", ".join(seen.configz[key] for key in ("cpuManagerPolicy", "topologyManagerPolicy", "memoryManagerPolicy"))
    reserved, starts = seen.configz["reservedSystemCPUs"], seen.starts - before.starts
    figure(f"{policies}, reserved {reserved}; {played.seconds:.0f} s, kubelet started {starts} times and never failed")


def _healthy(seen: Witnesses, before: Witnesses | None = None) -> None:
    assert seen.healthy
    assert seen.failures == (before.failures if before else 0)


def _has_plan(seen: Witnesses, plan: Mapping[str, Any]) -> None:
    """configz and the state files against the plan."""
    wanted = plan["kubelet"]["configuration"]
    differing = {
        key: value for key, value in wanted.items() if key not in ("apiVersion", "kind") and not _holds(value, seen.configz.get(key))
    }
    assert not differing, seen.configz
    cpu, memory = seen.states["cpu"], seen.states["memory"]
    assert cpu["policyName"] == wanted["cpuManagerPolicy"]
    assert CpuSet.parse(cpu["defaultCpuSet"]) == CpuSet.parse(plan["cpus"]["online"])
    assert memory["policyName"] == wanted["memoryManagerPolicy"]
    reserved = {int(node): kinds["memoryMap"]["memory"]["systemReserved"] for node, kinds in memory.get("machineState", {}).items()}
    assert {node: size for node, size in reserved.items() if size} == {
        one["numaNode"]: int(parse_quantity(one["limits"]["memory"], "reservedMemory")) for one in wanted.get("reservedMemory", [])
    }


def _has_hugepages(seen: Witnesses, wanted: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """The bytes of hugepages that kubelet's memory manager counts on each NUMA node, which are those wanted."""
    pools = {node: kinds["memoryMap"]["hugepages-2Mi"]["total"] for node, kinds in seen.states["memory"]["machineState"].items()}
    assert pools == {node: pages * 2 * 1024 * 1024 for node, pages in wanted["2Mi"].items()}
    return pools


def _holds(wanted: Any, found: Any) -> bool:
    """Whether what was planned is what kubelet has; a mapping may have more, a quantity may be written in another way."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_holds(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_holds, wanted, found))
    return str(wanted) == str(found) or _is_same_quantity(wanted, found)


def _is_same_quantity(one: Any, other: Any) -> bool:
    try:
        return parse_quantity(one, "") == parse_quantity(other, "")
    except Exception:
        return False


def _as_predicted(node: RealNode, pods: Sequence[Mapping[str, Any]], figure: Figure, **variables: Any) -> None:
    """Add the pods one after the other, which were predicted before."""
    plan, fit = node.ask(pods, **variables)
    for pod, predicted in zip(pods, fit):
        found = node.add(pod).pods[predicted["name"]]
        assert (found["phase"] == "Running", found["reason"]) == (predicted["admitted"], predicted["reason"]), (found, predicted)
        if not predicted["admitted"]:
            figure(f"{predicted['name']}: {predicted['reason']}")
    placements = {(pod["name"], container["name"]): container for pod in fit for container in pod["containers"]}
    shared = CpuSet.parse(plan["cpus"]["online"])
    for one in placements.values():
        shared -= CpuSet.parse(one["cpus"])
    expected = {key: (one["cpus"] or str(shared), str(CpuSet(one["memory_numa_nodes"]) or "")) for key, one in placements.items()}
    seen = node.until_seen(lambda witnesses: _cgroups(witnesses) == expected, 60)  # kubelet looks at its shared pool every ten seconds
    assert _cgroups(seen) == expected
    _healthy(seen)
    for (name, container), one in placements.items():
        assert str(seen.state_cpus(name).get(container, "")) == one["cpus"]
        blocks = (seen.states["memory"].get("entries") or {}).get(seen.pods[name]["uid"], {}).get(container, [])
        assert [_block(block["numaAffinity"], block["type"], block["size"]) for block in blocks] == [
            _block(block["numa_nodes"], block["type"], block["bytes"]) for block in one["memory"]
        ]
        cpus, nodes = expected[name, container]
        figure(
            f"{name}: CPUs {cpus}{'' if one['exclusive'] else ' (shared)'}, memory of {'NUMA node ' + nodes if nodes else 'any NUMA node'}"
        )


def _block(nodes: Sequence[int], kind: str, size: int) -> tuple[tuple[int, ...], str, int]:
    return tuple(sorted(nodes)), kind, size


def _cgroups(seen: Witnesses) -> dict[tuple[str, str], tuple[str, str]]:
    return {
        (name, container): (str(CpuSet.parse(found["cpus"])), found["mems"])
        for name, pod in seen.pods.items()
        for container, found in pod["containers"].items()
    }
