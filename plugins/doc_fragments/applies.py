# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Writes nothing and tells what would change.
    support: full
  diff_mode:
    description: Shows every file and kernel value before and after.
    support: full
options: {}
"""
