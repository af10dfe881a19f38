"""What every test may use: the repository's place, the captures, and an environment in which ansible finds this collection."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent
COLLECTIONS = REPOSITORY / "playbooks" / "collections"
CAPTURES = Path(os.environ.get("GPUFLEET_CAPTURES") or REPOSITORY.parent / "shared" / "captures")
ANSIBLE_LAYERS = {"action", "edge", "filter", "modules"}

# Deadlines measure the machine, not the code. In CI the examples are the same in every run.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what another ansible-core can change, so that it can be run again with one: tests of the layers that import ansible,
    and those that ask for its environment."""
    for item in items:
        if "ansible_env" in getattr(item, "fixturenames", ()) or ANSIBLE_LAYERS.intersection(item.path.parts):
            item.add_marker(pytest.mark.ansible)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of this checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def captures() -> Path:
    """The folder of captured machines. Without it the test is skipped on a laptop and fails in CI."""
    if not (CAPTURES / "INDEX.tsv").is_file():
        message = f"no captures in {CAPTURES}: put them there or set GPUFLEET_CAPTURES"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return CAPTURES


@pytest.fixture(scope="session")
def ansible_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment for an ansible command that must find this checkout and nothing of the user's own configuration."""
    home = tmp_path_factory.mktemp("ansible")
    configuration = home / "ansible.cfg"
    configuration.touch()
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(configuration),
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DEPRECATION_WARNINGS": "1",
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
    }
