"""When the launcher is current, missing, replaced or unwanted."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, IN_PLACE
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.launcher import artifacts
from ansible_collections.gpufleet.node.plugins.module_utils.host import launcher as host
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect

WANTED = {"version": "1.0.0", "source_sha256": "ab" * 32, "path": "/usr/local/bin/numaspread"}
PROGRAM = b"\x7fELF\x00\xff\xfe program"


def wanted(root, **launcher):
    node = Node.at(str(root))
    section = {"launcher": {**WANTED, **launcher} if launcher is not None else {}}
    return artifacts(section, host.read(node.root, node.command, section)), node


@pytest.fixture
def brought(tmp_path):
    program = tmp_path / "brought"
    program.write_bytes(PROGRAM)
    (tmp_path / "node").mkdir()
    return program


def test_it_is_installed_once_and_byte_for_byte(tmp_path, brought):
    root = tmp_path / "node"
    assert [finding.status for finding in inspect(*wanted(root))] == [DRIFT]
    assert apply(*wanted(root, binary=str(brought))).changed
    installed = root / "usr/local/bin/numaspread"
    assert installed.read_bytes() == PROGRAM and installed.stat().st_mode & 0o777 == 0o755
    assert {finding.status for finding in inspect(*wanted(root))} <= {IN_PLACE}
    assert not apply(*wanted(root)).changed


@pytest.mark.parametrize("change", ["program", "source", "stamp"])
def test_a_change_of_program_source_or_stamp_is_drift(tmp_path, brought, change):
    root = tmp_path / "node"
    apply(*wanted(root, binary=str(brought)))
    launcher = {}
    if change == "program":
        (root / "usr/local/bin/numaspread").write_bytes(PROGRAM + b"!")
    elif change == "stamp":
        (root / "usr/local/lib/gpufleet/numaspread.json").unlink()
    else:
        launcher = {"source_sha256": "cd" * 32}
    assert [finding.status for finding in inspect(*wanted(root, **launcher))] == [DRIFT]


def test_an_unwanted_launcher_goes(tmp_path, brought):
    root = tmp_path / "node"
    apply(*wanted(root, binary=str(brought)))
    node = Node.at(str(root))
    section = {"launcher": dict.fromkeys([*WANTED, "binary", "source"])}  # as a module's options come
    assert apply(artifacts(section, host.read(node.root, node.command, section)), node).changed
    assert not (root / "usr/local/bin/numaspread").exists()


def test_half_a_launcher_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="lacks version"):
        wanted(tmp_path, version="")
