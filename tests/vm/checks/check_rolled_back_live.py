"""After rollback.yml, before a reboot"""

from __future__ import annotations

from typing import Any, Callable

Figure = Callable[[str], None]


def test_values(node: Any, figure: Figure) -> None:
    """Sysctls, transparent hugepages, hugepages, default interrupt affinity, limits, slices and swap are as before the first run"""
    before, now = node.first_live_values(), node.live_values()
    assert {name: (before.get(name), now.get(name)) for name in {*before, *now} if before.get(name) != now.get(name)} == {}
    figure(f"{len(now)} values equal")
