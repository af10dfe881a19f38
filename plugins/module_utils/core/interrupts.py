# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Interrupts, and /proc/interrupts as a table: IRQ number to device and action. Source: kernel/irq/proc.c, show_interrupts()."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from .cpuset import CpuSet

_COUNT_WIDTH = 11  # a blank and "%10u" per CPU column, whatever the counts are
_TRIGGERS = ("Edge", "Level", "None")
_ADDRESS = re.compile(r"-([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z")


@dataclass(frozen=True)
class Interrupt:
    """One IRQ. Affinities are null where the kernel shows none; ``action`` is the name in /proc/interrupts ("nvme0q3")."""

    irq: int
    affinity: Optional[CpuSet] = None
    effective_affinity: Optional[CpuSet] = None
    action: str = ""


@dataclass(frozen=True)
class DeviceInterrupts:
    """The interrupts of one device, by ascending IRQ number. ``device`` is its PCI address, ``kind`` gpu, nic, nvme or other."""

    device: str
    kind: str
    interrupts: Tuple[Interrupt, ...]


@dataclass(frozen=True)
class InterruptLine:
    """One numbered line.

    ``device`` is the PCI address where the kernel puts it into the chip's name (since 6.2: "IR-PCI-MSIX-0000:01:00.0"). ``action`` is
    what the driver calls it, "" for an interrupt nobody has requested.
    """

    device: Optional[str]
    action: str


def parse_interrupts(text: str) -> Dict[int, InterruptLine]:
    """The numbered lines (not NMI, LOC and their kind). A line has one column per online CPU, so thousands of characters are usual."""
    lines = text.splitlines()
    columns = len(lines[0].split()) if lines else 0
    found: Dict[int, InterruptLine] = {}
    for line in lines[1:]:
        label, colon, counts = line.partition(":")
        if colon and label.strip().isdigit():
            found[int(label)] = _line(_after_counts(counts, columns))
    return found


def _after_counts(text: str, columns: int) -> str:
    """What follows the counts. They have a fixed width; where they don't (a foreign tool wrote the file), they are split off one by one."""
    width = columns * _COUNT_WIDTH
    if text[_COUNT_WIDTH - 1 : width : _COUNT_WIDTH].isdigit() and text[: width + 1 : _COUNT_WIDTH].isspace():
        return text[width:]
    fields = text.split(None, columns)
    return fields[columns] if len(fields) > columns else ""


def _line(text: str) -> InterruptLine:
    """ "IR-PCI-MSIX-0000:b1:00.0   1-edge      nvme0q1" on x86-64, "ITS-PCI-MSI-0000:01:00.0   0 Edge      nvme0q0" elsewhere."""
    chip, hwirq, rest = _three(text)
    if "-" not in hwirq:
        trigger, _blank, after = rest.partition(" ")
        rest = after if trigger in _TRIGGERS else rest
    address = _ADDRESS.search(chip)
    return InterruptLine(address.group(1) if address else None, rest.strip())


def _three(text: str) -> Tuple[str, str, str]:
    fields = [*text.split(None, 2), "", "", ""]
    return fields[0], fields[1], fields[2]
