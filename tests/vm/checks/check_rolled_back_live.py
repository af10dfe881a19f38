"""After rollback.yml, before a reboot"""

from __future__ import annotations

from typing import Any, Callable

Figure = Callable[[str], None]
# Swap is on again at the next boot, or by a command, as rollback.yml says. On Debian 13 a login was seen to keep the limit until then, too.
WAITS = {"bookworm": {"swap in use"}, "trixie": {"swap in use", "memory that a login may lock"}}


def test_values(node: Any, figure: Figure) -> None:
    """Sysctls, transparent hugepages, hugepages, default interrupt affinity, limits and slices are as before the first run"""
    before, now = node.first_live_values(), node.live_values()
    names = {*before, *now} - WAITS[node.machine.shape["image"]]
    assert {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)} == {}
    figure(f"{len(names)} values equal")
