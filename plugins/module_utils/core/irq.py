# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where each device interrupt goes: one CPU per interrupt, spread evenly over the CPUs the plan allows its device.

The order is the plan's order of devices and each device's own order of interrupts (ascending: the kernel numbers the vectors of a device
in the order of its queues). IRQ numbers decide nothing else: they change from boot to boot.
Source: Documentation/core-api/irq/irq-affinity.rst and kernel/irq/proc.c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import codec
from .change import IN_PLACE, INTERRUPT, NOT_APPLICABLE, PENDING, Artifact, KernelValue, Observation
from .cpuset import CpuSet, union
from .errors import InvalidInput, unknown_name
from .interrupts import Interrupt

PLAN = "/etc/gpufleet/irq.json"
DEFAULT_AFFINITY = "/proc/irq/default_smp_affinity"
AFFINITY_LIST = "/proc/irq/%d/smp_affinity_list"
PLACEMENTS = ("housekeeping", "local", "none")
IRQBALANCE = ("off", "keep")


@dataclass(frozen=True)
class PlannedDevice:
    """A device of the plan (its PCI address) and the CPUs that may take its interrupts."""

    device: str
    kind: str
    cpus: CpuSet
    numa_node: Optional[int] = None


@dataclass(frozen=True)
class Interrupts:
    """The plan's section ``interrupts``."""

    placement: str
    irqbalance: str
    default_affinity: CpuSet
    isolated: CpuSet
    devices: Tuple[PlannedDevice, ...]

    @property
    def places(self) -> bool:
        """Whether interrupts are placed; irqbalance follows the plan either way."""
        return self.placement != "none"


NOTHING = Interrupts("none", "keep", CpuSet(), CpuSet(), ())


class Live(NamedTuple):
    """The interrupts of the planned devices now, by PCI address and in queue order; ``online`` CPUs (null: unknown).

    ``managed``: IRQs that the kernel itself places and lets nobody else (the queues of an NVMe drive).
    """

    interrupts: Mapping[str, Tuple[Interrupt, ...]]
    online: Optional[CpuSet] = None
    managed: FrozenSet[int] = frozenset()


class Place(NamedTuple):
    """An interrupt's own CPU, and the other CPUs of its device from the least to the most loaded, for when its own is full."""

    interrupt: Interrupt
    own: int
    others: Tuple[int, ...]

    @property
    def settled(self) -> bool:
        """The affinity is as planned, whether or not the interrupt has moved yet."""
        return self.interrupt.affinity == CpuSet([self.own])

    @property
    def moving(self) -> bool:
        """The affinity is as planned, but the controller still delivers to the old CPU: it moves when the interrupt next fires."""
        return self.settled and not (self.interrupt.effective_affinity or CpuSet()) <= CpuSet([self.own])


def parse(section: Mapping[str, Any]) -> Interrupts:
    """The plan's section; one that is empty, like placement ``none``, places nothing.

    :raises InvalidInput: an unknown word, a missing key, a device without CPUs, an isolated CPU among them
    """
    if not section:
        return NOTHING
    plan = codec.from_json(Interrupts, section, "interrupts")
    for what, given, known in (("interrupt placement", plan.placement, PLACEMENTS), ("value of irqbalance", plan.irqbalance, IRQBALANCE)):
        if given not in known:
            raise unknown_name(what, given, known)
    if not plan.places:
        return replace(plan, devices=())
    for planned in plan.devices:
        if not planned.cpus:
            raise InvalidInput("The plan gives %s no CPU for its interrupts." % planned.device, "Make the plan anew from fresh facts.")
    exposed = plan.isolated & union([plan.default_affinity, *(planned.cpus for planned in plan.devices)])
    if exposed:
        raise InvalidInput("The plan sends interrupts to the isolated CPUs %s." % exposed, "Make the plan anew from fresh facts.")
    if not plan.default_affinity:
        raise InvalidInput("The plan's default interrupt affinity is empty.", "Make the plan anew from fresh facts.")
    return plan


def assign(plan: Interrupts, live: Live) -> Dict[str, List[Place]]:
    """Each placeable interrupt's CPU, by device: always the least loaded of the device's online CPUs, the lowest of equals.

    Kernel-managed interrupts take no part. An interrupt line that devices share goes with the first of them.
    """
    load: Dict[int, int] = {}
    taken = set()
    places: Dict[str, List[Place]] = {}
    for planned in plan.devices:
        cpus = list(planned.cpus if live.online is None else planned.cpus & live.online)
        places[planned.device] = []
        for interrupt in live.interrupts.get(planned.device, ()) if cpus else ():
            if interrupt.irq in live.managed or interrupt.irq in taken:
                continue
            taken.add(interrupt.irq)
            own, *others = sorted(cpus, key=lambda cpu: (load.get(cpu, 0), cpu))
            load[own] = load.get(own, 0) + 1
            places[planned.device].append(Place(interrupt, own, tuple(others)))
    return places


def placement(section: Mapping[str, Any], live: Live) -> List[Artifact]:
    """What must hold of the running kernel: the default affinity, and each interrupt on its CPU.

    What already holds, or can't be changed, is one observation per device, so that thousands of interrupts stay readable.
    """
    plan = parse(section)
    if not plan.places:
        return []
    places = assign(plan, live)
    artifacts: List[Artifact] = [default_affinity(plan.default_affinity)]
    for planned in plan.devices:
        artifacts.extend(_observations(planned, live, places[planned.device]))
        artifacts.extend(_affinity(planned, place) for place in places[planned.device] if not place.settled)
    return artifacts


def default_affinity(cpus: CpuSet) -> KernelValue:
    """The affinity that new interrupts start with. The file takes and shows a mask; its width depends on the kernel."""
    return KernelValue("default interrupt affinity", DEFAULT_AFFINITY, (cpus.to_mask(),), _same(CpuSet.parse_mask))


def _affinity(planned: PlannedDevice, place: Place) -> KernelValue:
    """An interrupt that isn't on its CPU. From another CPU of its device it is only asked to move; from elsewhere it takes the next CPU
    that has room."""
    now = place.interrupt.affinity or CpuSet()
    at_home = len(now) == 1 and now <= CpuSet(place.others)
    return KernelValue(
        "interrupt %d of %s%s" % (place.interrupt.irq, planned.device, place.interrupt.action and " (%s)" % place.interrupt.action),
        AFFINITY_LIST % place.interrupt.irq,
        (str(place.own),) if at_home else tuple(str(cpu) for cpu in (place.own, *place.others)),
        _same(CpuSet.parse),
        refusals={
            "EIO": (NOT_APPLICABLE, "kernel-managed: nobody but the kernel moves it"),
            "EPERM": (NOT_APPLICABLE, "kernel-managed: nobody but the kernel moves it"),
            "ENOSPC": (
                NOT_APPLICABLE,
                "CPU %s: no free interrupt vector, so it stays on %s" % (place.own if at_home else planned.cpus, now),
            ),
            "ENOENT": (NOT_APPLICABLE, "vanished: its driver gave it back"),
        },
    )


def _observations(planned: PlannedDevice, live: Live, places: Sequence[Place]) -> Iterator[Observation]:
    item = "interrupts of %s" % planned.device
    numbers = {interrupt.irq for interrupt in live.interrupts.get(planned.device, ())}
    managed = CpuSet(numbers & live.managed)
    moving = CpuSet(place.interrupt.irq for place in places if place.moving)
    settled = sum(place.settled for place in places) - len(moving)
    if not numbers:
        yield Observation(item, NOT_APPLICABLE, "it has none now: the device or its driver isn't there")
    elif live.online is not None and planned.cpus.isdisjoint(live.online):
        yield Observation(item, NOT_APPLICABLE, "left alone: of its CPUs %s none is online" % planned.cpus)
    if managed:
        message = "kernel-managed, so only isolcpus=managed_irq keeps them off isolated CPUs"
        yield Observation("%s (IRQ %s)" % (item, managed), NOT_APPLICABLE, message)
    if moving:
        yield Observation("%s (IRQ %s)" % (item, moving), PENDING, "the affinity is right, the next interrupt moves it", INTERRUPT)
    if settled:
        yield Observation(item, IN_PLACE, "%d spread over CPUs %s" % (settled, planned.cpus))


def _same(parser: Callable[[str], CpuSet]) -> Callable[[str, str], bool]:
    """Equality of what two texts mean: leading zeros and groups of a mask depend on the kernel's nr_cpu_ids."""

    def same(current: str, wanted: str) -> bool:
        try:
            return parser(current) == parser(wanted)
        except InvalidInput:
            return False

    return same
