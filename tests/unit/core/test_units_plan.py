"""Services as the user writes them: every key checked, CPUs and NUMA nodes settled by the plan."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import GIB, KUBEADM, device, reference, topologies

from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_services import Batch, Pinned
from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_units import parse
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import Plan, build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import MEMORY_ONLY, NumaNode, Topology

PREP = {"name": "prep", "command": ["/bin/true"], "user": "jobs"}
LAUNCHER = {"version": "1.0.0", "source_sha256": "ab" * 32}
GPU = "0000:19:00.0"


def plan_for(topology: Topology, launcher: dict[str, str] | None = None, **variables: Any) -> Plan:
    return build_plan(topology, policy_from_variables(variables), launcher)


def batch(topology: Topology | None = None, **keys: Any) -> Plan:
    return plan_for(topology or reference(), batch_services=[{**PREP, **keys}])


def pinned(topology: Topology, *services: dict[str, Any], **variables: Any) -> Plan:
    given = [{"name": "feed%d" % number, "command": "/bin/feed", "user": "jobs", **keys} for number, keys in enumerate(services)]
    return plan_for(topology, profile="isolated", pinned_services=given, **variables)


def with_gpu(node: int | None = 1, **more: Any) -> Topology:
    return reference(gpus=(device(GPU, node),), kubelet=None, **more)


def codes(plan: Plan) -> set[str]:
    return {note.code for note in plan.notes}


# Batch services -----------------------------------------------------------------------------------------------------------


@given(topologies(), st.sampled_from(["colocation", "aligned", "isolated"]))
def test_the_slice_is_never_empty_and_never_isolated(topology: Topology, profile: str) -> None:  # A8
    try:
        plan_for(topology, profile=profile)
    except InvalidInput:
        assume(False)  # too small to leave anything beside the reserved CPUs
    plan = plan_for(topology, profile=profile, batch_services=[PREP], batch_on_reserved=True)
    here = parse({"units": to_json(plan.units)}).slice
    assert here is not None and here.cpus and here.cpus.isdisjoint(plan.cpus.isolated)
    assert here.cpus == (plan.cpus.pool or plan.cpus.reserved) and here.reserved == plan.cpus.reserved
    assert here.memory_nodes == CpuSet(node.id for node in topology.cpu_memory_nodes)


def test_the_slice_follows_kubelet_only_where_it_gives_cpus_away() -> None:  # A25
    assert batch().units["slice"]["follows_kubelet"] and "batch_follows_kubelet" in codes(batch())
    without = plan_for(reference(kubelet=None), batch_services=[PREP]).units["slice"]
    assert not without["follows_kubelet"] and without["cpus"].to_list() == "1-95,97-191,193-287,289-383"
    dynamic = plan_for(reference(), cpu_manager_policy="none", batch_services=[PREP]).units["slice"]
    assert not dynamic["follows_kubelet"]


def test_memory_without_cpus_comes_in_by_name_only() -> None:
    cxl = NumaNode(2, MEMORY_ONLY, memory_bytes=256 * GIB)
    topology = reference()
    topology = topology.replace(numa_nodes=(*topology.numa_nodes, cxl, NumaNode(3, "empty")))
    assert batch(topology).units["slice"]["memory_nodes"].to_list() == "0-1"
    named = batch(topology, nodes="0,2")
    assert named.units["slice"]["memory_nodes"].to_list() == "0-2" and named.units["services"][0]["nodes"] == "0,2"
    assert "batch_on_memory_without_cpus" in codes(named)
    for wrong in ("3", "7"):  # I3: nothing can be bound to memory that isn't there
        with pytest.raises(InvalidInput, match="names NUMA node %s, which has no memory here" % wrong):
            batch(topology, nodes=wrong)


def test_pods_get_a_seccomp_profile_with_the_launcher() -> None:  # I6
    plan = plan_for(reference(), LAUNCHER)
    assert plan.units["seccomp"] == "/var/lib/kubelet/seccomp/gpufleet/numa.json" and "seccomp_profile" in codes(plan)
    assert plan.units["services"] == [] and plan.units["slice"] == {}
    assert plan_for(reference(kubelet=None), LAUNCHER).units == plan_for(reference(), LAUNCHER, profile="aligned").units == {}
    moved = type(KUBEADM)("plain", "kubelet.service", "1.34.4", root_dir="/data/kubelet/")
    assert plan_for(reference(kubelet=moved), LAUNCHER).units["seccomp"] == "/data/kubelet/seccomp/gpufleet/numa.json"


def test_a_command_may_be_one_text() -> None:
    services = batch(command="/bin/sort -k 2 'a b' \"c $d\" e\\ f").units["services"]
    assert services[0]["command"] == ("/bin/sort", "-k", "2", "a b", "c $d", "e f")


def test_memory_is_slowed_before_it_is_killed() -> None:
    def high(**keys: Any) -> int | None:
        return parse({"units": to_json(batch(**keys).units)}).services[0].slowed_at

    assert high() is None
    assert high(memory_max="10Gi") == 9 * GIB
    assert high(memory_max="10Gi", memory_high="1Gi") == high(memory_high="1Gi") == GIB


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"comand": "x"}, '"comand" is not a known key of gpufleet_batch_services[0]. Did you mean "command"?'),
        ({"name": None}, "gpufleet_batch_services[0] has no name."),
        ({"user": None}, "gpufleet_batch_services[0] has no user."),
        ({"command": []}, "gpufleet_batch_services[0].command is empty."),
        ({"command": "echo 'a"}, "gpufleet_batch_services[0].command is \"echo 'a\", whose quotes don't match."),
        ({"command": {"a": 1}}, "gpufleet_batch_services[0].command is \"{'a': 1}\", which is not a list."),
        ({"name": "Prep"}, 'gpufleet_batch_services[0].name is "Prep". Use lower-case letters'),
        ({"name": "a/../b"}, 'gpufleet_batch_services[0].name is "a/../b".'),
        ({"name": "irq"}, 'gpufleet_batch_services[0].name is "irq", which is a unit of gpufleet.node itself.'),
        ({"name": "batch-cpus"}, "which is a unit of gpufleet.node itself."),
        ({"user": "a b"}, 'gpufleet_batch_services[0].user is "a b".'),
        ({"environment": {"A-B": "1"}}, 'gpufleet_batch_services[0].environment is "A-B".'),
        ({"environment": {"A": True}}, 'gpufleet_batch_services[0].environment.A is "True", which is not a text.'),
        ({"environment": ["A=1"]}, "which is not a mapping."),
        ({"environment_file": "x"}, 'gpufleet_batch_services[0].environment_file is "x". Give an absolute path.'),
        ({"allocator": "mimalloc"}, 'gpufleet_batch_services[0].allocator is "mimalloc", which is not a choice.'),
        ({"allocator_settings": {"narenas": "2"}}, "Service prep has allocator_settings and no allocator."),
        ({"allocator": "jemalloc", "environment": {"LD_PRELOAD": "/x"}}, "Service prep has an allocator and LD_PRELOAD of its own."),
        ({"memory_max": "512m"}, 'gpufleet_batch_services[0].memory_max is "512m", which Kubernetes reads as'),
        ({"memory_max": 64}, 'gpufleet_batch_services[0].memory_max is "64", which no program fits in.'),
        ({"memory_max": "1Gi", "memory_high": "2Gi"}, "Service prep has memory_high above memory_max."),
        ({"restart": "On-failure"}, 'gpufleet_batch_services[0].restart is "On-failure", and case matters.'),
        ({"timer": {}}, "gpufleet_batch_services[0].timer never elapses."),
        ({"timer": {"calendar": "daily"}}, '"calendar" is not a known key of gpufleet_batch_services[0].timer.'),
        ({"timer": "daily\nUnit=x"}, "gpufleet_batch_services[0].timer.on_calendar is"),
        ({"cpu_weight": 0}, 'gpufleet_batch_services[0].cpu_weight is "0", which is out of range.'),
        ({"oom_score_adjust": -1000}, "which is out of range."),  # never to be killed: then a pod is
        ({"io_limits": [{"device": "nvme0n1", "read_iops": 1}]}, 'gpufleet_batch_services[0].io_limits[0].device is "nvme0n1".'),
        ({"io_limits": [{"device": "/dev/nvme0n1"}]}, "gpufleet_batch_services[0].io_limits[0] limits nothing."),
        ({"io_limits": [{"device": "/dev/sda", "read_byte": 1}]}, 'Did you mean "read_bytes"?'),
        ({"nodes": "0-"}, '"0-" in the CPU list "0-" is not a CPU or a range.'),
        ({"mode": "spread"}, "which is not a choice."),
        ({"devices": "nvidia0"}, 'gpufleet_batch_services[0].devices is "nvidia0".'),
        ({"cpus": "1-3"}, '"cpus" is not a known key of gpufleet_batch_services[0].'),  # no pinning inside
    ],
)
def test_wrong_keys_get_one_sentence(keys: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        batch(**keys)
    assert sentence in str(refusal.value)


def test_names_are_used_once() -> None:
    with pytest.raises(InvalidInput, match='Two services are named "prep"'):
        plan_for(reference(), batch_services=[PREP], pinned_services=[{**PREP, "cpus": "1"}])


# Pinned services ----------------------------------------------------------------------------------------------------------


def placed(plan: Plan, number: int = 0) -> tuple[str, str]:
    service = plan.units["pinned"][number]
    return service["cpus"].to_list(), service["memory_nodes"].to_list()


def test_the_isolated_cpus_beside_the_gpu() -> None:
    assert placed(pinned(with_gpu(), {"gpu": GPU})) == ("97-191,289-383", "1")
    assert placed(pinned(with_gpu(None), {"gpu": GPU})) == ("1-95,97-191,193-287,289-383", "0-1")
    assert placed(pinned(with_gpu(), {"cpus": "1-2"})) == ("1-2", "0")
    assert placed(pinned(with_gpu(), {"cpus": "1-2", "memory_nodes": "1"})) == ("1-2", "1")
    plan = plan_for(reference(), pinned_services=[{**PREP, "cpus": "5"}])  # no profile isolates here, but CPUs are given
    assert placed(plan) == ("5", "0") and "pinned_beside_kubelet" in codes(plan)
    assert plan.units["slice"] == {}


def test_a_cpu_for_each_thread_cores_before_siblings_and_nobody_elses() -> None:
    plan = pinned(with_gpu(), {"gpu": GPU, "threads": 2}, {"gpu": GPU, "threads": 94}, {"gpu": GPU, "threads": 2})
    assert [placed(plan, number)[0] for number in range(3)] == ["97-98", "99-191,289", "290-291"]
    with pytest.raises(InvalidInput, match=r"Service feed1 wants 9 CPUs for its threads, and 8 are left for it\."):
        pinned(with_gpu(), {"gpu": GPU, "threads": 182}, {"gpu": GPU, "threads": 9})


def test_threads_without_load_balancing_are_said_and_one_cpu_each_is_offered() -> None:
    def note(plan: Plan) -> str:
        return next((note.message for note in plan.notes if note.code == "pinned_threads_not_balanced"), "")

    assert "With threads: N it gets a CPU for each" in note(pinned(with_gpu(), {"gpu": GPU}))
    assert "OpenMP does" in note(pinned(with_gpu(), {"gpu": GPU, "threads": 4}))
    assert note(pinned(with_gpu(), {"gpu": GPU, "threads": 1})) == ""
    # With a kubelet isolcpus goes without domain: the scheduler balances.
    assert note(pinned(reference(gpus=(device(GPU, 1),)), {"gpu": GPU})) == ""
    assert note(pinned(reference(gpus=(device(GPU, 1),)), {"gpu": GPU}, isolate_domain=True)) != ""


@pytest.mark.parametrize(
    ("keys", "variables", "sentence"),
    [
        ({"gpu": "0000:1a:00.0"}, {}, '"0000:1a:00.0" is not a known GPU of this node (service feed0). Did you mean "0000:19:00.0"?'),
        ({"gpu": "0"}, {}, 'gpufleet_pinned_services[0].gpu is "0". Give the GPU\'s PCI address.'),
        ({"cpus": "380-390"}, {}, "Service feed0 names CPU 384-390, which isn't online."),
        ({"gpu": GPU}, {"profile": "colocation"}, "Service feed0 has no CPUs: the plan isolates none."),
        ({"gpu": GPU}, {"isolated_cpus": "1-95,193-287"}, "the plan isolates none on NUMA node 1, where its GPU is."),
        (
            {"cpus": "0-3", "policy": "fifo"},
            {},
            "Service feed0 asks for fifo on CPUs 0-3, which aren't isolated: it could starve the node.",
        ),
        ({"cpus": "1-3", "policy": "rr"}, {"profile": "colocation"}, "which aren't isolated"),
        ({"policy": "fifo", "priority": 50}, {}, 'gpufleet_pinned_services[0].priority is "50", which is out of range.'),
        ({"policy": "fifo"}, {"sysctl": {"kernel.sched_rt_runtime_us": -1}}, "turns the kernel's real-time throttling off."),
        ({"nice": -21}, {}, "which is out of range."),
        ({"memory_nodes": "5"}, {}, "Service feed0 names NUMA node 5, which has no memory here."),
        ({"nodes": "0"}, {}, '"nodes" is not a known key of gpufleet_pinned_services[0].'),
    ],
)
def test_pinned_services_that_cant_be(keys: dict[str, Any], variables: dict[str, Any], sentence: str) -> None:
    given = [{"name": "feed0", "command": "/bin/feed", "user": "jobs", **keys}]
    with pytest.raises(InvalidInput) as refusal:
        plan_for(with_gpu(), **{"profile": "isolated", "pinned_services": given, **variables})
    assert sentence in str(refusal.value)


def test_a_service_beside_the_system_is_said() -> None:
    assert "pinned_on_reserved" in codes(pinned(with_gpu(), {"cpus": "0-1"}))


@pytest.mark.parametrize("cls", [Batch, Pinned])
def test_every_key_is_documented(cls: type) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/services.md").read_text(encoding="utf-8")
    for key in dataclasses.fields(cls):
        row = next((line for line in text.splitlines() if line.startswith(f"| `{key.name}` |")), "")
        assert row.endswith("| %s |" % key.metadata["about"]), key.name
