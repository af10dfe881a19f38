"""How exposed systemd thinks a service of ours is, beside the same service without its hardening (0 is best, 10 worst)."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from table import Row

from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_services import Batch, Pinned
from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_units import Slice, Units, service_unit
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet

# What would still count against a batch job costs it its data, its network or its JIT.
MOST = 3.0


def rows() -> list[Row]:
    if not shutil.which("systemd-analyze"):
        return []
    here = Slice(CpuSet([1]), CpuSet([0]), CpuSet([0]), CpuSet([0]), 20, 20, False, "")
    units = Units("x86_64", "/usr/bin/env", False, here)
    batch = service_unit(Batch("batch", ("/bin/true",), "jobs"), units)
    pinned = service_unit(Pinned("pinned", ("/bin/true",), "jobs", cpus=CpuSet([1])), units)
    bare = "[Service]\nUser=jobs\nExecStart=/bin/true\n"
    detail = "systemd-analyze security, overall exposure"
    return [
        Row("exposure of a batch service", exposure(batch), MOST, detail=detail),
        Row("exposure of a pinned service", exposure(pinned), MOST, detail=detail),
        Row("exposure of a unit without hardening", exposure(bare), detail=detail),
    ]


def exposure(text: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gpufleet-measured.service")
        path.write_text(text, encoding="utf-8")
        command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(path)]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
    match = re.search(r"exposure level for \S+: ([\d.]+)", found.stdout)
    if not match:
        raise RuntimeError(found.stderr)
    return float(match.group(1))
