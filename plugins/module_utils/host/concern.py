# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A concern: one part of a node's configuration, how its state is read and what is wanted of it."""

from __future__ import annotations

from typing import Any, Callable, Mapping, NamedTuple, Sequence, Tuple

from ..core.change import Artifact
from .command import Command
from .root import Root

Section = Mapping[str, Any]


class Concern(NamedTuple):
    """``sections`` are the plan's keys it applies, which are the options of its module too.

    ``read`` looks at the node, once; ``artifacts`` is pure: (section, reading) to what must hold.
    """

    name: str
    sections: Tuple[str, ...]
    read: Callable[[Root, Command, Section], Any]
    artifacts: Callable[[Section, Any], Sequence[Artifact]]
