# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from ansible_collections.gpufleet.node.plugins.module_utils.core.report import plan_lines, rollback_lines, summary_lines, verdict_lines


class FilterModule:
    """Facts, plans and verdicts as lines for people."""

    def filters(self):
        return {"plan_lines": plan_lines, "rollback_lines": rollback_lines, "summary_lines": summary_lines, "verdict_lines": verdict_lines}
