"""The plan as a whole: what is left for jobs, when it is aligned, what its parts have in common."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import GIB, KUBEADM, device, make_topology, reference, topologies

from ansible_collections.gpufleet.node.plugins.module_utils.core import boot_arguments, kernel_args
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import from_json, to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet, union
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import Plan, build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, SETTINGS, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import (
    DEVICE_MEMORY,
    EMPTY,
    MEMORY_ONLY,
    Boot,
    NumaNode,
    SharedRoot,
    Software,
    Topology,
)


def plan_for(topology: Topology, **variables: Any) -> Plan:
    return build_plan(topology, policy_from_variables(variables))


def codes(plan: Plan, severity: str = "") -> set[str]:
    return {note.code for note in plan.notes if severity in ("", note.severity)}


def arguments(plan: Plan) -> dict[str, str]:
    return {key: value for key, _sign, value in (token.partition("=") for token in plan.kernel_arguments)}


# --- what all parts agree on ------------------------------------------------------------------------------------------------------------


@given(topologies(), st.sampled_from(sorted(PROFILES)))
def test_all_parts_derive_from_the_same_sets(topology: Topology, profile: str) -> None:
    try:
        plan = plan_for(topology, profile=profile)
    except InvalidInput:
        assume(False)
    cpus = plan.cpus
    configuration = plan.kubelet["configuration"]
    assert configuration["reservedSystemCPUs"] == cpus.reserved.to_list()
    assert plan.confine["cpus"] == cpus.reserved
    tokens = arguments(plan)
    if cpus.isolated:
        isolated = cpus.isolated.to_list()
        assert tokens["isolcpus"] == "managed_irq," + isolated
        assert tokens["nohz_full"] == tokens["rcu_nocbs"] == isolated  # D7, and kernels before 5.18 insist
        assert CpuSet.parse(tokens["irqaffinity"]) == plan.interrupts["default_affinity"] == cpus.online - cpus.isolated  # D1
    else:
        assert not {"isolcpus", "nohz_full", "irqaffinity"} & set(tokens)
    for row in plan.interrupts["devices"]:
        assert row["cpus"] and row["cpus"] <= cpus.online - cpus.isolated
    assert union(node.available for node in plan.numa_nodes) | cpus.reserved == cpus.online
    assert plan == plan_for(topology, profile=profile)


@given(topologies(), st.booleans())
def test_aligned_sizes_fit_into_what_is_left(topology: Topology, whole_l3: bool) -> None:
    try:
        plan = plan_for(topology, reserved_whole_l3=whole_l3)
    except InvalidInput:
        assume(False)
    for node in plan.numa_nodes:
        assert node.available_count == len(node.available)
        assert all(size <= node.available_count for size in node.aligned_job_sizes)
        share = node.cpus_per_gpu
        assert share.whole_l3_groups * len(node.gpus) <= node.available_count
        assert share.whole_cores * len(node.gpus) <= node.available_count
    assert all(size <= len(plan.cpus.online - plan.cpus.reserved) for size in plan.aligned_job_sizes_across_nodes)


@given(topologies())
def test_the_json_form_is_plain_json(topology: Topology) -> None:
    assume(len(topology.cores) > len(topology.cpu_nodes))
    data = to_json(plan_for(topology))
    assert json.loads(json.dumps(data)) == data
    assert from_json(Topology, json.loads(json.dumps(to_json(topology)))) == topology


def test_facts_that_were_not_gathered_are_not_taken_for_absent() -> None:
    with pytest.raises(InvalidInput, match=r"lack what a plan needs: kubelet\. Gather them"):
        plan_for(make_topology(gathered=("cpu", "numa", "pci", "boot", "software", "tuning")))
    with pytest.raises(InvalidInput, match=r"permission denied\. Gather the facts as root"):
        plan_for(make_topology(gathered=("cpu",), gaps=("/etc/default/grub can't be read: permission denied.",)))


# --- job sizes --------------------------------------------------------------------------------------------------------------------------


def test_reference_machine() -> None:
    plan = plan_for(reference())
    for node in plan.numa_nodes:
        assert (node.available_count, node.whole_l3_groups) == (190, 11)
        assert node.aligned_job_sizes == tuple(range(16, 177, 16))
        assert (node.cpus_per_gpu.whole_cores, node.cpus_per_gpu.whole_l3_groups) == (46, 32)
    assert plan.aligned_job_sizes_across_nodes == tuple(range(32, 353, 32))
    assert not plan.alignment.holds
    assert "gpufleet_reserved_whole_l3" in plan.alignment.condition
    assert "l3_alignment" in codes(plan, "warning")


def test_ways_to_aligned_sizes() -> None:
    whole = plan_for(reference(), reserved_whole_l3=True)
    assert whole.alignment.holds
    assert whole.numa_nodes[0].whole_l3_groups == 11
    uncore = plan_for(reference(), cpu_manager_policy_options={"prefer-align-cpus-by-uncorecache": "true"})
    assert uncore.alignment.holds
    assert "distribute-cpus-across-numa" not in uncore.kubelet["configuration"]["cpuManagerPolicyOptions"]
    assert "option_replaced" in codes(uncore)
    assert not plan_for(reference(kubelet=None)).alignment.holds


def test_a_node_of_one_l3_group_has_nothing_to_align_to() -> None:
    plan = plan_for(make_topology(cores=8, l3_cores=8))
    assert plan.alignment.holds
    assert [node.aligned_job_sizes for node in plan.numa_nodes] == [(), ()]
    assert "one_l3_group_per_numa_node" in codes(plan)


def test_a_reservation_that_breaks_every_group_leaves_no_aligned_size() -> None:
    plan = plan_for(make_topology(packages=1, cores=8, l3_cores=4), reserved_cpus="0,4,8,12")
    assert (plan.alignment.holds, plan.numa_nodes[0].aligned_job_sizes) == (False, ())
    assert "break every L3 group" in plan.alignment.condition


def test_a_cache_that_spans_numa_nodes_is_no_group_of_one() -> None:
    plan = plan_for(make_topology(packages=1, cores=8, nodes_per_package=2, l3_cores=8))
    assert [node.aligned_job_sizes for node in plan.numa_nodes] == [(), ()]


def test_half_cores_dont_count_as_whole_ones() -> None:
    plan = plan_for(make_topology(packages=1, cores=6, l3_cores=6, offline=[11], gpus_per_node=1))
    assert plan.numa_nodes[0].available_count == 9
    assert plan.numa_nodes[0].cpus_per_gpu.whole_cores == 8
    assert "half_cores" in codes(plan, "warning")


# --- NUMA nodes -------------------------------------------------------------------------------------------------------------------------


def gb200(**more: Any) -> Topology:
    """Two NUMA nodes with CPUs among 34; one of each GPU's eight has memory."""
    others = [NumaNode(id_, DEVICE_MEMORY if id_ % 8 == 2 else EMPTY, CpuSet(), 186 * GIB if id_ % 8 == 2 else 0) for id_ in range(2, 34)]
    return make_topology(
        **{"cores": 72, "threads": 1, "l3_cores": 72, "memory": 480 * GIB, "extra_nodes": others, "architecture": "aarch64", **more}
    )


def test_gpu_memory_is_never_reserved_pooled_or_isolated_on() -> None:  # H24
    plan = plan_for(gb200(), hugepages={"1G": 4})
    assert plan.cpus.reserved.to_list() == "0,72"
    assert plan.hugepages == {1 << 30: {0: 4, 1: 4}}
    assert {node.id for node in plan.numa_nodes if node.reserved} == {0, 1}
    assert "numa_nodes_without_cpus" in codes(plan)


def test_memory_without_cpus_is_said_to_be_in_use_where_the_user_names_it() -> None:
    service = {"name": "x", "command": ["/bin/true"], "user": "jobs"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"hugepages": {"1G": {0: 4, 2: 4}}}, ", except on 2, as asked."),
        ({"batch_services": [{**service, "nodes": "0,10"}]}, ", except on 10, as asked."),
        ({"pinned_services": [{**service, "cpus": "0", "memory_nodes": "2,18"}]}, ", except on 2,18, as asked."),
        ({"hugepages": {"1G": 4}, "batch_services": [service]}, "pooled on them."),
    ]
    for variables, end in cases:
        (said,) = [note.message for note in plan_for(gb200(), **variables).notes if note.code == "numa_nodes_without_cpus"]
        assert said.endswith(end)


def test_more_than_eight_numa_nodes_mean_no_topology_policy() -> None:  # B7, B8
    plan = plan_for(gb200())
    assert plan.kubelet["configuration"]["topologyManagerPolicy"] == "none"
    assert "many_numa_nodes" in codes(plan, "warning")
    with pytest.raises(InvalidInput, match="kubelet exits above 8"):
        plan_for(gb200(), topology_manager_policy="restricted")
    asked = plan_for(gb200(), topology_manager_policy="restricted", topology_manager_policy_options={"max-allowable-numa-nodes": 34})
    assert asked.kubelet["configuration"]["topologyManagerPolicyOptions"] == {"max-allowable-numa-nodes": "34"}
    assert "many_numa_nodes" in codes(asked, "warning")


@pytest.mark.parametrize(("count", "policy"), [(8, "best-effort"), (9, "none")])
def test_kubelet_has_topology_policies_for_eight_numa_nodes(count: int, policy: str) -> None:  # B7
    memory = [NumaNode(number, MEMORY_ONLY, CpuSet(), GIB) for number in range(2, count)]
    assert plan_for(make_topology(extra_nodes=memory)).kubelet["configuration"]["topologyManagerPolicy"] == policy


def test_static_memory_manager_is_refused_where_gpu_memory_is_a_numa_node() -> None:
    with pytest.raises(InvalidInput, match="GPU memory") as refusal:
        plan_for(gb200(), profile="aligned")
    assert "gpufleet_memory_manager_policy: None" in refusal.value.remedy
    assert plan_for(gb200(), profile="aligned", memory_manager_policy="None").kubelet["configuration"]["memoryManagerPolicy"] == "None"


# --- reserved memory --------------------------------------------------------------------------------------------------------------------


def reserved_memory(plan: Plan) -> dict[int, str]:
    return {entry["numaNode"]: entry["limits"]["memory"] for entry in plan.kubelet["configuration"]["reservedMemory"]}


def test_worked_examples_of_reserved_memory() -> None:
    one = make_topology(packages=1, memory=[64 * GIB])
    both = {"profile": "aligned", "system_reserved": {"memory": "1Gi"}}
    assert reserved_memory(plan_for(one, kube_reserved={"memory": "4Gi"}, **both)) == {0: "5220Mi"}
    assert reserved_memory(plan_for(one, kube_reserved={"memory": "3Gi"}, **both)) == {0: "4196Mi"}
    assert reserved_memory(plan_for(make_topology(), kube_reserved={"memory": "3Gi"}, **both)) == {0: "2048Mi", 1: "2148Mi"}
    assert plan_for(one, kube_reserved={"memory": "4Gi"}, **both).numa_nodes[0].reserved_memory_bytes == 5220 << 20


@given(topologies(), st.integers(0, 1 << 27), st.integers(0, 1 << 27), st.integers(1, 1 << 27))
def test_reserved_memory_adds_up_to_the_byte(topology: Topology, kube: int, system: int, threshold: int) -> None:  # B2, B3
    variables = {"kube_reserved": {"memory": kube}, "system_reserved": {"memory": system}, "eviction_hard": {"memory.available": threshold}}
    try:
        plan = plan_for(topology, profile="aligned", **variables)
    except InvalidInput as error:
        if "has both CPUs and memory" in error.problem:
            assert not topology.cpu_memory_nodes
        elif "kubelet crashes on NUMA nodes" in error.problem:
            assert max(node.id for node in topology.numa_nodes) > 63
        else:
            assert "can't be reserved there" in error.problem or "nothing is left" in error.problem
        return
    amounts = {node.id: node.reserved_memory_bytes for node in plan.numa_nodes if node.reserved_memory_bytes}
    assert sum(amounts.values()) == kube + system + threshold
    assert set(amounts) <= {node.id for node in topology.cpu_memory_nodes}


def test_memory_that_hugepages_will_take_is_not_there_to_reserve() -> None:
    asked = {"profile": "aligned", "kube_reserved": {"memory": "8Gi"}, "hugepages": {"1G": {0: 10, 1: 60}}}
    with pytest.raises(InvalidInput, match=r"NUMA node 1 has 4096 MiB beside its hugepages; 4196 MiB can't be reserved there"):
        plan_for(make_topology(memory=64 * GIB), **asked)
    moved = plan_for(make_topology(memory=64 * GIB), **asked, reserved_memory={0: "8Gi", 1: "100Mi"})
    assert reserved_memory(moved) == {0: "8192Mi", 1: "100Mi"}


def test_memory_that_nobody_told_is_said() -> None:
    topology = make_topology(packages=1)
    unknown = dataclasses.replace(topology.numa_nodes[0], memory_bytes=0)
    with pytest.raises(InvalidInput, match="don't say how much memory NUMA node 0 has"):
        plan_for(topology.replace(numa_nodes=(unknown,)), profile="aligned")


def test_hugepages_and_eviction_are_a_matter_of_versions() -> None:  # F10
    assert "hugepages_and_eviction" in codes(plan_for(make_topology(), hugepages={"1G": 8}))
    assert "hugepages_and_eviction" not in codes(plan_for(make_topology()))
    assert "hugepages_and_eviction" not in codes(plan_for(make_topology(kubelet=None), hugepages={"1G": 8}))


def test_odd_requests_are_refused_where_cores_have_threads_and_options_say_so() -> None:  # A11
    assert "whole_core_requests" in codes(plan_for(make_topology()))
    assert "whole_core_requests" not in codes(plan_for(make_topology(threads=1)))
    assert "whole_core_requests" not in codes(plan_for(make_topology(), cpu_manager_policy_options={"full-pcpus-only": "false"}))


def test_whenever_eviction_is_written_the_whole_set_is() -> None:  # B3
    written = plan_for(make_topology(), eviction_hard={"nodefs.available": "12%"}).kubelet["configuration"]["evictionHard"]
    assert written == {
        "memory.available": "100Mi", "nodefs.available": "12%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }  # fmt: skip
    assert "evictionHard" not in plan_for(make_topology()).kubelet["configuration"]


def test_a_threshold_may_be_switched_off() -> None:
    plan = plan_for(make_topology(), profile="aligned", kube_reserved={"memory": "2Gi"}, eviction_hard={"memory.available": "0%"})
    assert reserved_memory(plan) == {0: "1024Mi", 1: "1024Mi"}


def test_a_percentage_becomes_a_quantity_on_request() -> None:
    topology = make_topology(packages=1, memory=[64 * GIB])
    share = {"profile": "aligned", "eviction_hard": {"memory.available": "5%"}}
    with pytest.raises(InvalidInput, match="differ between boots"):
        plan_for(topology, **share)
    plan = plan_for(topology, eviction_absolute=True, **share)
    assert plan.kubelet["configuration"]["evictionHard"]["memory.available"] == "3277Mi"
    assert reserved_memory(plan) == {0: "3277Mi"}


def test_a_share_of_memory_is_the_same_after_a_reboot() -> None:
    before = plan_for(make_topology(memory=64 * GIB - 5_000_000), reserved_memory_percent=10).kubelet["configuration"]["systemReserved"]
    after = plan_for(make_topology(memory=64 * GIB - 9_000_000), reserved_memory_percent=10).kubelet["configuration"]["systemReserved"]
    assert before == after == {"memory": "13743895348"}  # 12.8 GiB, rounded up to a byte


# --- kernel arguments -------------------------------------------------------------------------------------------------------------------


def test_isolated_without_a_kubelet_takes_the_cpus_out_of_load_balancing() -> None:
    plan = plan_for(reference(kubelet=None, cpu_vendor="GenuineIntel"), profile="isolated")
    isolated = "1-95,97-191,193-287,289-383"
    assert plan.kernel_arguments == (
        "isolcpus=managed_irq,domain," + isolated,
        "nohz_full=" + isolated,
        "rcu_nocbs=" + isolated,
        "irqaffinity=0,96,192,288",
        "intel_idle.max_cstate=0",
        "processor.max_cstate=1",
    )
    assert plan.kubelet == {}


def test_isolated_over_a_shared_pool_goes_without_domain() -> None:  # A7
    plan = plan_for(reference(), profile="isolated")
    assert plan.kernel_arguments[0].startswith("isolcpus=managed_irq,1-95")
    assert "isolation_over_shared_pool" in codes(plan, "info")
    asked = plan_for(reference(), profile="isolated", isolate_domain=True)
    assert asked.kernel_arguments[0].startswith("isolcpus=managed_irq,domain,")
    assert "isolation_over_shared_pool" in codes(asked, "warning")
    assert plan.kubelet["configuration"]["cpuManagerPolicyOptions"]["full-pcpus-only"] == "true"


def test_containers_with_a_cpuset_of_their_own_beside_isolation() -> None:  # D11
    docker = reference(kubelet=None, software=Software(docker=True))
    assert "docker_over_isolated_cpus" in codes(plan_for(docker, profile="isolated"), "warning")
    for plan in (
        plan_for(docker, profile="isolated", isolate_domain=False),
        plan_for(docker),
        plan_for(reference(kubelet=None), profile="isolated"),
    ):
        assert "docker_over_isolated_cpus" not in codes(plan)


def test_kernel_arguments_that_ours_displace_are_in_a_note() -> None:
    line = "ro isolcpus=2-3 nohz_full=1-95,97-191,193-287,289-383 console=ttyS0 -- idle=poll"
    (note,) = (
        note
        for note in plan_for(reference(kubelet=None, command_line=line), profile="isolated").notes
        if note.code == "kernel_arguments_displaced"
    )
    assert note.facts == {"arguments": ["isolcpus=2-3"]} and "isolcpus=2-3" in note.message
    assert "kernel_arguments_displaced" not in codes(plan_for(reference(command_line=line)))


def test_only_what_the_kernel_to_be_booted_supports() -> None:  # D5
    topology = reference(kubelet=None)
    boot = topology.boot
    without = topology.replace(boot=type(boot)("grub", "4.18.0-553.el8", {"CPU_ISOLATION": "y", "NO_HZ_FULL": "n", "RCU_NOCB_CPU": "y"}))
    plan = plan_for(without, profile="isolated")
    assert arguments(plan)["isolcpus"].startswith("domain,")
    assert "nohz_full" not in arguments(plan) and "rcu_nocbs" in arguments(plan)
    assert {"nohz_full_unsupported", "managed_irq_unsupported"} <= codes(plan, "warning")
    none = plan_for(topology.replace(boot=type(boot)("grub", "6.8.0", {"CPU_ISOLATION": "n"})), profile="isolated")
    assert "isolcpus" not in arguments(none)
    assert "cpu_isolation_unsupported" in codes(none, "error")


def test_hugepages_keep_their_pairs() -> None:  # C10
    plan = plan_for(reference(), hugepages={"1G": {0: 8, 1: 4}, "2M": {1: 1024}})
    assert plan.kernel_arguments == (
        "default_hugepagesz=1G", "hugepagesz=1G", "hugepages=0:8,1:4", "hugepagesz=2M", "hugepages=1:1024",
    )  # fmt: skip
    assert to_json(plan)["hugepages"] == {str(1 << 30): {"0": 8, "1": 4}, str(2 << 20): {"1": 1024}}


def test_an_older_kernel_gets_its_hugepages_at_run_time() -> None:  # F6
    topology = reference()
    old = topology.replace(boot=type(topology.boot)("grub", "5.15.0-144-generic", {}))
    plan = plan_for(old, hugepages={"1G": {0: 8}})
    assert plan.kernel_arguments == ("default_hugepagesz=1G",)
    assert plan.hugepages == {1 << 30: {0: 8}}
    assert "hugepages_at_run_time" in codes(plan, "warning")
    single = make_topology(packages=1).replace(boot=type(topology.boot)("grub", "5.15.0", {}))
    assert plan_for(single, hugepages={"2M": 512}).kernel_arguments == ("default_hugepagesz=2M", "hugepagesz=2M", "hugepages=512")


@pytest.mark.parametrize(
    ("release", "flags"), [("5.5.19", "domain"), ("5.6.0", "managed_irq,domain"), ("6.8.0-60-generic", "managed_irq,domain")]
)
def test_managed_irq_where_the_kernel_knows_it(release: str, flags: str) -> None:
    topology = make_topology(kubelet=None, boot=Boot("grub", release))
    assert plan_for(topology, profile="isolated").kernel_arguments[0].startswith(f"isolcpus={flags},1-7")


def test_c_states_by_vendor_and_only_when_called_for() -> None:
    assert plan_for(reference()).kernel_arguments == ()
    assert "processor.max_cstate=1" in plan_for(reference(), c_states="shallow").kernel_arguments
    assert plan_for(reference(), c_states="poll").kernel_arguments == ("idle=poll",)
    for built, wanted in (("y", ("intel_idle.max_cstate=0", "processor.max_cstate=1")), ("n", ("processor.max_cstate=1",))):
        intel = reference(cpu_vendor="GenuineIntel", boot=Boot("grub", "6.8.0", {"INTEL_IDLE": built}))
        assert plan_for(intel, c_states="shallow").kernel_arguments == wanted
    arm = plan_for(make_topology(architecture="aarch64", cpu_vendor="ARM", kubelet=None), profile="isolated")
    assert not {key for key in arguments(arm) if "cstate" in key}


def test_the_command_line_has_a_length() -> None:
    topology = make_topology(packages=2, cores=256, threads=1, numbering="interleaved", kubelet=None, offline=range(3, 512, 2))
    with pytest.raises(InvalidInput, match="cut it off at 2047"):
        plan_for(topology, profile="isolated")
    room = make_topology(kubelet=None, command_line="x" * 2040)
    with pytest.raises(InvalidInput, match="characters long"):
        plan_for(room, profile="isolated")


# --- interrupts -------------------------------------------------------------------------------------------------------------------------


def nic(address: str, node: int | None, **more: Any) -> Any:
    return device(address, node, vendor="15b3", device="1021", pci_class="020000", **more)


def test_a_device_on_a_node_without_cpus_interrupts_the_nearest_one() -> None:
    far = NumaNode(2, MEMORY_ONLY, CpuSet(), 16 * GIB, {0: 31, 1: 17, 2: 10})
    plan = plan_for(make_topology(extra_nodes=[far], nics=(nic("0000:05:00.0", 2),)))
    assert [row["cpus"].to_list() for row in plan.interrupts["devices"]] == ["8,24"]


def test_gpus_without_containers_are_none_to_share_cpus_with() -> None:
    parts = tuple(device(f"0000:00:00.{number}", 0, virtual_function=True) for number in (1, 2))
    kept = device("0000:01:00.0", 0, driver="vfio-pci")
    node = plan_for(make_topology(gpus=(device("0000:00:00.0", 0), *parts, kept))).numa_nodes[0]
    assert node.gpus == ("0000:00:00.0",) and node.cpus_per_gpu.whole_cores == 14


def test_interrupts_go_to_the_devices_own_numa_node() -> None:
    plan = plan_for(reference(nics=(nic("0001:05:00.0", 1),), nvmes=(nic("0000:06:00.0", 0), nic("0000:07:00.0", None))))
    rows = {row["device"]: row["cpus"].to_list() for row in plan.interrupts["devices"]}
    assert rows["0000:00:00.0"] == rows["0000:06:00.0"] == "0,192"
    assert rows["0001:05:00.0"] == rows["0001:00:00.0"] == "96,288"
    assert rows["0000:07:00.0"] == "0,96,192,288"  # H23: unknown is any, never the last
    assert "device_without_numa_node" in codes(plan, "warning")


def test_too_many_vectors_widen_on_the_same_node_and_say_how_many_cores_would_do() -> None:
    nics = tuple(nic("0000:%02x:00.0" % number, 0, vectors=192) for number in range(16, 20))
    topology = reference(nics=nics)
    plan = plan_for(topology)
    target = next(row["cpus"] for row in plan.interrupts["devices"] if row["device"] == nics[0].address)
    assert target.to_list() == "0-1,192-193"  # 768 vectors on CPUs of 200
    note = next(note for note in plan.notes if note.code == "interrupt_vectors")
    assert (note.severity, note.facts["reserved_cores_needed"]) == ("warning", 2)
    isolated = plan_for(topology, profile="isolated")
    assert "interrupt_vectors" in codes(isolated, "error")
    assert "interrupt_vectors" not in codes(plan_for(topology, reserved_cores_per_numa=2))
    assert "interrupt_vectors" not in codes(plan_for(topology.replace(architecture="aarch64")))


def test_local_placement_gives_one_queue_to_each_core() -> None:
    plan = plan_for(reference(), irq_placement="local")
    assert plan.interrupts["devices"][0]["cpus"].to_list() == "0-95"
    assert plan.interrupts["irqbalance"] == "off"
    nothing = plan_for(reference(), irq_placement="none")
    assert (nothing.interrupts["devices"], nothing.interrupts["irqbalance"]) == ([], "keep")


def test_network_against_housekeeping_cores() -> None:
    plan = plan_for(
        reference(nics=(nic("0000:10:00.0", 0, speed_mbps=400_000), nic("0000:10:00.1", 0, speed_mbps=400_000, virtual_function=True)))
    )
    note = next(note for note in plan.notes if note.code == "nic_bandwidth")
    assert note.facts == {"numa_node": 0, "gbps": 400.0, "cores": 1, "gbps_per_core": 20}
    for mbps, said in ((20_000, False), (25_000, True)):
        assert ("nic_bandwidth" in codes(plan_for(reference(nics=(nic("0000:10:00.0", 0, speed_mbps=mbps),))))) == said


# --- the running system -----------------------------------------------------------------------------------------------------------------


def test_defaults_of_the_running_system() -> None:
    plan = plan_for(reference())
    assert plan.sysctl == {
        "kernel.numa_balancing": "0",
        "net.core.rmem_max": "268435456",
        "net.core.wmem_max": "268435456",
        "net.ipv4.tcp_rmem": "4096 87380 268435456",
        "net.ipv4.tcp_wmem": "4096 65536 268435456",
        "vm.dirty_background_bytes": "8589934592",
        "vm.dirty_bytes": "34359738368",
        "vm.swappiness": "0",
    }
    assert plan.transparent_hugepage == {"enabled": "always", "defrag": "defer+madvise"}
    assert plan_for(reference(), workload="inference").transparent_hugepage == {"enabled": "never", "defrag": "never"}
    assert (plan.governor, plan.swap, plan.limits) == ("performance", "off", {"memlock": "unlimited", "nofile": 1048576})
    small = plan_for(make_topology()).sysctl
    assert (small["vm.dirty_background_ratio"], small["vm.dirty_ratio"]) == ("5", "20")
    assert "vm.dirty_bytes" not in small
    shown = 503 * GIB - 7_000_000  # MemTotal of a machine with 512 GiB
    assert "vm.dirty_bytes" in plan_for(make_topology(packages=1, memory=shown)).sysctl
    assert "vm.dirty_ratio" in plan_for(make_topology(packages=1, memory=shown // 512 * 384)).sysctl


def test_one_of_a_pair_takes_its_twin_out() -> None:  # F12
    values = plan_for(reference(), sysctl={"vm.dirty_ratio": 10, "vm.swappiness": None}).sysctl
    assert values["vm.dirty_ratio"] == "10"
    assert "vm.dirty_bytes" not in values and "vm.swappiness" not in values
    assert values["vm.dirty_background_bytes"] == "8589934592"


def test_absent_frequency_scaling_and_hugepages_are_fine() -> None:  # G1, G2
    plan = plan_for(make_topology(cpufreq=None, transparent_hugepage=None))
    assert (plan.governor, plan.transparent_hugepage) == ("", {})
    assert {"no_cpufreq", "no_transparent_hugepage"} <= codes(plan, "info")
    other = make_topology()
    powersave = plan_for(other.replace(cpufreq=type(other.cpufreq)("x", ("powersave",), ("powersave",))))
    assert powersave.governor == "" and "governor_missing" in codes(powersave, "warning")


def test_kept_swap_and_kubelet_agree() -> None:  # F27
    configuration = plan_for(make_topology(), swap="keep").kubelet["configuration"]
    assert configuration["failSwapOn"] is False
    assert configuration["memorySwap"] == {"swapBehavior": "NoSwap"}
    old = plan_for(make_topology(), swap="keep", kubelet_version="1.28.3").kubelet["configuration"]
    assert "memorySwap" not in old
    assert "failSwapOn" not in plan_for(make_topology()).kubelet["configuration"]


def test_confinement_spares_nodes_whose_jobs_live_in_system_slice() -> None:
    docker = make_topology(software=Software(docker=True))
    assert plan_for(docker).confine == {}
    assert "confinement_left_out" in codes(plan_for(docker), "warning")
    with pytest.raises(InvalidInput, match="Docker"):
        plan_for(docker, confine_system=True)
    assert plan_for(make_topology(kubelet=None)).confine == {}
    assert plan_for(make_topology(kubelet=None), profile="isolated").confine["slices"] == ["system.slice", "user.slice", "init.scope"]


# --- CPU jobs and notes -----------------------------------------------------------------------------------------------------------------

LAUNCHER = {"version": "1.0.0", "source_sha256": "ab" * 32}


def test_the_launcher_is_for_colocation_and_batch_services() -> None:
    def launcher(**variables: Any) -> dict[str, str]:
        return build_plan(make_topology(), policy_from_variables(variables), LAUNCHER).launcher

    assert launcher() == {**LAUNCHER, "path": "/usr/local/bin/numaspread"}
    assert launcher(profile="aligned") == launcher(launcher=False) == {}
    assert launcher(profile="aligned", batch_services=[{"name": "x", "command": ["/bin/true"], "user": "jobs"}]) == launcher()


def test_batch_services_never_run_on_isolated_cpus() -> None:
    services = [{"name": "prep", "command": ["/bin/true"], "user": "jobs"}]
    slice_ = plan_for(reference(), batch_services=services).units["slice"]
    assert slice_["cpus"].to_list() == "1-95,97-191,193-287,289-383" and slice_["follows_kubelet"]
    with pytest.raises(InvalidInput, match="no shared pool"):
        plan_for(reference(), profile="isolated", batch_services=services)
    reserved = plan_for(reference(), profile="isolated", batch_services=services, batch_on_reserved=True)
    assert reserved.units["slice"]["cpus"] == reserved.cpus.reserved and not reserved.units["slice"]["follows_kubelet"]
    assert plan_for(reference()).units == {}


def test_what_is_odd_about_a_machine_is_said() -> None:
    topology = make_topology(
        shared_roots=(SharedRoot("0000:00", ("0000:01:00.0",), ("0000:02:00.0",)),),
        software=Software(tuned_profile="throughput-performance", crio=True),
        gaps=("/boot/config could not be read",),
        kubelet=type(KUBEADM)("plain", "kubelet.service", "1.99.0", flags={"reserved-cpus": "0", "v": "2"}),
    )
    assert {
        "gpu_and_nvme_share_root", "tuned_active", "crio_owns_banned_list", "facts_gap", "kubelet_version_newer", "kubelet_flags_override",
        "whole_core_requests", "reserved_in_shared_pool",
    } <= codes(plan_for(topology))  # fmt: skip
    assert "profile_without_kubelet" in codes(plan_for(make_topology(kubelet=None)), "warning")
    assert "single_numa_node" in codes(plan_for(make_topology(packages=1, memory=[64 * GIB]), profile="aligned"))


def test_every_managed_argument_names_its_variable():
    assert set(boot_arguments._VARIABLES) == set(kernel_args.MANAGED)
    assert {name.removeprefix("gpufleet_") for name in boot_arguments._VARIABLES.values()} <= set(SETTINGS)
