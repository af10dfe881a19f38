# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan that nothing on the node differed from, kept on the node: the next time it can answer for it without being told."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Dict, Optional

from ..core.errors import GpufleetError
from .files import write_atomic
from .root import Root
from .store import FOLDER

PATH = FOLDER + "/plan.json"


def recall(root: Root) -> Optional[Dict[str, Any]]:
    """The plan that was kept; None where there is none that can be read."""
    with suppress(GpufleetError, ValueError):
        plan = json.loads(root.read(PATH) or "null")
        return plan if isinstance(plan, dict) else None
    return None


def keep(plan: Dict[str, Any], root: Root) -> None:
    """Keep a plan. A node that can't is asked again, and that is all."""
    text = json.dumps(plan) + "\n"
    with suppress(GpufleetError):
        if root.read(PATH) != text:
            write_atomic(root.local(PATH), text.encode(), 0o600)
