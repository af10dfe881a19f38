"""GRUB's shell files: our drop-in run by real shells, what others assign, and the entries of grub.cfg."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import grub, kernel_args

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
PLANS = [
    ("isolcpus=managed_irq,domain,2-7", "nohz_full=2-7", "rcu_nocbs=2-7", "irqaffinity=0-1"),
    ("default_hugepagesz=1G", "hugepagesz=1G", "hugepages=0:4,1:4", "hugepagesz=2M", "hugepages=512"),
    ("intel_idle.max_cstate=0", "processor.max_cstate=1"),
]
# What may stand in a value that a shell has already unquoted: blanks of all kinds, quotes, patterns, and our own keys.
words = st.sampled_from(
    [
        "quiet", "ro", "isolcpus=1", "isolcpus", "isolcpusx=1", "xisolcpus=1", "nohz-full=1", '"isolcpus=1-2"', 'nohz_full="1,2"', "--",
        "---", "hugepages=5", "hugepagesz=2M", "default-hugepagesz=1G", "intel_idle.max_cstate=9", "intel-idle.max-cstate=9",
        "intel_idlexmax_cstate=1", 'dyndbg="file a.c  +p; isolcpus=1"', '"', 'a="b', "*", "[a-z]", "?", "~", "-n", "-e", "\\", "\\n",
        "$tuned_params", "`x`", "$(x)", "'", "é=ü", "rcu_nocbs=all", "a=isolcpus=1",
    ]
)  # fmt: skip
values = st.lists(st.tuples(words, st.sampled_from([" ", "  ", "\t", "\n"])).map("".join), max_size=8).map("".join)


def shell(name: str, script: str, *arguments: str) -> str:
    """The output of a script under set -eu, as grub-mkconfig's is and stricter, with nothing of our own environment."""
    command = [name, "sh"] if name == "busybox" else [name]
    clean = {"PATH": os.environ["PATH"]}
    done = subprocess.run([*command, "-eu", "-c", script, "sh", *arguments], env=clean, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def sourced(name: str, text: str, linux: str, default: str) -> tuple[list[str], list[str]]:
    """Both variables, as tokens, after a file was sourced."""
    script = 'GRUB_CMDLINE_LINUX=$2 GRUB_CMDLINE_LINUX_DEFAULT=$3; eval "$1"; set -- "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"'
    script += '; printf "%s\\036%s" "$@"'
    first, second = shell(name, script, text, linux, default).split("\036")
    return kernel_args.split(first), kernel_args.split(second)


@pytest.mark.parametrize("name", SHELLS)
@settings(max_examples=60)
@given(values, values, st.sampled_from(PLANS))
def test_the_drop_in_does_in_a_shell_what_merge_does(name: str, linux: str, default: str, wanted: tuple[str, ...]) -> None:
    first, second = sourced(name, grub.render(wanted), linux, default)
    assert first == kernel_args.without(kernel_args.split(linux), wanted)
    kept = kernel_args.without(kernel_args.split(default), wanted)
    end = kept.index("--") if "--" in kept else len(kept)
    # Joined and split again: a quote that is never closed swallows what follows, in both.
    assert second == kernel_args.split(" ".join([*kept[:end], *wanted, *kept[end:]]))


@pytest.mark.parametrize("name", SHELLS)
def test_the_drop_in_leaves_nothing_behind(name: str) -> None:
    script = 'eval "$1"; unset BASH_EXECUTION_STRING PATH; set'
    assert "gpufleet" not in shell(name, script, grub.render(PLANS[0]).replace("gpufleet.node", "us"))


@pytest.mark.parametrize("name", SHELLS)
def test_variables_that_nobody_assigned_are_no_error(name: str) -> None:
    assert shell(name, 'eval "$1"; echo "$GRUB_CMDLINE_LINUX_DEFAULT"', grub.render(PLANS[2])) == " ".join(PLANS[2]) + "\n"


def test_the_drop_in_passes_shellcheck(tmp_path: Path) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck")
    path = tmp_path / "drop-in"
    path.write_text(grub.render(PLANS[0]))
    done = subprocess.run(["shellcheck", "--shell=sh", "--exclude=SC2034", str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == ""  # SC2034: the variables are for grub-mkconfig


# The drop-in's name ----------------------------------------------------------------------------------------------------------

NAMES = [
    "50-cloudimg-settings.cfg", "hetzner.cfg", "99-opennebula-settings.cfg", "zz-site.cfg", "z00-role.cfg", "zzz-local.cfg",
    "kdump-tools.cfg", "zzz-gpufleet-old.cfg", "zzzz.cfg", "ZZZZ-UPPER.cfg", "_x.cfg", "Zebra.cfg", "zzz_gpufleet.cfg", "zzzgpufleet1.cfg",
]  # fmt: skip


@given(st.lists(st.sampled_from(NAMES), unique=True))
def test_the_name_sorts_last_in_every_locale(names: list[str]) -> None:
    # C1, C2: hetzner.cfg sorts after all digits, so neither 99- nor zz- is last for certain
    ours = grub.drop_in(names).rpartition("/")[2]
    assert max([*names, ours]) == ours
    assert max([*names, ours], key=lambda n: ["".join(c for c in n.lower() if c.isalnum())]) == ours
    assert grub.is_ours(ours)
    assert grub.drop_in([*names, ours]) == grub.drop_in([*names, "zzz-gpufleet.cfg", ours]) == grub.DROP_INS + "/" + ours


def test_a_shell_agrees_about_the_order(tmp_path: Path) -> None:
    ours = grub.drop_in(NAMES).rpartition("/")[2]
    for name in [*NAMES, ours]:
        (tmp_path / name).touch()
    for locale in ("C", "C.UTF-8", "en_US.UTF-8"):
        listed = subprocess.run(
            ["bash", "-c", "echo *.cfg"], cwd=tmp_path, env={"LC_ALL": locale}, capture_output=True, text=True, check=True
        )
        assert listed.stdout.split()[-1] == ours


def test_what_can_not_be_outsorted_is_reported() -> None:
    text = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    files = {f"{grub.DROP_INS}/{name}": text for name in ("50-x.cfg", "~late.cfg", "ω.cfg")}
    files[f"{grub.DROP_INS}/~theme.cfg"] = "GRUB_THEME=/boot/x\n"
    assert grub.assigned_after(files, grub.drop_in(["50-x.cfg", "~late.cfg"])) == [f"{grub.DROP_INS}/~late.cfg", f"{grub.DROP_INS}/ω.cfg"]


# What others assign ------------------------------------------------------------------------------------------------------------

ASSIGNMENTS = [
    'A="x y"', "A='x  $B'", "A=x\\ y", 'A="$A z"', "A=\"${A} '\\\"q\\\"'\"", 'B="$A"', "B=", 'A="${B:-none}"', 'A="${A:+$A }more"',
    'A="${UNSET-d}"', 'A="${B-e}$B"', "export A=exported B=2", "# A=comment", "A=1;B=2", 'A="two\nlines"', "A=con\\\ntinued", "A=x # B=no",
    "A=x#y", "true", "echo A=5 >/dev/null", 'A="a\\$b\\`c\\\\d\\e"', "A=$", "A=\"$B\"'$B'$B",
]  # fmt: skip


@given(st.lists(st.sampled_from(ASSIGNMENTS), max_size=6))
def test_assignments_are_understood_as_a_shell_does(lines: list[str]) -> None:
    text = "\n".join(lines)
    result = subprocess.run(
        ["dash", "-ec", 'eval "$1"; printf "%s\\036%s" "$A" "$B"', "sh", text], capture_output=True, text=True, check=True
    )
    known = grub.source(text, {})
    assert [known.get("A", ""), known.get("B", "")] == result.stdout.split("\036")


@pytest.mark.parametrize(
    "text",
    [
        "A=`hostname`", 'A="x $(cat /etc/x) y"', "if [ -f x ]; then A=1; fi", "for x in 1 2; do A=$x; done", "case x in\n  y) A=1 ;;\nesac",
        "[ -f x ] && A=1", 'A="${B%x}"', "A=1\nif true; then\n  A=2\nfi", "C=`x`; A=$C",
    ],
)  # fmt: skip
def test_what_only_a_shell_could_say_is_unknown(text: str) -> None:
    assert grub.source(text, {})["A"] is None


def test_an_unknown_value_is_forgotten_by_the_next_assignment() -> None:
    text = "GRUB_DISTRIBUTOR=`lsb_release -i -s 2> /dev/null || echo Debian`\nA=`x`\nA=1\nif true; then B=2; fi\nC=3"
    assert grub.source(text, {}) == {"GRUB_DISTRIBUTOR": None, "A": "1", "B": None, "C": "3"}


def test_the_last_of_several_assignments_wins() -> None:
    # C1, C6: a cloud image's drop-in assigns after the main file, and files with doubled lines occur
    main = 'GRUB_CMDLINE_LINUX_DEFAULT="quiet splash"\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX="iommu=pt"\n'
    cloud = 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\n'
    assert grub.command_line([main, cloud]) == ["iommu=pt", "console=tty1", "console=ttyS0"]
    assert grub.command_line([main, "GRUB_CMDLINE_LINUX=`x`"]) is None


def test_the_block_in_the_main_file_comes_and_goes() -> None:
    text = 'GRUB_CMDLINE_LINUX="a"\n'
    block = grub.with_block(text, PLANS[0])
    assert grub.with_block(block, PLANS[0]) == block
    assert grub.with_block(block, ()) == text
    later = grub.with_block(block + "GRUB_TIMEOUT=1\n", PLANS[1])  # what others append stays, and ours is last again
    assert later == text + "GRUB_TIMEOUT=1\n" + grub.with_block("", PLANS[1])
    assert sourced("dash", block, "", "isolcpus=9 b") == (["a"], ["b", *PLANS[0]])


# grub.cfg ------------------------------------------------------------------------------------------------------------------------

GRUB_CFG = """
### BEGIN /etc/grub.d/00_header ###
set timeout="${grub_timeout}"
set tuned_params="isolcpus=2-3"
### END /etc/grub.d/00_header ###
### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'gnulinux-simple-1' {
\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro  quiet isolcpus=2-3 $vt_handoff
}
submenu 'Advanced options' $menuentry_id_option 'gnulinux-advanced-1' {
\tmenuentry 'Debian GNU/Linux, with Linux 6.1' --class debian $menuentry_id_option 'gnulinux-6.1-advanced-1' {
\t\tlinuxefi\t/vmlinuz-6.1 root=UUID=1 ro quiet isolcpus=2-3
\t}
\tmenuentry 'Debian GNU/Linux, mit Linux 6.1 (Wiederherstellung)' --class debian $menuentry_id_option 'gnulinux-6.1-recovery-1' {
\t\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro nomodeset
\t}
}
### END /etc/grub.d/10_linux ###
### BEGIN /etc/grub.d/30_os-prober ###
menuentry 'Other' $menuentry_id_option 'osprober-gnulinux-simple-2' {
\tlinux\t/boot/vmlinuz-5 root=/dev/sdb1
}
### END /etc/grub.d/30_os-prober ###
"""


def test_normal_entries_are_this_systems_and_not_for_recovery() -> None:
    # C18: every entry has to have an argument for it to be there
    first, second = grub.normal_entries(GRUB_CFG)
    assert first == ["root=UUID=1", "ro", "quiet", "isolcpus=2-3", "$vt_handoff"]
    assert second == ["root=UUID=1", "ro", "quiet", "isolcpus=2-3"]
    assert grub.variable(GRUB_CFG, "tuned_params") == "isolcpus=2-3"
    assert grub.variable(GRUB_CFG, "kernelopts") == ""
