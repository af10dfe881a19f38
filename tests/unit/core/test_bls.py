"""Boot loader entries, $kernelopts and grubenv."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import bls, kernel_args
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.core.kernel_args import NO_RECORD

WANTED = ("isolcpus=managed_irq,2-7", "nohz_full=2-7")
POOLS = ("hugepagesz=1G", "hugepages=32", "hugepagesz=2M", "hugepages=1024")
ENTRY = """title Red Hat Enterprise Linux (5.14) 9.6 (Plow)
version 5.14
linux /vmlinuz-5.14
initrd /initramfs-5.14.img $tuned_initrd
options root=/dev/sda2 ro crashkernel=1G-:192M {extra}$tuned_params
grub_users $grub_users
grub_class rhel
"""
RHEL8 = "title x\nlinux /vmlinuz\noptions $kernelopts $tuned_params\nid x\n"
GRUBENV = "# GRUB Environment Block\nsaved_entry=x\nkernelopts=root=/dev/sda2 ro isolcpus=2-3\nboot_success=0\n".ljust(1024, "#")


def test_an_entry_gets_our_arguments_and_keeps_all_else() -> None:
    entry = ENTRY.format(extra="isolcpus=2-3 ")
    edited = bls.edit(entry, WANTED)
    assert edited == ENTRY.format(extra="").replace("$tuned_params\n", "$tuned_params isolcpus=managed_irq,2-7 nohz_full=2-7\n")
    assert bls.edit(edited, WANTED) == edited


@given(st.lists(st.sampled_from(["quiet", "isolcpus=1", "hugepages=3", "$tuned_params", 'a="b c"', "ro"]), max_size=8), st.integers(0, 3))
def test_editing_is_idempotent_whatever_the_lines(tokens: list[str], lines: int) -> None:
    options = "".join("options %s\n" % " ".join(tokens[i::lines]) for i in range(lines))
    entry = "title x\nlinux /vmlinuz\n" + options + "grub_class x\n"
    for wanted in (WANTED, POOLS, ()):
        edited = bls.edit(entry, wanted)
        assert bls.edit(edited, wanted) == edited
        assert kernel_args.of(bls.options(edited), wanted) == wanted
        assert [line for line in edited.splitlines() if not line.startswith("options")] == ["title x", "linux /vmlinuz", "grub_class x"]


def test_hugepages_keep_their_order_in_an_entry() -> None:
    # C10
    assert " ".join(POOLS) in bls.edit(ENTRY.format(extra="hugepages=1 "), POOLS)


def test_variables_are_resolved_before_comparing() -> None:
    # C12, C13: what $kernelopts and $tuned_params stand for counts
    variables = bls.environment(GRUBENV.replace("boot_success=0", "tuned_params=isolcpus=4-5 nohz=on"))
    assert bls.resolve(bls.options(RHEL8), variables) == ["root=/dev/sda2", "ro", "isolcpus=2-3", "isolcpus=4-5", "nohz=on"]
    assert bls.resolve(["${kernelopts}", "$unknown", "x"], variables) == ["root=/dev/sda2", "ro", "isolcpus=2-3", "x"]


def test_an_entry_that_takes_kernelopts_gets_ours_there() -> None:
    # C12
    assert bls.edit(RHEL8, WANTED) == RHEL8
    assert bls.edit(RHEL8.replace("$tuned", "isolcpus=9 $tuned"), WANTED) == RHEL8
    edited = bls.edit_grubenv(GRUBENV, WANTED)
    assert bls.environment(edited)["kernelopts"] == "root=/dev/sda2 ro isolcpus=managed_irq,2-7 nohz_full=2-7"
    assert len(edited) == 1024
    assert edited.startswith("# GRUB Environment Block\n")
    assert bls.edit_grubenv(edited, WANTED) == edited
    record = NO_RECORD.next(WANTED, ["isolcpus=2-3"]).next((), ())
    assert bls.edit_grubenv(edited, (), record) == GRUBENV


def test_grubenv_has_an_end() -> None:
    with pytest.raises(GpufleetError, match="longer than the 1024 bytes"):
        bls.edit_grubenv(GRUBENV, ["nohz_full=" + ",".join(map(str, range(2, 600, 2)))])
    with pytest.raises(GpufleetError, match="kernelopts"):
        bls.edit_grubenv("# GRUB Environment Block\n", WANTED)


def test_backslashes_of_grubenv_survive() -> None:
    block = "# GRUB Environment Block\nkernelopts=a=b\\\\c ro\n".ljust(1024, "#")
    assert bls.environment(block)["kernelopts"] == "a=b\\c ro"
    assert bls.environment(bls.edit_grubenv(block, WANTED))["kernelopts"] == "a=b\\c ro " + " ".join(WANTED)


def test_a_file_of_one_line() -> None:
    assert bls.edit_line("root=/dev/sda2 ro\n", WANTED) == "root=/dev/sda2 ro isolcpus=managed_irq,2-7 nohz_full=2-7\n"
    assert bls.edit_line("root=/dev/sda2  ro", ()) == "root=/dev/sda2  ro"


def test_rescue_entries_are_told_by_their_names() -> None:
    assert bls.is_rescue("/boot/loader/entries/0f5c-0-rescue.conf")
    assert not bls.is_rescue("/boot/loader/entries/0f5c-5.14.0.conf")
