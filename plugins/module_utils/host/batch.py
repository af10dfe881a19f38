# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The batch concern: units for CPU jobs and for services that feed GPUs. A node without any is told by a look at its folders."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple, Sequence, Tuple

from ..core.batch_names import (
    FOLLOW_PATH,
    FOLLOW_TIMER,
    OWN_UNITS,
    PROGRAM,
    SECCOMP_PROFILE,
    SERVICE_MARK,
    has_services,
    seccomp_paths,
    without_services,
)
from ..core.change import Artifact
from ..core.systemd import UNIT_FOLDER
from .command import Command
from .concern import Concern, Section
from .root import Root
from .store import Store

_TRIGGERS = {"multi-user.target.wants": FOLLOW_PATH, "timers.target.wants": FOLLOW_TIMER}


class NoServices(NamedTuple):
    """A node that has no services and is to have none; where profiles for pods are to be, or may be from an earlier run."""

    profiles: Tuple[str, ...]


def read(root: Root, command: Command, section: Section) -> Any:
    """``units.Reading`` where services are wanted or something is left of former ones, else NoServices."""
    services = _services(root)
    written = [path for path in Store(root).files if path.endswith("/" + SECCOMP_PROFILE)]
    profiles = tuple(root.once([*seccomp_paths(section), *written]))
    if not (has_services(section) or services or _is_left(root)):
        return NoServices(profiles)
    from . import batch_reading  # only nodes with services load what it takes to write their units

    return batch_reading.read(root, command, section, services, profiles)


def artifacts(section: Section, reading: Any) -> Sequence[Artifact]:
    """What must hold."""
    if isinstance(reading, NoServices):
        return without_services(section, reading.profiles)
    from ..core import units

    return units.artifacts(section, reading)


def _services(root: Root) -> Dict[str, str]:
    """The service and timer units that carry our mark. Nobody else's are taken away, whatever their name."""
    names = [name for name in root.names(UNIT_FOLDER) if name.startswith("gpufleet-") and name.endswith((".service", ".timer"))]
    texts = {name: root.read("%s/%s" % (UNIT_FOLDER, name)) or "" for name in names}
    return {name: text for name, text in texts.items() if text.startswith(SERVICE_MARK)}


def _is_left(root: Root) -> bool:
    triggers = (name in root.names("%s/%s" % (UNIT_FOLDER, folder)) for folder, name in _TRIGGERS.items())
    return root.exists(PROGRAM) or not set(OWN_UNITS).isdisjoint(root.names(UNIT_FOLDER)) or any(triggers)


CONCERN = Concern(name="batch", sections=("units",), read=read, artifacts=artifacts)
