"""The real kubelet on a virtual machine, described in nodes.yml beside this file."""

import os
from pathlib import Path

os.environ["GPUFLEET_VM_NODES"] = str(Path(__file__).with_name("nodes.yml"))
