"""The tuning concern on folders that stand for nodes: read, applied, applied again, taken back."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core import swap, sysctl, sysfs
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, FOREIGN, IN_PLACE, NOT_APPLICABLE, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.tuning import CONCERN, misspelt
from machines.build import build, load

MIB2 = str(2 << 20)
NOTHING = {"sysctl": {}, "transparent_hugepage": {}, "hugepages": {}, "governor": "", "swap": "keep", "limits": {}, "confine": {}}
TRAINING = {
    "sysctl": {"vm.swappiness": "0", "net.ipv4.tcp_rmem": "4096 87380 268435456", "vm.dirty_ratio": "20"},
    "transparent_hugepage": {"enabled": "always", "defrag": "defer+madvise"},
    "hugepages": {},
    "governor": "performance",
    "swap": "off",
    "limits": {"memlock": "unlimited", "nofile": 1048576},
    "confine": {"cpus": "0", "slices": ["system.slice", "user.slice", "init.scope"]},
}
INFERENCE = {**TRAINING, "transparent_hugepage": {"enabled": "never", "defrag": "never"}, "limits": {}, "confine": {}}
FSTAB = """\
# <file system> <mount point> <type> <options> <dump> <pass>
UUID=1-2 / ext4 errors=remount-ro 0 1
/dev/sdb\t/srv/swap-archive\text4\tdefaults\t0 2
UUID=3-4 none swap sw 0 0
#/swap.img none swap sw 0 0
/swapfile\tswap\tswap\tdefaults\t0\t0"""


def put(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root; a value that begins with "-> " is a link."""
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            place.symlink_to(text[3:])
        else:
            place.write_text(text, encoding="utf-8")
    return root


def artifacts(root: Path, section):
    node = Node.at(str(root))
    return CONCERN.artifacts(section, CONCERN.read(node.root, node.command, section))


def run(root: Path, section, check_mode=False):
    return apply(artifacts(root, section), Node.at(str(root)), check_mode)


def of(outcome, status):
    return {finding.item: finding.message for finding in outcome.findings if finding.status == status}


def tree(root: Path, *folders: str) -> dict[str, str]:
    """Files and links below folders of the root, by path."""
    found = {}
    for folder in folders:
        for place, _folders, files in os.walk(root / folder):
            for name in files:
                path = Path(place, name)
                found[str(path.relative_to(root))] = f"-> {os.readlink(path)}" if path.is_symlink() else path.read_bytes().decode("latin-1")
    return found


# One machine for each distribution's files: Ubuntu, RHEL 9 with tuned and zram, RHEL 8, Debian with a GPT swap partition.
@pytest.mark.parametrize("name", ["cloudvm", "nosmt", "power9", "nps4"])
def test_a_node_converges_in_one_run_and_keeps_no_residue(name, tmp_path):
    root = tmp_path / "root"
    build(load(name), root)
    before = tree(root, "etc", "usr")
    assert run(root, TRAINING, check_mode=True).changed and tree(root, "etc", "usr") == before, "a check writes nothing"
    for section in (TRAINING, INFERENCE, TRAINING):
        assert run(root, section).changed
        again = run(root, section)
        assert not again.changed and DRIFT not in {finding.status for finding in again.findings}
    run(root, NOTHING)
    assert tree(root, "etc", "usr") == before
    assert not run(root, NOTHING).changed


def test_profiles_leave_nothing_of_each_other(tmp_path):
    roots = [put(tmp_path / name, {"etc/fstab": FSTAB}) for name in ("fresh", "switched")]
    run(roots[1], TRAINING)
    for root in roots:
        run(root, INFERENCE)
    assert tree(roots[0], "etc") == tree(roots[1], "etc")


# Swap


def swap_node(root: Path) -> Path:
    return put(
        root,
        {
            "etc/fstab": FSTAB,
            "run/udev/data/b252:3": "S:disk/by-uuid/5-6\nE:ID_PART_ENTRY_TYPE=0657fd6d-a4ab-43c4-84e5-0933c84b4f4f\n",
            "run/udev/data/b252:1": "E:ID_PART_ENTRY_TYPE=0fc63daf-8483-4772-8e79-3d69d8477de4\n",
            "run/udev/data/n2": "E:ID_PART_ENTRY_TYPE=0657fd6d-a4ab-43c4-84e5-0933c84b4f4f\n",
            "sys/dev/block/252:3/uevent": "MAJOR=252\nMINOR=3\nDEVNAME=vda3\nDEVTYPE=partition\n",
            "etc/systemd/system/mine.swap": "[Swap]\nWhat=/dev/sdc\n",
            "etc/systemd/system/off.swap": "-> /dev/null",
            "usr/lib/systemd/system/data.swap": "[Swap]\nWhat=/dev/sdd\n",
            "run/systemd/generator/swapfile.swap": "[Swap]\nWhat=/swapfile\n",
            "etc/init.d/dphys-swapfile": "#!/bin/sh\n",
            "usr/lib/systemd/zram-generator.conf": "[zram0]\n",
            "etc/initramfs-tools/conf.d/resume": "RESUME=UUID=5-6\n",
            "proc/swaps": "Filename\tType\tSize\tUsed\tPriority\n/dev/vda3 partition 1 0 -2\n",
        },
    )


def test_swap_is_shut_out_on_every_way_and_comes_back_byte_for_byte(tmp_path):  # F19, F20, F22, F23, F24, F26
    root = swap_node(tmp_path)
    before = tree(root, "etc")
    outcome = run(root, {"swap": "off"})
    assert {finding.command for finding in outcome.findings if finding.command} == {("swapoff", "-a")}
    assert list(of(outcome, FOREIGN)) == ["resume device"]
    after = tree(root, "etc")
    assert sorted(set(after) - set(before)) == [
        "etc/systemd/system/data.swap",
        "etc/systemd/system/dev-vda3.swap",
        "etc/systemd/system/dev-zram0.swap",
        "etc/systemd/system/dphys-swapfile.service",
        "etc/systemd/system/mine.swap.d/zz-gpufleet.conf",
        "etc/systemd/system/swap.target",
        "etc/systemd/zram-generator.conf",
    ]
    assert [line for line in after["etc/fstab"].split("\n") if not line.startswith(swap.FSTAB_MARK)] == FSTAB.split("\n")[:3] + FSTAB.split(
        "\n"
    )[4:5]
    assert not run(root, {"swap": "off"}).changed
    run(root, {"swap": "keep"})
    assert tree(root, "etc") == before, "a mask that somebody else made stays"


def test_a_commented_line_gets_no_second_comment(tmp_path):  # F24
    root = swap_node(tmp_path)
    for unused in range(3):
        run(root, {"swap": "off"})
    assert (root / "etc/fstab").read_text().count(swap.FSTAB_MARK) == 2


# Other owners


def test_tuned_is_named_where_it_wants_otherwise(tmp_path):  # F2
    root = put(
        tmp_path,
        {
            "etc/tuned/active_profile": "mine\n",
            "etc/tuned/mine/tuned.conf": "[main]\ninclude=throughput-performance\n[sysctl]\nvm.swappiness=0\n",
            "usr/lib/tuned/throughput-performance/tuned.conf": "[vm]\ntransparent_hugepages=always\n[sysctl]\nvm.swappiness=10\n",
        },
    )
    assert "tuned: transparent_hugepage.enabled" not in of(run(root, INFERENCE), FOREIGN), "installed, but neither enabled nor running"
    put(root, {"etc/systemd/system/multi-user.target.wants/tuned.service": "-> /usr/lib/systemd/system/tuned.service"})
    assert [item for item in of(run(root, INFERENCE), FOREIGN) if item.startswith("tuned")] == ["tuned: transparent_hugepage.enabled"]
    assert not [item for item in of(run(root, TRAINING), FOREIGN) if item.startswith("tuned")]


def test_a_tuned_profile_that_replaces_a_section_inherits_nothing_in_it(tmp_path):  # F18
    parent = "[vm]\ntransparent_hugepages=always\n[sysctl]\nvm.swappiness=10\n"
    root = put(
        tmp_path,
        {
            "etc/systemd/system/multi-user.target.wants/tuned.service": "-> /usr/lib/systemd/system/tuned.service",
            "etc/tuned/active_profile": "mine\n",
            "etc/tuned/mine/tuned.conf": "[main]\ninclude=throughput-performance\n[vm]\nreplace=1\n"
            "[sysctl]\nreplace=0\nnet.core.somaxconn=5\n",
            "usr/lib/tuned/throughput-performance/tuned.conf": parent,
        },
    )
    clashes = [item for item in of(run(root, INFERENCE), FOREIGN) if item.startswith("tuned")]
    assert clashes == ["tuned: sysctl.vm.swappiness"], "the parent's hugepages don't count, its sysctls do"
    put(root, {"etc/tuned/active_profile": "mine throughput-performance\n"})
    assert "tuned: transparent_hugepage.enabled" in of(run(root, INFERENCE), FOREIGN), "a later profile's count again"


def test_sysctl_files_of_others_are_named_and_never_edited(tmp_path):  # F14, F16
    files = {
        "etc/sysctl.conf": "# indented, twice\n  vm.swappiness = 60\nvm.swappiness=60\n",
        "usr/lib/sysctl.d/zzz.conf": "vm.swappiness = 10\n",
        "etc/sysctl.d/zzz.conf": "# hides the packaged one\n",
        "etc/sysctl.d/50-early.conf": "vm.swappiness = 30\n",
    }
    root = put(tmp_path, {**files, "etc/sysctl.d/99-sysctl.conf": "-> ../sysctl.conf", "proc/sys/vm/swappiness": "60\n"})
    outcome = run(root, {"sysctl": {"vm.swappiness": "0"}})
    (message,) = of(outcome, FOREIGN).values()
    assert message.startswith("/etc/sysctl.conf sets vm.swappiness = 60")
    assert {path: (root / path).read_text() for path in files} == files
    assert (root / "proc/sys/vm/swappiness").read_text().strip() == "0"


# Confinement


def cgroup(root: Path, path: str, *pids: int) -> None:
    put(root, {f"sys/fs/cgroup/{path}/cgroup.procs": "".join(f"{pid}\n" for pid in pids), f"sys/fs/cgroup/{path}/cpuset.cpus": "\n"})


CONFINE = {"confine": {"cpus": "0"}}


@pytest.mark.parametrize(
    ("path", "slice_name"),
    [
        ("system.slice/docker-" + "0a" * 32 + ".scope", "system.slice"),
        ("system.slice/slurmstepd.scope/job_7/step_0", "system.slice"),
        ("system.slice/node1_slurmstepd.scope", "system.slice"),
        ("user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + "0a" * 32 + ".scope", "user.slice"),
        ("system.slice/k3s.service/kubepods/besteffort", "system.slice"),
    ],
)
def test_workloads_below_a_slice_keep_it_unconfined(tmp_path, path, slice_name):
    cgroup(tmp_path, path, 42)
    cgroup(tmp_path, "system.slice/ssh.service", 1)
    said = of(run(tmp_path, CONFINE), FOREIGN)
    assert list(said) == ["CPUs of " + slice_name]
    assert path.split("/")[-1][:20] in said["CPUs of " + slice_name] or "slurmstepd" in path or "kubepods" in path
    assert not (tmp_path / f"etc/systemd/system/{slice_name}.d").exists()
    assert (tmp_path / "etc/systemd/system/init.scope.d").exists()


@pytest.mark.parametrize(
    ("device", "refused"), [("/dev/nvidia3", True), ("/dev/kfd", True), ("/dev/null", False), ("/dev/nvidiactl", False)]
)
def test_training_started_from_a_login_keeps_it_unconfined(tmp_path, device, refused):
    cgroup(tmp_path, "user.slice/user-0.slice/session-1.scope", 42)
    put(tmp_path, {"proc/42/fd/3": f"-> {device}", "proc/42/comm": "python3\n"})
    said = of(run(tmp_path, CONFINE), FOREIGN)
    assert ("python3, pid 42" in said["CPUs of user.slice"]) if refused else said == {}


def test_gpu_daemons_of_the_host_are_no_workloads(tmp_path):
    cgroup(tmp_path, "system.slice/nvidia-persistenced.service", 42)
    cgroup(tmp_path, "kubepods.slice/kubepods-burstable.slice", 43)
    put(tmp_path, {"proc/42/fd/3": "-> /dev/nvidia0"})
    assert of(run(tmp_path, CONFINE), FOREIGN) == {}


def test_running_daemons_are_checked_by_their_allowed_cpus(tmp_path):  # D14
    put(
        tmp_path,
        {
            "sys/fs/cgroup/system.slice/cpuset.cpus": "0,2\n",
            "sys/fs/cgroup/system.slice/ssh.service/cgroup.procs": "42\n43\n",
            "proc/42/status": "Name:\tsshd\nCpus_allowed_list:\t0,2\n",
            "proc/43/status": "Cpus_allowed_list:\t0-3\n",
            "proc/43/comm": "x\n",
        },
    )
    said = of(run(tmp_path, {"confine": {"cpus": "0,2"}}), FOREIGN)
    assert list(said) == ["CPUs of system.slice"] and "x (pid 43) may run on 0-3" in said["CPUs of system.slice"]


# Limits, hugepages, governor


def test_runtimes_that_are_there_get_drop_ins(tmp_path):  # J1
    root = put(tmp_path, {"usr/lib/systemd/system/containerd.service": "", "etc/systemd/system/k3s.service": ""})
    run(root, TRAINING)
    assert {path.parent.name for path in (root / "etc/systemd/system").glob("*.service.d/zz-gpufleet.conf")} == {
        "containerd.service.d",
        "k3s.service.d",
    }


def pools(root: Path) -> Path:
    for node in (0, 1):
        put(
            root,
            {
                f"sys/devices/system/node/node{node}/meminfo": f"Node {node} MemTotal: 8388608 kB\nNode {node} MemFree: 4194304 kB\n",
                f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages": "7\n",
                f"sys/devices/system/node/node{node}/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
            },
        )
    return root


def test_hugepages_move_with_the_plan_and_go_with_it(tmp_path):  # F6, F7
    root = pools(tmp_path)
    run(root, {"hugepages": {MIB2: {"0": 512}}})
    path = "sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages"
    assert [(root / (path % node)).read_text().strip() for node in (0, 1)] == ["512", "0"]
    gigantic = run(root, {"hugepages": {str(1 << 30): {"1": 2}}})
    assert [(root / (path % node)).read_text().strip() for node in (0, 1)] == ["0", "0"]
    assert list(of(gigantic, PENDING)) == ["hugepages of 1048576 KiB on NUMA node 1"]
    run(root, {"hugepages": {}})
    assert not (root / sysfs.HUGEPAGES_FILE.lstrip("/")).exists()


def test_one_policy_without_the_governor(tmp_path):  # G1
    for policy, offered in ((0, "performance powersave"), (1, "powersave")):
        folder = f"sys/devices/system/cpu/cpufreq/policy{policy}"
        put(tmp_path, {f"{folder}/scaling_governor": "powersave\n", f"{folder}/scaling_available_governors": offered + "\n"})
    outcome = run(tmp_path, {"governor": "performance"})
    assert list(of(outcome, NOT_APPLICABLE)) == ["governor of policy1"]
    assert (tmp_path / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor").read_text().strip() == "performance"


# Refusals


@pytest.mark.parametrize(
    "section",
    [
        {"hugepages": {MIB2: {"0": 4097}}},
        {"hugepages": {"65536": {"0": 1}}},
        {"governor": "schedutil"},
        {"transparent_hugepage": {"enabled": "defer"}},
        {"sysctl": {"vm.dirty_bytes": "0"}},
        {"limits": {"nofile": 2000000}},
        {"confine": {"cpus": "7"}},
        {"swap": "never"},
    ],
    ids=str,
)
def test_nothing_is_written_when_one_value_is_refused(tmp_path, section):
    root = put(
        pools(tmp_path),
        {
            "etc/fstab": FSTAB,
            "proc/sys/fs/nr_open": "1048576\n",
            "sys/devices/system/cpu/online": "0-3\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "powersave\n",
            "sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors": "performance powersave\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        },
    )
    before = tree(root, ".")
    with pytest.raises(InvalidInput):
        run(root, {**TRAINING, **section})
    assert tree(root, ".") == before


def test_drift_is_found_and_mended(tmp_path):
    root = put(swap_node(tmp_path), {"proc/sys/vm/swappiness": "60\n"})
    run(root, TRAINING)
    (root / "proc/sys/vm/swappiness").write_text("10\n")
    (root / "etc/systemd/system/dev-vda3.swap").unlink()
    (root / "etc/security/limits.d/zz-gpufleet.conf").unlink()
    (root / "etc/fstab").write_text(FSTAB)
    found = inspect(artifacts(root, TRAINING), Node.at(str(root)))
    assert {finding.item for finding in found if finding.status == DRIFT} == {
        "sysctl vm.swappiness",
        "mask of dev-vda3.swap",
        "limits of logins",
        "swap lines in /etc/fstab",
    }
    run(root, TRAINING)
    assert Counter(finding.status for finding in inspect(artifacts(root, TRAINING), Node.at(str(root))))[DRIFT] == 0


def test_this_machine_can_be_read():
    """The real /proc and /sys, read-only."""
    node = Node.at("/")
    section = {**NOTHING, "sysctl": {"vm.swappiness": (node.root.read("/proc/sys/vm/swappiness") or "60").strip()}}
    found = inspect(CONCERN.artifacts(section, CONCERN.read(node.root, node.command, section)), node)
    assert {finding.status for finding in found if finding.item == "sysctl vm.swappiness"} == {IN_PLACE}


def test_a_misspelt_kernel_parameter_is_refused_with_the_right_one(tmp_path):
    node = Root(str(tmp_path))
    for name in ("swappiness", "overcommit_memory", "dirty_ratio"):
        (tmp_path / "proc/sys/vm").mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc/sys/vm" / name).write_text("1\n")
    asked = ["vm.swappiness", "vm.swapiness", "vm/overcomit_memory", "vm.watermark_boost_factor", "kernel.nothing"]
    found = misspelt(node, asked)
    assert found == {"vm.swapiness": "vm.swappiness", "vm/overcomit_memory": "vm/overcommit_memory"}
    with pytest.raises(InvalidInput) as refusal:
        sysctl.artifacts(dict.fromkeys(asked, "1"), (), found)
    assert str(refusal.value) == 'The kernel of this node has no parameter vm.swapiness. Did you mean "vm.swappiness"?'
