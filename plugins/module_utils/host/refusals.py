# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What this kernel refused since it booted. Only a write brings a refusal out, and verify writes nothing: so it is remembered.

Otherwise a value that can't be had would be drift for ever, and every run would try again.
"""

from __future__ import annotations

import json
from typing import Dict, List, Optional

from .files import write_atomic
from .root import Root

PATH = "/run/gpufleet/refused.json"


class Refusals:
    """By path: the wish, the errno's name, and the value that stayed. Another wish or another value makes a refusal void."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._dirty = False
        try:
            self._known: Dict[str, List[str]] = dict(json.loads(root.read(PATH) or "{}"))
        except (ValueError, TypeError):  # a file that a crash left half-written says nothing
            self._known = {}

    def known(self, path: str, wish: str, value: str) -> Optional[str]:
        """The errno's name that the wish met while the path had this value."""
        wished, refusal, stayed = self._known.get(path, ("", "", ""))
        return refusal if (wished, stayed) == (wish, value) else None

    def note(self, path: str, wish: str, refusal: str, value: str) -> None:
        """Keep a refusal."""
        self._known[path] = [wish, refusal, value]
        self._dirty = True

    def save(self) -> None:
        """Write the file when there is news."""
        if self._dirty:
            write_atomic(self._root.local(PATH), (json.dumps(self._known, indent=1, sort_keys=True) + "\n").encode(), 0o644)
            self._dirty = False
