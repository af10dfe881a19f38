"""Settings below /sys, tuned beside us, and the order in which everything is applied."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core import sysfs, tuned, tuning
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import (
    FOREIGN,
    NOT_APPLICABLE,
    PENDING,
    REBOOT,
    Effect,
    File,
    KernelValue,
    Link,
    Observation,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.confine import ConfineReading
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.limits import LimitsReading
from ansible_collections.gpufleet.node.plugins.module_utils.core.swap import SwapReading
from ansible_collections.gpufleet.node.plugins.module_utils.core.sysfs import SysfsReading
from ansible_collections.gpufleet.node.plugins.module_utils.core.systemd import DAEMON_RELOAD, reload_effect

GIB = 1 << 30
MIB2 = 2 << 20
THP = {"enabled": "always [madvise] never\n", "defrag": "always defer defer+madvise [madvise] never\n"}
POOLS = {(size, node): 0 for size in (MIB2, GIB) for node in (0, 1, 2)}
NODES = {0: (8 * GIB, 4 * GIB), 1: (8 * GIB, 4 * GIB), 2: (2 * GIB, 2 * GIB)}


def boot_file(parts):
    (file,) = (a for a in parts.files if isinstance(a, File))
    return file.edit("old")


def live(parts):
    return {a.path: a.wanted for a in [*parts.files, *parts.live] if isinstance(a, KernelValue)}


# Transparent hugepages


def test_thp_live_and_at_boot():
    parts = sysfs.transparent_hugepage({"enabled": "always", "defrag": "defer+madvise"}, SysfsReading(thp=THP))
    assert live(parts) == {sysfs.THP + "/enabled": ("always",), sysfs.THP + "/defrag": ("defer+madvise",)}
    assert boot_file(parts).splitlines()[1:] == [
        "w /sys/kernel/mm/transparent_hugepage/enabled - - - - always",
        "w /sys/kernel/mm/transparent_hugepage/defrag - - - - defer+madvise",
    ]
    assert boot_file(sysfs.transparent_hugepage({}, SysfsReading(thp=THP))) is None


@pytest.mark.parametrize(
    ("current", "wanted", "same"),
    [("always madvise [never]\n", "never", True), ("[always] madvise never\n", "never", False), ("never\n", "never", True)],
)
def test_the_bracketed_word_is_the_value(current, wanted, same):
    value = sysfs.transparent_hugepage({"enabled": wanted}, SysfsReading()).live[0]
    assert value.same(current, wanted) is same
    assert value.shown(current) == ("never" if same else "always")


@pytest.mark.parametrize(
    ("wanted", "reading", "sentence"),
    [
        (
            {"enabled": "defer"},
            SysfsReading(thp=THP),
            'enabled can\'t be "defer" on this kernel. Choose from always, madvise, never.',
        ),  # F1
        ({"defrag": "defer+madvise"}, SysfsReading(thp={"defrag": "always [madvise] never"}), 'defrag can\'t be "defer+madvise"'),  # F1
        ({"enabled": "1"}, SysfsReading(), 'enabled can\'t be "1"'),
        ({"khugepaged": "madvise"}, SysfsReading(), '"khugepaged" is not a known setting of transparent hugepages.'),  # F1
    ],
)
def test_words_the_kernel_does_not_have(wanted, reading, sentence):
    with pytest.raises(InvalidInput) as error:
        sysfs.transparent_hugepage(wanted, reading)
    assert sentence in str(error.value)


# Governor


def test_every_policy_gets_the_governor_and_so_does_every_boot():
    offered = ("performance", "powersave")
    parts = sysfs.governor("performance", SysfsReading(governors={"policy0": offered, "policy8": offered}))
    assert sorted(live(parts)) == [sysfs.POLICIES + "/policy0/scaling_governor", sysfs.POLICIES + "/policy8/scaling_governor"]
    assert "w /sys/devices/system/cpu/cpufreq/policy*/scaling_governor - - - - performance\n" in boot_file(parts)
    assert boot_file(sysfs.governor("", SysfsReading())) is None


def test_a_governor_that_no_policy_offers_is_refused():  # G1
    with pytest.raises(InvalidInput, match="Choose from performance, powersave"):
        sysfs.governor("schedutil", SysfsReading(governors={"policy0": ("performance", "powersave")}))


def test_a_policy_that_lacks_it_is_left_alone():
    parts = sysfs.governor("schedutil", SysfsReading(governors={"policy0": ("schedutil",), "policy1": ("performance",)}))
    assert [a.status for a in parts.live if isinstance(a, Observation)] == [NOT_APPLICABLE]
    assert len(live(parts)) == 1


def test_no_cpufreq_is_fine():  # G2
    parts = sysfs.governor("performance", SysfsReading())
    assert [a.status for a in parts.live] == [NOT_APPLICABLE]


# Hugepages


def test_pages_sit_on_the_named_nodes_and_nowhere_else():  # F6
    parts = sysfs.hugepages({str(MIB2): {"0": 512, "1": 256}}, SysfsReading(pools=POOLS, nodes=NODES))
    path = sysfs.NODES + "/node%d/hugepages/hugepages-2048kB/nr_hugepages"
    assert live(parts) == {path % 0: ("512",), path % 1: ("256",), path % 2: ("0",)}
    assert boot_file(parts).splitlines()[1:] == ["w %s - - - - %d" % (path % node, count) for node, count in ((0, 512), (1, 256), (2, 0))]


@pytest.mark.parametrize(("size", "count"), [(GIB, 2), (MIB2, 3072)])
def test_pages_that_find_no_room_wait_for_the_boot(size, count):  # F7, F8
    parts = sysfs.hugepages({size: {0: count}}, SysfsReading(pools={(size, 0): 1}, nodes={0: (8 * GIB, 4 * GIB)}))
    (effect,) = (a for a in parts.live if isinstance(a, Effect))
    assert (effect.unmet, effect.until) == (PENDING, REBOOT)
    assert "1 of %d pages" % count in effect.message
    assert effect.satisfied("%d\n" % count) and not effect.satisfied("1\n") and not effect.satisfied(None)


def test_a_pool_of_our_former_file_goes_before_the_file_forgets_it():
    former = boot_file(sysfs.hugepages({MIB2: {0: 512}, GIB: {1: 1}}, SysfsReading()))
    reading = SysfsReading(pools={**POOLS, (MIB2, 0): 512, (GIB, 1): 1}, nodes=NODES, hugepages_file=former)
    parts = sysfs.hugepages({}, reading)
    assert [type(a) for a in parts.files] == [KernelValue, KernelValue, File]
    assert set(live(parts).values()) == {("0",)}
    assert boot_file(parts) is None
    assert live(sysfs.hugepages({}, SysfsReading(pools=POOLS, nodes=NODES))) == {}, "pools of others stay"


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"524288": {"0": 1}}, "This kernel has no hugepages of 524288 bytes. Choose from 2097152, 1073741824."),
        ({str(MIB2): {"3": 1}}, "This node has no NUMA node 3 for hugepages. Choose from 0, 1, 2."),
        ({str(MIB2): {"2": 1025}}, "2149580800 bytes of hugepages on NUMA node 2 are more than its 2147483648 bytes of memory."),
        ({str(MIB2): {"2": 512}, str(GIB): {"2": 2}}, "are more than its 2147483648 bytes"),
        ({"2M": {"0": 1}}, "Hugepages {2M: {0: 1}} are not whole numbers."),
        ({str(MIB2): {"0": "-1"}}, "are not whole numbers."),
    ],
)
def test_hugepages_that_can_not_be(wanted, sentence):  # B14, F6
    with pytest.raises(InvalidInput) as error:
        sysfs.hugepages(wanted, SysfsReading(pools=POOLS, nodes=NODES))
    assert sentence in str(error.value)


def test_our_tmpfiles_lines_come_first():  # of two "w" lines for one path systemd-tmpfiles takes the first
    assert all(path.rsplit("/", 1)[1] < "00-z.conf" for path in (sysfs.THP_FILE, sysfs.HUGEPAGES_FILE, sysfs.GOVERNOR_FILE))


# tuned

PROFILE = """\
[main]
include=throughput-performance, more
[cpu]
governor=performance|powersave
[vm]
# transparent_hugepages=never
transparent_hugepages=always
[sysctl]
vm.swappiness = 10
net/core/rmem_max=212992
kernel.x=${size}
[disk]
governor=none
"""


def test_a_profile_is_read():
    profile = tuned.parse(PROFILE)
    assert profile.includes == ("throughput-performance", "more") and not profile.replaced
    assert profile.settings == {
        "governor": "performance|powersave",
        "transparent_hugepage.enabled": "always",
        "sysctl.vm.swappiness": "10",
        "sysctl.net.core.rmem_max": "212992",
    }


def test_only_what_is_at_odds_is_said():  # F2
    section = {
        "transparent_hugepage": {"enabled": "never"},
        "governor": "performance",
        "sysctl": {"net.core.rmem_max": "212992"},
        "limits": None,
    }
    (said,) = tuned.clashes("mine", tuned.parse(PROFILE).settings, section)
    assert said.status == FOREIGN and said.item == "tuned: transparent_hugepage.enabled"
    assert '"mine" sets always, the plan never' in said.message


# Everything together

EVERYTHING = {
    "sysctl": {"vm.swappiness": "0"},
    "transparent_hugepage": {"enabled": "never", "defrag": "never"},
    "hugepages": {str(MIB2): {"0": 4}},
    "governor": "performance",
    "swap": "off",
    "limits": {"memlock": "unlimited", "nofile": 1048576},
    "confine": {"cpus": "0"},
}
NOTHING = {"sysctl": {}, "transparent_hugepage": {}, "hugepages": {}, "governor": "", "swap": "keep", "limits": {}, "confine": {}}
READING = tuning.Reading(
    sysfs=SysfsReading(thp=THP, pools=POOLS, nodes=NODES, governors={"policy0": ("performance",)}),
    swap=SwapReading(fstab="/swap.img none swap sw 0 0\n", partitions=("/dev/vda3",)),
    limits=LimitsReading(units=("containerd.service",), running=(("containerd.service", 7),)),
    confine=ConfineReading(online=CpuSet.parse("0-3")),
)


def test_files_then_one_reload_then_what_is_live():
    found = tuning.artifacts(EVERYTHING, READING)
    reloads = [index for index, a in enumerate(found) if isinstance(a, Effect) and a.command == DAEMON_RELOAD]
    assert len(reloads) == 2, "one for unit files, one for the manager's defaults, which the first has done already"
    files = [index for index, a in enumerate(found) if isinstance(a, (File, Link))]
    assert max(files) < reloads[0]
    swapoff = next(index for index, a in enumerate(found) if isinstance(a, Effect) and a.command == ("swapoff", "-a"))
    assert swapoff > reloads[0], "masks must count before swap goes, or systemd brings it back"


def test_nothing_wanted_touches_the_same_paths():
    def paths(section):
        return {a.path for a in tuning.artifacts(section, READING) if isinstance(a, (File, Link))}

    assert paths(NOTHING) == paths(EVERYTHING)
    assert all(a.edit(None) is None for a in tuning.artifacts(NOTHING, READING) if isinstance(a, File))
    assert all(a.target is None for a in tuning.artifacts(NOTHING, READING) if isinstance(a, Link))


def test_what_is_not_given_is_left_alone():
    assert tuning.artifacts({}, READING) == []
    assert {a.path for a in tuning.artifacts({"sysctl": {}, "swap": None}, READING)} == {"/etc/sysctl.d/zz-gpufleet.conf"}


def test_services_that_choose_governors_are_named():  # G4
    reading = tuning.Reading(governor_services=("tlp.service",))
    assert any("tlp.service" in a.message for a in tuning.artifacts({"governor": "performance"}, reading) if isinstance(a, Observation))
    assert not any(isinstance(a, Observation) for a in tuning.artifacts({"governor": ""}, reading))


@pytest.mark.parametrize(
    ("shown", "needed"),
    [
        ("LoadState=masked\nNeedDaemonReload=no\n\nLoadState=loaded\nNeedDaemonReload=no\n", False),  # J8: nothing changed, no reload
        ("LoadState=masked\nNeedDaemonReload=no\n\nNeedDaemonReload=yes\nLoadState=loaded\n", True),
        ("LoadState=loaded\nNeedDaemonReload=no\n\nLoadState=loaded\nNeedDaemonReload=no\n", True),
        # A unit had failed when its file went; seen on Debian 13: its file is back, and systemd refuses to start what needs it.
        ("LoadState=masked\nNeedDaemonReload=no\n\nLoadState=error\nNeedDaemonReload=no\n", True),
        (None, False),
    ],
)
def test_systemd_is_reloaded_only_when_it_says_so(shown, needed):
    effect = reload_effect({"dev-vda3.swap": True, "system.slice": False})
    assert effect.probe[-3:] == ("--", "dev-vda3.swap", "system.slice")
    assert effect.satisfied(shown) is not needed


def test_the_hazard_of_a_reload_is_said():  # J8
    found = tuning.artifacts(EVERYTHING, tuning.Reading(reload_hazard=True, sysfs=READING.sysfs))
    assert any("create-dev-char-symlinks" in a.message for a in found if isinstance(a, Effect))
