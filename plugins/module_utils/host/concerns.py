# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every concern there is, in the order it is applied. A new one is verified and applied by standing here."""

from __future__ import annotations

from typing import Any, Dict, Tuple

from . import batch, boot, irq, kubelet, launcher, tuning
from .concern import Concern

CONCERNS: Tuple[Concern, ...] = (boot.CONCERN, tuning.CONCERN, irq.CONCERN, kubelet.CONCERN, launcher.CONCERN, batch.CONCERN)

# The plan of nothing: what every section holds when nothing of ours is to be on the node.
NOTHING: Dict[str, Any] = {
    "kernel_arguments": [],
    "sysctl": {},
    "transparent_hugepage": {},
    "hugepages": {},
    "governor": "",
    "swap": "keep",
    "limits": {},
    "confine": {},
    "interrupts": {},
    "kubelet": {},
    "launcher": {},
    "units": {},
}
