# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Swap off, and staying off: /etc/fstab, swap units, GPT swap partitions, zram and the services that make swap.

A swap line in fstab keeps systemd-gpt-auto-generator from using the GPT swap partitions of the root disk; without it they come back.
Its unit is named after the partition's node (dev-vda3.swap), in newer systemd (257 for one) after the disk's sequence number, which may
differ from boot to boot: so swap.target, which alone pulls it in, is masked as well as the units that can be named.
"""

from __future__ import annotations

import re
from typing import Callable, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from .change import FOREIGN, PENDING, REBOOT, Artifact, Effect, File, Observation, Text
from .errors import unknown_name
from .systemd import MARK, Parts, drop_in, mask, unit_name

CHOICES = ("off", "keep")
FSTAB_MARK = "#gpufleet-swap-off# "
RESUME = "/etc/initramfs-tools/conf.d/resume"
ZRAM = "/etc/systemd/zram-generator.conf"
ZRAM_TEXT = MARK + "# Without sections: no zram device is made, whatever the packaged configuration says.\n"
GPT_SWAP = "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"  # Discoverable Partitions Specification

# Services that make swap: zram-tools, zram-config and others of its kind, Raspberry Pi OS, swapspace.
SERVICES = ("zramswap.service", "zram-config.service", "zram-swap.service", "dphys-swapfile.service", "swapspace.service")


class SwapReading(NamedTuple):
    """``units`` are the names of swap units and of services that make swap, masked ones too. ``own_units`` are those of them that are
    files in /etc/systemd/system, where a mask finds no place. ``partitions`` are the device nodes of GPT swap partitions, ``zram`` the
    configuration files of zram-generator as (path, text)."""

    fstab: Text = None
    units: FrozenSet[str] = frozenset()
    own_units: FrozenSet[str] = frozenset()
    partitions: Tuple[str, ...] = ()
    zram: Tuple[Tuple[str, str], ...] = ()
    resume: Text = None


def artifacts(choice: str, reading: SwapReading) -> Parts:
    """Swap off for good ("off"), or as it was before us ("keep").

    :raises InvalidInput: any other word
    """
    if choice not in CHOICES:
        raise unknown_name("choice for swap", choice, CHOICES)
    off = choice == "off"
    own = sorted(reading.own_units)
    masked = sorted({"swap.target", *_nameable(reading)} - set(own))
    files: List[Artifact] = [File("swap lines in /etc/fstab", "/etc/fstab", edit_fstab(off), ours=False)]
    files.extend(mask("mask of %s" % unit, unit, off) for unit in masked)
    # A unit file in /etc can't be masked by a link; a condition that never holds does the same.
    files.extend(drop_in("drop-in of %s" % unit, unit, "Unit", ["ConditionPathExists=!/"] if off else []) for unit in own)
    files.append(File("zram-generator", ZRAM, _edit_zram(off and _has_packaged_zram(reading)), ours=False))
    live: List[Artifact] = []
    if off:
        live.append(Effect("swap in use", "/proc/swaps", lambda text: not in_use(text), ("swapoff", "-a")))
        live.extend(_resume(reading.resume))
    elif FSTAB_MARK in (reading.fstab or ""):
        # Not by a command: one line of fstab that never worked would fail the run.
        again = "the swap lines of /etc/fstab are back: swap is on again at the next boot, or at once with swapon -a"
        live.append(Effect("swap in use", "/proc/swaps", in_use, unmet=PENDING, until=REBOOT, message=again))
    return Parts(files, live, {**dict.fromkeys(masked, off), **dict.fromkeys(own, False)})


def makes_swap(unit: str) -> bool:
    """True for a swap unit and for a service that makes swap, by its name."""
    return unit.endswith(".swap") or unit in SERVICES


def _nameable(reading: SwapReading) -> List[str]:
    sections = [name for _path, text in reading.zram for name in re.findall(r"^\s*\[(zram\d+)\]", text, re.MULTILINE)]
    return [
        *reading.units,
        *(unit_name(device, ".swap") for device in reading.partitions),
        *(unit_name("/dev/" + section, ".swap") for section in sections),
    ]


def edit_fstab(off: bool) -> Callable[[Text], Text]:
    """Put swap lines behind our mark, or take the mark away again: every other byte stays.

    A swap line is one whose third field is "swap", not one that has the word somewhere; a commented line is none.
    """

    def edit(text: Text) -> Text:
        if text is None:
            return None
        lines = text.split("\n")
        if off:
            return "\n".join(FSTAB_MARK + line if _is_swap(line) else line for line in lines)
        return "\n".join(_without_mark(line) for line in lines)

    return edit


def _is_swap(line: str) -> bool:
    fields = line.split()
    return len(fields) >= 3 and not fields[0].startswith("#") and fields[2] == "swap"


def _without_mark(line: str) -> str:
    while line.startswith(FSTAB_MARK):
        line = line[len(FSTAB_MARK) :]
    return line


def _has_packaged_zram(reading: SwapReading) -> bool:
    return any(not path.startswith("/etc/") for path, _text in reading.zram)


def _edit_zram(empty: bool) -> Callable[[Text], Text]:
    """An administrator's own file stays: its devices' units are masked."""

    def edit(text: Text) -> Text:
        if text is not None and text != ZRAM_TEXT:
            return text
        return ZRAM_TEXT if empty else None

    return edit


def in_use(swaps: Optional[str]) -> bool:
    """True when /proc/swaps has more than its heading."""
    return len((swaps or "").strip().split("\n")) > 1


def _resume(text: Text) -> Sequence[Observation]:
    values = re.findall(r"^\s*RESUME\s*=\s*[\"']?([^\s\"'#]*)", text or "", re.MULTILINE)
    if not values or values[-1] in ("", "none"):
        return ()
    return (
        Observation(
            "resume device",
            FOREIGN,
            "%s names %s, so the initramfs waits for that swap device if it ever goes away: put RESUME=none there and run "
            "update-initramfs -u when it suits you." % (RESUME, values[-1]),
        ),
    )
