"""The boot concern on folders that stand for nodes, with the engine that applies it, and with shells for their commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core import grub, kernel_args
from ansible_collections.gpufleet.node.plugins.module_utils.core.boot import RECORD
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, FOREIGN, PENDING, REBOOT, Finding
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import CommandFailed, GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.host import boot
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, Outcome, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from machines.build import build, load, names

ISOLATED = ["isolcpus=managed_irq,2-3", "nohz_full=2-3", "rcu_nocbs=2-3", "irqaffinity=0-1"]
POOLS = ["default_hugepagesz=1G", "hugepagesz=1G", "hugepages=0:2,1:2", "hugepagesz=2M", "hugepages=2"]

Commands = Callable[[Sequence[str]], str]


class Stub(Command):
    """Commands of a node that is a folder: ``answer`` does what they would do there."""

    def __init__(self, node: Node, answer: Commands) -> None:
        super().__init__(node.root)
        self.live = True
        self.answer = answer
        self.ran: list[Sequence[str]] = []

    def find(self, name: str) -> str | None:
        return None if name == "restorecon" else name

    def run(self, argv: Sequence[str], stdin: str = "") -> str:
        self.ran.append(argv)
        return self.answer(argv)


def write(root: Path, files: dict[str, str]) -> Path:
    """A root with these files."""
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


def at(root: Path, answer: Commands | None = None) -> Node:
    node = Node.at(str(root))
    if answer:
        node.command = Stub(node, answer)
    return node


def artifacts(node: Node, wanted: Sequence[str]) -> list:
    section = {"kernel_arguments": list(wanted)}
    return list(boot.CONCERN.artifacts(section, boot.read(node.root, node.command, section)))


def run(node: Node, wanted: Sequence[str], check_mode: bool = False) -> Outcome:
    """One run of the module on a node."""
    return apply(artifacts(node, wanted), node, check_mode)


def files(root: Path) -> dict[str, bytes]:
    """Every file but our memory and the kernel's."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in ("etc", "boot", "usr")
        for path in (root / folder).rglob("*")
        if path.is_file()
    }


def of_status(outcome: Outcome, status: str) -> list[Finding]:
    return [finding for finding in outcome.findings if finding.status == status]


def machine(name: str, root: Path) -> Path:
    """What a machine of the fleet boots from; its hardware doesn't matter here."""
    description = load(name)
    kept = ("architecture", "page_size", "kernel", "disk", "layers", "variables", "files")
    build({key: description[key] for key in kept if key in description}, str(root))
    return root


# Every machine of the example fleet ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names())
def test_every_machine_converges_in_one_run_and_comes_back(name: str, tmp_path: Path) -> None:
    root = machine(name, tmp_path / "root")
    before = files(root)
    assert not run(at(root), []).changed
    assert files(root) == before
    checked = run(at(root), ISOLATED, check_mode=True)
    assert files(root) == before  # C18: a dry run writes nothing
    first = run(at(root), ISOLATED)
    assert checked.changed
    assert first.changed
    assert [f.until for f in first.findings if f.item == "running kernel command line"] == [REBOOT]
    for wanted in (ISOLATED, POOLS, POOLS, [], []):
        known = (root / RECORD.lstrip("/")).read_text()
        outcome = run(at(root), wanted)
        assert outcome.changed == (json.loads(known)["arguments"] != wanted)
        assert not of_status(Outcome(findings=inspect(artifacts(at(root), wanted), at(root))), DRIFT)
    after = files(root)
    grubenv = "boot/grub2/grubenv"  # comes back as the 1024 bytes that GRUB wants
    assert {k: v for k, v in after.items() if k != grubenv} == {k: v for k, v in before.items() if k != grubenv}
    assert after.get(grubenv, b"").rstrip(b"#\n") == before.get(grubenv, b"").rstrip(b"#\n")


# GRUB on Debian and Ubuntu --------------------------------------------------------------------------------------------------

MKCONFIG = r"""
set -e
. "$1/etc/default/grub"
for file in "$1"/etc/default/grub.d/*.cfg; do
  if [ -e "$file" ]; then . "$file"; fi
done
cat <<END >"$1/boot/grub/grub.cfg.new"
### BEGIN /etc/grub.d/10_linux ###
menuentry 'Debian' \$menuentry_id_option 'gnulinux-simple-1' {
<TAB>linux<TAB>/boot/vmlinuz-6.1 root=/dev/sda1 ro ${GRUB_CMDLINE_LINUX} ${GRUB_CMDLINE_LINUX_DEFAULT}
}
menuentry 'Debian (recovery mode)' \$menuentry_id_option 'gnulinux-6.1-recovery-1' {
<TAB>linux<TAB>/boot/vmlinuz-6.1 root=/dev/sda1 ro single ${GRUB_CMDLINE_LINUX}
}
### END /etc/grub.d/10_linux ###
END
mv "$1/boot/grub/grub.cfg.new" "$1/boot/grub/grub.cfg"
""".replace("<TAB>", "\t")
DEFAULTS = 'GRUB_DISTRIBUTOR=`echo Debian`\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n'


def debian(root: Path, defaults: str = DEFAULTS, **drop_ins: str) -> tuple[Path, Commands]:
    """A Debian with drop-ins, and its update-grub: a shell that sources what grub-mkconfig sources."""

    def answer(argv: Sequence[str]) -> str:
        assert argv == ("update-grub",)
        done = subprocess.run(["dash", "-c", MKCONFIG, "sh", str(root)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    write(root, {"/etc/default/grub": defaults, "/boot/grub/grub.cfg": "", "/proc/cmdline": "BOOT_IMAGE=/vmlinuz ro quiet\n"})
    write(root, {f"/etc/default/grub.d/{name.replace('_', '-')}.cfg": text for name, text in drop_ins.items()})
    answer(("update-grub",))
    return root, answer


def normal(root: Path) -> list[str]:
    (entry,) = grub.normal_entries((root / "boot/grub/grub.cfg").read_text())
    return entry


CLOUD = 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\n'


@pytest.mark.parametrize("name", ["50_cloudimg_settings", "hetzner", "99_opennebula", "zz_site", "zzzz_late"])
def test_our_drop_in_is_sourced_after_any_other(name: str, tmp_path: Path) -> None:
    # C1, C2
    root, answer = debian(tmp_path, **{name: CLOUD})
    assert run(at(root, answer), ISOLATED).changed
    assert normal(root) == ["root=/dev/sda1", "ro", "console=tty1", "console=ttyS0", *ISOLATED]
    assert not run(at(root, answer), ISOLATED).changed
    recovery = (root / "boot/grub/grub.cfg").read_text().partition("recovery mode")[2]
    assert "isolcpus" not in recovery


def test_other_values_are_taken_out_of_both_variables_and_named(tmp_path: Path) -> None:
    # C3: the kernel takes the first isolcpus, so one that stays in either variable wins over ours
    defaults = DEFAULTS.replace('LINUX=""', 'LINUX="isolcpus=1 iommu=pt nohz-full=1"')
    root, answer = debian(tmp_path, defaults, site='GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT isolcpus=2 foobar"\n')
    outcome = run(at(root, answer), ISOLATED)
    assert normal(root) == ["root=/dev/sda1", "ro", "iommu=pt", "quiet", "foobar", *ISOLATED]
    said = {f.item: f.message for f in of_status(outcome, FOREIGN)}
    assert list(said) == ["kernel argument isolcpus=1", "kernel argument nohz-full=1", "kernel argument isolcpus=2"]
    assert "/etc/default/grub.d/site.cfg" in said["kernel argument isolcpus=2"]
    assert run(at(root, answer), []).changed
    assert normal(root) == ["root=/dev/sda1", "ro", "isolcpus=1", "iommu=pt", "nohz-full=1", "quiet", "isolcpus=2", "foobar"]
    assert not run(at(root, answer), []).changed


def test_a_tickless_set_of_others_goes_when_ours_isolates(tmp_path: Path) -> None:
    root, answer = debian(tmp_path, DEFAULTS.replace('LINUX=""', 'LINUX="nohz_full=1"'))
    outcome = run(at(root, answer), ISOLATED[:1])
    assert normal(root) == ["root=/dev/sda1", "ro", "quiet", *ISOLATED[:1]]
    assert [f.item for f in of_status(outcome, FOREIGN)] == ["kernel argument nohz_full=1"]
    assert not run(at(root, answer), ISOLATED[:1]).changed
    run(at(root, answer), [])
    assert normal(root) == ["root=/dev/sda1", "ro", "nohz_full=1", "quiet"]


@pytest.mark.parametrize(("release", "refused"), [("5.15.0-100-generic", True), ("6.8.0-60-generic", False)])
def test_two_isolations_that_differ_need_a_kernel_that_takes_both(release: str, refused: bool, tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    write(root, {f"/boot/vmlinuz-{release}": "", "/proc/sys/kernel/osrelease": "5.4.0\n"})
    with pytest.raises(GpufleetError, match=r"before 5\.18 ignore one") if refused else nullcontext():
        run(at(root, answer), ["isolcpus=domain,2-3", "nohz_full=2"])


def test_a_later_change_by_others_is_covered_without_us(tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    run(at(root, answer), ISOLATED)
    write(root, {"/etc/default/grub.d/70-new.cfg": 'GRUB_CMDLINE_LINUX="isolcpus=9"\n'})
    answer(("update-grub",))
    assert normal(root)[2:] == ["quiet", *ISOLATED]


def test_a_failing_update_grub_fails_the_run_and_the_next_one_finishes_it(tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    before = (root / "boot/grub/grub.cfg").read_bytes()

    def broken(argv: Sequence[str]) -> str:
        raise CommandFailed("update-grub ended with status 1.", "Mend that.")

    with pytest.raises(CommandFailed):
        run(at(root, broken), ISOLATED)
    assert (root / "boot/grub/grub.cfg").read_bytes() == before
    assert run(at(root, answer), ISOLATED).changed
    assert normal(root)[-4:] == ISOLATED
    with pytest.raises(CommandFailed):  # on the way back too: the drop-in is gone, grub.cfg still has its arguments
        run(at(root, broken), [])
    assert run(at(root, answer), []).changed
    assert normal(root) == ["root=/dev/sda1", "ro", "quiet"]


def test_a_foreign_file_that_sorts_later_is_outsorted(tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    run(at(root, answer), ISOLATED)
    write(root, {"/etc/default/grub.d/zzzz-local.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'})
    drift = [f for f in inspect(artifacts(at(root, answer), ISOLATED), at(root, answer)) if f.status == DRIFT]
    assert "zzzz-local.cfg" in drift[0].item
    assert run(at(root, answer), ISOLATED).changed
    assert sorted(path.name for path in (root / "etc/default/grub.d").iterdir()) == ["zzzz-local.cfg", "zzzzz-gpufleet.cfg"]
    answer(("update-grub",))
    assert normal(root)[-4:] == ISOLATED
    assert not run(at(root, answer), ISOLATED).changed


def test_one_that_can_not_be_outsorted_fails_the_run_by_name(tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    write(root, {"/etc/default/grub.d/~late.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'})
    with pytest.raises(CommandFailed, match=r"/etc/default/grub.d/~late.cfg is sourced after ours"):
        run(at(root, answer), ISOLATED)
    foreign = [f for f in inspect(artifacts(at(root, answer), ISOLATED), at(root, answer)) if f.status == FOREIGN]
    assert [f.item for f in foreign] == ["/etc/default/grub.d/~late.cfg"]


def test_tuned_in_grub_cfg_is_left_its_arguments(tmp_path: Path) -> None:
    # C13
    root, answer = debian(tmp_path)
    write(root, {"/boot/grub/grub.cfg": 'set tuned_params="isolcpus=2-3 nosoftlockup"\n' + (root / "boot/grub/grub.cfg").read_text()})
    before = files(root)
    outcome = run(at(root, answer), ISOLATED)
    assert not outcome.changed
    assert [f.item for f in outcome.findings] == ["kernel argument isolcpus=2-3"]
    assert "tuned" in outcome.findings[0].message
    assert files(root) == before
    assert run(at(root, answer), POOLS).changed


def test_grub2_without_drop_ins_gets_a_block(tmp_path: Path) -> None:
    root = write(
        tmp_path, {"/etc/default/grub": DEFAULTS, "/boot/grub2/grub.cfg": "linux /vmlinuz ro quiet\n", "/proc/cmdline": "ro quiet\n"}
    )
    outcome = run(at(root), ISOLATED)
    assert [f.command for f in of_status(outcome, PENDING) if f.command] == [("grub2-mkconfig", "-o", "/boot/grub2/grub.cfg")]
    assert not (root / "etc/default/grub.d").exists()
    assert run(at(root), []).changed
    assert (root / "etc/default/grub").read_text() == DEFAULTS


# The running kernel -----------------------------------------------------------------------------------------------------------


def test_a_reboot_is_asked_for_until_the_running_kernel_agrees(tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    for wanted in (ISOLATED, POOLS, []):
        (pending,) = of_status(run(at(root, answer), wanted), PENDING)
        assert pending.until == REBOOT
        assert kernel_args.key((wanted or POOLS)[0]) in pending.message
        write(root, {"/proc/cmdline": "BOOT_IMAGE=/vmlinuz " + " ".join(normal(root)) + "\n"})
        again = run(at(root, answer), wanted)
        assert not again.changed
        assert not of_status(again, PENDING)


def test_arguments_that_are_wanted_no_more_run_until_a_reboot(tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    run(at(root, answer), ISOLATED)
    write(root, {"/proc/cmdline": " ".join(normal(root)) + "\n"})
    run(at(root, answer), [])
    (pending,) = of_status(run(at(root, answer), []), PENDING)
    assert (pending.until, pending.message.partition(":")[0]) == (REBOOT, "isolcpus, nohz_full, rcu_nocbs, irqaffinity")


@pytest.mark.parametrize(("answer", "statuses"), [("2-3\n", []), ("(null)\n", [DRIFT]), (None, [DRIFT])])
def test_arguments_without_effect_are_no_success(answer: str | None, statuses: list[str], tmp_path: Path) -> None:
    # D5: without CONFIG_NO_HZ_FULL the argument is on the command line, and nohz_full reads (null) or isn't there
    root, update_grub = debian(tmp_path)
    run(at(root, update_grub), ISOLATED)
    write(root, {"/proc/cmdline": " ".join(normal(root)) + "\n", "/sys/devices/system/cpu/isolated": "\n"})
    if answer:
        write(root, {"/sys/devices/system/cpu/nohz_full": answer})
    found = inspect(artifacts(at(root, update_grub), ISOLATED), at(root, update_grub))
    assert [f.status for f in found if f.item == "CPUs that the kernel isolates by nohz_full"] == (statuses or ["in_place"])
    assert not [f for f in found if f.item == "CPUs that the kernel isolates by isolcpus"]  # managed_irq alone has no file
    domain = ["isolcpus=domain,managed_irq,2-3"]
    run(at(root, update_grub), domain)
    write(root, {"/proc/cmdline": " ".join(normal(root)) + "\n"})
    (drift,) = [f for f in inspect(artifacts(at(root, update_grub), domain), at(root, update_grub)) if f.status == DRIFT]
    assert "CONFIG_CPU_ISOLATION" in drift.message


# Boot loader entries ------------------------------------------------------------------------------------------------------------


def test_entries_new_kernels_and_the_efi_stub(tmp_path: Path) -> None:
    # C11: entries that are there, and what those to come are made from; C15: never the stub on the EFI system partition
    root = machine("nosmt", tmp_path / "root")
    stub = "/boot/efi/EFI/redhat/grub.cfg"
    before = files(root)
    outcome = run(at(root), ISOLATED)
    (entry,) = [p for p in (root / "boot/loader/entries").iterdir() if "rescue" not in p.name]
    (rescue,) = [p for p in (root / "boot/loader/entries").iterdir() if "rescue" in p.name]
    for path in (entry, root / "etc/kernel/cmdline", root / "etc/default/grub"):
        assert " ".join(ISOLATED) in path.read_text()
    for untouched in (stub.lstrip("/"), str(rescue.relative_to(root)), "boot/grub2/grub.cfg"):
        assert files(root)[untouched] == before[untouched]
    assert not [f for f in outcome.findings if f.command]  # nothing left to run
    # When it is the older one, kernel-install has grub2-mkconfig make it anew.
    assert (root / "etc/kernel/cmdline").stat().st_mtime_ns >= (root / "etc/default/grub").stat().st_mtime_ns


def test_a_wrong_entry_is_named_and_mended(tmp_path: Path) -> None:
    # C18: an argument is there only when every entry has it
    root = machine("nosmt", tmp_path / "root")
    run(at(root), ISOLATED)
    new = {"/boot/loader/entries/0-9.9.conf": "linux /vmlinuz-9.9\noptions root=/dev/sda1 isolcpus=9\n"}
    write(root, new)
    drift = [f for f in inspect(artifacts(at(root), ISOLATED), at(root)) if f.status == DRIFT]
    assert "boot entry 0-9.9.conf" in [f.item for f in drift]
    run(at(root), ISOLATED)
    text = (root / "boot/loader/entries/0-9.9.conf").read_text()
    assert text == "linux /vmlinuz-9.9\noptions root=/dev/sda1 %s\n" % " ".join(ISOLATED)


def test_tuned_params_in_grubenv_belong_to_tuned(tmp_path: Path) -> None:
    # C13
    root = machine("nosmt", tmp_path / "root")
    grubenv = root / "boot/grub2/grubenv"
    grubenv.write_text(grubenv.read_text().replace("tuned_params=", "tuned_params=isolcpus=2-3 skew_tick=1"))
    before = files(root)
    outcome = run(at(root), ["isolcpus=4-7"])
    assert [(f.item, f.status) for f in outcome.findings] == [("kernel argument isolcpus=2-3", FOREIGN)]
    assert files(root) == before


def test_entries_that_are_not_there_are_not_set(tmp_path: Path) -> None:
    root = machine("nosmt", tmp_path / "root")
    (root / "boot/loader").rename(root / "boot/unmounted")
    before = files(root)
    assert not run(at(root), []).changed
    with pytest.raises(GpufleetError, match="Mount /boot"):
        run(at(root), ISOLATED)
    assert files(root) == before


def test_grubenv_behind_a_link_stays_behind_it(tmp_path: Path) -> None:
    root = machine("power9", tmp_path / "root")
    grubenv = root / "boot/grub2/grubenv"
    (root / "boot/efi/EFI/redhat").mkdir(parents=True)
    grubenv.rename(root / "boot/efi/EFI/redhat/grubenv")
    grubenv.symlink_to("../efi/EFI/redhat/grubenv")
    run(at(root), ISOLATED)
    assert grubenv.is_symlink()
    assert " ".join(ISOLATED) in (root / "boot/efi/EFI/redhat/grubenv").read_text()


# ostree, kernel-install, and neither ----------------------------------------------------------------------------------------------


def rpm_ostree(kargs: list[str], booted: bool = True) -> Commands:
    """rpm-ostree kargs: --delete is done before --append, whatever their order."""

    def answer(argv: Sequence[str]) -> str:
        if argv[1] == "status":
            return json.dumps({"deployments": [{"booted": booted}, {"booted": not booted}]})
        for argument in argv[2:]:
            if argument.startswith("--delete="):
                kargs.remove(argument.partition("=")[2])
        kargs.extend(argument.partition("=")[2] for argument in argv[2:] if argument.startswith("--append="))
        return " ".join(kargs) + "\n"

    return answer


def test_ostree_gets_the_difference(tmp_path: Path) -> None:
    # C10, C16
    kargs = ["root=UUID=1", "crashkernel=256M", "hugepagesz=2M", "hugepages=2", "isolcpus=1", "ostree=/ostree/boot.1/x/0"]
    root = write(tmp_path, {"/run/ostree-booted": "", "/proc/cmdline": " ".join(kargs)})
    node = at(root, rpm_ostree(kargs))
    assert run(node, ISOLATED).changed
    assert kargs == ["root=UUID=1", "crashkernel=256M", "hugepagesz=2M", "hugepages=2", "ostree=/ostree/boot.1/x/0", *ISOLATED]
    assert run(node, POOLS).changed
    assert kargs == ["root=UUID=1", "crashkernel=256M", "ostree=/ostree/boot.1/x/0", "isolcpus=1", *POOLS]
    assert not run(node, POOLS).changed
    assert run(node, []).changed
    assert kargs == ["root=UUID=1", "crashkernel=256M", "ostree=/ostree/boot.1/x/0", "isolcpus=1", "hugepagesz=2M", "hugepages=2"]


def test_a_waiting_deployment_is_told(tmp_path: Path) -> None:
    # C17
    kargs = ["root=UUID=1", *ISOLATED]
    root = write(tmp_path, {"/run/ostree-booted": "", "/proc/cmdline": " ".join(kargs)})
    outcome = run(at(root, rpm_ostree(kargs, booted=False)), ISOLATED)
    assert [(f.item, f.until) for f in of_status(outcome, PENDING)] == [("ostree deployment", REBOOT)]


def test_unified_kernel_images_are_made_anew(tmp_path: Path) -> None:
    kernel = "/usr/lib/modules/6.12/vmlinuz"
    root = write(tmp_path, {"/etc/kernel/cmdline": "root=/dev/sda1 rw\n", kernel: "", "/proc/cmdline": "root=/dev/sda1 rw\n"})
    image = {"version": "6.12", "options": "root=/dev/sda1 rw"}

    def answer(argv: Sequence[str]) -> str:
        if argv[0] == "kernel-install":
            assert argv == ("kernel-install", "add", "6.12", kernel)
            image["options"] = (root / "etc/kernel/cmdline").read_text().strip()
            return ""
        return json.dumps([image, {"id": "auto-reboot-to-firmware-setup"}])

    assert run(at(root, answer), ISOLATED).changed
    assert image["options"] == "root=/dev/sda1 rw " + " ".join(ISOLATED)
    assert not run(at(root, answer), ISOLATED).changed
    assert run(at(root, answer), []).changed
    assert image["options"] == "root=/dev/sda1 rw"
    assert not run(at(root, answer), []).changed


def test_a_folder_that_boots_from_nothing_known(tmp_path: Path) -> None:
    assert boot.loader(at(tmp_path).root) == "unknown"
    assert not run(at(tmp_path), []).changed
    with pytest.raises(GpufleetError, match="can't be told"):
        run(at(tmp_path), ISOLATED)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_record_is_said(tmp_path: Path) -> None:
    root, answer = debian(tmp_path)
    write(root, {RECORD: "{"})
    with pytest.raises(GpufleetError, match="record"):
        run(at(root, answer), ISOLATED)
