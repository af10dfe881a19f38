"""The kubelet concern: the right place, other people's lines, and what kubelet reads in the end."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from strategies import KUBEADM, make_topology

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_merge as merging
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import (
    FOREIGN,
    NOT_APPLICABLE,
    PENDING,
    REMOVAL,
    RESTART,
    File,
    Observation,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import union
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet import (
    MARK,
    SHARED_MAPPINGS,
    History,
    Reading,
    artifacts,
    flags_after,
    in_force,
    main_of,
    merge,
    place,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_command import flags
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_state import Machine
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import (
    DEVICE_MEMORY,
    Kubelet,
    NumaNode,
    Software,
    Topology,
)

K3S = Kubelet("k3s", "k3s-agent.service", "1.34.1+k3s1", config_dir="/var/lib/rancher/k3s/agent/etc/kubelet.conf.d")
PLAIN = Kubelet(
    "plain", "kubelet.service", "1.34.4", config_file="/etc/kubernetes/kubelet.yaml", config_dir="/etc/kubernetes/kubelet.conf.d"
)

MAIN = """\
# somebody's file
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous:
    enabled: false   # never
clusterDNS:
- 10.96.0.10

cgroupDriver: systemd
evictionHard:
  memory.available: 500Mi
  pid.available: 5%
maxPods: 250
"""

NOTHING = Reading()
PATH = str(KUBEADM.config_file)
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def section(kubelet: Kubelet = KUBEADM, **variables: Any) -> dict[str, Any]:
    return build_plan(make_topology(kubelet=kubelet), policy_from_variables(variables)).kubelet


def files(plan_section: dict[str, Any], reading: Reading = NOTHING) -> dict[str, File]:
    found = [one for one in artifacts({"kubelet": plan_section}, reading) if isinstance(one, File)]
    return {one.path: one for one in found}


def observations(plan_section: dict[str, Any], reading: Reading = NOTHING) -> list[Observation]:
    return [one for one in artifacts({"kubelet": plan_section}, reading) if isinstance(one, Observation)]


def restarts(plan_section: dict[str, Any], reading: Reading) -> list[str]:
    return [one.item for one in observations(plan_section, reading) if one.until == RESTART]


# --- a drop-in --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kubelet", [K3S, PLAIN])
def test_a_drop_in_where_kubelet_reads_one(kubelet: Kubelet) -> None:  # A23, B16
    wanted = section(kubelet)
    path = kubelet.config_dir + "/zz-gpufleet.conf"
    text = files(wanted)[path].edit(None)
    assert yaml.safe_load(text) == wanted["configuration"]
    assert text.endswith("topologyManagerScope: container\n")
    assert 'reservedSystemCPUs: "0,8,16,24"\n' in text
    assert '  full-pcpus-only: "true"\n' in text
    assert {"apiVersion", "kind"} <= set(yaml.safe_load(text))


def test_a_drop_in_of_ours_that_nobody_reads_goes() -> None:
    path = "/etc/kubernetes/kubelet.conf.d/zz-gpufleet.conf"
    reading = Reading(ours=(path,))
    assert files(section(KUBEADM), reading)[path].edit("x") is None  # B16: never left empty
    assert files({}, reading)[path].edit("x") is None
    assert files(section(PLAIN), reading)[path].edit("x") is not None


def test_a_drop_in_cannot_take_an_option_away_so_it_is_set_to_false() -> None:
    options = 'cpuManagerPolicy: static\ncpuManagerPolicyOptions:\n  align-by-socket: "true"\n'
    main = MAIN + options + "featureGates:\n  CPUManagerPolicyAlphaOptions: true\n"
    written = yaml.safe_load(files(section(PLAIN), Reading(main=main))[PLAIN.config_dir + "/zz-gpufleet.conf"].edit(None))
    assert written["cpuManagerPolicyOptions"]["align-by-socket"] == "false"
    assert written["featureGates"] == {"CPUManagerPolicyAlphaOptions": True}  # A16: "false" needs the gate too
    with pytest.raises(InvalidInput, match=r"\(align-by-socket\). cpuManagerPolicyOptions comes from /etc/kubernetes/kubelet.yaml. Take"):
        artifacts({"kubelet": section(PLAIN, cpu_manager_policy="none")}, Reading(main=main))


@pytest.mark.parametrize(
    ("main", "sentence"),
    [(MAIN + "systemReservedCgroup: /system.slice\n", "together with systemReservedCgroup"),  # A21
     (MAIN + "kubeReserved:\n  memory: 1Gi\n", "adds up to 100Mi"),  # B2: the base reserves what our sum doesn't know
     ("{ not json", "neither YAML nor JSON"), ("- a\n", "is not a top-level key")],
)  # fmt: skip
def test_the_rules_look_at_what_all_files_make_together(main: str, sentence: str) -> None:
    for kubelet in (PLAIN, KUBEADM):
        if kubelet is KUBEADM and "json" in main:
            continue
        with pytest.raises(InvalidInput, match=sentence):
            artifacts({"kubelet": section(kubelet, profile="aligned")}, Reading(main=main))


GPU_MEMORY = make_topology(extra_nodes=[NumaNode(2, DEVICE_MEMORY, memory_bytes=96 << 30)])
OLD_CONTAINERD = make_topology(software=Software(containerd=True, containerd_version="1.7.24", containerd_systemd_cgroup=True))


@pytest.mark.parametrize(
    ("machine", "flags", "fields", "sentence"),
    [(GPU_MEMORY, {"memory-manager-policy": "Static", "reserved-memory": "0:memory=100Mi"},
      "memoryManagerPolicy: Static\nreservedMemory: [{numaNode: 0, limits: {memory: 100Mi}}]\n", "GPU memory, which is NUMA nodes 2 here"),
     (OLD_CONTAINERD, {"cgroup-driver": "cgroupfs"}, "cgroupDriver: cgroupfs\n", "cgroupDriver is cgroupfs")],
)  # fmt: skip
def test_flags_and_later_files_may_not_break_what_the_machine_needs(
    machine: Topology, flags: dict[str, str], fields: str, sentence: str
) -> None:
    def planned(**values: Any) -> dict[str, Any]:
        return build_plan(machine.replace(kubelet=dataclasses.replace(PLAIN, **values)), policy_from_variables({})).kubelet

    artifacts({"kubelet": planned()}, Reading(main=HEAD))
    later = {PLAIN.config_dir + "/zzz.conf": HEAD + fields}
    for section, reading in ((planned(flags=flags), Reading(main=HEAD)), (planned(), Reading(main=HEAD, drop_ins=later))):
        with pytest.raises(InvalidInput, match=sentence):
            artifacts({"kubelet": section}, reading)


def test_other_drop_ins_count_too() -> None:
    reading = Reading(drop_ins={PLAIN.config_dir + "/10-reserve.conf": HEAD + "systemReserved:\n  memory: 2Gi\n"})
    with pytest.raises(InvalidInput, match="adds up to 100Mi"):
        artifacts({"kubelet": section(PLAIN, profile="aligned")}, reading)
    artifacts({"kubelet": section(PLAIN, profile="aligned", system_reserved={"memory": "1Gi"})}, reading)


def test_a_json_file_is_read_but_not_merged_into() -> None:
    artifacts({"kubelet": section(PLAIN)}, Reading(main=json.dumps({**merging.HEADER, "maxPods": 100})))
    with pytest.raises(InvalidInput, match=r"is JSON.*gpufleet_kubelet_config_dir: kubelet 1\.32"):
        artifacts({"kubelet": section(KUBEADM)}, Reading(main='{"kind": "KubeletConfiguration"}'))


# --- merging into the main file -----------------------------------------------------------------------------------------------------------


def test_lines_of_others_stay_as_they_are() -> None:
    configuration = section(KUBEADM, profile="aligned")["configuration"]
    merged = merge(MAIN, configuration, "config.yaml")
    expected = yaml.safe_load(MAIN)
    expected["evictionHard"] = {**expected["evictionHard"], **configuration["evictionHard"]}
    assert yaml.safe_load(merged) == {**configuration, **expected}
    ours = set(merged.splitlines()) - set(MAIN.splitlines())
    rest = [line for line in merged.splitlines() if line not in ours]
    assert rest == [line for line in MAIN.splitlines() if line != "  memory.available: 500Mi"]
    assert merge(merged, configuration, "config.yaml") == merged


def test_a_file_that_is_missing_or_empty_is_made() -> None:
    configuration = section()["configuration"]
    for nothing in (None, ""):
        assert yaml.safe_load(merge(nothing, configuration, "x")) == configuration
    assert merge(None, {}, "x") is None
    assert merge(MAIN, {}, "x") == MAIN


PROFILE = st.sampled_from(("colocation", "aligned", "isolated"))
SWAP = st.sampled_from(("off", "keep"))


@given(PROFILE, SWAP, PROFILE, SWAP)
def test_a_change_of_profile_leaves_no_residue(before: str, swap_before: str, after: str, swap_after: str) -> None:
    first = section(profile=before, swap=swap_before, kubelet_version="1.31.0")["configuration"]
    second = section(profile=after, swap=swap_after)["configuration"]
    clean = MAIN.replace("evictionHard:\n  memory.available: 500Mi\n  pid.available: 5%\n", "")
    one = merge(clean, first, "x")
    assert merge(one, first, "x") == one
    two = merge(one, second, "x")
    assert merge(two, second, "x") == two
    assert yaml.safe_load(two) == yaml.safe_load(merge(clean, second, "x"))
    assert merge(two, {}, "x") == clean


THEIRS = {
    "cpuManagerPolicy": "none",
    "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
    "failSwapOn": False,
    "evictionHard": {"memory.available": "500Mi", "pid.available": "5%"},
    "featureGates": {"CPUManager": True},
    "maxPods": 250,
}
REWRITTEN = {
    "appended": lambda text: text + "registryBurst: 20\n",
    "by a library": lambda text: yaml.safe_dump({**yaml.safe_load(text), "registryBurst": 20}),
    "with carriage returns": lambda text: (text + "registryBurst: 20\n").replace("\n", "\r\n"),
}


@given(st.sets(st.sampled_from(sorted(THEIRS))), PROFILE, PROFILE, st.sampled_from(sorted(REWRITTEN)))
def test_what_ours_took_the_place_of_comes_back(keys: set[str], first: str, second: str, how: str) -> None:
    theirs = {**merging.HEADER, **{key: THEIRS[key] for key in sorted(keys)}}
    original = written = yaml.safe_dump(theirs)
    for profile in (first, second):
        wanted = section(profile=profile, swap="keep" if profile == first else "off")["configuration"]
        written = merge(written, wanted, "x", History(original, written))
        assert {key: value for key, value in yaml.safe_load(written).items() if key in wanted and key not in SHARED_MAPPINGS} == {
            key: value for key, value in wanted.items() if key not in SHARED_MAPPINGS
        }
    back = merge(REWRITTEN[how](written), {}, "x", History(original, written))
    assert yaml.safe_load(back) == {**theirs, "registryBurst": 20}
    assert merge(back, {}, "x", History(original, written)) == back


def test_a_key_of_ours_that_somebody_changed_is_theirs() -> None:
    original = HEAD + "cpuManagerPolicy: none\ntopologyManagerPolicy: none\n"
    written = merge(original, section(profile="aligned")["configuration"], "x")
    edited = written.replace("topologyManagerPolicy: single-numa-node", "topologyManagerPolicy: restricted")
    back = yaml.safe_load(merge(edited, {}, "x", History(original, written)))
    assert back == {**merging.HEADER, "cpuManagerPolicy": "none", "topologyManagerPolicy": "restricted"}


def test_a_file_in_a_form_of_their_own_is_left() -> None:
    written = merge(MAIN, section()["configuration"], "x")
    text = json.dumps(yaml.safe_load(written))
    assert merge(text, {}, "x", History(MAIN, written)) == text


@pytest.mark.parametrize(("key", "value"), [("memoryManagerPolicy", "&none None"), ("reservedMemory", "[&none {}]")])
def test_an_anchor_that_others_refer_to_is_not_taken_away(key: str, value: str) -> None:
    text = HEAD + "%s: %s\nclusterDomain: *none\n" % (key, value)
    with pytest.raises(InvalidInput, match="has %s with an anchor .&none., and clusterDomain refers to it" % key):
        merge(text, section()["configuration"], "x")
    unused = text.replace("*none", "'*none'  # *none")
    assert "clusterDomain: '*none'  # *none\n" in merge(unused, section()["configuration"], "x")


def test_comments_and_line_ends_stay() -> None:
    entries = "evictionHard:  # ours\n  # enough for the runtime\n  memory.available: 500Mi\n  # why\n  pid.available: '5%'  # many\n"
    text = (HEAD + entries).replace("\n", "\r\n")
    wanted = section(profile="aligned")["configuration"]
    merged = merge(text, wanted, "x")
    assert merged.count("\n") == merged.count("\r\n") and merge(merged, wanted, "x") == merged
    value = json.dumps(wanted["evictionHard"]["memory.available"])
    assert entries.replace("500Mi", value).replace("\n", "\r\n") in merged
    assert merge(merged, {}, "x", History(text, merged)) == text


def test_an_upgrade_that_rewrites_the_file_is_drift_and_nothing_worse() -> None:  # B18
    configuration = section()["configuration"]
    rewritten = yaml.safe_dump(yaml.safe_load(merge(MAIN, configuration, "x")))
    again = merge(rewritten, configuration, "x")
    assert again != rewritten and again.startswith(MARK)
    assert yaml.safe_load(again) == yaml.safe_load(rewritten)


# --- restart and flags --------------------------------------------------------------------------------------------------------------------


def test_kubelet_has_to_be_restarted_when_its_file_changes_or_has_changed() -> None:
    wanted = section()
    text = merge(MAIN, wanted["configuration"], "x")
    before = observations(wanted, Reading(main=MAIN, texts={PATH: MAIN}))
    assert [(one.item, one.status, one.until) for one in before] == [("kubelet.service", PENDING, RESTART)]
    assert observations(wanted, Reading(main=text, texts={PATH: text})) == []
    assert [one.item for one in observations(wanted, Reading(main=text, texts={PATH: text}, stale=True))] == ["kubelet.service"]


RKE2_30 = Kubelet("rke2", "rke2-agent.service", "1.30.4", config_dir="/var/lib/rancher/rke2/agent/etc/kubelet.conf.d")


@pytest.mark.parametrize("kubelet", [KUBEADM, PLAIN, K3S, RKE2_30], ids=lambda one: one.distribution)
@given(PROFILE, st.booleans())
def test_other_words_for_the_same_need_no_restart(kubelet: Kubelet, profile: str, in_order: bool) -> None:
    """As kubeadm's upgrade writes them with our patch, or an older release of ours: the text is ours to mend, kubelet has it already."""
    wanted = section(kubelet, profile=profile, reserved_cpus="0-1,8,16-17,24", kube_reserved={"memory": "2Gi"})
    own, main = place(wanted), HEAD if main_of(wanted) else None
    text = files(wanted, Reading(main=main))[own].edit(HEAD)

    def reading(text: str) -> Reading:
        return Reading(main=text if own == main_of(wanted) else main, texts={own: text})

    same = yaml.safe_dump(yaml.safe_load(text), sort_keys=in_order).replace("0-1,8,16-17,24", "24,16-17,8,0,1").replace("2Gi", "2048Mi")
    other = text.replace("0-1,8,16-17,24", "0-1,8,16-17")
    assert files(wanted, reading(same))[own].edit(same) != same and text != other
    assert restarts(wanted, reading(text)) == restarts(wanted, reading(same)) == []
    assert restarts(wanted, reading(other)) == restarts(wanted, Reading(main=main)) == [kubelet.unit]


@pytest.mark.parametrize("kubelet", [PLAIN, K3S])
def test_what_is_in_force_has_flags_and_later_files_over_ours(kubelet: Kubelet) -> None:
    """That is what a restarted kubelet's state files are held against."""
    later = {"%s/zzz.conf" % kubelet.config_dir: HEAD + "memoryManagerPolicy: Static\n"}
    wanted = section(replace(kubelet, flags={"topology-manager-scope": "pod"}))
    own, main = place(wanted), HEAD if main_of(wanted) else None
    found = in_force(wanted, Reading(main=main, drop_ins=later, texts={own: files(wanted, Reading(main=main))[own].edit(None)}))
    assert (found["cpuManagerPolicy"], found["memoryManagerPolicy"], found["topologyManagerScope"]) == ("static", "Static", "pod")


def test_a_damaged_file_of_ours_is_news() -> None:
    wanted = section(K3S)
    assert restarts(wanted, Reading(texts={place(wanted): ""})) == [K3S.unit]


def test_state_files_of_another_policy_are_named() -> None:  # A1
    wanted = section()
    text = merge(MAIN, wanted["configuration"], "x")
    states = {"cpu_manager_state": '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'}
    found = observations(wanted, Reading(main=text, texts={PATH: text}, states=states))
    assert [one.item for one in found] == ["cpu_manager_state"]
    assert "drain" in found[0].message and found[0].until == REMOVAL
    changed = observations(wanted, Reading(main=MAIN, texts={PATH: MAIN}, states=states))
    assert [one.item for one in changed] == ["cpu_manager_state"]  # restarted as it is, kubelet would not come back
    torn = observations(wanted, Reading(main=text, texts={PATH: text}, states={"cpu_manager_state": '{"policy'}))  # A27
    assert [one.item for one in torn] == ["cpu_manager_state"]


@pytest.mark.parametrize(("version", "found"), [("1.33.5", NOT_APPLICABLE), ("1.34.4", PENDING)])
def test_a_checksum_that_is_not_checked_is_named(version: str, found: str) -> None:
    wanted = section(replace(KUBEADM, version=version))
    text = merge(MAIN, wanted["configuration"], "x")
    online = union(node.cpus for node in make_topology().cpu_nodes)
    states = {
        "cpu_manager_state": '{"policyName":"static","defaultCpuSet":"%s","checksum":1}' % online,
        "memory_manager_state": '{"policyName":"None","machineState":{},"checksum":1}',
    }
    told = observations(wanted, Reading(main=text, states=states, machine=Machine(online, {})))
    assert {one.status for one in told} == {found}
    if found == NOT_APPLICABLE:
        assert [one.item for one in told] == ["checksum of cpu_manager_state and memory_manager_state"]
        assert told[0].message.startswith("not checked: ")


def test_flags_that_beat_the_file_are_somebody_elses() -> None:  # B17
    kubelet = Kubelet("plain", "kubelet.service", "1.34.4", config_file="/k.yaml", flags={"reserved-cpus": "0", "node-ip": "::1"})
    found = [one for one in observations(section(kubelet)) if one.status == FOREIGN]
    assert [one.item for one in found] == ["kubelet flag --reserved-cpus"]


# --- where to write -----------------------------------------------------------------------------------------------------------------------

STARTED = "/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS"
FOLDER = "/etc/kubernetes/kubelet.conf.d"


def started(version: str = "1.34.4", distribution: str = "kubeadm") -> Kubelet:
    return Kubelet(distribution, "kubelet.service", version, config_file=KUBEADM.config_file, exec_start=STARTED)


def test_kubelets_unit_is_made_to_pass_a_folder() -> None:
    """Its own ExecStart stays whole: what stands in KUBELET_EXTRA_ARGS, from a file that beats Environment=, goes on to count."""
    wanted = section(started(), kubelet_config_dir=FOLDER + "/")
    found = files(wanted)
    unit = "/etc/systemd/system/kubelet.service.d/zz-gpufleet-config-dir.conf"
    assert found[unit].edit(None).endswith("[Service]\nExecStart=\nExecStart=%s --config-dir=%s\n" % (STARTED, FOLDER))
    assert yaml.safe_load(found[FOLDER + "/zz-gpufleet.conf"].edit(None)) == wanted["configuration"]
    assert found[PATH].edit(MAIN) == MAIN  # kubeadm's own file is left as it is
    there = Reading(main=MAIN, texts={path: one.edit(None) for path, one in found.items() if path in (unit, FOLDER + "/zz-gpufleet.conf")})
    assert restarts(wanted, there) == [] and restarts(wanted, replace(there, texts={**there.texts, unit: None})) == ["kubelet.service"]
    gone = files(section(started()), Reading(main=MAIN, ours=(unit, FOLDER + "/zz-gpufleet.conf")))
    assert gone[unit].edit("x") is None and gone[FOLDER + "/zz-gpufleet.conf"].edit("x") is None


def test_a_folder_that_kubelet_has_by_another_spelling() -> None:
    passed = replace(started(), config_dir="/etc//kubernetes/./kubelet.conf.d/")
    assert section(passed, kubelet_config_dir=FOLDER)["exec_start"] == ""


@pytest.mark.parametrize(
    ("kubelet", "sentence"),
    [(started("1.31.9"), "from 1.32 on"), (Kubelet("kubeadm", "kubelet.service", None, PATH, exec_start=STARTED), "of unknown version"),
     (K3S, "this kubelet reads /var/lib/rancher/k3s"), (KUBEADM, "don't say how kubelet.service starts kubelet")],
)  # fmt: skip
def test_a_folder_that_this_kubelet_cannot_have(kubelet: Kubelet, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        section(kubelet, kubelet_config_dir=FOLDER)


@pytest.mark.parametrize(("version", "drop_in"), [("1.31.9", False), ("1.32.0", True)])
def test_drop_ins_only_from_1_32_on(version: str, drop_in: bool) -> None:
    reads = Kubelet("plain", "kubelet.service", version, config_file=PATH, config_dir=FOLDER)
    assert place(section(reads)) == (FOLDER + "/zz-gpufleet.conf" if drop_in else PATH)


def test_kubeadm_keeps_our_part_by_a_patch() -> None:  # B18
    wanted = section(KUBEADM, kubeadm_patches="/etc/kubernetes/patches")
    found = files(wanted)
    patch = "/etc/kubernetes/patches/kubeletconfiguration-gpufleet+merge.yaml"
    assert yaml.safe_load(found[patch].edit(None)) == wanted["configuration"]
    assert PATH in found
    old = dataclasses.replace(KUBEADM, version="1.31.9", config_dir=FOLDER)  # which gets no drop-in of ours
    assert patch in files(section(old, kubeadm_patches="/etc/kubernetes/patches"))
    reads = dataclasses.replace(KUBEADM, config_dir=FOLDER)
    for kubelet, sentence in ((PLAIN, "our part is a drop-in"), (reads, "our part is a drop-in"),
                              (Kubelet("plain", "kubelet.service", "1.34.4", PATH), "this kubelet isn't kubeadm's")):  # fmt: skip
        with pytest.raises(InvalidInput, match=sentence):
            section(kubelet, kubeadm_patches="/etc/kubernetes/patches")
    assert files(section(), Reading(ours=(patch,)))[patch].edit("x") is None


@pytest.mark.parametrize(("folder", "policy"), [(None, "best-effort"), ("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d", "none")])
def test_flags_of_ours_come_after_the_nodes(folder: str | None, policy: str) -> None:
    kubelet = replace(K3S, config_dir=folder, flags={"topology-manager-policy": "none", "v": "2"})
    found = flags_after(section(kubelet))
    assert (found["topology-manager-policy"], found["v"]) == (policy, "2")


@pytest.mark.parametrize("distribution", ["k3s", "rke2"])
def test_k3s_and_rke2_before_1_32_get_flags(distribution: str) -> None:  # A23
    kubelet = Kubelet(distribution, distribution + "-agent.service", "1.30.14", config_dir="/var/lib/x/agent/etc/kubelet.conf.d")
    wanted = section(kubelet, profile="aligned", system_reserved={"memory": "1Gi"})
    text = files(wanted)["/etc/rancher/%s/config.yaml.d/zz-gpufleet.yaml" % distribution].edit(None)
    words = yaml.safe_load(text)["kubelet-arg+"]
    read = merging.effective(None, {}, flags(["--" + word for word in words]), 30)
    assert read.items() <= wanted["configuration"].items() and {"cpuManagerPolicy", "reservedMemory", "evictionHard"} <= set(read)
    passing = Kubelet(distribution, distribution + "-agent.service", "1.30.14", exec_start="/usr/local/bin/k3s agent --kubelet-arg=v=2")
    with pytest.raises(InvalidInput, match="replaces every kubelet-arg of its files"):
        section(passing)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("zzz.yaml", "kubelet-arg:\n- v=2\n", "kubelet-arg replaces all flags before it"),
     ("zzz.yaml", "kubelet-arg+: topology-manager-policy=restricted\n", "it sets topologyManagerPolicy"),
     ("zzz.yaml", "kubelet-arg+:\n- v=2\n", ""),
     ("10.yaml", "kubelet-arg:\n- topology-manager-policy=restricted # mine\n", "")],
)  # fmt: skip
def test_files_of_rke2_that_come_after_ours(name: str, text: str, message: str) -> None:
    kubelet = Kubelet("rke2", "rke2-agent.service", "1.30.14", flags={"topology-manager-policy": "restricted"})
    plan = build_plan(make_topology(kubelet=kubelet), policy_from_variables({}))
    path = "/etc/rancher/rke2/config.yaml.d/" + name
    found = [one for one in observations(plan.kubelet, Reading(arguments={path: text})) if one.status == FOREIGN]
    assert [one.item for one in found] == ([path] if message else [])
    assert all(message in one.message for one in found)
    assert "kubelet_flags_override" not in {note.code for note in plan.notes}  # ours come last


TYPO = 'cpuManagerPolicyOptions:\n  full-pcpu-only: "true"\n'


@pytest.mark.parametrize(
    ("flag", "main", "drop_ins", "sentence"),
    [({"cpu-manager-policy": "none"}, "", {}, "cpuManagerPolicy comes from kubelet's flag --cpu-manager-policy."),
     ({}, "kubeReserved:\n  memory: 1Gi\n", {}, "kubeReserved comes from /etc/kubernetes/kubelet.yaml."),
     ({"kube-reserved": "memory=1Gi"}, "kubeReserved:\n  memory: 3Gi\n", {}, "kubeReserved comes from kubelet's flag --kube-reserved."),
     ({}, "kubeReserved:\n  memory: 1Gi\n", {"10.conf": "kubeReserved:\n  pid: '9'\n"},
      "kubeReserved comes from /etc/kubernetes/kubelet.yaml and /etc/kubernetes/kubelet.conf.d/10.conf."),
     ({}, "systemReservedCgroup: /a\n", {"10.conf": "systemReservedCgroup: /b\n"},
      "systemReservedCgroup comes from /etc/kubernetes/kubelet.conf.d/10.conf."),
     ({}, TYPO, {}, "cpuManagerPolicyOptions comes from /etc/kubernetes/kubelet.yaml."),
     ({}, "", {"zzz.conf": TYPO}, "zz-gpufleet.conf and /etc/kubernetes/kubelet.conf.d/zzz.conf."),
     ({"feature-gates": "CPUManager=true"}, "", {}, "featureGates comes from kubelet's flag --feature-gates.")],
)  # fmt: skip
def test_a_refusal_says_where_a_value_of_others_comes_from(
    flag: dict[str, str], main: str, drop_ins: dict[str, str], sentence: str
) -> None:
    wanted = section(dataclasses.replace(PLAIN, flags=flag), profile="aligned")
    reading = Reading(main=HEAD + main, drop_ins={"%s/%s" % (PLAIN.config_dir, name): HEAD + text for name, text in drop_ins.items()})
    with pytest.raises(InvalidInput) as refusal:
        artifacts({"kubelet": wanted}, reading)
    assert refusal.value.problem.endswith(sentence) and refusal.value.problem.count("comes from") == 1


def test_what_others_reserve_is_divided_when_the_plan_knows_of_it() -> None:
    main = HEAD + "kubeReserved:\n  memory: 1Gi\n"
    with pytest.raises(InvalidInput, match="by gpufleet_kube_reserved and gpufleet_system_reserved"):
        artifacts({"kubelet": section(KUBEADM, profile="aligned")}, Reading(main=main))
    artifacts({"kubelet": section(KUBEADM, profile="aligned", kube_reserved={"memory": "1Gi"})}, Reading(main=main))


@pytest.mark.parametrize("kubelet", [PLAIN, KUBEADM])
def test_an_amount_of_cpus_that_kubelet_ignores_is_somebody_elses(kubelet: Kubelet) -> None:  # A21
    main = HEAD + 'kubeReserved:\n  cpu: "2"\n  memory: 1Gi\n'
    found = observations(section(dataclasses.replace(kubelet, flags={"system-reserved": "cpu=1"})), Reading(main=main))
    assert [(one.item, one.message.partition(" sets it")[0]) for one in found if one.item.endswith(".cpu")] == [
        ("kubeReserved.cpu", str(kubelet.config_file)), ("systemReserved.cpu", "kubelet's flag --system-reserved")
    ]  # fmt: skip
    assert not [one for one in observations(section(kubelet), Reading(main=HEAD)) if one.item.endswith(".cpu")]


def test_what_rke2_passes_on_in_the_end_is_checked() -> None:
    wanted = section(Kubelet("rke2", "rke2-agent.service", "1.30.14"))
    later = {"/etc/rancher/rke2/config.yaml.d/zzz.yaml": "kubelet-arg+: [cpu-manager-policy=none]\n"}
    with pytest.raises(InvalidInput, match="cpuManagerPolicy is none"):
        artifacts({"kubelet": wanted}, Reading(arguments=later))


def test_a_drop_in_that_comes_after_ours_is_somebody_elses() -> None:
    later = {FOLDER + "/zzz.conf": HEAD + "cpuManagerPolicy: static\ntopologyManagerPolicy: none\n"}
    found = [one for one in observations(section(PLAIN), Reading(main=HEAD, drop_ins=later)) if one.status == FOREIGN]
    assert [(one.item, one.message.rpartition(" ")[2]) for one in found] == [(FOLDER + "/zzz.conf", "topologyManagerPolicy")]
    earlier = {FOLDER + "/10.conf": later[FOLDER + "/zzz.conf"]}
    assert not [one for one in observations(section(PLAIN), Reading(main=HEAD, drop_ins=earlier)) if one.status == FOREIGN]


def test_flags_are_part_of_what_kubelet_would_refuse() -> None:
    kubelet = Kubelet("plain", "kubelet.service", "1.34.4", config_file=PATH, flags={"cpu-manager-policy": "none"})
    with pytest.raises(InvalidInput, match="cpuManagerPolicy is none, and kubelet exits on any cpuManagerPolicyOptions"):
        artifacts({"kubelet": section(kubelet)}, NOTHING)
