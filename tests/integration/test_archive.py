"""The archive that ansible-galaxy builds: it installs without a network, and what a playbook names resolves from it."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from machines.build import build, load

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"


def run(*command: str | Path, cwd: Path, env: dict[str, str]) -> str:
    """All that the command printed; a failure shows it."""
    done = subprocess.run(command, cwd=cwd, env=env, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def archive(repository: Path, tmp_path_factory: pytest.TempPathFactory, ansible_env: dict[str, str]) -> Path:
    """The archive of this checkout."""
    folder = tmp_path_factory.mktemp("archive")
    run("ansible-galaxy", "collection", "build", "--output-path", folder, cwd=repository, env=ansible_env)
    return next(folder.glob("gpufleet-node-*.tar.gz"))


@pytest.fixture(scope="module")
def installed(archive: Path, ansible_env: dict[str, str]) -> dict[str, str]:
    """The environment of a user who has installed the archive and has no checkout."""
    collections = archive.parent / "collections"
    env = {**ansible_env, "ANSIBLE_COLLECTIONS_PATH": str(collections)}
    run("ansible-galaxy", "collection", "install", "--offline", "--collections-path", collections, archive, cwd=archive.parent, env=env)
    return env


def test_archive_holds_no_link_and_nothing_that_was_made(archive: Path) -> None:
    with tarfile.open(archive) as content:
        members = content.getmembers()
    assert not [member.name for member in members if member.issym() or member.islnk()]
    tops = {member.name.split("/")[0] for member in members}
    assert {"plugins", "roles", "playbooks", "meta", "MANIFEST.json"} <= tops
    assert not [name for name in tops if name.startswith(".") and name not in (".ansible-lint", ".yamllint")]


@pytest.mark.parametrize("playbook", sorted(path.stem for path in PLAYBOOKS.glob("*.yml")))
def test_playbooks_resolve_by_name(playbook: str, installed: dict[str, str], tmp_path: Path) -> None:
    run("ansible-playbook", "-i", "node,", "--syntax-check", f"gpufleet.node.{playbook}", cwd=tmp_path, env=installed)


def test_a_node_is_brought_to_its_plan_by_the_installed_collection(installed: dict[str, str], tmp_path: Path) -> None:
    root = build(load("cloudvm"), tmp_path / "node")
    (tmp_path / "hosts").write_text(f"node ansible_connection=local ansible_python_interpreter={sys.executable} gpufleet_root={root}\n")
    plan, site = (
        run("ansible-playbook", "-i", "hosts", f"gpufleet.node.{playbook}", cwd=tmp_path, env=installed) for playbook in ("plan", "site")
    )
    assert "kernel arguments" in plan and "changed=0" in plan
    assert '"next ' in site and "changed=0" not in site and (root / "usr/local/bin/numaspread").is_file()
    assert "DEPRECATION" not in plan + site


def test_every_module_is_documented(repository: Path, installed: dict[str, str], tmp_path: Path) -> None:
    listed = run("ansible-doc", "--list", "gpufleet.node", cwd=tmp_path, env=installed)
    for module in (repository / "plugins" / "modules").glob("*.py"):
        assert f"gpufleet.node.{module.stem} " in listed
