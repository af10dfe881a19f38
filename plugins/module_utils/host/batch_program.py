# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that keeps batch services off the CPUs that kubelet gives to pods: a path unit starts it when kubelet writes its state.

It is this module with what it imports, in one file that needs Python's standard library alone (``host/bundle.py``).
"""

# Not a module: it prints and exits like any program.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Optional, Sequence

from ..core.batch_follow import SLICE, decide
from ..core.cpuset import CpuSet
from ..core.errors import GpufleetError
from .root import Root

_LIVE = "/sys/fs/cgroup/gpufleet.slice/%s/cpuset.cpus" % SLICE


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The program; its exit status is 1, with a sentence on standard error, when it can't do its work."""
    parser = argparse.ArgumentParser(prog="batch_cpus", description="Give %s the CPUs that no pod has for itself." % SLICE)
    parser.add_argument("--root", default="/", help="read below this folder")
    parser.add_argument("--pool", required=True, help="the plan's pool, a cpulist")
    parser.add_argument("--reserved", required=True, help="the CPUs to fall back to")
    parser.add_argument("--settle", type=float, default=1.0, metavar="SECONDS", help="how long to wait for a further change")
    parser.add_argument("state", help="kubelet's cpu_manager_state")
    given = parser.parse_args(arguments)
    try:
        follow(Root(given.root), given.state, CpuSet.parse(given.pool), CpuSet.parse(given.reserved), given.settle)
    except (GpufleetError, OSError, subprocess.CalledProcessError) as problem:
        print("%s keeps its CPUs: %s" % (SLICE, problem), file=sys.stderr)
        return 1
    return 0


def follow(root: Root, path: str, pool: CpuSet, reserved: CpuSet, settle: float) -> None:
    """Until the state stays the same: systemd doesn't watch it while this runs, and kubelet admits pods in bursts."""
    while True:
        state = root.read(path)
        decision = decide(state, pool, reserved)
        if not _is_live(root, decision.cpus):
            subprocess.run(("systemctl", "set-property", "--runtime", SLICE, "AllowedCPUs=%s" % decision.cpus), check=True)
            print("%s has CPUs %s: %s" % (SLICE, decision.cpus, decision.reason), flush=True)
        time.sleep(settle)
        if root.read(path) == state:
            return


def _is_live(root: Root, cpus: CpuSet) -> bool:
    """Without processes the slice has no cgroup; then systemd tells what it is to start with, in ranges with blanks between."""
    text = root.read(_LIVE)
    if text is None:
        shown = subprocess.run(
            ("systemctl", "show", "--property=AllowedCPUs", "--value", SLICE), check=True, capture_output=True, text=True
        )
        text = ",".join(shown.stdout.split())
    return CpuSet.parse(text) == cpus


if __name__ == "__main__":
    sys.exit(main())
