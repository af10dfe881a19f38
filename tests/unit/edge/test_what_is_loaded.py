"""What a node loads for an answer is what the answer costs it: nothing of the other answer, and nothing slow of Python's own."""

from __future__ import annotations

import subprocess
import sys

PACKAGE = "ansible_collections.gpufleet.node.plugins.module_utils."


def loaded(module: str) -> set[str]:
    """What is loaded after the module, that isn't after AnsibleModule."""
    paths = [path for path in sys.path if path]
    program = (
        f"import sys; sys.path[:0] = {paths!r}\n"
        "import ansible.module_utils.basic\n"
        "before = set(sys.modules)\n"
        f"import {PACKAGE}{module}\n"
        "print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.removeprefix(PACKAGE) for name in done.stdout.split()}


def test_each_answer_loads_its_own_code() -> None:
    assert "host.topology" in loaded("edge.facts")
    assert not {"host.apply", "core.kubelet_merge", "core.yaml_text"} & loaded("edge.facts")
    assert not {"core.kubelet", "core.kubelet_merge", "core.yaml_text"} & loaded("edge.planning")
    verdict = loaded("edge.verdict")
    assert "host.apply" in verdict and "host.topology" not in verdict
    assert not {"fractions", "difflib", "host.irq_program", "host.kubelet_state_program", "core.units"} & verdict
    assert not {"host.apply", "host.topology"} & loaded("edge.node_verify")
    assert not {"core.kubelet_rules", "core.kubelet_gates"} & loaded("core.kubelet_state")
