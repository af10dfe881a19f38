# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  root:
    description:
      - The folder that every path starts at. V(/) is the live node.
      - Any other folder is a mounted image or an unpacked capture; symbolic links are resolved inside it, and commands are listed
        in C(pending_commands) instead of being run.
    type: path
    default: /
"""
