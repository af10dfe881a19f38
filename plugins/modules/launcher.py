#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: launcher
short_description: Install the launcher that interleaves a command's memory
version_added: 0.1.0
description:
  - Installs C(numaspread), one static program, from this collection's source.
  - The program is built once for each architecture and kept in the controller's cache; a node that has it is only looked at.
options:
  launcher:
    description: The plan's C(launcher). An empty mapping removes the program.
    type: dict
    required: true
    suboptions:
      version:
        description: What the program must answer to C(--version).
        type: str
      source_sha256:
        description: The digest of the source that it must be built from.
        type: str
      path:
        description: Where it goes.
        type: path
      binary:
        description: The program on the node; set by the action that brings it there.
        type: path
      source:
        description: The source on the node, to be compiled there; set by the action that brings it there.
        type: path
  build:
    description: Where the program is built. V(node) needs a C compiler on the node.
    type: str
    choices: [controller, node]
    default: controller
  architecture:
    description: The node's architecture as C(uname -m) has it, for building on the controller.
    type: str
extends_documentation_fragment: [gpufleet.node.root, gpufleet.node.applies]
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Install the launcher
  gpufleet.node.launcher:
    launcher: "{{ ansible_facts.gpufleet_plan.launcher }}"
    architecture: "{{ ansible_facts.gpufleet_topology.architecture }}"

- name: Run a job with its memory spread over the NUMA nodes that have CPUs
  ansible.builtin.command: numaspread -- /usr/local/bin/preprocess --all
"""

RETURN = r"""
findings:
  description: What is not in place.
  returned: success
  type: list
  elements: dict
  sample: [{item: launcher, status: drift, path: "", message: is missing, until: ""}]
in_place:
  description: How many items are in place.
  returned: success
  type: int
  sample: 3
pending_commands:
  description: Commands that would have to run on the booted node; a root other than V(/) runs none.
  returned: success
  type: list
  elements: list
  sample: [[/usr/local/bin/numaspread, --version]]
reboot_required:
  description: Whether something waits for the next boot. Never so here.
  returned: success
  type: bool
  sample: false
restart_required:
  description: Always empty here.
  returned: success
  type: list
  elements: str
  sample: []
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.reconcile import reconcile
from ansible_collections.gpufleet.node.plugins.module_utils.host.launcher import CONCERN

SUBOPTIONS = {
    "version": {"type": "str"},
    "source_sha256": {"type": "str"},
    "path": {"type": "path"},
    "binary": {"type": "path"},
    "source": {"type": "path"},
}


def main():
    options = {
        "launcher": {"type": "dict", "required": True, "options": SUBOPTIONS},
        "build": {"type": "str", "choices": ["controller", "node"], "default": "controller"},
        "architecture": {"type": "str"},
    }
    reconcile(CONCERN, options)


if __name__ == "__main__":
    main()
