"""kubelet's flags, from the words of its command line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kernel_config import SYMBOLS, newest, parse_config
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_command import flags, nested_flags, rancher_settings


@pytest.mark.parametrize(
    "words,found",
    [
        ([], {}),
        (["--a=b=c", "--a=d"], {"a": "d"}),
        (
            ["-v=2", "--fail-swap-on=false", "--register-node", "--x", "1"],
            {"v": "2", "fail-swap-on": "false", "register-node": "true", "x": "1"},
        ),
        (["agent", "--", "--y"], {"y": "true"}),
    ],
)
def test_flags(words: list[str], found: dict[str, str]) -> None:
    assert flags(words) == found


def passed_on(*texts: str) -> dict[str, str]:
    """What kubelet gets by these files of k3s, in their order."""
    return nested_flags((), rancher_settings({"%d.yaml" % number: text for number, text in enumerate(texts)}).get("kubelet-arg", ()))


def test_flags_that_k3s_passes_on() -> None:
    main = "node-label:\n- pool=gpu\nkubelet-arg:\n  - \"reserved-cpus=0,1\"\n  - 'v=2'\nother: 1\n"
    assert passed_on(main) == {"reserved-cpus": "0,1", "v": "2"}
    assert passed_on(main, "kubelet-arg+:\n- v=4\n- x=y\n") == {"reserved-cpus": "0,1", "v": "4", "x": "y"}
    assert passed_on(main, '"kubelet-arg+": v=4\n', "a: {}\n")["v"] == "4"
    assert passed_on(main, "kubelet-arg:\n- v=4\n") == {"v": "4"}
    words = ["/k3s", "agent", "--kubelet-arg=config-dir=/etc/k", "--kubelet-arg", "x=y"]
    assert nested_flags(words, ["v=2"]) == {"config-dir": "/etc/k", "x": "y"}
    assert rancher_settings({"a": "data-dir: /data # mine\n", "b": "data-dir: '/k 3'\n"}) == {"data-dir": ["/k 3"]}


FLAG = st.sampled_from(["v=2", "--reserved-cpus=0,1", "x=a b", "topology-manager-policy=restricted", "a=# b", "a='b'", "protect", "y: z"])
STYLES = st.fixed_dictionaries({"default_flow_style": st.sampled_from([None, True, False]), "indent": st.sampled_from([2, 4])})


@given(
    st.lists(st.tuples(st.sampled_from(["kubelet-arg", "kubelet-arg+"]), st.one_of(st.lists(FLAG), FLAG), STYLES), max_size=3), st.data()
)
def test_however_a_file_of_k3s_is_written(files: list[tuple[str, list[str] | str, dict[str, Any]]], data: st.DataObject) -> None:
    """As PyYAML writes lists, with comments and blank lines between: the flags are those that k3s reads."""
    expected: list[str] = []
    texts = []
    for key, value, style in files:
        lines = yaml.safe_dump({"node-label": ["a=b"], key: value, "z": 1}, sort_keys=False, width=999, **style).splitlines()
        between = [data.draw(st.sampled_from(["", "\n", "# mine\n", "    # mine\n"])) for line in lines]
        block = style["default_flow_style"] is False
        texts.append(
            "".join(line + (" # mine" if block else "") + "\n" + more for line, more in zip(lines, between)) if block else "\n".join(lines)
        )
        listed = value if isinstance(value, list) else [value]
        expected = [*expected, *listed] if key.endswith("+") else listed
    if any(text.startswith("{") for text in texts):
        with pytest.raises(InvalidInput, match="yaml"):
            passed_on(*texts)
        return
    assert passed_on(*texts) == nested_flags((), expected)


def test_repeated_flags_are_joined_where_kubelet_adds_them_up() -> None:  # B17
    words = ["--system-reserved=cpu=1", "--system_reserved", "memory=1Gi", "--reserved-memory=0:memory=1Gi",
             "--reserved-memory=1:memory=2Gi", "--reserved-cpus=0", "--reserved-cpus=1"]  # fmt: skip
    assert flags(words) == {
        "system-reserved": "cpu=1,memory=1Gi", "reserved-memory": "0:memory=1Gi\x001:memory=2Gi", "reserved-cpus": "1",
    }  # fmt: skip


def test_kernel_configuration() -> None:
    text = "# CONFIG_NO_HZ_FULL is not set\nCONFIG_RCU_NOCB_CPU=y\nCONFIG_HZ=250\nCONFIG_RCU_NOCB_CPU_DEFAULT_ALL=y\nCONFIG_INTEL_IDLE=m\n"
    found = parse_config(text)
    assert {key: found[key] for key in ("NO_HZ_FULL", "RCU_NOCB_CPU", "HZ", "INTEL_IDLE", "CPU_ISOLATION")} == {
        "NO_HZ_FULL": "n", "RCU_NOCB_CPU": "y", "HZ": "250", "INTEL_IDLE": "m", "CPU_ISOLATION": "n",
    }  # fmt: skip
    assert set(found) == set(SYMBOLS) and parse_config("") == parse_config("hello") == {}


@pytest.mark.parametrize(
    "releases,release",
    [
        (["5.14.0-70.el9.x86_64", "5.14.0-503.11.1.el9_5.x86_64"], "5.14.0-503.11.1.el9_5.x86_64"),
        (["6.8.0-9-generic", "6.8.0-60-generic", "6.5.0-99-generic"], "6.8.0-60-generic"),
        (["6.1.0-37-amd64"], "6.1.0-37-amd64"),
        ([], None),
    ],
)
def test_the_newest_kernel(releases: list[str], release: str | None) -> None:
    assert newest(releases) == release
