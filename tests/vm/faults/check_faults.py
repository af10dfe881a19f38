"""When something goes wrong"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Callable

from vm.faults.conftest import FaultyNode

from machines.build import build, load

Figure = Callable[[str], None]
FOLDER = Path(__file__).resolve().parent
FILLED = "for size in 1M 4k 1; do dd if=/dev/zero of=/filled.$size bs=$size; done 2>/dev/null; test $(df --output=avail / | tail -1) = 0"
WHOLE = "grub-script-check /boot/grub/grub.cfg && tail -n 1 /boot/grub/grub.cfg && md5sum /boot/grub/grub.cfg"
SNAPSHOT = "cd {} && find {} -printf '%M %u %g %p %l\\n' -type f -exec sha256sum {{}} + | sort"


def test_full_disk(node: FaultyNode, figure: Figure) -> None:
    """/ without a free byte, /tmp on it: a sentence, nothing written; the space is freed and the next run goes on"""
    node.run(f"umount /tmp; {FILLED}")
    try:
        figure(_refusal(node, "No space left on device. Free some space and run again."))
        assert node.run("diff -r /root/before/etc /etc", check=False) == ""
    finally:
        node.run("rm -f /filled.*")


def test_read_only(node: FaultyNode, figure: Figure) -> None:
    """/etc read-only: a sentence, nothing half-done"""
    node.run("mount --bind /etc /etc && mount -o remount,bind,ro /etc")
    try:
        figure(_refusal(node, "Read-only file system. Remount it read-write."))
        node.intact()
    finally:
        node.run("umount /etc")
    assert node.run("diff -r /root/before/etc /etc", check=False) == ""


def test_killed(node: FaultyNode, figure: Figure) -> None:
    """Killed inside a write, between a write and its command, and between two writes: no file is half-written, no original lost"""
    for when, function, word in (("before", "fsync", "grub.d"), ("after", "replace", "grub.d"), ("after", "replace", "sysctl.d")):
        node.arm(when, function, word, "kill")
        killed = node.play("site.yml")
        assert killed.status != 0
        assert not node.armed()
        figure(f"{when} the {function} of a file of {word}: {node.intact()} files known, {len(node.leftovers())} temporary ones left")


def test_boot_files_fail(node: FaultyNode, figure: Figure) -> None:
    """update-grub fails: the run fails with what it said, the old grub.cfg stays"""
    before = node.run(WHOLE)
    node.run("printf '#!/bin/sh\\necho no kernel here >&2; exit 1\\n' >/etc/grub.d/99_broken && chmod 755 /etc/grub.d/99_broken")
    try:
        figure(_refusal(node, '"update-grub" ended with status 1', gpufleet_kernel_arguments=["panic=60"]))
    finally:
        node.run("rm /etc/grub.d/99_broken")
    assert node.run(WHOLE) == before


def test_two_runs(node: FaultyNode, figure: Figure) -> None:
    """Two runs at once on one node: the second waits, or says that another is at work"""
    both = [node.start("site.yml"), node.start("site.yml")]
    first, second = (playing.wait() for playing in both)
    refused = [run for run in (first, second) if run.status]
    assert len(refused) <= 1
    assert all("Another run of gpufleet.node is at work on this node." in run.output for run in refused)
    figure(f"{first.seconds:.0f} s and {second.seconds:.0f} s, {len(refused)} refused")


def test_converged(node: FaultyNode, figure: Figure) -> None:
    """After all that one run converges, the next changes nothing, and no temporary file is left"""
    first, second = node.play("site.yml"), node.play("site.yml")
    assert first.status == 0, first.output
    assert (second.status, second.changed) == (0, 0), second.output
    assert not node.leftovers()
    figure(f"{node.intact()} files, each with its original; the last run took {second.seconds:.0f} s")


def test_no_return(node: FaultyNode, figure: Figure) -> None:
    """A node that doesn't come back from its reboot is reported as that; once it is up it is as planned, without another reboot"""
    running = node.start("site.yml", gpufleet_reboot="when_needed", gpufleet_reboot_timeout=60)
    node.cut_power("reboot: Restarting system")
    gone = running.wait()
    said = re.search(r"f did not come back within 60 seconds of its reboot", gone.output)
    assert gone.status != 0 and said, gone.output
    node.boot()
    assert "isolcpus" in node.run("cat /proc/cmdline")
    again = node.play("site.yml", gpufleet_reboot="when_needed")
    assert (again.status, again.changed) == (0, 0), again.output
    figure(f"{said[0]}; started by hand it has its arguments, and the next run changes nothing")


def test_power_cut_after_write(node: FaultyNode, figure: Figure) -> None:
    """The machine loses its power right after a write: it boots, no file is half-written, the next run ends the work"""
    node.arm("after", "replace", "/etc/tmpfiles.d", "stop")
    running = node.start("site.yml", gpufleet_workload="inference")
    node.cut_power()
    assert running.wait().status != 0
    node.boot()
    known = node.intact()
    _converges(node, gpufleet_workload="inference")
    assert "[never]" in node.run("cat /sys/kernel/mm/transparent_hugepage/enabled")
    figure(f"{known} files known after the boot, none half-written")


def test_power_cut_after_update_grub(node: FaultyNode, figure: Figure) -> None:
    """The machine loses its power right after update-grub: its grub.cfg is whole, it boots, the next run ends the work"""
    node.arm("after", "run", "update-grub", "stop")
    running = node.start("site.yml", gpufleet_profile="aligned")
    node.cut_power()
    assert running.wait().status != 0
    node.boot()
    end = node.run(WHOLE).splitlines()[0]
    assert end.startswith("### END ")
    known = node.intact()
    _converges(node, gpufleet_profile="aligned")
    line = "the new" if "isolcpus" not in node.run("cat /proc/cmdline") else "the old"
    figure(f"booted with {line} command line; {known} files known, none half-written")


def test_connection_lost(node: FaultyNode, figure: Figure) -> None:
    """ssh goes away for 20 s while the run waits for the reboot: the run goes on and verifies what was booted"""
    unit = "/etc/systemd/system/fault.service"
    node.run(
        f"cat >/root/drop-ssh <<'END'\nuntil ss -Hnt state established sport = :22 | grep -q .; do sleep 0.5; done\n"
        f"touch /run/dropped; systemctl stop ssh.socket ssh.service; pkill sshd; sleep 20; systemctl start ssh.service\nEND\n"
        f"printf '[Service]\\nExecStart=/bin/sh /root/drop-ssh\\n[Install]\\nWantedBy=multi-user.target\\n' >{unit}\n"
        "systemctl enable -q fault"
    )
    try:
        # An argument that it surely wasn't booted with: what it was, the cut before this decided.
        changed = {"gpufleet_kernel_arguments": ["printk.devkmsg=on"]}
        rebooted = node.play("site.yml", **changed, gpufleet_reboot="when_needed", gpufleet_reboot_timeout=900)
        assert rebooted.status == 0, rebooted.output
        assert "printk.devkmsg=on" in node.run("ls /run/dropped && cat /proc/cmdline")
    finally:
        node.run(f"systemctl disable -q fault; rm -f {unit} /root/drop-ssh; systemctl daemon-reload")
    _unchanged(node, **changed)
    _converges(node)
    figure(f"rebooted and verified in {rebooted.seconds:.0f} s")


def test_clock(node: FaultyNode, tmp_path: Path, figure: Figure) -> None:
    """The clock decades off, both ways: a run changes nothing, a change converges, and kubelet isn't said to wait for a restart for ever"""
    now = int(node.run("date +%s"))
    node.run("systemctl restart kubelet")
    try:
        for year in (2001, 2037):
            node.run(f"date -s {year}-01-01 >/dev/null")
            _unchanged(node)
            assert not _waits_for_restart(node, tmp_path), year
        changed = node.play("site.yml", gpufleet_profile="aligned")
        assert changed.status == 0 and changed.changed, changed.output
        _unchanged(node, gpufleet_profile="aligned")
        assert _waits_for_restart(node, tmp_path, gpufleet_profile="aligned")
        node.run("systemctl restart kubelet")
    finally:
        node.run(f"date -s @{now} >/dev/null")
    assert not _waits_for_restart(node, tmp_path, gpufleet_profile="aligned")
    _unchanged(node, gpufleet_profile="aligned")
    figure("2001 and 2037; files written in 2037 are no drift and ask for no restart today")


def test_other_machine(node: FaultyNode, tmp_path: Path, figure: Figure) -> None:
    """A plan that was made from another machine's capture is refused, before anything is asked"""
    build(load("cloudvm"), tmp_path / "capture")
    refused = node.start(str(FOLDER / "other_machine.yml"), other=str(tmp_path / "capture")).wait()
    said = re.search(r"The plan was made for another machine: [^\"]*own facts\.", refused.output)
    assert refused.status != 0 and said, refused.output
    figure(said[0])


def test_rolled_back(node: FaultyNode, figure: Figure) -> None:
    """After all of this rollback.yml brings /etc and /boot/grub back, byte for byte, with mode and owner"""
    undone = node.play("rollback.yml")
    assert undone.status == 0, undone.output
    before = set(node.run(SNAPSHOT.format("/root/before", "etc grub")).splitlines())
    now = set(node.run(SNAPSHOT.format("/", "etc") + "; " + SNAPSHOT.format("/boot", "grub")).splitlines())
    assert sorted(before ^ now) == []
    figure(f"{len(before)} entries equal")


def _refusal(node: FaultyNode, words: str, **variables: Any) -> str:
    """The sentence of a run that fails, which has these words."""
    run = node.play("site.yml", **variables)
    said = re.search(r'"msg": "((?:[^"\\]|\\.)*)"', run.output)
    assert run.status != 0 and said and words in said[1].replace('\\"', '"'), run.output
    return said[1].replace('\\"', '"')


def _converges(node: FaultyNode, **variables: Any) -> None:
    run = node.play("site.yml", **variables)
    assert run.status == 0 and run.changed, run.output
    _unchanged(node, **variables)
    assert not node.leftovers()


def _unchanged(node: FaultyNode, **variables: Any) -> None:
    run = node.play("site.yml", **variables)
    assert (run.status, run.changed) == (0, 0), run.output


def _waits_for_restart(node: FaultyNode, folder: Path, **variables: Any) -> bool:
    """Whether verify says that kubelet's configuration is newer than kubelet."""
    played, findings = node.verify(folder, **variables)
    assert played.status == 0, played.output
    return any(finding["until"] == "restart" for finding in findings)
