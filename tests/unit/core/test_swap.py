"""Swap off for good: fstab by its third field and byte for byte back, masks for what fstab doesn't know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import swap
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import FOREIGN, PENDING, REBOOT, Effect, File, Link, Observation
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.swap import FSTAB_MARK, SwapReading, edit_fstab
from ansible_collections.gpufleet.node.plugins.module_utils.core.systemd import unit_name

comment_out, restore = edit_fstab(True), edit_fstab(False)

FIELDS = st.sampled_from(["none", "swap", "sw", "/swap.img", "UUID=1-2", "/srv/swap", "ext4", "#", "0", "défaut", "\udcff"])
LINES = st.one_of(
    st.lists(FIELDS, max_size=6).map("\t".join),
    st.lists(FIELDS, max_size=6).map(" ".join),
    st.text(st.sampled_from(" #\r\x0b\x0c\u2028ab"), max_size=8),
)
FSTABS = st.lists(LINES, max_size=8).flatmap(lambda lines: st.sampled_from(["\n".join(lines), "\n".join(lines) + "\n"]))


@given(FSTABS)
def test_fstab_comes_back_byte_for_byte(text):  # F24
    off = comment_out(text)
    assert comment_out(off) == off
    assert restore(off) == text
    assert [line for line in off.split("\n") if not line.startswith(FSTAB_MARK)] == [
        line for line in text.split("\n") if FSTAB_MARK + line not in off.split("\n")
    ]


@pytest.mark.parametrize(
    "line",
    ["UUID=1234 none swap sw 0 0", "/swap.img\tnone\tswap\tsw\t0\t0", "  /dev/vda3 swap swap defaults", "/dev/zram0 none swap sw\r"],
)
def test_swap_lines_are_commented(line):
    assert comment_out(line) == FSTAB_MARK + line


@pytest.mark.parametrize(
    "line",
    [
        "#/swap.img none swap sw 0 0",
        "# /dev/vda3 none swap sw",
        "/dev/sdb /srv/swap-archive ext4 defaults 0 2",
        "swap swap tmpfs defaults",
        "/dev/vda1 / ext4 noatime,comment=swap 0 1",
        "swap",
        "none swap",
        "",
    ],
)
def test_lines_that_only_look_like_swap_stay(line):  # F24
    assert comment_out(line) == line


def test_an_absent_fstab_stays_absent():
    assert comment_out(None) is None and restore(None) is None


def links(parts):
    return {a.path.rsplit("/", 1)[1]: a.target for a in parts.files if isinstance(a, Link)}


def file_at(parts, path):
    (found,) = (a for a in parts.files if isinstance(a, File) and a.path == path)
    return found


FULL = SwapReading(
    fstab=FSTAB_MARK + "/swap.img none swap sw 0 0\n",
    units=frozenset(("data.swap", "mine.swap", "zramswap.service")),
    own_units=frozenset(("mine.swap",)),
    partitions=("/dev/vda3", "/dev/mapper/a-b"),
    zram=(("/usr/lib/systemd/zram-generator.conf", "[zram0]\nzram-size = ram\n[zram1]\n"),),
    resume="RESUME=UUID=1234\n",
)
MASKS = {
    "swap.target",
    "data.swap",
    "zramswap.service",
    "dev-vda3.swap",
    "dev-mapper-a\\x2db.swap",
    "dev-zram0.swap",
    "dev-zram1.swap",
}


def test_every_way_back_is_closed():  # F19, F20, F23
    parts = swap.artifacts("off", FULL)
    assert links(parts) == dict.fromkeys(MASKS, "/dev/null")
    assert {unit for unit, masked in parts.units.items() if masked} == MASKS
    # A unit file in /etc leaves no place for a mask.
    assert "ConditionPathExists=!/\n" in file_at(parts, "/etc/systemd/system/mine.swap.d/zz-gpufleet.conf").edit(None)
    assert file_at(parts, swap.ZRAM).edit(None) == swap.ZRAM_TEXT


def test_keep_takes_all_of_it_back():
    parts = swap.artifacts("keep", FULL)
    assert links(parts) == dict.fromkeys(MASKS)
    assert not any(parts.units.values())
    assert file_at(parts, "/etc/systemd/system/mine.swap.d/zz-gpufleet.conf").edit("x") is None
    assert file_at(parts, swap.ZRAM).edit(swap.ZRAM_TEXT) is None
    assert file_at(parts, "/etc/fstab").edit(FULL.fstab) == "/swap.img none swap sw 0 0\n"
    (effect,) = (a for a in parts.live if isinstance(a, Effect))
    assert (effect.command, effect.unmet, effect.until) == (None, PENDING, REBOOT)
    assert effect.satisfied("Filename\n/dev/vda3 partition\n") and not effect.satisfied("Filename\n")


def test_an_administrators_zram_file_stays_and_its_devices_are_masked():
    text = "[zram2]\nzram-size = 4096\n"
    parts = swap.artifacts("off", SwapReading(zram=((swap.ZRAM, text),)))
    assert file_at(parts, swap.ZRAM).edit(text) == text
    assert links(parts)["dev-zram2.swap"] == "/dev/null"


@pytest.mark.parametrize(
    ("text", "used"),
    [
        (None, False),
        ("Filename\tType\tSize\tUsed\tPriority\n", False),
        ("Filename Type Size Used Priority\n/swap.img file 8388604 0 -2\n", True),
    ],
)
def test_swap_in_use_is_seen_in_proc_swaps(text, used):  # F26
    (effect,) = (a for a in swap.artifacts("off", SwapReading()).live if isinstance(a, Effect))
    assert effect.probe == "/proc/swaps" and effect.satisfied(text) is not used


@pytest.mark.parametrize(
    ("text", "named"), [("RESUME=UUID=1-2\n", True), ("RESUME=none\n", False), ("#RESUME=UUID=1\n", False), (None, False)]
)
def test_a_resume_device_is_said(text, named):  # F22
    found = [a for a in swap.artifacts("off", SwapReading(resume=text)).live if isinstance(a, Observation)]
    assert [a.status for a in found] == ([FOREIGN] if named else [])


def test_another_word_is_refused():
    with pytest.raises(InvalidInput, match=r'"of" is not a known choice for swap. Did you mean "off"\?'):
        swap.artifacts("of", SwapReading())


@pytest.mark.parametrize(
    ("path", "name"),  # answers of systemd-escape --path --suffix=swap
    [
        ("/dev/disk/by-uuid/ab-cd", "dev-disk-by\\x2duuid-ab\\x2dcd.swap"),
        ("/swap.img", "swap.img.swap"),
        ("/dev/mapper/vg-swap_1", "dev-mapper-vg\\x2dswap_1.swap"),
        ("/.hidden//a b:c@d-é\\x", "\\x2ehidden-a\\x20b:c\\x40d\\x2d\\xc3\\xa9\\x5cx.swap"),
        ("/", "-.swap"),
    ],
)
def test_unit_names_are_escaped_as_systemd_does(path, name):
    assert unit_name(path, ".swap") == name
