"""Twelve drifts made by hand"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, NamedTuple

import pytest
from vm.checks import check_running

Figure = Callable[[str], None]
FOREIGN_GRUB = "/etc/default/grub.d/zzzz-site.cfg"
IMMUTABLE = "/etc/tmpfiles.d/00-gpufleet-transparent-hugepage.conf"
WITHOUT_TUNED = "systemctl disable -q --now tuned; cp -a /root/before/etc/tuned/. /etc/tuned/"


class Drift(NamedTuple):
    """What somebody does, and the finding that has to name it: its status, and a part of its item, path or message."""

    name: str
    script: str
    status: str
    named: str


DRIFTS = (
    Drift("a sysctl", "sysctl -qw vm.swappiness=60", "drift", "sysctl vm.swappiness"),
    Drift("transparent hugepages", "echo never >/sys/kernel/mm/transparent_hugepage/enabled", "drift", "transparent hugepages enabled"),
    Drift(
        "an interrupt",
        # The timer would put it back within half a minute.
        "systemctl stop gpufleet-irq.timer; i=$(ls /sys/class/net/e*/device/msi_irqs | head -1); echo 1 >/proc/irq/$i/smp_affinity_list",
        "drift",
        "/smp_affinity_list",
    ),
    Drift("a mask", "echo f >/proc/irq/default_smp_affinity", "drift", "default interrupt affinity"),
    Drift("a deleted drop-in", "rm /etc/systemd/system/user.slice.d/zz-gpufleet.conf", "drift", "user.slice"),
    Drift(
        "a file of GRUB's that is read after ours",
        f"echo 'GRUB_CMDLINE_LINUX=\"quiet\"' >{FOREIGN_GRUB}",
        "drift",
        "kernel arguments for grub",
    ),
    Drift(
        "irqbalance started",
        # Halted at once: it is to be seen, and to leave the interrupt where it is.
        "rm /etc/systemd/system/irqbalance.service; systemctl daemon-reload; systemctl start irqbalance; pkill -STOP irqbalance",
        "drift",
        "irqbalance is stopped",
    ),
    Drift(
        "tuned's profile switched", "systemctl start tuned; tuned-adm profile throughput-performance", "owned_by_someone_else", "tuned: "
    ),
    Drift("swap turned on", "swapon /swapfile", "drift", "swap in use"),
    Drift("a hugepage count", "echo 8 >/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "drift", "hugepages of "),
    Drift("a unit edited", "echo Nice=5 >>/etc/systemd/system/gpufleet-irq.service", "drift", "gpufleet-irq.service"),
    Drift("an immutable file", f"echo '# mine' >>{IMMUTABLE}; chattr +i {IMMUTABLE}", "drift", "transparent hugepages at boot"),
)


def test_drifts(node: Any, tmp_path: Path, figure: Figure) -> None:
    """verify.yml names each of twelve drifts and fails; site.yml refuses the immutable file with a sentence, then repairs what is ours and
    says what is tuned's"""
    for drift in DRIFTS:
        node.run(drift.script)
    try:
        played, findings = node.verify(tmp_path)
        assert played.status != 0
        named = {drift.name: [number for number, finding in enumerate(findings) if _names(finding, drift)] for drift in DRIFTS}
        assert all(named.values()), (named, played.output)
        assert len({number for numbers in named.values() for number in numbers}) == sum(map(len, named.values())), "each by one of its own"
        figure(f"{len(DRIFTS)} named: {', '.join(drift.name for drift in DRIFTS)}")

        refused = node.play("site.yml")
        assert refused.status != 0
        assert "chattr -i" in refused.output
        node.run(f"chattr -i {IMMUTABLE}")
        repaired = node.play("site.yml")
        assert repaired.status == 0, repaired.output
        assert "tuned wins at its next start" in " ".join(repaired.output.split())
        assert "active" in node.run("systemctl is-active tuned")  # it isn't ours to stop
        # What it found when it was started it brings back when it is stopped.
        node.run(WITHOUT_TUNED)
        assert node.play("site.yml").status == 0
        played, findings = node.verify(tmp_path)
        assert played.status == 0, played.output
        assert not [finding for finding in findings if finding["status"] in ("drift", "owned_by_someone_else")]
        figure(f"repaired in {repaired.seconds:.0f} s, with GRUB's other file still there")
    finally:
        node.run(f"chattr -i {IMMUTABLE}; {WITHOUT_TUNED}; rm -f {FOREIGN_GRUB}; true")
    assert node.play("site.yml").status == 0


def test_live(node: Any, live: dict[str, str], figure: Figure) -> None:
    """What was repaired is as planned without a reboot: sysctls, transparent hugepages, hugepages, locked memory"""
    for check in (check_running.test_sysctls, check_running.test_transparent_hugepages, check_running.test_hugepages):
        check(node, live, figure)
    check_running.test_locked_memory(node, figure)


def _names(finding: dict[str, str], drift: Drift) -> bool:
    return finding["status"] == drift.status and any(drift.named in finding[key] for key in ("item", "path", "message"))


@pytest.fixture(autouse=True)
def with_all_that_drifts(node: Any) -> None:
    """Only a node with isolated CPUs, hugepages, tuned and irqbalance has all of it."""
    if not node.plan["cpus"]["isolated"] or not node.plan["hugepages"]:
        pytest.skip("not all of it is on this node")
