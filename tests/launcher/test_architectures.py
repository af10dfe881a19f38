"""Cross builds under user-mode emulation: options, lists, the ENOSYS path, and the system call's number."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from launcher.launching import EIGHT_GPUS, GRACE_HOPPER, POWER9, TWO_SOCKETS, Machine, build_launcher, environment, needs_no_loader, run

ARCHITECTURES = {"aarch64": "aarch64-linux-gnu-gcc", "ppc64le": "powerpc64le-linux-gnu-gcc"}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def emulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A command prefix that runs the launcher of another architecture."""
    compiler, emulator = ARCHITECTURES[request.param], f"qemu-{request.param}-static"
    for tool in (compiler, emulator):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    return [emulator, str(build_launcher(tmp_path_factory.mktemp(request.param), compiler))]


def test_is_static(emulated: list[str]) -> None:
    assert needs_no_loader(Path(emulated[-1]))


def test_version_and_help(emulated: list[str], numaspread: Path) -> None:
    for option in ("--version", "--help"):
        assert run(*emulated, option).stdout == run(numaspread, option).stdout


@pytest.mark.parametrize("nodes", [TWO_SOCKETS, GRACE_HOPPER, POWER9], ids=["two sockets", "Grace Hopper", "POWER9"])
@pytest.mark.parametrize("options", [[], ["--cpuless"], ["--mode", "weighted"], ["--nodes", "0"], ["--cpus", "0-3,8"]])
def test_decides_as_the_native_build(emulated: list[str], numaspread: Path, tmp_path: Path, nodes: dict, options: list[str]) -> None:
    root = Machine(nodes).write(tmp_path / "root")
    words = ["--root", str(root), "--dry-run", *options]
    ours, native = run(*emulated, *words), run(numaspread, *words)
    assert (ours.returncode, ours.stdout, ours.stderr) == (native.returncode, native.stdout, native.stderr)
    assert ours.returncode == 0


@pytest.mark.parametrize("text", ["0-", "3-1", "1024", "x", "", "0-1023"])
def test_lists(emulated: list[str], numaspread: Path, tmp_path: Path, text: str) -> None:
    root = Machine(TWO_SOCKETS).write(tmp_path / "root")
    words = ["--root", str(root), f"--nodes={text}", "true"]
    ours, native = run(*emulated, *words), run(numaspread, *words)
    assert (ours.returncode, ours.stderr) == (native.returncode, native.stderr)
    assert ours.returncode == 125


def test_gpu(emulated: list[str], numaspread: Path, tmp_path: Path) -> None:
    root = Machine(TWO_SOCKETS, EIGHT_GPUS).write(tmp_path / "root")
    words = ["--root", str(root), "--dry-run", "--gpu", "rank"]
    for rank in range(8):
        variables = environment(LOCAL_RANK=str(rank))
        assert run(*emulated, *words, env=variables).stdout == run(numaspread, *words, env=variables).stdout


@pytest.mark.skipif(not Path("/sys/devices/system/node").is_dir(), reason="this kernel has no NUMA")
def test_an_emulator_without_the_call(emulated: list[str]) -> None:
    """qemu-user answers set_mempolicy with ENOSYS: refused in one sentence, or run on best effort."""
    result = run(*emulated, "echo", "ran")
    assert (result.returncode, result.stdout) == (125, "")
    assert "emulator" in result.stderr
    result = run(*emulated, "--best-effort", "echo", "ran")
    assert (result.returncode, result.stdout) == (0, "ran\n")
    assert "emulator" in result.stderr


@pytest.mark.skipif(not Path("/sys/devices/system/node").is_dir(), reason="this kernel has no NUMA")
def test_call_by_its_number(emulated: list[str]) -> None:
    """-strace names a call by the number that the guest used, so a wrong number would show as another call."""
    trace = run(emulated[0], "-strace", emulated[1], "true").stderr
    calls = re.findall(r"^\d+ (\w+)\(([^)]*)\)", trace, re.MULTILINE)
    assert [name for name, unused in calls if "mempolicy" in name] == ["get_mempolicy", "set_mempolicy"]
    policy, unused, maxnode = next(arguments for name, arguments in calls if name == "set_mempolicy").split(",")[:3]
    assert (policy, maxnode) == ("3", "1025")


def test_reproducible(emulated: list[str], tmp_path: Path) -> None:
    compiler = ARCHITECTURES[Path(emulated[0]).name.split("-")[1]]
    assert build_launcher(tmp_path, compiler).read_bytes() == Path(emulated[1]).read_bytes()
