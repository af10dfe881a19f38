"""From one profile to the next"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable

Figure = Callable[[str], None]

# Every file, folder and link of /etc and of our own places, with mode and content. What systems write by themselves is left out.
SNAPSHOT = """\
cd / && find etc usr/local boot/grub -path etc/tuned -prune -o -printf '%M %p %l\\n' -type f -exec sha256sum {} + | sort"""


def test_tour(node: Any, tmp_path: Path, figure: Figure) -> None:
    """colocation, aligned, isolated and back: each converges in one run, the next changes nothing, and nothing is left of the former"""
    first = node.plan["profile"]
    second, third = (name for name in ("colocation", "aligned", "isolated") if name != first)
    seen = {first: _snapshot(node)}
    for profile in (second, third, second, first):  # whoever comes back comes from another than the first time
        run = node.play("site.yml", gpufleet_profile=profile)
        assert run.status == 0, run.output
        assert run.changed, profile
        if profile in seen:
            assert sorted(_snapshot(node) ^ seen[profile]) == [], profile
            figure(f"{profile} again, as before: {run.seconds:.0f} s")
            continue
        again = node.play("site.yml", gpufleet_profile=profile)
        assert (again.status, again.changed) == (0, 0), again.output
        seen[profile] = _snapshot(node)
        figure(f"{profile}: {run.seconds:.0f} s, again {again.seconds:.0f} s")


def _snapshot(node: Any) -> set[str]:
    """Files, live values, and the units of ours that systemd knows."""
    values = {f"{name}: {value}" for name, value in node.live_values().items()}
    return values | set(node.run(f"{SNAPSHOT}; systemctl list-units --all --plain --no-legend 'gpufleet*' | cut -d ' ' -f 1").splitlines())
