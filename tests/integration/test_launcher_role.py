"""The launcher on its way to a node: built once for an architecture, brought only where it is lacking, asked for its version."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.edge.launcher_build import build_launcher
from ansible_collections.gpufleet.node.plugins.module_utils.edge.launcher_source import launcher_source

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = launcher_source(str(REPOSITORY)) or {}
HERE = platform.machine()


def built(cache: Path, architecture: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return Path(build_launcher(str(REPOSITORY), SOURCE["source_sha256"], architecture))


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64", "ppc64le"])
def test_it_is_built_once_and_the_same_everywhere(architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        first = built(tmp_path / "one", architecture, monkeypatch)
    except InvalidInput as refusal:
        pytest.skip(str(refusal))
    stamp = first.stat().st_mtime_ns
    assert built(tmp_path / "one", architecture, monkeypatch) == first and first.stat().st_mtime_ns == stamp
    assert built(tmp_path / "two", architecture, monkeypatch).read_bytes() == first.read_bytes()
    assert sorted(path.name for path in first.parent.iterdir()) == ["numaspread"]


def test_a_controller_without_the_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match=r"no C compiler for aarch64\. Install gcc.*gpufleet_launcher_build: node"):
        built(tmp_path, "aarch64", monkeypatch)


PLANNED = {**SOURCE, "path": "/usr/local/bin/numaspread"}


def role(root: Path, environment: dict[str, str], *flags: str, launcher: dict = PLANNED) -> dict:
    """The module's result for a node whose root is a folder."""
    arguments = {"root": str(root), "launcher": launcher, "architecture": HERE}
    command = ["ansible", "localhost", "-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    command += ["-m", "gpufleet.node.launcher", "-a", json.dumps(arguments)]
    settings = {**environment, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal", "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run([*command, *flags], env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_a_node_gets_it_once_and_it_runs(tmp_path: Path, ansible_env: dict[str, str]) -> None:
    environment = {**ansible_env, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    root = tmp_path / "node"
    (root / "etc").mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text("processor : 0\n")
    program = root / "usr/local/bin/numaspread"
    assert role(root, environment, "--check")["changed"] and not program.exists()
    assert role(root, environment)["changed"]
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert SOURCE["version"] in answer and os.stat(program).st_mode & 0o777 == 0o755
    before = program.stat().st_mtime_ns
    assert not role(root, environment)["changed"] and program.stat().st_mtime_ns == before
    program.write_bytes(program.read_bytes() + b"!")
    assert role(root, environment)["changed"] and not program.read_bytes().endswith(b"!")
    # A profile without a launcher takes it away again.
    assert role(root, environment, "--check", launcher={})["changed"] and program.exists()
    assert role(root, environment, launcher={})["changed"] and not program.exists()
    assert not role(root, environment, launcher={})["changed"]
