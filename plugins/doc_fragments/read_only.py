# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Reads only, so check mode makes no difference.
    support: full
  diff_mode:
    description: The diff shows what an applying module would change.
    support: full
options: {}
"""
