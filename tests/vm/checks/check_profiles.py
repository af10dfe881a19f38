"""From one profile to the next"""

from __future__ import annotations

import json
from typing import Any, Callable

from vm.node import sysctl_path

from ansible_collections.gpufleet.node.plugins.module_utils.host.remembered import PATH as REMEMBERED

Figure = Callable[[str], None]

# Every file, folder and link of /etc and of our own places, with mode and content. What systems write by themselves is left out.
SNAPSHOT = """\
cd / && find etc usr/local boot/grub -path etc/tuned -prune -o -printf '%M %p %l\\n' -type f -exec sha256sum {} + | sort"""


def test_tour(node: Any, figure: Figure) -> None:
    """colocation, aligned and isolated, each from both others: each converges in one run, is live without a reboot, the next run changes
    nothing, and nothing is left of the former"""
    first = node.plan["profile"]
    second, third = (name for name in ("colocation", "aligned", "isolated") if name != first)
    seen = {first: _snapshot(node)}
    former = first
    for profile in (second, third, first, third, second, first):
        run = node.play("site.yml", gpufleet_profile=profile)
        assert run.status == 0, run.output
        assert run.changed or "isolated" not in (former, profile), profile  # the others may be alike without kubelet and services
        former = profile
        if profile in seen:
            assert sorted(_snapshot(node) ^ seen[profile]) == [], profile
            figure(f"{profile} again, as before: {run.seconds:.0f} s")
            continue
        again = node.play("site.yml", gpufleet_profile=profile)
        assert (again.status, again.changed) == (0, 0), again.output
        seen[profile] = _snapshot(node)
        _is_live(node, profile)
        figure(f"{profile}: {run.seconds:.0f} s, again {again.seconds:.0f} s")
    last = node.play("site.yml", gpufleet_profile=first)
    assert (last.status, last.changed) == (0, 0), last.output


def _is_live(node: Any, profile: str) -> None:
    """The kernel has the values of the plan that the node agreed with last."""
    plan = json.loads(node.run(f"cat {REMEMBERED}"))
    assert plan["profile"] == profile
    values = node.read(*map(sysctl_path, plan["sysctl"]), "/sys/kernel/mm/transparent_hugepage/*")
    for name, value in plan["sysctl"].items():
        assert values[sysctl_path(name)].split() == value.split(), name
    for name, word in plan["transparent_hugepage"].items():
        assert f"[{word}]" in values[f"/sys/kernel/mm/transparent_hugepage/{name}"], name


def _snapshot(node: Any) -> set[str]:
    """Files, live values, and the units of ours that systemd knows."""
    values = {f"{name}: {value}" for name, value in node.live_values().items()}
    return values | set(node.run(f"{SNAPSHOT}; systemctl list-units --all --plain --no-legend 'gpufleet*' | cut -d ' ' -f 1").splitlines())
