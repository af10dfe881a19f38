"""What the plan makes of kubelet's options: only what this version knows, and only where this topology gains."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import GIB, KUBEADM, make_topology, reference, topologies

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_rules as rules
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import Plan, build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import MEMORY_ONLY, Kubelet, NumaNode, Software, Swap, Topology

UNCORE, CLOSEST, LIMIT = "prefer-align-cpus-by-uncorecache", "prefer-closest-numa-nodes", "max-allowable-numa-nodes"


def plan_for(topology: Topology, **variables: Any) -> Plan:
    return build_plan(topology, policy_from_variables(variables))


def configuration(topology: Topology, **variables: Any) -> dict[str, Any]:
    return dict(plan_for(topology, **variables).kubelet["configuration"])


def codes(plan: Plan) -> set[str]:
    return {note.code for note in plan.notes}


def of_version(version: str | None) -> Kubelet:
    return dataclasses.replace(KUBEADM, version=version)


# --- versions -----------------------------------------------------------------------------------------------------------------------------


@given(topologies(), st.sampled_from(sorted(PROFILES)), st.integers(rules.OLDEST_MINOR, rules.NEWEST_MINOR + 3))
def test_no_version_is_planned_what_it_does_not_know(topology: Topology, profile: str, minor: int) -> None:
    try:
        planned = configuration(topology, profile=profile, kubelet_version="1.%d.0" % minor)
    except InvalidInput:
        return
    known = min(minor, rules.NEWEST_MINOR)
    options = {**planned.get("cpuManagerPolicyOptions", {}), **planned.get("topologyManagerPolicyOptions", {})}
    assert all(rules.stage_of(name, known) for name in options)
    needed = {rules._gate(name, "alpha") for name in options if rules.stage_of(name, known) == "alpha"}
    assert planned.get("featureGates", {}) == dict.fromkeys(needed, True)


def test_a_newer_version_counts_as_the_newest_known() -> None:
    newest = configuration(reference(), kubelet_version="1.%d.0" % rules.NEWEST_MINOR)
    plan = plan_for(reference(), kubelet_version="1.99.0")
    assert plan.kubelet["configuration"] == newest and "kubelet_version_newer" in codes(plan)
    assert plan.kubelet["version"] == "1.99.0"


def test_an_unknown_version_gets_what_all_know() -> None:
    plan = plan_for(reference(kubelet=of_version(None)), profile="aligned")
    assert set(plan.kubelet["configuration"]["cpuManagerPolicyOptions"]) == {"full-pcpus-only"}
    assert "kubelet_version_unknown" in codes(plan)


@pytest.mark.parametrize("distribution", ["plain", "kubeadm", "kubespray", "k3s", "rke2"])
def test_a_distribution_that_a_variable_names(distribution: str) -> None:
    section = plan_for(make_topology(kubelet=None), kubelet_distribution=distribution, kubelet_version="1.34.1").kubelet
    assert (section["distribution"], section["version"]) == (distribution, "1.34.1")
    assert section["unit"] == {"k3s": "k3s-agent.service", "rke2": "rke2-agent.service"}.get(distribution, "kubelet.service")
    assert bool(section["config_dir"]) == (distribution in ("k3s", "rke2"))


def test_a_variable_does_not_hide_what_the_node_shows() -> None:
    shown = Kubelet("plain", "kubelet.service", "1.34.4", "/srv/kubelet.yaml", root_dir="/data/kubelet")
    section = plan_for(make_topology(kubelet=shown), kubelet_distribution="kubespray").kubelet
    assert (section["distribution"], section["config_file"], section["root_dir"]) == ("kubespray", "/srv/kubelet.yaml", "/data/kubelet")
    assert plan_for(make_topology(kubelet=shown), kubelet_distribution="k3s").kubelet["unit"] == "k3s-agent.service"


# --- options where this topology gains ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "version", "l3_cores", "chosen"),
    [("aligned", "1.34.4", 8, True), ("isolated", "1.34.4", 8, True),
     ("colocation", "1.34.4", 8, False),  # distribute-cpus-across-numa excludes it (A16)
     ("aligned", "1.33.0", 8, False),  # alpha there: not without being asked for
     ("aligned", "1.31.0", 8, False), ("aligned", "1.34.4", 96, False)],  # one cache for each NUMA node: nothing to align to
)  # fmt: skip
def test_whole_caches_where_there_are_several(profile: str, version: str, l3_cores: int, chosen: bool) -> None:  # A15
    plan = plan_for(reference(l3_cores=l3_cores, kubelet=of_version(version)), profile=profile)
    assert (UNCORE in plan.kubelet["configuration"]["cpuManagerPolicyOptions"]) == chosen
    assert ("option_for_topology" in codes(plan)) == chosen
    if chosen:
        assert plan.alignment.holds
        assert (
            UNCORE
            not in configuration(reference(), profile=profile, cpu_manager_policy_options={UNCORE: "false"})["cpuManagerPolicyOptions"]
        )


def near_and_far(**more: Any) -> Topology:
    topology = make_topology(nodes_per_package=2, **more)
    nodes = tuple(
        dataclasses.replace(node, distances={n: 10 if n == node.id else 12 if n // 2 == node.id // 2 else 32 for n in range(4)})
        for node in topology.numa_nodes
    )
    return topology.replace(numa_nodes=nodes)


def test_the_nearest_nodes_where_some_are_nearer() -> None:
    assert configuration(near_and_far())["topologyManagerPolicyOptions"] == {CLOSEST: "true"}
    assert "topologyManagerPolicyOptions" not in configuration(near_and_far(), profile="aligned")  # one node is the nearest by itself
    assert "topologyManagerPolicyOptions" not in configuration(make_topology(nodes_per_package=2))  # all are as far
    assert "topologyManagerPolicyOptions" not in configuration(near_and_far(), topology_manager_policy_options={CLOSEST: "false"})
    unknown = near_and_far(extra_nodes=[NumaNode(9, MEMORY_ONLY, CpuSet(), GIB)])  # kubelet exits where a distance is unknown
    assert "topologyManagerPolicyOptions" not in configuration(unknown)


def many_nodes(count: int, **more: Any) -> Topology:
    return make_topology(extra_nodes=[NumaNode(number, MEMORY_ONLY, CpuSet(), GIB) for number in range(2, count)], **more)


def test_more_nodes_for_a_policy_that_was_asked_for() -> None:  # B7, B8
    assert configuration(many_nodes(12), topology_manager_policy="restricted")["topologyManagerPolicyOptions"] == {LIMIT: "12"}
    for beyond in (many_nodes(17), many_nodes(12, kubelet=of_version("1.30.2"))):
        with pytest.raises(InvalidInput, match="kubelet exits above 8"):
            configuration(beyond, topology_manager_policy="restricted")


def test_a_limit_that_the_user_raises_keeps_the_profiles_policy() -> None:
    def planned(limit: int) -> tuple[str, dict[str, str], str]:
        plan = plan_for(many_nodes(12), topology_manager_policy_options={LIMIT: limit})
        note = next(note.message for note in plan.notes if note.code == "many_numa_nodes")
        chosen = plan.kubelet["configuration"]
        return chosen["topologyManagerPolicy"], chosen.get("topologyManagerPolicyOptions", {}), note

    assert planned(12)[:2] == ("best-effort", {LIMIT: "12"}) and "takes very long" in planned(12)[2]
    assert planned(10)[:2] == ("none", {}) and "up to 10 NUMA nodes (max-allowable-numa-nodes), not for 12" in planned(10)[2]


def test_an_option_that_the_version_lacks_is_off_as_asked() -> None:
    asked = {"strict-cpu-reservation": False}
    assert "strict-cpu-reservation" not in configuration(make_topology(kubelet=of_version("1.30.2")), cpu_manager_policy_options=asked)


@pytest.mark.parametrize(("found", "named", "said"), [("1.33.5", "1.36.3", True), ("1.33.5", "1.33.9", False), (None, "1.36.3", False)])
def test_a_version_that_the_node_does_not_have_is_said(found: str | None, named: str, said: bool) -> None:
    topology = make_topology(kubelet=of_version(found))
    assert ("kubelet_version_differs" in codes(plan_for(topology, kubelet_version=named))) == said
    assert "kubelet_version_differs" not in codes(plan_for(topology))


@pytest.mark.parametrize("option", ["align-by-socket", "strict-cpu-reservation", "distribute-cpus-across-cores"])
def test_options_that_are_only_offered(option: str) -> None:
    assert option not in configuration(reference())["cpuManagerPolicyOptions"]
    asked = configuration(reference(), cpu_manager_policy_options={option: "true", "full-pcpus-only": "false"})
    assert asked["cpuManagerPolicyOptions"][option] == "true"


# --- reserves, swap, sysctls --------------------------------------------------------------------------------------------------------------


@given(topologies(), st.integers(1, 99))
def test_a_share_of_cores_is_rounded_up_to_whole_ones(topology: Topology, percent: int) -> None:
    try:
        plan = plan_for(topology, reserved_cores_percent=percent)
    except InvalidInput as refused:
        assert "left" in refused.problem or "whole core" in refused.problem
        return
    for node in topology.cpu_nodes:
        cores = [core for core in topology.cores if core <= node.cpus]
        taken = [core for core in cores if core <= plan.cpus.reserved]
        assert len(taken) == -(-len(cores) * percent // 100)
    assert CpuSet.parse(plan.kubelet["configuration"]["reservedSystemCPUs"]) == plan.cpus.reserved


@given(st.integers(1, 90), st.integers(1, 4096))
def test_a_share_of_memory_is_exact(percent: int, gib: int) -> None:
    topology = make_topology(packages=1, memory=[gib * GIB])
    try:
        plan = plan_for(topology, profile="aligned", reserved_memory_percent=percent)
    except InvalidInput as refused:
        assert gib == 1 and "memory" in refused.problem
        return
    share = int(plan.kubelet["machine"]["memory_bytes"]) * percent
    total = rules.reserved_total(plan.kubelet["configuration"]) - (100 << 20)
    assert share <= total * 100 < share + 100
    assert plan.numa_nodes[0].reserved_memory_bytes == total + (100 << 20)


def test_the_reservation_is_a_list_of_cpus_and_no_number() -> None:  # A26: a number is chosen anew after a change of the online CPUs
    for profile in PROFILES:
        planned = configuration(reference(), profile=profile, kube_reserved={"memory": "1Gi"})
        assert planned["reservedSystemCPUs"] == "0,96,192,288" and "cpu" not in planned["kubeReserved"]


def test_swap_that_stays_is_told_to_kubelet() -> None:  # F27
    swapping = make_topology(swaps=(Swap("/dev/sda2", "partition", GIB, 0),))
    assert "failSwapOn" not in configuration(swapping) and not plan_for(swapping).kubelet["machine"]["swap"]
    kept = plan_for(swapping, swap="keep").kubelet
    assert kept["configuration"]["failSwapOn"] is False and kept["machine"]["swap"]


@pytest.mark.parametrize(
    ("name", "kubelets"),
    [("vm.overcommit_memory", "1"), ("vm.panic_on_oom", "0"), ("kernel.panic", "10"), ("kernel.panic_on_oops", "1"),
     ("kernel.keys.root_maxkeys", "1000000"), ("kernel.keys.root_maxbytes", "25000000")],
)  # fmt: skip
def test_sysctls_that_kubelet_sets_itself(name: str, kubelets: str) -> None:
    assert plan_for(make_topology(), sysctl={name: kubelets}).sysctl[name] == kubelets
    with pytest.raises(InvalidInput, match="sets %s to 7, and kubelet sets it to %s" % (name, kubelets)):
        plan_for(make_topology(), sysctl={name: "7"})
    assert plan_for(make_topology(kubelet=None), sysctl={name: "7"}).sysctl[name] == "7"


# --- containerd ---------------------------------------------------------------------------------------------------------------------------


def with_containerd(version: str | None, systemd: bool, kubelet: str = "1.34.4", **kubelets: str) -> Topology:
    software = Software(containerd=True, containerd_version=version, containerd_systemd_cgroup=systemd)
    return make_topology(software=software, kubelet=dataclasses.replace(of_version(kubelet), **kubelets))


def test_an_old_containerd_cannot_tell_its_cgroup_driver() -> None:
    assert configuration(with_containerd("1.7.24", True))["cgroupDriver"] == "systemd"
    assert configuration(with_containerd("1.7.24", True, "1.37.2"))["cgroupDriver"] == "systemd"
    for telling in (with_containerd("2.0.0", False), with_containerd(None, False), make_topology()):
        assert "cgroupDriver" not in configuration(telling)
    with pytest.raises(InvalidInput, match="or stay with kubelet 1"):
        configuration(with_containerd("1.7.24", True, "1.38.0"))
    with pytest.raises(InvalidInput, match=r"Set SystemdCgroup = true .* in /etc/containerd/config\.toml"):
        configuration(with_containerd("1.6.20", False))
    assert configuration(with_containerd("1.7.24", True, runtime_endpoint="/run/containerd/containerd.sock"))["cgroupDriver"] == "systemd"


@pytest.mark.parametrize(
    "kubelet", [{"runtime_endpoint": "unix:///run/crio/crio.sock"}, {"runtime_endpoint": "unix:///run/cri-dockerd.sock"},
                {"distribution": "k3s"}, {"distribution": "rke2"}]
)  # fmt: skip
def test_a_containerd_that_kubelet_does_not_use_is_not_looked_at(kubelet: dict[str, str]) -> None:
    for version in ("1.34.4", "1.38.0"):
        planned = plan_for(with_containerd("1.7.24", False, version, **kubelet)).kubelet
        assert "cgroupDriver" not in planned["configuration"] and "cgroup_driver" not in planned["machine"]


# --- where it is read ---------------------------------------------------------------------------------------------------------------------


def test_a_kubelet_that_is_started_without_a_file() -> None:
    bare = Kubelet("plain", "kubelet.service", "1.34.4", exec_start="/usr/bin/kubelet --node-ip=10.0.0.1")
    plan = plan_for(make_topology(kubelet=bare))
    said = next(note for note in plan.notes if note.code == "kubelet_reads_no_file")
    assert said.severity == "warning" and "pass --config=/var/lib/kubelet/config.yaml there" in said.message
    told = dataclasses.replace(bare, config_file="/etc/kubelet.yaml", exec_start="/usr/bin/kubelet --config=/etc/kubelet.yaml")
    assert "kubelet_reads_no_file" not in codes(plan_for(make_topology(kubelet=told)))
    assert "kubelet_reads_no_file" not in codes(plan_for(make_topology(kubelet=bare), kubelet_config_dir="/etc/kubernetes/kubelet.conf.d"))
    for name in ("kubeadm", "k3s"):  # what isn't installed yet will come with its own unit
        assert "kubelet_reads_no_file" not in codes(plan_for(make_topology(kubelet=None), kubelet_distribution=name))
