# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The interrupt concern: what the node has, and the program it is to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from ..core import irq_units
from ..core.irq_units import Irqbalance, Reading
from ..core.systemd import UNIT_FOLDER
from ..core.unit_reading import service
from .bundle import bundle
from .command import Command
from .concern import Concern, Section
from .interpreter import interpreter
from .irq_live import read_live
from .root import Root
from .store import Store
from .systemd import runs_systemd

if TYPE_CHECKING:  # so that Ansible sends it along; here it isn't loaded
    from . import irq_program  # noqa: F401

_PROGRAM = __name__ + "_program"
_MASK = UNIT_FOLDER + "/irqbalance.service"
_PACKAGED = ("/usr/lib/systemd/system/irqbalance.service", "/lib/systemd/system/irqbalance.service")
_CRIO = ("/usr/lib/systemd/system/crio.service", "/lib/systemd/system/crio.service", UNIT_FOLDER + "/crio.service")


def read(root: Root, command: Command, section: Section) -> Reading:
    """The planned devices' interrupts, irqbalance, and what an earlier run left."""
    return Reading(
        live=read_live(root, section["interrupts"]),
        program=bundle(_PROGRAM).decode("utf-8", "surrogateescape"),
        interpreter=interpreter(root),
        irqbalance=_irqbalance(root),
        crio=any(root.exists(unit) for unit in _CRIO),
        systemd=runs_systemd(root),
        installed=root.exists("%s/%s" % (UNIT_FOLDER, irq_units.TIMER)),
    )


def _irqbalance(root: Root) -> Optional[Irqbalance]:
    unit = next((text for text in map(root.read, _PACKAGED) if text is not None), None)
    own_unit = root.exists(_MASK) and root.link_target(_MASK) is None
    if own_unit:
        unit = root.read(_MASK)
    if unit is None:
        return None
    named = [path for path in service([unit]).environment_files if path.startswith("/etc/")]
    environment_file = named[-1] if named else "/etc/default/irqbalance"
    return Irqbalance(
        environment_file,
        root.read(environment_file),
        enabled=root.link_target(UNIT_FOLDER + "/multi-user.target.wants/irqbalance.service") is not None,
        own_unit=own_unit,
        masked_by_us=root.link_target(_MASK) == "/dev/null" and Store(root).known(_MASK) is not None,
    )


CONCERN = Concern(name="irq", sections=("interrupts",), read=read, artifacts=irq_units.artifacts)
