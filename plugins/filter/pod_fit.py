# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_fit_report import fit_lines


class FilterModule:
    """The answers of pod_fit as lines for people."""

    def filters(self):
        return {"fit_lines": fit_lines}
