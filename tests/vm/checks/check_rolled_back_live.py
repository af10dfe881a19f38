"""After rollback.yml, before a reboot"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Mapping

Figure = Callable[[str], None]
# rollback.yml says that it is on again at the next boot, or by a command.
WAITS = ("swap in use",)


def test_values(node: Any, figure: Figure) -> None:
    """Sysctls, transparent hugepages, hugepages, default interrupt affinity, limits and slices are as before the first run"""
    before, now = node.first_live_values(), node.live_values()
    names = {*before, *now} - {*WAITS, *_found_as_planned(node.plan, before)}
    assert {name: (before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)} == {}
    figure(f"{len(names)} values equal")


def _found_as_planned(plan: Mapping[str, Any], before: Mapping[str, str]) -> Iterator[str]:
    """What the first run had no reason to change, and so didn't note; somebody's drift may have been the first to be mended there."""
    for name, value in plan["sysctl"].items():
        path = f"/proc/sys/{name.replace('.', '/')}"
        if before.get(path, "").split() == value.split():
            yield path
    for name, word in plan["transparent_hugepage"].items():
        path = f"/sys/kernel/mm/transparent_hugepage/{name}"
        if f"[{word}]" in before.get(path, ""):
            yield path
