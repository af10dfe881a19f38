# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel arguments on a node: from the wanted tokens and what the node boots from to what must hold, for each kind of boot loader."""

from __future__ import annotations

import json
import posixpath
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import bls, grub, kernel_args
from .change import FOREIGN, PENDING, REBOOT, Artifact, Effect, File, Observation, Text, always
from .cpuset import CpuSet
from .errors import GpufleetError
from .kernel_args import Record, Tokens
from .kernel_config import kernel_version
from .loader import BLS, GRUB, KERNEL_CMDLINE, KERNEL_INSTALL, OSTREE, UNKNOWN

# Memory of this concern, beside the originals: not configuration, so it may outlive the arguments.
RECORD = "/var/lib/gpufleet/kernel_arguments.json"
CMDLINE = "/proc/cmdline"
RUNNING = "running kernel command line"  # the item of the finding about it


class Reading(NamedTuple):
    """What a node boots from.

    ``defaults``: /etc/default/grub, when it is there; ``drop_ins``: path to text of its drop-ins, as they are sourced; ``grub_cfg`` and
    ``grubenv``: where they are, and their texts; ``entries``: path to text of the boot loader entries; ``kernel_cmdline``: the text of that
    file; ``kernels``: releases below /usr/lib/modules; ``deployment``: the command line of the ostree deployment that boots next, seen by
    ``deployment_probe`` (an entry's path, or a command); ``waiting``: whether that deployment waits for a reboot;
    ``tuned``: the arguments that tuned adds; ``running``: /proc/cmdline; ``record``: the text at RECORD; ``kernel``: the release that boots
    next.
    """

    loader: str
    running: str = ""
    record: Text = None
    defaults: Text = None
    drop_ins: Mapping[str, str] = {}
    grub_cfg: Tuple[str, str] = ("", "")
    grubenv: Tuple[str, str] = ("", "")
    entries: Mapping[str, str] = {}
    kernel_cmdline: Text = None
    kernels: Tuple[str, ...] = ()
    deployment: str = ""
    deployment_probe: Any = ""
    waiting: bool = False
    tuned: str = ""
    kernel: str = ""


def artifacts(section: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    """What must hold for ``section["kernel_arguments"]`` (an ordered list of tokens).

    :raises InvalidInput: tokens that no node can be given
    :raises GpufleetError: a boot loader that isn't known, or has no room
    """
    wanted = kernel_args.check(section["kernel_arguments"], kernel_version(reading.kernel))
    record = Record.parse(reading.record)
    owned = _owned_by_tuned(wanted, reading)
    if owned:
        return owned
    foreign: List[str] = []
    for line in _lines(reading):
        found, known = kernel_args.displaced_by(wanted, line, record), kernel_args.keys_in(foreign)
        foreign += [token for token in found if kernel_args.key(token) not in known]
    record = record.next(wanted, foreign)
    return [
        *_remembered(record, reading),
        *_LOADERS[reading.loader](wanted, record, reading),
        *_displaced([token for token in dict.fromkeys(foreign) if token not in wanted], reading),
        _running(wanted, record, reading),
        *_applied(wanted, reading),
    ]


def _lines(reading: Reading) -> List[List[str]]:
    """The command lines that others configured, our drop-in left out."""
    if reading.loader == GRUB:
        return [_by_others(reading) or []]
    if reading.loader == OSTREE:
        return [kernel_args.split(reading.deployment)]
    variables = bls.environment(reading.grubenv[1])
    entries = [bls.resolve(bls.options(text), variables) for path, text in reading.entries.items() if not bls.is_rescue(path)]
    return [*entries, kernel_args.split(reading.kernel_cmdline or "")]


def _by_others(reading: Reading) -> Optional[List[str]]:
    """GRUB: what the defaults and drop-ins of others give to normal entries; None when only a shell could say."""
    foreign = [text for path, text in reading.drop_ins.items() if not grub.is_ours(path)]
    return grub.command_line([grub.without_block(reading.defaults or ""), *foreign])


def _remembered(record: Record, reading: Reading) -> List[Artifact]:
    """Written first, so that a run that is killed half-way leaves the next one knowing what is ours."""
    if reading.record is None and record == kernel_args.NO_RECORD:
        return []

    def same(current: Text, wanted: Text) -> bool:
        now, then = Record.parse(current), Record.parse(wanted)
        return current is not None and (now.arguments, now.displaced) == (then.arguments, then.displaced)

    return [File("record of our kernel arguments", RECORD, always(record.render()), 0o600, same=same)]


def _displaced(tokens: Sequence[str], reading: Reading) -> List[Artifact]:
    texts = {grub.DEFAULTS: reading.defaults or "", **reading.drop_ins, KERNEL_CMDLINE: reading.kernel_cmdline or ""}
    message = "is somebody else's (%s); ours takes its place"
    return [Observation("kernel argument %s" % token, FOREIGN, message % _where(token, texts)) for token in tokens]


def _where(token: str, texts: Mapping[str, str]) -> str:
    return ", ".join(path for path, text in texts.items() if token in text and not grub.is_ours(path)) or "in the boot entries"


def _running(wanted: Tokens, record: Record, reading: Reading) -> Artifact:
    """The running kernel against what the next boot brings."""
    still = {token for line in _lines(reading) for token in line} if reading.loader == GRUB else set(record.displaced)
    leaving = [token for token in record.leaving(wanted) if token not in still]

    def differing(text: Text) -> List[str]:
        return kernel_args.differing(kernel_args.split(text or ""), wanted, leaving)

    names = differing(reading.running)
    message = "%s: differs from what the node is configured to boot with, until the next boot" % ", ".join(names)
    return Effect(RUNNING, CMDLINE, lambda text: not differing(text), None, PENDING, message, REBOOT)


def _applied(wanted: Tokens, reading: Reading) -> List[Artifact]:
    """What the kernel made of the arguments it was booted with: one that it wasn't built for is on its command line and without effect."""
    if kernel_args.differing(kernel_args.split(reading.running), wanted):
        return []
    message = (
        "the kernel was booted with %s, and isolates other CPUs: look for isolcpus and nohz in its log, and for %s in its configuration"
    )

    def isolates(cpus: CpuSet) -> Callable[[Text], bool]:
        return lambda text: cpus <= CpuSet.parse(text or "")

    return [
        Effect("CPUs that the kernel isolates by %s" % name, path, isolates(cpus), message=message % (name, symbol))
        for name, path, symbol in _ANSWERS
        for cpus in [kernel_args.isolated(wanted, name)]
        if cpus
    ]


# The kernel's answer to an argument, and the option that it needs for it. isolcpus without domain has no file.
_ANSWERS = (
    ("isolcpus", "/sys/devices/system/cpu/isolated", "CONFIG_CPU_ISOLATION"),
    ("nohz_full", "/sys/devices/system/cpu/nohz_full", "CONFIG_NO_HZ_FULL"),
)


def _owned_by_tuned(wanted: Tokens, reading: Reading) -> List[Artifact]:
    keys = kernel_args.keys_of(wanted)
    theirs = [token for token in kernel_args.split(reading.tuned) if kernel_args.key(token) in keys]
    remedy = "tuned adds %s at boot, so nothing is written: choose a tuned profile without boot arguments, or take %s out of the plan"
    return [Observation("kernel argument %s" % token, FOREIGN, remedy % (token, kernel_args.key(token))) for token in dict.fromkeys(theirs)]


# GRUB with /etc/default/grub ------------------------------------------------------------------------------------------------


def _grub(wanted: Tokens, record: Record, reading: Reading) -> List[Artifact]:
    """Debian and Ubuntu source drop-ins and have /boot/grub; elsewhere (/boot/grub2) our part is a block in /etc/default/grub."""
    config = reading.grub_cfg[0]
    drop_ins = not config.startswith("/boot/grub2/")
    files = _drop_in(wanted, reading) if drop_ins else _defaults_block(wanted, reading)
    others = _by_others(reading)
    texts = [reading.defaults or "", *(text for path, text in reading.drop_ins.items() if not grub.is_ours(path))]

    def elsewhere(token: str) -> bool:
        return any(token in text for text in texts) if others is None else token in others

    leaving = [token for token in record.leaving(wanted) if not elsewhere(token)]

    def lacking(text: Text) -> List[str]:
        entries = grub.normal_entries(text or "")
        return [name for entry in entries for name in kernel_args.differing(entry, wanted, leaving)]

    def satisfied(text: Text) -> bool:
        return not lacking(text) and (not wanted or bool(grub.normal_entries(text or "")))

    after = grub.assigned_after(reading.drop_ins, grub.drop_in(map(posixpath.basename, reading.drop_ins))) if wanted and drop_ins else []
    overriding = [
        Observation(
            path,
            FOREIGN,
            "is sourced after our drop-in and assigns the kernel command line: take the assignment out, or let its name sort before",
        )
        for path in after
    ]
    cause = "%s is sourced after ours" % ", ".join(after) if after else "see /etc/default/grub, its drop-ins and /etc/grub.d"
    message = "an entry lacks our arguments or has other values of theirs (%s)" % cause
    command = ("update-grub",) if drop_ins else ("grub2-mkconfig", "-o", config)
    return [*files, *overriding, Effect("kernel arguments in %s" % config, config, satisfied, command, message=message)]


def _drop_in(wanted: Tokens, reading: Reading) -> List[Artifact]:
    path = grub.drop_in(map(posixpath.basename, reading.drop_ins))
    former = [old for old in reading.drop_ins if grub.is_ours(old) and old != path]
    last = [posixpath.basename(other) for other in reading.drop_ins if not grub.is_ours(other)][-1:]
    item = "kernel arguments for grub-mkconfig" + (", to be sourced after %s" % last[0] if former and last else "")
    return [
        File(item, path, always(grub.render(wanted) if wanted else None)),
        *(File("our former drop-in", old, always(None)) for old in former),
    ]


def _defaults_block(wanted: Tokens, reading: Reading) -> List[Artifact]:
    """Our part of /etc/default/grub, where it exists: what grub2-mkconfig gives to entries that are yet to be made."""
    if reading.defaults is None:
        return []
    return [
        File("kernel arguments for grub2-mkconfig", grub.DEFAULTS, lambda text: text if text is None else grub.with_block(text, wanted))
    ]


# Boot loader entries, and /etc/kernel/cmdline for those to come ---------------------------------------------------------------


def _bls(wanted: Tokens, record: Record, reading: Reading) -> List[Artifact]:
    """The entries that are there, then what new ones are made from.

    /etc/kernel/cmdline comes after /etc/default/grub: when it is the older one, kernel-install has grub2-mkconfig make it anew.
    """
    if (wanted or record.former) and not reading.entries:
        raise GpufleetError("This node boots by boot loader entries, and /boot/loader/entries has none.", "Mount /boot, then run again.")
    variables: List[Artifact] = []
    uses = [path for path, text in reading.entries.items() if set(bls.KERNELOPTS) & set(bls.options(text))]
    path, text = reading.grubenv
    if uses and (wanted or record.former):
        bls.edit_grubenv(text, wanted, record)  # refuses before anything is written
        variables = [File("kernelopts in grubenv", path, _present(lambda t: bls.edit_grubenv(t, wanted, record)))]
    return [*variables, *_entries(wanted, record, reading), *_defaults_block(wanted, reading), *_kernel_cmdline(wanted, record, reading)]


def _entries(wanted: Tokens, record: Record, reading: Reading) -> List[Artifact]:
    return [
        File("boot entry %s" % posixpath.basename(path), path, _present(lambda text: bls.edit(text, wanted, record)))
        for path in reading.entries
        if not bls.is_rescue(path)
    ]


def _kernel_cmdline(wanted: Tokens, record: Record, reading: Reading) -> List[Artifact]:
    if reading.kernel_cmdline is None:
        return []
    return [File("kernel arguments for new kernels", KERNEL_CMDLINE, _present(lambda text: bls.edit_line(text, wanted, record)))]


def _present(edit: Callable[[str], str]) -> Callable[[Text], Text]:
    """An edit of a file that isn't ours to make."""
    return lambda text: None if text is None else edit(text)


def _kernel_install(wanted: Tokens, record: Record, reading: Reading) -> List[Artifact]:
    """systemd-boot and the like. Unified kernel images hold their command line, so kernel-install makes them anew."""
    images: List[Artifact] = []
    if not reading.entries and (wanted or record.former):
        images = [
            Effect(
                "unified kernel image of %s" % release,
                ("bootctl", "list", "--json=short"),
                _image_settled(release, wanted, record),
                ("kernel-install", "add", release, "/usr/lib/modules/%s/vmlinuz" % release),
                message="its command line was made before /etc/kernel/cmdline was changed, or bootctl can't tell",
            )
            for release in reading.kernels
        ]
    return [*_kernel_cmdline(wanted, record, reading), *_entries(wanted, record, reading), *images]


def _image_settled(release: str, wanted: Tokens, record: Record) -> Callable[[Text], bool]:
    def settled(listing: Text) -> bool:
        try:
            entries = json.loads(listing or "")
            lines = [kernel_args.split(entry.get("options") or "") for entry in entries if entry.get("version") == release]
        except (ValueError, AttributeError):
            return False
        return all(kernel_args.merge(line, wanted, record) == line for line in lines)

    return settled


# ostree -----------------------------------------------------------------------------------------------------------------------


def _ostree(wanted: Tokens, record: Record, reading: Reading) -> List[Artifact]:
    """The arguments belong to the deployment; rpm-ostree makes a new one with others.

    The command is made from the difference. Its --append-if-missing would drop the second of two equal hugepages arguments, and
    --delete-if-present is applied after appending: so plain --delete of what was read, and plain --append.
    """
    current = kernel_args.split(reading.deployment)
    merged = kernel_args.merge(current, wanted, record)
    kept = kernel_args.without(current, wanted, record)
    deleted = ["--delete=" + token for token in current if token not in kept]
    appended = ["--append=" + token for token in merged if token not in kept]
    waiting = "the deployment that boots next already waits for a reboot; the arguments are set on it"

    def settled(text: Text) -> bool:
        line = kernel_args.split(_deployment_line(text))
        return kernel_args.merge(line, wanted, record) == line and (bool(line) or not wanted)

    command = ("rpm-ostree", "kargs", *deleted, *appended)
    return [
        Effect("kernel arguments of the ostree deployment", reading.deployment_probe, settled, command),
        *([Observation("ostree deployment", PENDING, waiting, REBOOT)] if reading.waiting else []),
    ]


def _deployment_line(text: Text) -> str:
    """The command line in an entry's file, or as ``rpm-ostree kargs`` prints it."""
    return " ".join(bls.options(text or "")) or (text or "")


def _unknown(wanted: Tokens, record: Record, reading: Reading) -> List[Artifact]:
    if wanted:
        raise GpufleetError(
            "How this node gets its kernel command line can't be told: it has none of /etc/default/grub, boot loader entries, ostree "
            "deployments and /etc/kernel/cmdline.",
            "Set the arguments where its boot loader keeps them, or choose a profile without kernel arguments.",
        )
    return []


_LOADERS: Dict[str, Callable[[Tokens, Record, Reading], List[Artifact]]] = {
    GRUB: _grub,
    BLS: _bls,
    OSTREE: _ostree,
    KERNEL_INSTALL: _kernel_install,
    UNKNOWN: _unknown,
}
