"""The engine that inspects and mends, on folders that stand for a node."""

from __future__ import annotations

import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest
from killing import run_killed

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import (
    DRIFT,
    FOREIGN,
    IN_PLACE,
    NOT_APPLICABLE,
    PENDING,
    Effect,
    File,
    KernelValue,
    Link,
    Observation,
    always,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError, InvalidInput, WriteFailed
from ansible_collections.gpufleet.node.plugins.module_utils.host import files
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.store import FOLDER, locked

PATH = "/etc/sysctl.d/99-zz-gpufleet.conf"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    return tmp_path


def snapshot(root):
    """Every file below the root with content, mode and link target, the collection's own memory left out."""
    found = {}
    for folder, _folders, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if "/var/lib/gpufleet" in path:
                continue
            status = os.lstat(path)
            content = os.readlink(path) if stat.S_ISLNK(status.st_mode) else pathlib.Path(path).read_bytes()
            found[os.path.relpath(path, root)] = (stat.S_IMODE(status.st_mode), content)
    return found


def run(root, *artifacts, check_mode=False):
    return apply(artifacts, Node.at(str(root)), check_mode)


def words(current, wanted):
    return current.split() == wanted.split()


def test_a_file_is_written_once_and_then_left_alone(root):
    wanted = File("sysctl", PATH, always("vm.swappiness = 0\n"), mode=0o640)
    assert run(root, wanted).changed
    assert (root / PATH[1:]).read_text() == "vm.swappiness = 0\n"
    assert stat.S_IMODE((root / PATH[1:]).stat().st_mode) == 0o640
    before = (root / PATH[1:]).stat()
    assert not run(root, wanted).changed
    assert (root / PATH[1:]).stat().st_mtime_ns == before.st_mtime_ns


def test_check_mode_writes_nothing_and_tells_the_same(root):
    (root / "etc/fstab").write_text("/swap.img none swap sw 0 0\n")
    artifacts = [
        File("ours", PATH, always("x\n")),
        File("fstab", "/etc/fstab", always("")),
        Link("mask", "/etc/systemd/system/s.swap", "/dev/null"),
    ]
    before = snapshot(root)
    outcome = run(root, *artifacts, check_mode=True)
    assert snapshot(root) == before and not (root / "var").exists()
    assert outcome.changed and [f.status for f in outcome.findings] == [DRIFT] * 3


def test_an_existing_file_keeps_mode_owner_and_attributes(root):
    target = root / "etc/fstab"
    target.write_text("a\n")
    target.chmod(0o604)
    attributes = True
    try:
        os.setxattr(target, "user.note", b"kept")
    except OSError:
        attributes = False
    run(root, File("fstab", "/etc/fstab", always("b\n")))
    assert target.read_text() == "b\n" and stat.S_IMODE(target.stat().st_mode) == 0o604
    if attributes:
        assert os.getxattr(target, "user.note") == b"kept"


def test_enforced_mode_is_mended_alone(root):
    wanted = File("secret", "/etc/x", always("a\n"), mode=0o600, enforce_mode=True)
    run(root, wanted)
    (root / "etc/x").chmod(0o644)
    assert run(root, wanted).changed and stat.S_IMODE((root / "etc/x").stat().st_mode) == 0o600


def test_a_file_behind_a_link_is_replaced_where_it_lies(root):
    (root / "etc/default").mkdir()
    (root / "data").mkdir()
    (root / "data/grub").write_text("old\n")
    (root / "etc/default/grub").symlink_to("/data/grub")  # absolute: must stay inside the root
    run(root, File("grub", "/etc/default/grub", always("new\n")))
    assert (root / "etc/default/grub").is_symlink() and (root / "data/grub").read_text() == "new\n"
    state = json.loads((root / FOLDER[1:] / "state.json").read_text())
    assert list(state["files"]) == ["/data/grub"]


def test_the_first_original_is_kept_whatever_follows(root):
    fstab = root / "etc/fstab"
    fstab.write_bytes(b"first \xff\n")  # not UTF-8: bytes survive
    run(root, File("fstab", "/etc/fstab", always("ours\n")))
    run(root, File("fstab", "/etc/fstab", always("ours again\n")))
    state = json.loads((root / FOLDER[1:] / "state.json").read_text())
    original = state["files"]["/etc/fstab"]["original"]
    assert (root / FOLDER[1:] / "originals" / original["sha256"]).read_bytes() == b"first \xff\n"


def test_absent_means_as_before_us_where_the_name_is_not_ours(root):
    zram = root / "etc/zram-generator.conf"
    zram.write_text("[zram0]\n")
    override = File("zram", "/etc/zram-generator.conf", always(""), ours=False)
    gone = File("zram", "/etc/zram-generator.conf", always(None), ours=False)
    assert not run(root, gone).changed and zram.read_text() == "[zram0]\n"
    run(root, override)
    assert zram.read_text() == ""
    assert run(root, gone).changed and zram.read_text() == "[zram0]\n"


def test_our_own_file_goes_when_it_is_no_longer_wanted(root):
    run(root, File("ours", PATH, always("x\n")))
    assert run(root, File("ours", PATH, always(None))).changed
    assert not (root / PATH[1:]).exists()
    assert not run(root, File("ours", PATH, always(None))).changed


def test_links_ours_go_and_others_stay(root):
    mask = "/etc/systemd/system/irqbalance.service"
    assert run(root, Link("mask", mask, "/dev/null")).changed
    assert os.readlink(root / mask[1:]) == "/dev/null"
    assert run(root, Link("mask", mask, None)).changed and not os.path.lexists(root / mask[1:])
    os.symlink("/dev/null", root / mask[1:])  # now the user masked it
    assert not run(root, Link("mask", mask, None)).changed and os.path.lexists(root / mask[1:])


def test_a_regular_file_is_never_replaced_by_a_link(root):
    unit = root / "etc/systemd/system/irqbalance.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\n")
    outcome = run(root, Link("mask", "/etc/systemd/system/irqbalance.service", "/dev/null"))
    assert [f.status for f in outcome.findings] == [FOREIGN] and unit.read_text() == "[Service]\n"


def test_kernel_values_compare_by_meaning_and_are_remembered(root):
    (root / "proc").mkdir()
    (root / "proc/tcp_rmem").write_text("4096\t131072\t6291456\n")
    same = KernelValue("tcp_rmem", "/proc/tcp_rmem", ("4096 131072 6291456",), words)
    other = KernelValue("tcp_rmem", "/proc/tcp_rmem", ("4096 87380 268435456",), words)
    assert not run(root, same).changed
    assert run(root, other).changed and not run(root, other).changed
    assert json.loads((root / FOLDER[1:] / "state.json").read_text())["kernel"] == {"/proc/tcp_rmem": "4096\t131072\t6291456"}


def test_a_kernel_file_that_is_not_there_waits_for_boot(root):
    finding = run(root, KernelValue("numa_balancing", "/proc/nb", ("0",), words)).findings[0]
    assert (finding.status, finding.until) == (PENDING, "reboot")
    live = inspect([KernelValue("numa_balancing", "/proc/sys/no/such", ("0",), words)], Node.at("/"))[0]
    assert live.status == NOT_APPLICABLE


def test_refusals_of_the_kernel_are_told_apart(root, monkeypatch):
    (root / "affinity").write_text("0\n")
    answers = {}
    monkeypatch.setattr(files, "write_kernel", lambda path, text: answers.get(text))
    value = KernelValue("irq", "/affinity", ("3", "4"), words, refusals={"EIO": (NOT_APPLICABLE, "kernel-managed")})
    answers.update({"3": "EIO"})
    outcome = run(root, value)
    assert (outcome.findings[0].status, outcome.findings[0].message, outcome.changed) == (NOT_APPLICABLE, "kernel-managed", False)
    assert inspect([value], Node.at(str(root)))[0].status == NOT_APPLICABLE  # remembered: verify need not write to know
    (root / "affinity").write_text("1\n")  # something happened to it, so the refusal says nothing any more
    assert inspect([value], Node.at(str(root)))[0].status == DRIFT
    answers.update({"3": "EINVAL"})
    with pytest.raises(WriteFailed, match="EINVAL"):
        run(root, value)


def test_a_full_cpu_makes_way_for_the_next_one(root, monkeypatch):
    (root / "affinity").write_text("0\n")
    real = files.write_kernel
    monkeypatch.setattr(files, "write_kernel", lambda path, text: "ENOSPC" if text == "3" else real(path, text))
    outcome = run(root, KernelValue("irq", "/affinity", ("3", "4"), words))
    assert outcome.changed and (root / "affinity").read_text() == "4\n"
    assert not run(root, KernelValue("irq", "/affinity", ("3", "4"), words)).changed


def test_a_value_that_reads_back_otherwise_is_a_failure(root, monkeypatch):
    # F7: nr_hugepages takes 512 and holds 480.
    (root / "nr_hugepages").write_text("0\n")
    real = files.write_kernel
    monkeypatch.setattr(files, "write_kernel", lambda path, text: real(path, "480"))
    with pytest.raises(WriteFailed, match="reads 480 after 512 was written"):
        run(root, KernelValue("pages", "/nr_hugepages", ("512",), words))


def test_effects_wait_on_a_root_that_is_not_live(root):
    effect = Effect("grub.cfg", "/boot/grub/grub.cfg", lambda text: "isolcpus" in (text or ""), ("update-grub",), message="stale")
    outcome = run(root, effect)
    assert not outcome.changed
    assert (outcome.findings[0].status, outcome.findings[0].command) == (PENDING, ("update-grub",))


def test_an_effect_is_judged_after_the_writes_before_it(root):
    mark = root / "mark"
    node = Node.at(str(root))
    node.command.live = True
    artifacts = [
        File("unit", "/etc/unit", always("new\n")),
        Effect("reload", "/mark", lambda text: (root / "etc/unit").exists() is (text is not None), ("touch", str(mark))),
    ]
    outcome = apply(artifacts, node)
    assert outcome.found[1].status == IN_PLACE and mark.exists()
    assert [f.status for f in outcome.findings] == [IN_PLACE, IN_PLACE]


def test_a_command_that_ends_well_without_helping_is_a_failure(root):
    node = Node.at(str(root))
    node.command.live = True
    with pytest.raises(GpufleetError, match="still isn't so"):
        apply([Effect("swap off", "/etc/x", lambda text: text is not None, ("true",))], node)
    with pytest.raises(GpufleetError, match="status 1"):
        apply([Effect("swap off", "/etc/x", lambda text: text is not None, ("false",))], node)


def test_observations_pass_through(root):
    finding = run(root, Observation("tuned", FOREIGN, "tuned sets it")).findings[0]
    assert (finding.status, finding.message) == (FOREIGN, "tuned sets it")


def test_a_refusal_leaves_the_node_untouched(root):
    def refuse(_current):
        raise InvalidInput("No.", "Don't.")

    before = snapshot(root)
    with pytest.raises(InvalidInput):
        run(root, File("one", "/etc/one", always("1\n")), File("two", "/etc/two", refuse))
    assert snapshot(root) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs an immutable or read-only folder that stops root as well")
def test_an_unwritable_folder_is_one_sentence_and_the_file_is_whole(root):
    (root / "etc/fstab").write_text("old\n")
    flag = subprocess.run(["chattr", "+i", str(root / "etc")], check=False, capture_output=True)
    if flag.returncode != 0:
        pytest.skip("this file system has no immutable flag: %s" % flag.stderr.decode().strip())
    try:
        with pytest.raises(WriteFailed, match="chattr -i"):
            run(root, File("fstab", "/etc/fstab", always("new\n")))
        assert (root / "etc/fstab").read_text() == "old\n"
    finally:
        subprocess.run(["chattr", "-i", str(root / "etc")], check=True)


KILLED = """
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import File, always
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
apply([File("a", "/etc/a", always("new a\\n")), File("b", "/etc/d/b", always("new b\\n")), File("c", "/etc/c", always(None))],
      Node.at(sys.argv[1]))
"""


@pytest.mark.parametrize("stop", range(1, 40, 3))
def test_killed_anywhere_nothing_is_lost_and_the_next_run_ends_the_work(root, stop, tmp_path_factory):
    (root / "etc/a").write_text("old a\n")
    (root / "etc/c").write_text("old c\n")
    run_killed(KILLED, root, stop, ("replace", "fsync", "fchmod", "unlink", "mkdir"))
    assert (root / "etc/a").read_text() in ("old a\n", "new a\n")
    run(root, File("a", "/etc/a", always("new a\n")), File("b", "/etc/d/b", always("new b\n")), File("c", "/etc/c", always(None)))
    assert {name: content for name, (_mode, content) in snapshot(root).items()} == {"etc/a": b"new a\n", "etc/d/b": b"new b\n"}
    state = json.loads((root / FOLDER[1:] / "state.json").read_text())["files"]
    kept = {
        path: (root / FOLDER[1:] / "originals" / known["original"]["sha256"]).read_text()
        for path, known in state.items()
        if known["original"]
    }
    assert kept == {"/etc/a": "old a\n", "/etc/c": "old c\n"}


def test_two_runs_at_once_take_turns(root):
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[2])\n"
        "from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root\n"
        "from ansible_collections.gpufleet.node.plugins.module_utils.host.store import locked\n"
        "with locked(Root(sys.argv[1])):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    collections = os.path.join(os.path.dirname(__file__), "../../../playbooks/collections")
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(root), collections], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "held\n"
    node = Node.at(str(root))
    with pytest.raises(GpufleetError, match="Another run"), locked(node.root, wait_seconds=0.0):
        pass
    other.communicate("")
    with locked(node.root, wait_seconds=5.0):
        pass
