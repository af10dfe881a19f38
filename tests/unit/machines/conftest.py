"""Each machine of the fleet, built once per module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from machines.build import build, load, names
from machines.scratch import scratch


@pytest.fixture(scope="module", params=names())
def machine(request: pytest.FixtureRequest) -> Iterator[tuple[str, Path]]:
    """A machine of the fleet: its name and its root."""
    with scratch() as folder:
        yield request.param, build(load(request.param), folder / request.param)
