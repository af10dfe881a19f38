"""The question as people ask it, the answer as they read it, and which job may start first."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GIB, make_topology, reference

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_fit import Question, predict
from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_fit_report import fit_lines
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.start_order import POLICIES, Job, start_orders
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import DEVICE_MEMORY, NumaNode, Topology

TRAIN = {"name": "train", "cpus": 192, "memory": "1600Gi", "gpus": 8}
BATCH = {"name": "batch", "cpus": 90, "memory": "600Gi", "qos": "Burstable"}


def ask(topology: Topology, *pods: Any, profile: str = "colocation", **more: Any) -> Any:
    """kubelet's answers under a profile's plan."""
    configuration = build_plan(topology, policy_from_variables({"profile": profile})).kubelet["configuration"]
    return predict(Question(topology, configuration, "1.37.2", pods, **more))


@pytest.mark.parametrize(
    ("policy", "reason", "where"), [("restricted", "TopologyAffinityError", None), ("best-effort", "", {"0": 2, "1": 2})]
)
def test_four_gpus_where_only_two_to_five_are_free(policy: str, reason: str, where: Any) -> None:
    answer = ask(
        reference(),
        {"name": "four", "cpus": 16, "memory": "64Gi", "gpus": 4},
        what_if={"topologyManagerPolicy": policy},
        free={"gpus": [2, 3, 4, 5]},
    )
    (pod,) = answer["pods"]
    assert (pod["reason"], pod["scheduler"]) == (reason, {"required": "pending", "preferred": "degraded"})
    if where:
        assert pod["containers"][0]["devices"] == {"nvidia.com/gpu": where}
        assert answer["free"]["devices"] == {"nvidia.com/gpu": {"0": 0, "1": 0}}
    else:
        assert "fits the empty node" in pod["change"] and "NUMA node 0 190 CPUs, 2 nvidia.com/gpu" in pod["change"]


def test_gpus_of_the_short_form_are_the_nodes_own() -> None:
    topology = reference()
    amd = replace(topology, gpus=tuple(replace(gpu, vendor="1002") for gpu in topology.gpus))
    (pod,) = ask(amd, {"name": "four", "cpus": 16, "memory": "64Gi", "gpus": 4})["pods"]
    assert pod["containers"][0]["devices"] == {"amd.com/gpu": {"0": 4}}


def test_gpus_that_containers_cannot_be_given_do_not_count() -> None:
    """Neither parts of another GPU, nor those of virtual machines; the plan has the same rule."""
    topology = make_topology(packages=2, cores=16, gpus_per_node=4)
    parts = tuple(replace(gpu, address=gpu.address[:-1] + "1", virtual_function=True) for gpu in topology.gpus)
    kept = tuple(replace(gpu, driver="vfio-pci") for gpu in topology.gpus if gpu.numa_node == 1)
    answer = ask(topology.replace(gpus=(*topology.gpus[:4], *parts, *kept)), {"name": "a", "cpus": 4, "memory": "1Gi", "gpus": 5})
    assert answer["pods"][0]["change"] == "The node has 4 nvidia.com/gpu for pods altogether."
    assert answer["free"]["devices"] == {"nvidia.com/gpu": {"0": 4}}


def test_devices_are_given_by_numa_nodes() -> None:
    given = {"rdma/hca": {0: 1, "1": "2"}, "example.com/bridge": {"0-1": 3}, "example.com/any": {-1: 4, None: 1}}
    found = ask(reference(), devices=given)["free"]["devices"]
    assert {name: counts for name, counts in found.items() if name in given} == {
        "rdma/hca": {"0": 1, "1": 2},
        "example.com/bridge": {"0-1": 3},
        "example.com/any": {"unknown": 5},
    }


def test_what_the_node_lacks_is_said_though_kubelet_does_not_look() -> None:
    answer = ask(reference(), {"name": "wrong", "cpus": 16, "memory": "64Gi", "resources": {"amd.com/gpu": 4}})
    (pod,) = answer["pods"]
    assert pod["admitted"] and pod["scheduler"] == {"required": "never", "preferred": "never"}
    assert "doesn't look at amd.com/gpu" in pod["change"]
    assert any("amd.com/gpu" in line for line in fit_lines(answer))


def test_which_order_of_start_is_safe_on_the_reference_machine() -> None:
    orders = ask(reference(), TRAIN, BATCH)["start_orders"]
    safe = {(tuple(one["order"]), one["policy"]) for one in orders if one["safe"]}
    assert len(orders) == 6
    assert safe == {(("train", "batch"), "first_touch"), (("train", "batch"), "interleave"), (("batch", "train"), "interleave")}
    filled = next(one for one in orders if one["order"] == ["batch", "train"] and one["policy"] == "first_touch")
    assert filled["problem"] == "train lacks 268Gi on NUMA node 0 beside its CPUs."
    assert [{name: size // GIB for name, size in node["jobs"].items()} for node in filled["numa_nodes"]] == [
        {"batch": 600, "train": 532},
        {"train": 1068},
    ]


@given(
    st.dictionaries(st.integers(0, 3), st.integers(1, 200), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 300), st.booleans()), min_size=1, max_size=3),
)
def test_no_order_of_start_makes_memory(capacity: dict[int, int], sizes: list[tuple[int, bool]]) -> None:
    jobs = [Job(str(n), size, dict.fromkeys(capacity, 4) if own else {}) for n, (size, own) in enumerate(sizes)]
    found = start_orders(capacity, jobs)
    assert [(one.order, one.policy) for one in found] == [
        (tuple(job.name for job in order), policy) for order in itertools.permutations(jobs) for policy in POLICIES
    ]
    for one in found:
        for node in one.numa_nodes:
            assert sum(node.jobs.values()) <= node.memory_bytes == capacity[node.id]
        if one.safe:
            got = [sum(node.jobs.get(job.name, 0) for node in one.numa_nodes) for job in jobs]
            assert all(size - len(capacity) < amount <= size for amount, (size, _own) in zip(got, sizes))


@pytest.mark.parametrize(
    ("pod", "what_if", "part"),
    [
        ({"cpus": 3, "memory": "1Gi"}, {}, "Let p ask for 2 CPUs or 4."),
        (
            {"cpus": 16, "memory": "1Gi", "gpus": 8},
            {"topologyManagerPolicy": "single-numa-node"},
            "With topologyManagerPolicy best-effort kubelet would admit it, across",
        ),
        ({"cpus": 900, "memory": "1Gi", "qos": "Burstable"}, {}, "380 CPUs for pods altogether"),
        ({"cpus": 401, "memory": "1Gi"}, {"topologyManagerPolicy": "single-numa-node"}, "380 CPUs for pods altogether"),
        ({"cpus": 2, "memory": "1Gi", "resources": {"hugepages-1Gi": "4Gi"}}, {}, "0 hugepages-1Gi for pods altogether"),
    ],
)
def test_what_would_have_to_change(pod: Any, what_if: Any, part: str) -> None:
    (found,) = ask(reference(), {"name": "p", **pod}, what_if=what_if)["pods"]
    assert not found["admitted"] and part in found["change"]


def test_pods_come_in_turn_beside_those_that_run() -> None:
    job = {"cpus": 16, "memory": "64Gi", "gpus": 4}
    topology, asked = reference(), [{"name": name, **job} for name in ("b", "c")]
    running = [{"name": "a", **job}]
    reasons = [
        [pod["reason"] for pod in ask(topology, *asked, profile="aligned", running=running, in_turn=turn)["pods"]] for turn in (True, False)
    ]
    assert reasons == [["", "TopologyAffinityError"], ["", ""]]


@pytest.mark.parametrize(
    ("running", "pod", "free"),
    [
        ({"cpus": 16, "gpus": 4}, {"cpus": 16, "gpus": 4}, {"gpus": [4, 5, 6, 7]}),
        ({"cpus": 16}, {"cpus": 6}, {"cpus": "17-23"}),
        ({"cpus": 16}, {"cpus": 6}, {"cpus": "1-7"}),
    ],
)
def test_running_pods_have_some_of_what_is_not_free(running: Any, pod: Any, free: Any) -> None:
    topology = make_topology(packages=2, cores=48, threads=1, l3_cores=8, memory=512 * GIB, gpus_per_node=4)
    running, pod = ({"name": name, "memory": "1Gi", **asked} for name, asked in (("a", running), ("b", pod)))
    answer = ask(topology, pod, profile="aligned", running=[running], free=free)
    assert [pod["reason"] for pod in answer["pods"]] == [""]


@given(
    st.lists(st.tuples(st.integers(1, 20).map(lambda cores: 2 * cores), st.integers(0, 3)), max_size=3),
    st.none() | st.sets(st.integers(0, 7)),
    st.none() | st.sets(st.integers(0, 63)),
    st.sampled_from(sorted(PROFILES)),
)
def test_what_is_said_to_be_free_is_free(running: Any, gpus: Any, cpus: Any, profile: str) -> None:
    """Whatever runs beside it: the pods of `running` have some of the rest, or the question can't be meant."""
    topology = make_topology(packages=2, cores=16, memory=64 * GIB, gpus_per_node=4)
    said = CpuSet(cpus) if cpus is not None else None
    free = {**({"gpus": sorted(gpus)} if gpus is not None else {}), **({"cpus": said.to_list()} if said is not None else {})}
    pods = [{"name": f"r{number}", "cpus": count, "memory": "1Gi", "gpus": many} for number, (count, many) in enumerate(running)]
    try:
        found = ask(topology, profile=profile, running=pods, free=free)["free"]
    except InvalidInput as refused:
        assert "can't run on" in refused.problem
        return
    if gpus is not None:
        assert found["devices"] == {"nvidia.com/gpu": {str(node): sum(gpu // 4 == node for gpu in gpus) for node in (0, 1)}}
    if said is not None:
        assert CpuSet.parse(found["cpus"]) == said - CpuSet.parse("0,16,32,48")


def test_what_a_pod_asks_for_stands_in_its_own_order() -> None:
    """The same in every process: a set would give another with each."""
    names = ["example.com/" + letter for letter in "qhzbmxad"]
    starter, main = {"name": "i", "resources": {"limits": dict.fromkeys(names, 1)}}, {"name": "a"}
    (pod,) = ask(reference(), {"metadata": {"name": "p"}, "spec": {"initContainers": [starter], "containers": [main]}})["pods"]
    assert pod["asks_for"] == ", ".join("1 " + name for name in names)


CONTAINER = {"name": "a", "resources": {"limits": {"cpu": 16, "memory": "64Gi", "nvidia.com/gpu": 1}}}
TEMPLATE = {"template": {"spec": {"containers": [CONTAINER]}}}


def manifest(kind: str, **more: Any) -> Any:
    return {"kind": kind, "metadata": {"name": kind.lower()}, **more}


MANIFESTS = (
    manifest("Deployment", spec=TEMPLATE),
    manifest("Job", spec=TEMPLATE),
    manifest("CronJob", spec={"jobTemplate": {"spec": TEMPLATE}}),
    manifest("PodTemplate", **TEMPLATE),
    manifest("Rollout", spec=TEMPLATE),  # of a custom resource
)


@pytest.mark.parametrize("given", MANIFESTS)
def test_an_object_is_judged_by_its_template(given: Any) -> None:
    (pod,) = ask(reference(), given)["pods"]
    assert (pod["name"], pod["qos"], pod["asks_for"]) == (given["kind"].lower(), "Guaranteed", "16 CPUs, 64Gi memory, 1 nvidia.com/gpu")


def test_a_list_counts_as_its_items_and_what_makes_no_pods_is_left_out() -> None:
    without = (
        manifest("Service", spec={"ports": [{"port": 80}]}),
        manifest("ConfigMap", data={"a": "b"}),
        manifest("Sealed", template="x"),
    )
    answer = ask(reference(), without[0], {"kind": "List", "items": [*MANIFESTS, *without[1:]]})
    assert [pod["name"] for pod in answer["pods"]] == [given["kind"].lower() for given in MANIFESTS]
    (note,) = answer["notes"]
    assert (note["code"], note["severity"]) == ("objects_without_pods", "info")
    assert note["message"] == "Left out of pods, since they make no pods: Service service, ConfigMap configmap, Sealed sealed."
    assert "note: " + note["message"] in fit_lines(answer)


def test_pods_that_have_ended_hold_nothing() -> None:
    """kubectl lists them, too."""
    ended = [{**manifest("Pod", spec=TEMPLATE["template"]["spec"]), "status": {"phase": phase}} for phase in ("Succeeded", "Failed")]
    answer = ask(reference(), TRAIN, running=[{"kind": "PodList", "items": ended}])
    assert answer["pods"][0]["admitted"]
    assert [(note["code"], note["message"]) for note in answer["notes"]] == [
        ("pods_that_ended", "Left out of running, since they have ended: Pod pod, Pod pod.")
    ]


def test_one_pod_of_several_is_asked_about() -> None:
    answer = ask(
        reference(), manifest("Deployment", spec={**TEMPLATE, "replicas": 9}), manifest("Job", spec={**TEMPLATE, "parallelism": 1})
    )
    assert [note["message"] for note in answer["notes"]] == ["In pods one pod of each of these counts: Deployment deployment."]


@pytest.mark.parametrize(
    ("version", "code"),
    [("1.33.12", "kubelet_version_unproven"), ("1.34.4", None), ("v1.37.0+k3s1", None), ("1.38.0", "kubelet_version_newer")],
)
def test_versions_whose_answers_were_not_compared_are_noted(version: str, code: str | None) -> None:
    configuration = build_plan(reference(), policy_from_variables({"kubelet_version": version})).kubelet["configuration"]
    assert [note["code"] for note in predict(Question(reference(), configuration, version, [TRAIN]))["notes"]] == ([code] if code else [])


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ({"pods": [{"name": "a", "cpu": 4}]}, 'Did you mean "cpus"?'),
        ({"pods": [{"name": "a", "cpus": 4}]}, "lacks cpus or memory"),
        ({"pods": ["a"]}, "not a mapping"),
        ({"pods": [{"name": "a", "cpus": "four", "memory": "1Gi"}]}, "not a Kubernetes quantity"),
        ({"pods": [{"metadata": {"name": "a"}, "spec": {}}]}, "no containers"),
        ({"pods": [{"kind": "Deployment", "spec": {"template": {}}}]}, "no containers"),
        ({"pods": [{"kind": "List", "items": [TRAIN, {"kind": "Pod"}]}]}, "pods[0].items[1] has no containers"),
        ({"pods": [{"kind": "Pod", "spec": {"containers": 5}}]}, "pods[0].spec.containers is 5, not a list."),
        ({"pods": [{**TRAIN, "gpus": 0.5}]}, "takes whole numbers of it only"),
        ({"pods": [manifest("Pod", spec={"containers": [CONTAINER, CONTAINER]})]}, "pods[0]: container a is there twice"),
        ({"pods": [TRAIN, TRAIN]}, "more than one pod default/train"),
        ({"pods": [], "running": [BATCH, BATCH]}, "more than one pod default/batch"),
        ({"pods": [], "running": [{**TRAIN, "cpus": 5}]}, "can't run on this node"),
        ({"pods": [], "running": [TRAIN], "free": {"gpus": [7]}}, "train (running[0]) can't run on what free leaves"),
        ({"pods": [], "free": {"gpus": [9]}}, "no such GPU for containers"),
        ({"pods": [], "free": {"cpus": "1-3,500"}}, "holds CPUs 500"),
        ({"pods": [], "devices": {"nvidia.com/gpu": 4}}, "devices holds nvidia.com/gpu: 4, which are no devices by NUMA node."),
        ({"pods": [], "devices": {"cpu": {0: 4}}}, "devices holds cpu: {0: 4}, which are no devices"),
        ({"pods": [], "devices": {"rdma/hca": {5: 1}}}, "names NUMA node 5, which isn't there."),
        ({"pods": [], "devices": {"rdma/hca": {"a": 1}}}, "names NUMA node a, which isn't there."),
        ({"pods": [], "devices": {"rdma/hca": {0: "x"}}}, 'devices.rdma/hca.0 is "x", which is not a whole number.'),
        ({"pods": [], "devices": {"rdma/hca": {0: 1.7}}}, "not a whole number"),
        ({"pods": [], "devices": {"rdma/hca": {0: -1}}}, "out of range"),
        ({"pods": [], "free": {"memory": "1Gi"}}, "not a known thing that can be free"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(question: Any, part: str) -> None:
    pods = question.pop("pods")
    with pytest.raises(InvalidInput, match=re.escape(part)) as refused:
        ask(reference(), *pods, **question)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("what_if", "part"),
    [
        ({"topologyManagerPolicy": "single-numa"}, 'topologyManagerPolicy is "single-numa", which kubelet refuses.'),
        ({"cpuManagerPolicy": "Static"}, 'Write "static".'),
        ({"cpuManagerPolicyOptions": {"foo": "true"}}, '"foo" is not a known policy option of kubelet.'),
        ({"cpuManagerPolicyOptions": "full-pcpus-only=true"}, "cpuManagerPolicyOptions is"),
        ({"cpuManagerPolicyOptions": {"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"}}, "needs the feature gate"),
        ({"cpuManagerPolicy": "none"}, "take cpuManagerPolicyOptions out"),
        ({"reservedMemory": "x"}, "a list of reservations"),
        ({"reservedMemory": [{"numaNode": 0, "limits": {"memory": "2000Gi"}}]}, "reservedMemory adds up to 2048000Mi"),
        ({"evictionHard": {"memory.available": "2000Gi"}}, "reservedMemory adds up to 100Mi"),
        ({"reservedSystemCPUs": "0-500"}, "not online"),
        ({"featureGates": {"CPUManager": True}}, "no feature gate CPUManager"),
        ({"topologyManagerPolcy": "none"}, 'Did you mean "topologyManagerPolicy"?'),
        ({"maxpods": 1}, 'Did you mean "maxPods"?'),
        ({"maxPods": "x"}, 'configuration: maxPods is "x", which is not a whole number.'),
        ({"podsPerCore": -1}, "out of range"),
    ],
)
def test_a_configuration_that_kubelet_refuses_is_no_question(what_if: Any, part: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(part)) as refused:
        ask(reference(), TRAIN, profile="aligned", what_if=what_if)
    assert refused.value.remedy


def test_fields_of_kubelet_that_do_not_count_here_are_passed_over() -> None:
    others = {
        "qosReserved": {"memory": "50%"},
        "systemCgroups": "/system",
        "evictionSoft": {},
        "cgroupRoot": "/",
        "clusterDNS": ["10.0.0.10"],
    }
    assert ask(reference(), TRAIN, what_if=others) == ask(reference(), TRAIN)


FLAGS = {"topology-manager-policy": "single-numa-node", "max-pods": "1", "node-labels": "a=b"}


@pytest.mark.parametrize(
    ("what_if", "reasons"),
    [
        ({}, ["TopologyAffinityError", ""]),
        ({"topologyManagerPolicy": "best-effort"}, ["", "OutOfpods"]),
        ({"topologyManagerPolicy": "best-effort", "maxPods": 2}, ["", ""]),
    ],
)
def test_flags_beat_the_plan_and_what_if_beats_both(what_if: Any, reasons: list[str]) -> None:
    answer = ask(reference(), TRAIN, BATCH, flags=FLAGS, what_if=what_if)
    assert [pod["reason"] for pod in answer["pods"]] == reasons


def test_a_flag_without_thresholds_leaves_all_memory_to_pods() -> None:
    changes = [ask(reference(), {**BATCH, "memory": "9Ti"}, flags=flags)["pods"][0]["change"] for flags in ({}, {"eviction-hard": ""})]
    assert changes == ["The node has %s memory for pods altogether." % amount for amount in ("2318236Mi", "2264Gi")]


def test_a_flag_that_kubelet_exits_on_is_said() -> None:
    with pytest.raises(InvalidInput, match='topologyManagerPolicy is "single"'):
        ask(reference(), TRAIN, flags={"topology-manager-policy": "single"})


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("version", ["1.34.4", "1.35.4", "1.36.3", "1.37.2"])
def test_the_answer_is_plain_and_readable_under_every_profile(profile: str, version: str) -> None:
    import json

    topology = make_topology(packages=2, cores=16, memory=64 * GIB, gpus_per_node=4)
    configuration = build_plan(topology, policy_from_variables({"profile": profile, "kubelet_version": version})).kubelet["configuration"]
    pods = [{"name": "a", "cpus": 4, "memory": "8Gi", "gpus": 2}, {"name": "b", "cpus": 300, "memory": "8Gi"}]
    answer = predict(Question(topology, configuration, version, pods))
    assert json.loads(json.dumps(answer)) == answer
    lines = fit_lines(answer)
    assert lines[0].split()[:3] == ["pod", "container", "kubelet"] and max(map(len, lines)) <= 140
    assert [pod["admitted"] for pod in answer["pods"]] == [True, False]


def test_memory_of_running_pods_is_not_there_for_the_next() -> None:
    """The same three jobs, one of which runs already: what is unsafe after it stays unsafe."""
    runs, first, second = (
        {"name": "r", "cpus": 96, "memory": "900Gi", "gpus": 4},
        {"name": "a", "cpus": 40, "memory": "600Gi"},
        {"name": "b", "cpus": 8, "memory": "10Gi"},
    )
    beside = ask(reference(), first, second, running=[runs])["start_orders"]
    together = ask(reference(), runs, first, second)["start_orders"]
    after = {(tuple(one["order"][1:]), one["policy"]): one["safe"] for one in together if one["order"][0] == "r"}
    assert {(tuple(one["order"]), one["policy"]): one["safe"] for one in beside} == after
    assert not any(after.values())


def test_pods_of_two_namespaces_are_told_apart_in_orders() -> None:
    pods = [{"name": "a", "namespace": name, "cpus": 2, "memory": "1Gi"} for name in ("x", "y")]
    assert {one["order"][0] for one in ask(reference(), *pods)["start_orders"]} == {"x/a", "y/a"}


def test_more_numa_nodes_than_kubelet_aligns() -> None:
    """It would look at 2 ** 34 sets of them before 1.36."""
    topology = make_topology(packages=2, cores=36, memory=480 * GIB, gpus_per_node=2)
    memory_only = tuple(NumaNode(id=id_, kind=DEVICE_MEMORY, cpus=CpuSet(), memory_bytes=0) for id_ in range(2, 34))
    topology = topology.replace(numa_nodes=(*topology.numa_nodes, *memory_only))
    for version in ("1.34.4", "1.37.2"):
        question = Question(
            topology,
            {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
            version,
            [{"name": "a", "cpus": 4, "memory": "1Gi", "gpus": 1}],
        )
        (pod,) = predict(question)["pods"]
        assert pod["admitted"] and pod["scheduler"] == {"required": "unknown", "preferred": "unknown"}


def by_advice(pod: dict[str, Any], advice: str) -> dict[str, Any]:
    """The pod with the first number of CPUs that the advice gives each container."""
    asked = dict(re.findall(r"(\w+) ask for (\d+) CPUs", advice))
    containers = [
        {**one, "resources": {"limits": {**one["resources"]["limits"], "cpu": asked.get(one["name"], one["resources"]["limits"]["cpu"])}}}
        for one in pod["spec"]["containers"]
    ]
    return {**pod, "spec": {"containers": containers}}


@given(
    st.lists(st.sampled_from(("1", "2", "3", "5", "1500m", "500m")), min_size=1, max_size=4),
    st.sampled_from(("best-effort", "restricted", "single-numa-node")),
    st.integers(0, 4),
)
def test_whoever_follows_the_advice_on_whole_cores_gets_further(cpus: list[str], policy: str, gpus: int) -> None:
    containers = [
        {
            "name": "c%d" % number,
            "resources": {"limits": {"cpu": count, "memory": "1Gi", **({"nvidia.com/gpu": gpus} if gpus and not number else {})}},
        }
        for number, count in enumerate(cpus)
    ]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    over = {"topologyManagerPolicy": policy}
    for free in ({}, {"gpus": [0, 1, 4, 5]}, {"gpus": []}):
        (found,) = ask(reference(), pod, what_if=over, free=free)["pods"]
        if found["admitted"]:
            continue
        assert found["scheduler"]["required"] != "runs"
        if found["change"].startswith("Let "):
            assert " 0 CPUs" not in found["change"]
            (again,) = ask(reference(), by_advice(pod, found["change"]), what_if=over, free=free)["pods"]
            assert again["admitted"] or "fits the empty node" in again["change"]
        else:
            assert "fits the empty node" in found["change"]
