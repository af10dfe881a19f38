"""After rollback.yml and a reboot"""

from __future__ import annotations

from typing import Any, Callable

Figure = Callable[[str], None]

# What the system writes by itself: none so far.
REWRITTEN: tuple[str, ...] = ()


def test_files(node: Any, figure: Figure) -> None:
    """/etc and /boot/grub are as before the first run, byte for byte, with mode and owner"""
    script = "cd {} && find {} -printf '%M %u %g %p %l\\n' -type f -exec sha256sum {{}} + | sort"
    before = set(node.run(script.format("/root/before", "etc grub")).splitlines())
    now = set(node.run(script.format("/", "etc") + "; " + script.format("/boot", "grub")).splitlines())
    differing = sorted(line for line in before ^ now if not any(name in line for name in REWRITTEN))
    assert not differing
    figure(f"{len(before)} entries equal")


def test_values(node: Any, figure: Figure) -> None:
    """Sysctls, transparent hugepages, hugepages, default interrupt affinity, limits, slices and swap are as before the first run"""
    before, now = node.first_live_values(), node.live_values()
    assert {name: (before.get(name), now.get(name)) for name in {*before, *now} if before.get(name) != now.get(name)} == {}
    figure(f"{len(now)} values equal")


def test_live(node: Any, figure: Figure) -> None:
    """No kernel argument of ours is left, swap is in use again, no unit of ours is known"""
    assert not set(node.plan["kernel_arguments"]) & set(node.run("cat /proc/cmdline").split())
    assert "/swapfile" in node.run("cat /proc/swaps")
    assert node.run("cat /sys/devices/system/cpu/isolated").strip() == ""
    assert node.run("systemctl list-units --all --no-legend 'gpufleet*'; ls /var/lib/gpufleet").split() in ([], ["lock"])
    failed = node.run("systemctl --failed --no-legend")
    assert not failed
    figure("booted with its own arguments, swap on, no failed unit")
