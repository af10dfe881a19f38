# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reasons: what a plan says about its values, with a code for programs and the facts it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Tuple

from .codec import to_json

INFO, WARNING, ERROR = "info", "warning", "error"


@dataclass(frozen=True)
class Note:
    """``severity``: info (why a value is what it is), warning (it may not be what you want), error (it won't work as planned)."""

    code: str
    severity: str
    message: str
    facts: Dict[str, Any] = field(default_factory=dict)


class Notes:
    """Notes in the order in which they were made."""

    def __init__(self) -> None:
        self._notes: List[Note] = []

    def info(self, code: str, message: str, **facts: Any) -> None:
        """Why a value is what it is."""
        self._notes.append(Note(code, INFO, message, to_json(facts)))

    def warning(self, code: str, message: str, **facts: Any) -> None:
        """Something that may not be what the user wants."""
        self._notes.append(Note(code, WARNING, message, to_json(facts)))

    def error(self, code: str, message: str, **facts: Any) -> None:
        """Something that will not work as planned."""
        self._notes.append(Note(code, ERROR, message, to_json(facts)))

    def __iter__(self) -> Iterator[Note]:
        return iter(self._notes)

    def freeze(self) -> Tuple[Note, ...]:
        """All of them."""
        return tuple(self._notes)
