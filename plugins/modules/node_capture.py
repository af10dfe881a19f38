#!/usr/bin/python
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

DOCUMENTATION = r"""
module: node_capture
short_description: Bring a node's root home as an archive
version_added: 0.1.0
description:
  - Writes an archive of exactly the files that this collection reads on the node. Unpacked, it is a root that facts can be read from,
    that a plan can be made and tried on, and that M(gpufleet.node.node_verify) says the same of as of the node, far from it. What
    commands answer on a running node isn't in it; what only they can tell is pending there.
  - Host and user names, MAC and IP addresses, serial numbers, UUIDs, credentials, and the values of kernel arguments, kubelet flags and
    environment variables that this collection doesn't know are replaced, each consistently within the archive. Of the package database,
    C(udev) and containerd only what is read is in it.
options:
  plan:
    description:
      - The plan, as M(gpufleet.node.node_plan) returns it, by which verify looks at the node; without it one of the defaults. What
        another plan would have it look at isn't in the archive.
    type: dict
  gpu_match:
    description:
      - What counts as a GPU, as in M(gpufleet.node.topology_facts). What only another rule would have the facts read of a device isn't in
        the archive.
    type: list
    elements: str
    default: []
  dest:
    description: The archive to write on the node (tar, gzip).
    type: path
    required: true
extends_documentation_fragment: [gpufleet.node.root]
attributes:
  check_mode:
    description: Reads everything and writes no archive.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
author: [gpufleet contributors (@gpufleet)]
"""

EXAMPLES = r"""
- name: Pack the node's root
  gpufleet.node.node_capture:
    dest: /var/tmp/gpu01.tar.gz

- name: Bring it home
  ansible.builtin.fetch:
    src: /var/tmp/gpu01.tar.gz
    dest: captures/
    flat: true
"""

RETURN = r"""
dest:
  description: The archive.
  returned: success
  type: str
  sample: /var/tmp/gpu01.tar.gz
files:
  description: How many files it holds.
  returned: success
  type: int
  sample: 4211
size_bytes:
  description: Its size.
  returned: success
  type: int
  sample: 183744
"""

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once  # noqa: F401  # pylint: disable=unused-import
from ansible_collections.gpufleet.node.plugins.module_utils.edge.capture import capture_node


def main():
    capture_node()


if __name__ == "__main__":
    main()
