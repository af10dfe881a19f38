# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The interrupts of the plan's devices on a node: which there are, which can be placed, and placing them."""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, FrozenSet, Iterable, List, Mapping

from ..core import irq
from ..core.change import DRIFT, IN_PLACE
from .apply import Node, apply
from .facts.interrupts import read_interrupts
from .facts.values import cpu_set
from .root import Root
from .store import locked


def read_live(root: Root, section: Mapping[str, Any]) -> irq.Live:
    """The interrupts of the plan's devices as they are now."""
    plan = irq.parse(section)
    if not plan.places:
        return irq.Live({})
    found = {entry.device: entry.interrupts for entry in read_interrupts(root, {planned.device: planned.kind for planned in plan.devices})}
    kept = managed(root, (interrupt.irq for interrupts in found.values() for interrupt in interrupts))
    return irq.Live(found, cpu_set(root, "/sys/devices/system/cpu/online"), kept)


def place(root: Root, section: Mapping[str, Any]) -> List[str]:
    """Put every interrupt on its CPU; lines that say what was done and what is otherwise than planned."""
    with locked(root):
        outcome = apply(irq.placement(section, read_live(root, section)), Node.at(root.path))
    written = sum(before.status == DRIFT and after.status == IN_PLACE for before, after in zip(outcome.found, outcome.findings))
    return ["%d written" % written, *("%s: %s" % (f.item, f.message) for f in outcome.findings if f.status != IN_PLACE)]


def managed(root: Root, irqs: Iterable[int]) -> FrozenSet[int]:
    """Those IRQs whose affinity the kernel takes from nobody.

    Newer kernels make their file read-only. Others are asked by a write of no bytes: it can't change anything, and the refusal (EIO, since
    6.12 EPERM) comes before the bytes are looked at. An interrupt that can be placed answers EINVAL. See kernel/irq/proc.c.
    In a capture all of them are read-only.
    """
    return frozenset(number for number in irqs if _refuses(root.local(irq.AFFINITY_LIST % number), asked=root.is_live))


def _refuses(path: str, asked: bool) -> bool:
    try:
        if not os.stat(path).st_mode & stat.S_IWUSR:
            return True
        if not asked:
            return False
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:  # it vanished, or we aren't root: whoever writes will be told
        return False
    try:
        os.write(descriptor, b"")
    except OSError as problem:
        return problem.errno in (errno.EIO, errno.EPERM)
    finally:
        os.close(descriptor)
    return False
