"""The launcher and the small programs beside it, built once for each test process."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from launcher.launching import Machine, build_launcher, build_program, run


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for programs."""
    if not (shutil.which("gcc") and shutil.which("make")):
        pytest.skip("the launcher's tests need gcc and make")
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session")
def numaspread(built: Path) -> Path:
    """The launcher, built as its Makefile builds it."""
    return build_launcher(built)


@pytest.fixture(scope="session")
def show(built: Path) -> Path:
    """A command that prints what it finds: its policy, CPUs, arguments and descriptors."""
    return build_program("show", built)


@pytest.fixture(scope="session")
def refuse(built: Path) -> Path:
    """A command that runs another one under a seccomp filter."""
    return build_program("refuse", built)


@pytest.fixture
def decide(numaspread: Path, tmp_path: Path) -> Callable[..., dict[str, list[str]]]:
    """What --dry-run prints for a machine: the values by their key."""

    def decide(machine: Machine, *options: str, **written: bool) -> dict[str, list[str]]:
        root = tmp_path / "root"
        if not root.exists():
            machine.write(root, **written)
        result = run(numaspread, "--root", root, "--dry-run", *options)
        assert result.returncode == 0, result.stderr
        decision: dict[str, list[str]] = {"said": result.stderr.splitlines()}
        for line in result.stdout.splitlines():
            key, unused, value = line.partition(": ")
            decision.setdefault(key, []).append(value)
        return decision

    return decide
