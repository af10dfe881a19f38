# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from ansible_collections.gpufleet.node.plugins.module_utils.core.reboot import after_boot
from ansible_collections.gpufleet.node.plugins.module_utils.core.report import plan_lines, rollback_lines, summary_lines, verdict_lines
from ansible_collections.gpufleet.node.plugins.module_utils.core.verdict_report import junit, record


class FilterModule:
    """Facts, plans and verdicts as lines for people."""

    def filters(self):
        return {
            "after_boot": after_boot,
            "plan_lines": plan_lines,
            "rollback_lines": rollback_lines,
            "summary_lines": summary_lines,
            "verdict_junit": junit,
            "verdict_lines": verdict_lines,
            "verdict_record": record,
        }
