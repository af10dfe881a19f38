"""What kubelet reads in the end, of files and flags: each statement as its source has it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_merge as merging
from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_rules as rules
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_command import flags

DEFAULTS = merging.EVICTION_DEFAULTS
NEWEST = rules.NEWEST_MINOR


def file(**fields: Any) -> str:
    return str(yaml.safe_dump({**merging.HEADER, **fields}))


def effective(main: str | None = None, *drop_ins: str, minor: int = NEWEST, words: tuple[str, ...] = ()) -> dict[str, Any]:
    found = merging.effective(main, {"%d.conf" % number: text for number, text in enumerate(drop_ins)}, flags(words), minor)
    return {key: value for key, value in found.items() if key != merging.EARLIER_GATES}


# --- evictionHard -------------------------------------------------------------------------------------------------------------------------

ONE = {"nodefs.available": "12%"}


def test_a_map_in_the_main_file_replaces_all_defaults() -> None:  # B3
    assert effective(file())["evictionHard"] == DEFAULTS
    assert effective(file(evictionHard=ONE))["evictionHard"] == ONE
    assert effective(file(evictionHard={}))["evictionHard"] == {}
    assert effective(file(evictionHard=None))["evictionHard"] == DEFAULTS


def test_a_map_in_a_drop_in_joins_the_defaults() -> None:
    """kubelet sets the defaults when it has read the main file, before the drop-ins."""
    assert effective(file(), file(evictionHard=ONE))["evictionHard"] == {**DEFAULTS, **ONE}
    assert effective(file(evictionHard={"pid.available": "5%"}), file(evictionHard=ONE))["evictionHard"] == {"pid.available": "5%", **ONE}


def test_a_kubelet_without_a_main_file_has_no_defaults() -> None:
    assert effective(None, file(evictionHard=ONE))["evictionHard"] == ONE
    assert "evictionHard" not in effective(None, file())


def test_defaults_may_be_merged_into_the_main_file() -> None:
    asked = file(evictionHard=ONE, mergeDefaultEvictionSettings=True)
    assert effective(asked, minor=33)["evictionHard"] == {**DEFAULTS, **ONE}
    assert effective(asked, minor=32)["evictionHard"] == ONE  # unknown there
    too_late = effective(file(evictionHard=ONE), file(mergeDefaultEvictionSettings=True))  # the main file has been read by then
    assert too_late["evictionHard"] == ONE


def test_a_flag_replaces_the_map() -> None:
    words = ("--eviction-hard=memory.available<1Gi,nodefs.available<5%",)
    assert effective(file(), words=words)["evictionHard"] == {"memory.available": "1Gi", "nodefs.available": "5%"}
    assert effective(file(), words=("--eviction-hard=",))["evictionHard"] == {}


# --- drop-ins -----------------------------------------------------------------------------------------------------------------------------


def test_maps_are_merged_by_key_and_lists_replaced_whole() -> None:  # B17
    one, other = [{"numaNode": 0, "limits": {"memory": "1Gi"}}], [{"numaNode": 1, "limits": {"memory": "2Gi"}}]
    read = effective(
        file(kubeReserved={"cpu": "1", "memory": "1Gi"}, reservedMemory=one, cpuManagerPolicy="none"),
        file(kubeReserved={"memory": "2Gi"}, reservedMemory=other),
        file(cpuManagerPolicy="static"),
    )
    assert read["kubeReserved"] == {"cpu": "1", "memory": "2Gi"}
    assert read["reservedMemory"] == other
    assert read["cpuManagerPolicy"] == "static"


def test_null_in_a_drop_in_takes_away() -> None:
    """A JSON merge patch: what is left out stays, null goes."""
    read = effective(
        file(kubeReserved={"cpu": "1", "pid": "10"}, cpuManagerPolicy="static"), file(kubeReserved={"cpu": None}, cpuManagerPolicy=None)
    )
    assert read["kubeReserved"] == {"pid": "10"} and "cpuManagerPolicy" not in read


def test_the_order_of_drop_ins_is_that_of_their_names() -> None:
    texts = {
        "20-a/z.conf": file(cpuManagerPolicy="static"),
        "20-a.conf": file(cpuManagerPolicy="none"),
        "3.conf": file(cpuManagerPolicy="none"),
    }
    assert merging.in_order(texts) == ["20-a/z.conf", "20-a.conf", "3.conf"]
    assert merging.effective(None, {**texts, "zz.conf": file(cpuManagerPolicy="static")}, {}, NEWEST)["cpuManagerPolicy"] == "static"


@pytest.mark.parametrize("text", ["", "cpuManagerPolicy: static\n", "# nothing\n", "kind: KubeletConfiguration\n", "{}",
                                  'apiVersion: v1\nkind: KubeletConfiguration\n'])  # fmt: skip
def test_a_file_without_its_head_makes_kubelet_exit(text: str) -> None:  # B16
    with pytest.raises(InvalidInput, match=r"0\.conf has (apiVersion|kind) .*, and kubelet exits on a file without"):
        effective(file(), text)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [({"kubeReserved": {"cpu": 2}}, 'kubeReserved.cpu is 2, where kubelet reads text; it would exit. Put it in quotes: "2".'),
     ({"reservedSystemCPUs": 0}, 'Put it in quotes: "0".'), ({"evictionHard": {"nodefs.available": 5}}, "where kubelet reads text"),
     ({"cpuManagerPolicyOptions": ["full-pcpus-only"]}, "where kubelet reads a mapping of texts"),  # B20
     ({"failSwapOn": "false"}, "where kubelet reads true or false"), ({"featureGates": {"X": "true"}}, "where kubelet reads true or false"),
     ({"reservedMemory": {"0": "1Gi"}}, "a list of reservations"), ({"reservedMemory": [{"numaNode": "0"}]}, "Write entries like")],
)  # fmt: skip
def test_values_of_another_type_make_kubelet_exit(fields: dict[str, Any], sentence: str) -> None:
    for texts in ((file(**fields),), (file(), file(**fields))):
        with pytest.raises(InvalidInput) as refused:
            effective(*texts)
        assert sentence in str(refused.value)


def test_amounts_are_read_with_the_file() -> None:
    """Whatever the policy, and whether or not a later file or a flag takes their place."""
    bad = file(reservedMemory=[{"numaNode": 0, "limits": {"memory": "1 Gi"}}])
    for more in ((), (file(reservedMemory=[]),)):
        with pytest.raises(InvalidInput, match='reservedMemory of NUMA node 0: memory is "1 Gi", which is not a Kubernetes quantity'):
            effective(bad, *more, words=("--reserved-memory=0:memory=1Gi",))
    read = effective(
        file(reservedMemory=[{"numaNode": 1, "limits": {"memory": " 1Gi ", "hugepages-2Mi": None, "hugepages-1Gi": 1073741824}}])
    )
    assert read["reservedMemory"] == [{"numaNode": 1, "limits": {"memory": "1Gi", "hugepages-2Mi": "0", "hugepages-1Gi": "1073741824"}}]
    with pytest.raises(InvalidInput, match="has an entry that kubelet can't read"):
        effective(file(reservedMemory=[{"numaNode": 1 << 31, "limits": {"memory": "1Gi"}}]))


def test_nothing_in_a_list_of_a_drop_in_is_no_entry() -> None:
    """kubelet's merge patch clears what it brings of null, in lists too; in the main file it is zero."""
    reserved = file(reservedMemory=[{"numaNode": 1, "limits": {"memory": None, "hugepages-2Mi": "4Mi"}}])
    assert effective(reserved)["reservedMemory"][0]["limits"] == {"memory": "0", "hugepages-2Mi": "4Mi"}
    assert effective(file(), reserved)["reservedMemory"][0]["limits"] == {"hugepages-2Mi": "4Mi"}


def test_kubelet_reads_every_flag_that_is_repeated() -> None:
    one, nothing = "--reserved-memory=1:memory=1Gi", "--reserved-memory="
    assert effective(words=("--fail-swap-on=0", "--fail-swap-on=1"))["failSwapOn"] is True
    assert effective(words=(one, nothing)) == effective(words=(one,))
    assert effective(words=("--enforce-node-allocatable=",) * 2)["enforceNodeAllocatable"] == []
    for words in (("--fail-swap-on=no", "--fail-swap-on=0"), (nothing, one), (one, nothing, nothing), (one, nothing, one)):
        with pytest.raises(InvalidInput, match="which kubelet can't read"):
            effective(words=words)


def test_fields_that_are_not_known_here_are_left_to_kubelet() -> None:
    assert "maxPods" not in effective(file(maxPods="many", reservedCpus="0", staticPodPath={"deep": [1, {"a": "&x"}]}))  # A7


@pytest.mark.parametrize("name", ["reservedSystemCpus", "ReservedSystemCPUs", "cpumanagerPolicy"])
def test_a_drop_in_is_read_in_any_case(name: str) -> None:
    """kubelet merges drop-ins as JSON, whose reader doesn't tell cases apart; in its main file the same is an unknown field."""
    assert name not in effective(file(**{name: "x"}))
    with pytest.raises(InvalidInput, match=f"has {name}, which kubelet may take for"):
        effective(file(), file(**{name: "x"}))


def test_the_head_of_the_main_file_is_read_in_any_case() -> None:
    text = "APIVersion: kubelet.config.k8s.io/v1beta1\nKind: KubeletConfiguration\ncpuManagerPolicy: none\n"
    assert effective(text)["cpuManagerPolicy"] == "none"
    with pytest.raises(InvalidInput, match="has apiVersion null, and kubelet exits"):
        effective(file(), text)


def test_of_swap_only_its_behaviour_counts() -> None:
    assert effective(file(memorySwap={"swapBehavior": "NoSwap", "behavior": 1}))["memorySwap"] == {"swapBehavior": "NoSwap"}
    with pytest.raises(InvalidInput, match=r"memorySwap\.swapBehavior is 1, where kubelet reads text"):
        effective(file(memorySwap={"swapBehavior": 1}))


def test_gates_that_kubelet_had_earlier() -> None:
    """Of its flags first, then those of its main file, then all: defaults hang on the second."""
    main, over, words = file(featureGates={"A": True}), file(featureGates={"A": False}), ("--feature-gates=B=true",)

    def earlier(*texts: str, words: tuple[str, ...] = ()) -> Any:
        return merging.effective(texts[0], dict(enumerate_conf(texts[1:])), flags(words), NEWEST).get(merging.EARLIER_GATES)

    def enumerate_conf(texts: tuple[str, ...]) -> list[tuple[str, str]]:
        return [("%d.conf" % number, text) for number, text in enumerate(texts)]

    assert earlier(main) is None
    assert earlier(main, over) == ({}, {"A": True})
    assert earlier(main, words=words) == ({"B": True}, {"A": True, "B": True})
    assert merging.effective(None, {}, flags(words), NEWEST)[merging.EARLIER_GATES] == ({"B": True}, {})


# --- flags --------------------------------------------------------------------------------------------------------------------------------


def test_flags_beat_files_and_gates_join() -> None:  # B17
    main = file(cpuManagerPolicy="static", featureGates={"A": True, "B": True}, systemReserved={"cpu": "1"}, failSwapOn=False)
    words = ("--cpu-manager-policy=none", "--feature-gates=B=false,C=true", "--system-reserved=memory=1Gi", "--fail-swap-on")
    read = effective(main, words=words)
    assert (read["cpuManagerPolicy"], read["failSwapOn"]) == ("none", True)
    assert read["featureGates"] == {"A": True, "B": False, "C": True}
    assert read["systemReserved"] == {"memory": "1Gi"}


def test_repeated_flags_add_up() -> None:
    words = ("--system-reserved=cpu=1", "--system_reserved=memory=1Gi", "--reserved-memory=0:memory=1Gi;1:memory=2Gi", "--reserved-cpus=0",
             "--cpu-manager-policy-options=full-pcpus-only=true", "--cpu-manager-policy-options=strict-cpu-reservation=true",
             "--reserved-cpus=1")  # fmt: skip
    read = effective(words=words)
    assert read["systemReserved"] == {"cpu": "1", "memory": "1Gi"} and read["reservedSystemCPUs"] == "1"
    assert [(entry["numaNode"], entry["limits"]["memory"]) for entry in read["reservedMemory"]] == [(0, "1Gi"), (1, "2Gi")]
    assert read["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true", "strict-cpu-reservation": "true"}
    together = effective(words=("--cpu-manager-policy-options=full-pcpus-only=true,strict-cpu-reservation=true",))
    assert together["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true,strict-cpu-reservation=true"}  # kubelet doesn't cut it


@pytest.mark.parametrize(
    "word",
    [
        "--system-reserved=1Gi",
        "--reserved-memory=memory=1Gi",
        "--fail-swap-on=no",
        "--feature-gates=A=on",
        "--eviction-hard=a=1",
        "--reserved-memory=0:memory=1Gi;",
        "--reserved-memory=0:memory=1Gi:1",
        "--reserved-memory=٣:memory=1Gi",
        "--cpu-manager-policy-options=",
    ],
)
def test_flags_that_kubelet_cannot_read(word: str) -> None:
    with pytest.raises(InvalidInput, match="which kubelet can't read"):
        effective(words=(word,))


def test_flags_without_a_value() -> None:
    assert effective(file(reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}]), words=("--reserved-memory=",))["reservedMemory"]
    assert effective(words=("--enforce-node-allocatable=", "--kube-reserved=")) == {"enforceNodeAllocatable": [], "kubeReserved": {}}
    assert effective(words=("--enforce-node-allocatable=pods,",))["enforceNodeAllocatable"] == ["pods", ""]
    assert effective(words=("--reserved-memory=-1:memory=1Gi",))["reservedMemory"] == [{"numaNode": -1, "limits": {"memory": "1Gi"}}]


CONFIGURATIONS = st.fixed_dictionaries(
    {},
    optional={
        "cpuManagerPolicy": st.sampled_from(("none", "static")),
        "cpuManagerPolicyOptions": st.dictionaries(
            st.sampled_from(("full-pcpus-only", "align-by-socket")), st.sampled_from(("true", "false")), min_size=1
        ),
        "reservedSystemCPUs": st.just("0,8-9"),
        "featureGates": st.dictionaries(st.sampled_from("AB"), st.booleans(), min_size=1),
        "systemReserved": st.dictionaries(st.sampled_from(("memory", "pid")), st.just("1"), min_size=1),
        "evictionHard": st.just({"memory.available": "1Gi", "nodefs.available": "5%"}),
        "failSwapOn": st.booleans(),
        "reservedMemory": st.just([{"numaNode": 0, "limits": {"memory": "1Gi"}}, {"numaNode": 3, "limits": {"memory": "1"}}]),
        "enforceNodeAllocatable": st.just(["pods", "kube-reserved"]),
    },
)


@given(CONFIGURATIONS)
def test_a_configuration_as_flags_is_the_same(configuration: dict[str, Any]) -> None:
    assert effective(words=tuple("--" + word for word in merging.as_flags(configuration))) == configuration


@given(CONFIGURATIONS, CONFIGURATIONS)
def test_json_and_yaml_are_read_alike_and_the_last_file_counts(one: dict[str, Any], other: dict[str, Any]) -> None:
    as_json = effective(None, json.dumps({**merging.HEADER, **one}), json.dumps({**merging.HEADER, **other}))
    assert as_json == effective(None, file(**one), file(**other))
    for key, value in other.items():
        assert as_json[key] == (value if not isinstance(value, dict) else {**one.get(key, {}), **value})
