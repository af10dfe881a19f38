"""What a batch service may and may not do, tried out below a real systemd with the unit's own restrictions."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest
import user_systemd

from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_services import Batch
from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_units import Slice, Units, service_unit
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet

HERE = Slice(CpuSet([0]), CpuSet([0]), CpuSet(), CpuSet(), 20, 20, False, "")
NUMBERS = {
    "x86_64": {"set_mempolicy": 238, "get_mempolicy": 239, "mbind": 237, "move_pages": 279, "migrate_pages": 256, "swapoff": 168},
    "aarch64": {"set_mempolicy": 237, "get_mempolicy": 236, "mbind": 235, "move_pages": 239, "migrate_pages": 238, "swapoff": 225},
}.get(platform.machine(), {})
# Calls with arguments that change nothing: all zero. EPERM (1) is the filter's answer, any other is the kernel's own.
TRY = """
import ctypes, errno, json, mmap, os, sys
numbers, out = json.loads(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
def call(number):
    ctypes.set_errno(0)
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    return ctypes.get_errno()
found = {name: call(number) for name, number in numbers.items()}
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
found["jit"] = len(code)
os.makedirs(os.path.expanduser("~/results"), exist_ok=True)
found["home"] = os.path.expanduser("~")
try:
    open("/etc/gpufleet-test", "w")
    found["etc"] = 0
except OSError as problem:
    found["etc"] = problem.errno
json.dump(found, open(out, "w"))
"""


def tried(tmp_path: Path, **keys: Any) -> dict[str, Any]:
    out = tmp_path / "out"
    command = (os.path.realpath(sys.executable), "-I", "-c", TRY, json.dumps(NUMBERS), str(out))
    # In place of the launcher: a program with options that it passes over.
    shift = tmp_path / "launcher"
    shift.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
    shift.chmod(0o755)
    text = service_unit(Batch("try", command, "root", restart="no", **keys), Units("x86_64", str(shift), False, HERE))
    # A user's manager has no other users, and no cgroup controllers to give here.
    kept = [line for line in text.splitlines() if not line.startswith(("User=", "Slice=", "Device", "CPUWeight=", "IOWeight=", "OOMScore"))]
    user_systemd.run_to_end(tmp_path / "home", "try.service", "\n".join(kept[kept.index("[Service]") :]) + "\n")
    return dict(json.loads(out.read_text(encoding="utf-8")))


@pytest.mark.skipif(not user_systemd.runs() or not NUMBERS, reason="no systemd can be run in name spaces here")
def test_memory_policies_and_jits_work_and_pages_stay(tmp_path: Path) -> None:
    found = tried(tmp_path)
    assert [found[name] for name in ("set_mempolicy", "get_mempolicy", "mbind")] != [1, 1, 1]
    assert found["set_mempolicy"] == 0 and found["jit"] == 4096
    assert [found[name] for name in ("move_pages", "migrate_pages", "swapoff")] == [1, 1, 1]
    assert (Path(found["home"]) / "results").is_dir()
    assert found["etc"] != 0


@pytest.mark.skipif(not user_systemd.runs() or not NUMBERS, reason="no systemd can be run in name spaces here")
def test_pages_may_move_on_request(tmp_path: Path) -> None:
    assert tried(tmp_path, page_migration=True)["move_pages"] != 1
