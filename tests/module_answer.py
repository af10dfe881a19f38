"""A module as Ansible starts it on a node, without Ansible around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

MODULES = "ansible_collections.gpufleet.node.plugins.modules"


def answer_of(module: str, options: dict[str, Any]) -> dict[str, Any]:
    """What a module of this collection answers to these options."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    arguments = json.dumps({"ANSIBLE_MODULE_ARGS": options})
    command = [sys.executable, "-m", f"{MODULES}.{module}"]
    done = subprocess.run(command, input=arguments, env=environment, capture_output=True, text=True, check=False)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
