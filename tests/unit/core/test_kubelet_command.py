"""The kubelet's command line, from what systemd would read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.kernel_config import SYMBOLS, newest, parse_config
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_command import (
    command_line,
    environment_file,
    flags,
    nested_flags,
    rancher_settings,
    service,
)

UNIT = "[Unit]\nDescription=x\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n"
DROP_IN = """[Service]
Environment="A=--config=/var/lib/kubelet/config.yaml" "B=--v=2"
EnvironmentFile=-/etc/default/kubelet
# a comment with ExecStart=/bin/false
ExecStart=
ExecStart=-/usr/bin/kubelet $A $B \\
  --root-dir=${DIR}/kubelet $EXTRA
"""


def test_drop_ins_replace_and_files_override() -> None:
    unit = service([UNIT, DROP_IN])
    assert unit.environment_files == ("/etc/default/kubelet",)
    assert unit.exec_start.startswith("-/usr/bin/kubelet $A $B")
    words = command_line(unit, [{"B": "--v=4", "DIR": "/data/my disk", "EXTRA": "--node-ip 10.0.0.1 --config-dir=/etc/k.d"}])
    assert words == ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--v=4", "--root-dir=/data/my disk/kubelet",
                     "--node-ip", "10.0.0.1", "--config-dir=/etc/k.d"]  # fmt: skip
    assert flags(words[1:]) == {"config": "/var/lib/kubelet/config.yaml", "v": "4", "root-dir": "/data/my disk/kubelet",
                                "node-ip": "10.0.0.1", "config-dir": "/etc/k.d"}  # fmt: skip


def test_an_empty_assignment_forgets() -> None:
    unit = service(["[Service]\nEnvironment=A=1\nEnvironmentFile=/a\nExecStart=/a $A", "[Service]\nEnvironment=\nEnvironmentFile=\n"])
    assert unit.environment == () and unit.environment_files == ()
    assert command_line(unit, []) == ["/a"]


def test_only_the_service_section_counts() -> None:
    assert service(["[Unit]\nExecStart=/a\n[Service]\nExecStart=/b\n[Install]\nExecStart=/c\n"]).exec_start == "/b"


def test_environment_files() -> None:
    text = "# c\n; c\nA=--x=1 --y\nB=\"--p=1 \\\n --q='2'\"\nC='single $x'\nEMPTY=\n  INDENTED=1\nnot an assignment\nD=\"two\nlines\"\n"
    assert environment_file(text) == {
        "A": "--x=1 --y",
        "B": "--p=1   --q='2'",
        "C": "single $x",
        "EMPTY": "",
        "INDENTED": "1",
        "D": "two\nlines",
    }


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


def test_an_open_quote_is_no_crash() -> None:
    assert flags(command_line(service(["[Service]\nExecStart=/k --a='x\n"]), []))["a"] == "'x"


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
