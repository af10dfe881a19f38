# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Interrupts per PCI device: two files per IRQ, beside /proc/interrupts and the names in the devices' msi_irqs folders."""

from __future__ import annotations

from typing import Dict, List, Mapping, Tuple

from ...core.interrupts import DeviceInterrupts, Interrupt, InterruptLine, parse_interrupts
from ...core.kinds import OTHER
from ..root import Root
from .pci import message_signalled
from .values import PCI_DEVICES, cpu_set, number


def read_interrupts(root: Root, kinds: Mapping[str, str]) -> Tuple[DeviceInterrupts, ...]:
    """The interrupts of every device that has some, in the order of ``kinds`` (PCI address to gpu, nic, nvme, other)."""
    table = parse_interrupts(root.read("/proc/interrupts") or "")
    named: Dict[str, List[int]] = {}
    for irq, line in table.items():
        if line.device is not None:
            named.setdefault(line.device, []).append(irq)
    found = []
    for address, kind in kinds.items():
        irqs = message_signalled(root, address).union(named.get(address, ()))
        if not irqs and kind != OTHER:
            irqs.update(_legacy(root, address, table))
        if irqs:
            found.append(DeviceInterrupts(address, kind, tuple(_interrupt(root, irq, table) for irq in sorted(irqs))))
    return tuple(found)


def _legacy(root: Root, address: str, table: Mapping[int, InterruptLine]) -> Tuple[int, ...]:
    """The wired interrupt of a device without message-signalled ones, if somebody has requested it."""
    irq = number(root, "%s/%s/irq" % (PCI_DEVICES, address))
    return (irq,) if irq and irq in table and table[irq].action else ()


def _interrupt(root: Root, irq: int, table: Mapping[int, InterruptLine]) -> Interrupt:
    folder = "/proc/irq/%d/" % irq
    return Interrupt(
        irq,
        cpu_set(root, folder + "smp_affinity_list"),
        cpu_set(root, folder + "effective_affinity_list"),
        table[irq].action if irq in table else "",
    )
