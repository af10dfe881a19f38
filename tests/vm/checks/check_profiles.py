"""From one profile to the next"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

Figure = Callable[[str], None]

# Every file, folder and link of /etc and of our own places, with mode and content. What systems write by themselves is left out.
SNAPSHOT = """
cd / && find etc usr/local boot/grub -path etc/tuned -prune -o -printf '%M %p %l\\n' -type f -exec sha256sum {} + | sort
"""


def test_tour(node: Any, tmp_path: Path, figure: Figure) -> None:
    """colocation, aligned, isolated and back: each converges in one run, the next changes nothing, and nothing is left of the former"""
    first = node.plan["profile"]
    before = _snapshot(node)
    for profile in [*(name for name in ("colocation", "aligned", "isolated") if name != first), first]:
        run = node.play("site.yml", gpufleet_profile=profile)
        assert run.status == 0, run.output
        assert run.changed, profile
        again = node.play("site.yml", gpufleet_profile=profile)
        assert (again.status, again.changed) == (0, 0), again.output
        figure(f"{profile}: {run.seconds:.0f} s, again {again.seconds:.0f} s")
    assert _snapshot(node) == before


def _snapshot(node: Any) -> set[str]:
    return set(node.run(SNAPSHOT).splitlines())
