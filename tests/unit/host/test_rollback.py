"""The way back: originals byte for byte, other people's changes left alone, and a kill anywhere is made good by the next run."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import stat

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from killing import run_killed

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import (
    FOREIGN,
    PENDING,
    Effect,
    File,
    Installs,
    KernelValue,
    Link,
    always,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError, UnreadableRoot, WriteFailed
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet import merge
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_fields import HEADER
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.sysctl import artifacts as sysctl_artifacts
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Kubelet
from ansible_collections.gpufleet.node.plugins.module_utils.host import files, rollback, tuning
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.concern import Concern
from ansible_collections.gpufleet.node.plugins.module_utils.host.concerns import CONCERNS, NOTHING
from ansible_collections.gpufleet.node.plugins.module_utils.host.kubelet import CONCERN as kubelet_concern
from ansible_collections.gpufleet.node.plugins.module_utils.host.rollback import roll_back
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.store import BOOT_ID, FOLDER
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines import build

SYSCTL = "/etc/sysctl.d/zz-gpufleet.conf"
MASK = "/etc/systemd/system/irqbalance.service"
SWAP = "/swap.img none swap sw 0 0\n"
FSTAB = "/dev/sda1 / ext4 defaults 0 1\n" + SWAP
SETTINGS = {"sysctl": {"vm.swappiness": "0", "vm.dirty_bytes": "1073741824"}, "swap": "off", "limits": {"memlock": "unlimited"}}


@pytest.fixture
def root(tmp_path):
    """A small node, with owners of modes that matter."""
    write(tmp_path, "/etc/fstab", FSTAB, 0o640)
    write(tmp_path, "/proc/sys/vm/swappiness", "60\n")
    write(tmp_path, "/proc/sys/vm/dirty_bytes", "0\n")
    write(tmp_path, "/proc/sys/vm/dirty_ratio", "20\n")
    write(tmp_path, "/proc/swaps", "Filename Type Size Used Priority\n")
    write(tmp_path, BOOT_ID, "first\n")
    return tmp_path


def write(root, path, text, mode=0o644):
    local = root / path[1:]
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_text(text)
    local.chmod(mode)


def snapshot(root):
    """Every folder and file with its mode, content and link target, but for our own memory."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            inside = os.path.relpath(path, root)
            if inside.startswith("var"):
                continue
            status = os.lstat(path)
            content = b""
            if stat.S_ISLNK(status.st_mode):
                content = os.readlink(path).encode()
            elif stat.S_ISREG(status.st_mode):
                content = pathlib.Path(path).read_bytes()
            found[inside] = (status.st_mode, status.st_uid, status.st_gid, content)
    return found


def tune(root, **sections):
    node = Node.at(str(root))
    section = {**SETTINGS, **sections}
    return apply(tuning.CONCERN.artifacts(section, tuning.read(node.root, node.command, section)), node)


def run(root, *artifacts):
    return apply(artifacts, Node.at(str(root)))


def back(root, check_mode=False):
    return roll_back(Node.at(str(root)), check_mode)


def memory(root):
    """What is left of our memory."""
    return sorted(os.listdir(root / FOLDER[1:]))


def test_the_plan_of_nothing_has_every_section():
    assert {section for concern in CONCERNS for section in concern.sections} <= set(NOTHING)


def test_a_node_that_was_never_ours_is_left_alone(root):
    before = snapshot(root)
    done = back(root)
    assert not done.outcome.changed and done.left == {} and snapshot(root) == before


def test_everything_comes_back_byte_for_byte_and_twice_changes_nothing(root):
    before = snapshot(root)
    assert tune(root).changed and snapshot(root) != before
    assert back(root).outcome.changed
    assert snapshot(root) == before and memory(root) == []
    assert not back(root).outcome.changed and snapshot(root) == before


def test_after_several_plans_the_first_original_comes_back(root):
    before = snapshot(root)
    tune(root)
    tune(root, swap="keep", sysctl={"vm.swappiness": "10"})
    tune(root, limits={"memlock": "8192", "nofile": 1024})
    back(root)
    assert snapshot(root) == before


def test_check_mode_writes_nothing_and_tells_the_same(root):
    tune(root)
    before = snapshot(root), memory(root)
    told = back(root, check_mode=True).outcome
    assert (snapshot(root), memory(root)) == before and told.changed
    assert [finding.path for finding in told.found] == [finding.path for finding in back(root).outcome.found]


SITE = yaml.safe_dump({**HEADER, "cpuManagerPolicy": "none", "evictionHard": {"memory.available": "500Mi"}, "clusterDomain": "x"})


def configure(root, place, text, **policy):
    """A machine whose kubelet reads this main file, with the plan's kubelet section applied. What the plan's own file is then."""
    build.build(build.load("reference"), root)
    kubelet = Kubelet("plain", "kubelet.service", "1.34.4", config_file=place)
    reader = Root(str(root))
    topology = dataclasses.replace(read_topology(reader, Command(reader)), kubelet=kubelet)
    write(root, place, text)
    section = {"kubelet": build_plan(topology, policy_from_variables(policy)).kubelet}
    node = Node.at(str(root))
    apply(kubelet_concern.artifacts(section, kubelet_concern.read(node.root, node.command, section)), node)
    return (root / place[1:]).read_text()


@pytest.mark.parametrize("place", ["/var/lib/kubelet/config.yaml", "/etc/kubernetes/kubelet-config.yaml"])
@pytest.mark.parametrize(
    "edit",
    [lambda text: text + "maxPods: 77\n", lambda text: yaml.safe_dump({**yaml.safe_load(text), "maxPods": 77})],
    ids=["a line added", "written anew without comments"],
)
def test_what_ours_took_the_place_of_comes_back(tmp_path, place, edit):
    written = configure(tmp_path, place, SITE, profile="aligned")
    write(tmp_path, place, edit(written))
    done = back(tmp_path)
    assert yaml.safe_load((tmp_path / place[1:]).read_text()) == {**yaml.safe_load(SITE), "maxPods": 77}
    [finding] = [f for f in done.outcome.findings if f.path == place]
    assert "the original is kept as %s/set-aside%s.original" % (FOLDER, place) in finding.message
    assert (tmp_path / (FOLDER + "/set-aside" + place)[1:]).with_suffix(".yaml.original").read_text() == SITE
    assert not back(tmp_path).outcome.changed


def test_of_a_file_that_cannot_be_taken_apart_no_more_is_said_than_is_known(tmp_path):
    place = "/var/lib/kubelet/config.yaml"
    text = json.dumps(yaml.safe_load(configure(tmp_path, place, SITE)))
    write(tmp_path, place, text)
    done = back(tmp_path)
    assert (tmp_path / place[1:]).read_text() == text and "cpuManagerPolicy" in done.left[place]
    [finding] = [f for f in done.outcome.findings if f.path == place]
    assert "what can be told to be ours" in finding.message and finding.message.endswith(".original")


def test_a_later_run_keeps_originals_afresh(root):
    tune(root)
    back(root)
    write(root, "/etc/fstab", FSTAB + "/dev/sdb1 /data xfs defaults 0 2\n", 0o640)
    before = snapshot(root)
    tune(root)
    back(root)
    assert snapshot(root) == before


def test_mode_and_owner_come_back_with_a_file_that_we_took_away(root):
    write(root, "/etc/conf", "theirs\n", 0o600)
    if os.geteuid() == 0:
        os.chown(root / "etc/conf", 12, 34)
    before = snapshot(root)
    run(root, File("conf", "/etc/conf", always(None)))
    back(root)
    assert snapshot(root) == before


def test_an_enforced_mode_is_undone(root):
    write(root, "/etc/program", "#!/bin/sh\n", 0o600)
    before = snapshot(root)
    run(root, File("program", "/etc/program", always("#!/bin/sh\n"), mode=0o755, enforce_mode=True))
    assert snapshot(root) != before
    back(root)
    assert snapshot(root) == before


def test_links_come_back(root):
    write(root, "/etc/systemd/system/other.service", "[Service]\n")
    os.symlink("other.service", root / "etc/systemd/system/was.service")
    before = snapshot(root)
    run(root, Link("mask", MASK, "/dev/null"), Link("was", "/etc/systemd/system/was.service", "/dev/null"))
    back(root)
    assert snapshot(root) == before


def test_what_an_earlier_plan_left_behind_goes_too(root):
    before = snapshot(root)
    run(root, File("from another version", "/etc/gpufleet/old.conf", always("x\n")))
    back(root)
    assert snapshot(root) == before  # with the folder


# Somebody else was here after us ----------------------------------------------------------------------------------------


def test_of_a_file_that_somebody_changed_only_our_part_goes(root):
    tune(root)
    fstab = root / "etc/fstab"
    fstab.write_text(fstab.read_text() + "/dev/sdb1 /data xfs defaults 0 2\n")
    done = back(root)
    assert fstab.read_text() == FSTAB + "/dev/sdb1 /data xfs defaults 0 2\n"
    assert list(done.left) == ["/etc/fstab"] and "+/dev/sdb1 /data" in done.left["/etc/fstab"]
    assert [f.status for f in done.outcome.findings if f.path == "/etc/fstab"] == [FOREIGN]
    assert not back(root).outcome.changed


def test_a_change_that_a_later_run_of_ours_wrote_over_is_not_lost(root):
    # The second write finds another's line in the file: what it writes is no longer ours alone.
    tune(root)
    fstab = root / "etc/fstab"
    fstab.write_text(fstab.read_text() + "/dev/sdb1 /data xfs defaults 0 2\n/dev/sdc1 none swap sw 0 0\n")
    assert tune(root).changed
    back(root)
    assert fstab.read_text() == FSTAB + "/dev/sdb1 /data xfs defaults 0 2\n/dev/sdc1 none swap sw 0 0\n"


OURS = "# ours: "


def with_ours(value):
    """An edit that keeps one line of ours at the end of the file, or none."""

    def edit(text):
        theirs = [line for line in (text or "").splitlines(True) if not line.startswith(OURS)]
        return "".join(theirs + ([OURS + value + "\n"] if value else [])) or None

    return edit


@settings(max_examples=40)
@given(st.lists(st.text("abc", max_size=3)), st.lists(st.one_of(st.sampled_from("xyz"), st.none(), st.integers(0, 99)), max_size=8))
def test_whoever_writes_in_whatever_order_only_ours_goes(tmp_path_factory, lines, steps):
    # A letter or None: a run of ours with this plan. A number: somebody adds a line.
    root = tmp_path_factory.mktemp("node")
    original = "".join(line + "\n" for line in lines)
    write(root, "/etc/shared", original, 0o640)
    added = ""
    for step in steps:
        if isinstance(step, int):
            added += "%d\n" % step
            present = root / "etc/shared"
            present.write_text((present.read_text() if present.exists() else "") + "%d\n" % step)
        else:
            run(root, File("shared", "/etc/shared", with_ours(step), ours=False))
    with pytest.MonkeyPatch.context() as patch:
        only = Concern(
            "shared", (), lambda *_arguments: None, lambda *_arguments: [File("shared", "/etc/shared", with_ours(None), ours=False)]
        )
        patch.setattr(rollback, "CONCERNS", (only,))
        done = back(root)
        assert not back(root).outcome.changed
    assert (root / "etc/shared").read_text() == original + added
    assert bool(done.left) <= bool(added)


def test_a_file_of_ours_that_somebody_edited_is_set_aside(root):
    before = snapshot(root)
    tune(root)
    with open(root / SYSCTL[1:], "a") as stream:
        stream.write("kernel.sysrq = 1\n")
    done = back(root)
    assert snapshot(root) == before
    [finding] = [f for f in done.outcome.findings if f.path == SYSCTL]
    assert finding.status == FOREIGN and FOLDER + "/set-aside" + SYSCTL in finding.message
    assert (root / (FOLDER + "/set-aside" + SYSCTL)[1:]).read_text().endswith("kernel.sysrq = 1\n")
    back(root)
    assert memory(root) == ["set-aside"]


def test_what_somebody_removed_stays_away(root):
    tune(root)
    (root / "etc/fstab").unlink()
    (root / SYSCTL[1:]).unlink()
    done = back(root)
    assert not (root / "etc/fstab").exists() and not (root / SYSCTL[1:]).exists()
    assert [f.path for f in done.outcome.findings if f.status == FOREIGN] == ["/etc/fstab"]


def test_who_undid_our_part_by_hand_changed_nothing(root):
    before = snapshot(root)
    tune(root)
    (root / "etc/fstab").write_text(FSTAB)
    done = back(root)
    assert snapshot(root) == before and done.left == {}


def test_a_link_that_somebody_made_instead_of_ours_stays(root):
    run(root, Link("mask", MASK, "/dev/null"))
    (root / MASK[1:]).unlink()
    os.symlink("elsewhere.service", root / MASK[1:])
    back(root)
    assert os.readlink(root / MASK[1:]) == "elsewhere.service"


def test_a_link_of_ours_that_was_mended_once_goes(root):
    before = snapshot(root)
    run(root, Link("mask", MASK, "/dev/null"))
    (root / MASK[1:]).unlink()
    os.symlink("elsewhere.service", root / MASK[1:])
    assert run(root, Link("mask", MASK, "/dev/null")).changed
    back(root)
    assert not os.path.lexists(root / MASK[1:]) and snapshot(root) == before


def test_a_folder_of_ours_that_others_use_now_stays(root):
    tune(root)
    write(root, "/etc/sysctl.d/50-theirs.conf", "kernel.sysrq = 1\n")
    back(root)
    assert os.listdir(root / "etc/sysctl.d") == ["50-theirs.conf"]


def test_our_keys_leave_a_kubelet_file_in_another_place_that_somebody_changed(root):
    place = "/etc/kubernetes/kubelet-config.yaml"
    base = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n"
    write(root, place, base)
    ours = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "cpuManagerPolicy": "static"}
    run(root, File("kubelet configuration", place, lambda text: merge(text, ours, place)))
    with open(root / place[1:], "a") as stream:
        stream.write("maxPods: 64\n")
    done = back(root)
    assert (root / place[1:]).read_text() == base + "maxPods: 64\n"
    assert "+maxPods: 64" in done.left[place]
    assert not back(root).outcome.changed


def test_boot_entries_that_are_not_mounted_are_not_taken_for_restored(root):
    write(root, "/etc/default/grub", "GRUB_ENABLE_BLSCFG=true\n")
    write(root, "/boot/loader/entries/1.conf", "linux /vmlinuz\noptions root=/dev/sda1 quiet\n")
    before, boot = snapshot(root), CONCERNS[0]
    section, node = {"kernel_arguments": ["isolcpus=2-7"]}, Node.at(str(root))
    apply(boot.artifacts(section, boot.read(node.root, node.command, section)), node)
    (root / "boot/loader").rename(root / "unmounted")
    with pytest.raises(GpufleetError, match="Mount /boot"):
        back(root)
    (root / "unmounted").rename(root / "boot/loader")
    back(root)
    assert snapshot(root) == before


# Kernel values ----------------------------------------------------------------------------------------------------------


def test_of_two_values_that_exclude_each_other_the_first_one_comes_back(root, monkeypatch):
    # F12: the kernel refuses dirty_bytes = 0; dirty_ratio = 20 makes it 0.
    real, folder = files.write_kernel, root / "proc/sys/vm"

    def kernel(path, text):
        name = os.path.basename(path)
        if name == "dirty_bytes" and int(text) < 8192:
            return "EINVAL"
        if name in ("dirty_bytes", "dirty_ratio"):
            real(str(folder / {"dirty_bytes": "dirty_ratio", "dirty_ratio": "dirty_bytes"}[name]), "0")
        return real(path, text)

    monkeypatch.setattr(files, "write_kernel", kernel)
    apply(sysctl_artifacts({"vm.dirty_bytes": "1073741824"}, ()).live, Node.at(str(root)))
    assert ((folder / "dirty_bytes").read_text(), (folder / "dirty_ratio").read_text()) == ("1073741824\n", "0\n")
    done = back(root)
    assert ((folder / "dirty_bytes").read_text(), (folder / "dirty_ratio").read_text()) == ("0\n", "20\n")
    assert not [finding for finding in done.outcome.findings if finding.status == PENDING]


def test_a_value_that_was_right_before_us_and_drifted_later_comes_back_right(root):
    write(root, "/proc/sys/vm/swappiness", "0\n")
    tune(root, **SETTINGS)
    write(root, "/proc/sys/vm/swappiness", "100\n")
    tune(root, **SETTINGS)
    write(root, "/proc/sys/vm/swappiness", "100\n")
    back(root)
    assert (root / "proc/sys/vm/swappiness").read_text() == "0\n"


@pytest.mark.parametrize(("boot_id", "affinity"), [("first\n", "0-7\n"), ("second\n", "3\n")])
def test_interrupts_come_back_within_the_boot_that_they_are_numbered_by(root, boot_id, affinity):
    # E4: after a reboot the same number may be another device's.
    write(root, "/proc/irq/40/smp_affinity_list", "0-7\n")
    write(root, "/proc/irq/default_smp_affinity", "ff\n")
    run(
        root,
        KernelValue("irq", "/proc/irq/40/smp_affinity_list", ("3",), lambda a, b: a.strip() == b),
        KernelValue("default", "/proc/irq/default_smp_affinity", ("1",), lambda a, b: a.strip() == b),
    )
    write(root, BOOT_ID, boot_id)
    back(root)
    assert (root / "proc/irq/40/smp_affinity_list").read_text() == affinity
    assert (root / "proc/irq/default_smp_affinity").read_text() == "ff\n"


def test_a_value_that_is_gone_or_refused_does_not_stop_the_rest(root, monkeypatch):
    before = snapshot(root)
    tune(root)
    (root / "proc/sys/vm/dirty_bytes").unlink()
    real = files.write_kernel
    monkeypatch.setattr(files, "write_kernel", lambda path, text: "EBUSY" if path.endswith("swappiness") else real(path, text))
    done = back(root)
    assert [f.message for f in done.outcome.findings if f.status == PENDING and f.path] == [
        "was 60 first, but the kernel refuses it (EBUSY): the next boot sets it anew"
    ]
    assert {path: known for path, known in snapshot(root).items() if path.startswith("etc")} == {
        path: known for path, known in before.items() if path.startswith("etc")
    }


# Faults -----------------------------------------------------------------------------------------------------------------


def test_a_lost_original_is_one_sentence_before_anything_is_written(root):
    tune(root)
    state = json.loads((root / FOLDER[1:] / "state.json").read_text())
    (root / FOLDER[1:] / "originals" / state["files"]["/etc/fstab"]["original"]["sha256"]).unlink()
    before = snapshot(root)
    with pytest.raises(UnreadableRoot, match="original of /etc/fstab is missing"):
        back(root)
    assert snapshot(root) == before


def test_what_could_not_be_restored_is_still_known(root, monkeypatch):
    before = snapshot(root)
    tune(root)
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", lambda *_arguments: (unused for unused in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(WriteFailed, match="Free some space"):
            back(root)
    back(root)
    assert snapshot(root) == before


def test_commands_that_wait_for_a_boot_keep_the_memory(root):
    write(root, "/etc/default/grub", 'GRUB_CMDLINE_LINUX=""\n')
    write(root, "/boot/grub/grub.cfg", "menuentry 'x' {\n\tlinux /vmlinuz root=/dev/sda1 isolcpus=2-7\n}\n")
    boot = CONCERNS[0]
    section = {"kernel_arguments": ["isolcpus=2-7"]}
    node = Node.at(str(root))
    apply(boot.artifacts(section, boot.read(node.root, node.command, section)), node)
    done = back(root)
    assert [finding.command for finding in done.outcome.findings if finding.command] == [("update-grub",)]
    assert "state.json" in memory(root)
    write(root, "/boot/grub/grub.cfg", "menuentry 'x' {\n\tlinux /vmlinuz root=/dev/sda1\n}\n")  # as update-grub makes it
    assert not back(root).outcome.changed and memory(root) == []


KILLED = """
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node
from ansible_collections.gpufleet.node.plugins.module_utils.host.rollback import roll_back
roll_back(Node.at(sys.argv[1]))
"""


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24])
def test_killed_anywhere_and_run_again_it_ends_right(root, stop):
    before = snapshot(root)
    tune(root)
    run(root, Link("mask", MASK, "/dev/null"))
    run_killed(KILLED, root, stop, ("replace", "fsync", "unlink", "rmdir", "write"))
    back(root)
    assert snapshot(root) == before and memory(root) == []


def test_a_run_that_was_killed_before_its_second_write_is_undone_byte_for_byte(root, monkeypatch):
    # The state says already what that run was going to write, and the file still holds what the run before it wrote.
    before = snapshot(root)
    tune(root)
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomic", lambda *_arguments, **_options: (unused for unused in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tune(root, sysctl={"vm.swappiness": "10"})
    done = back(root)
    assert snapshot(root) == before and done.left == {} and memory(root) == []


def test_the_plan_of_nothing_finds_nothing_after_it(root):
    tune(root)
    back(root)
    node = Node.at(str(root))
    for concern in CONCERNS:
        section = {name: NOTHING[name] for name in concern.sections}
        found = inspect(concern.artifacts(section, concern.read(node.root, node.command, section)), node)
        assert not [finding for finding in found if finding.status == "drift"], concern.name


# Packages ---------------------------------------------------------------------------------------------------------------

LIBRARY = "/usr/lib/libj.so"


def install(root, command, listing="cat"):
    """Apply what a service's allocator asks for. ``command`` is a stand-in for the package manager, and the file ``packages`` its list."""
    node = Node.at(str(root))
    node.command.live = True
    there = str(root / "packages")
    script = command.format(library=root / LIBRARY[1:], packages=there)
    wanted = Effect(
        "j is installed", LIBRARY, lambda text: text is not None, ("sh", "-c", script), installs=Installs("libj2", (listing, there))
    )
    (root / "usr/lib").mkdir(parents=True, exist_ok=True)
    return apply([wanted], node)


@pytest.fixture
def packaged(root):
    write(root, "/packages", "installed base\nconfig-files libunwind\n")
    return root


INSTALL = "touch {library}; printf 'installed libj2t64\\ninstalled base\\ninstalled libunwind\\n' > {packages}"


def test_packages_that_came_with_us_are_listed_and_stay(packaged):
    assert install(packaged, INSTALL).changed
    assert back(packaged, check_mode=True).packages == ["libj2t64", "libunwind"]
    assert back(packaged).packages == ["libj2t64", "libunwind"] and (packaged / LIBRARY[1:]).exists()
    assert back(packaged).packages == [] and memory(packaged) == []


def test_a_package_that_was_there_before_is_not_ours(packaged):
    write(packaged, LIBRARY, "")
    assert not install(packaged, INSTALL).changed
    assert back(packaged).packages == []


def test_a_package_that_somebody_removed_since_is_not_listed(packaged):
    install(packaged, INSTALL)
    (packaged / LIBRARY[1:]).unlink()
    assert back(packaged).packages == []


def test_a_package_that_could_not_be_installed_and_came_from_somebody_else_later_is_not_ours(packaged):
    with pytest.raises(GpufleetError, match="status 100"):
        install(packaged, "exit 100")
    write(packaged, LIBRARY, "")
    assert back(packaged).packages == []


def test_without_a_list_of_packages_the_one_that_was_asked_for_is_named(packaged):
    install(packaged, INSTALL, listing="no-such-program")
    assert back(packaged).packages == ["libj2"]


INSTALLING = """
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import Effect, Installs
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
node, path = Node.at(sys.argv[1]), "/usr/lib/libj.so"
node.command.live = True
command = ("sh", "-c", "mkdir -p %s/usr/lib; touch %s%s; kill -9 $PPID" % (sys.argv[1], sys.argv[1], path))
apply([Effect("j", path, lambda text: text is not None, command, installs=Installs("libj2", ("cat", sys.argv[1] + "/packages")))], node)
"""


def test_a_kill_while_a_package_is_installed_leaves_it_listed(packaged):
    run_killed(INSTALLING, packaged, 0, ())
    assert (packaged / LIBRARY[1:]).exists() and back(packaged).packages == ["libj2"]
