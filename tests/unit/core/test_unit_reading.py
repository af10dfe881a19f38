"""The command line and the environment of a service, from what systemd would read."""

from __future__ import annotations

import json
import sys

import pytest
import user_systemd

from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_command import flags
from ansible_collections.gpufleet.node.plugins.module_utils.core.unit_reading import command_line, environment_file, service

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
        "B": "--p=1  --q='2'",
        "C": "single $x",
        "EMPTY": "",
        "INDENTED": "1",
        "D": "two\nlines",
    }


def test_an_open_quote_is_no_crash() -> None:
    assert flags(command_line(service(["[Service]\nExecStart=/k --a='x\n"]), []))["a"] == "'x"


COMMENTED = """[Service]
ExecStart=/usr/bin/kubelet --config=/k.yaml \\
# how to reach the API server
  --kubeconfig=/k.conf \\
  ; --cpu-manager-policy=none \\
  --reserved-cpus=0-1
Environment=A=1 \\
  # B=2
  C=3
"""


def test_a_comment_within_a_continued_line_is_not_part_of_it() -> None:
    unit = service([COMMENTED])
    assert flags(command_line(unit, [])[1:]) == {"config": "/k.yaml", "kubeconfig": "/k.conf", "reserved-cpus": "0-1"}
    assert unit.environment == (("A", "1"), ("C", "3"))


LINES = {
    "comments": "a \\\n# no\n  b \\\n ; no \\\n c",
    "an empty line": "a \\\n\n",
    "a comment after the end": "a \\\nb\n# no \\\nEnvironment=X=1",
    "two backslashes": "a\\\\\nEnvironment=X=1",
    "three backslashes": "a\\\\\\\nb",
    "a blank behind the backslash": "a b\\ \nEnvironment=X=1",
    "carriage returns": "a \\\r\n# no\r\n b\r\nEnvironment=X=1",
    "the end of the file": "a \\",
    "variables": "$ONE ${TWO} $THREE",
}
FILE = """# no
; no
ONE=a \\
# 'yes'
TWO="b \\
  \\"c\\" \\x \\$" 'd \\' e\\ f
 THREE = 'a
b' "c"
 not an assignment
not-a-name="x
FOUR=no"
FOUR=x"y"   \r
# no \\
; FIVE=no
FIVE=
SIX="open
to the end
"""
NAMES = ("X", "ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX")


@pytest.mark.skipif(not user_systemd.runs(), reason="no systemd can be run in name spaces here")
@pytest.mark.parametrize("case", LINES)
def test_systemd_reads_the_same(tmp_path, case: str) -> None:
    """What a real systemd starts a program with, of a unit and its environment file."""
    script, told, file = tmp_path / "tell.py", tmp_path / "told.json", tmp_path / "environment"
    script.write_text("import json, os, sys\njson.dump([sys.argv, dict(os.environ)], open(%r, 'w'))\n" % str(told))
    file.write_bytes(FILE.encode())
    text = "[Service]\nEnvironmentFile=-%s\nExecStart=%s %s %s" % (file, sys.executable, script, LINES[case])
    user_systemd.run_to_end(tmp_path / "home", "tell.service", text)
    argv, environment = json.loads(told.read_text())
    unit = service([text])
    found = environment_file(FILE)
    assert command_line(unit, [found])[1:] == argv
    ours = {**dict(unit.environment), **found}
    assert {name: ours.get(name) for name in NAMES} == {name: environment.get(name) for name in NAMES}
