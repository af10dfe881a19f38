"""The real kubelet on a virtual machine with two NUMA nodes: `python -m kubelet up`, `down`, `ssh [COMMAND…]`, `test [PYTEST…]`.

Run with tests/vm on PYTHONPATH, as root on Debian or Ubuntu; it needs what tests/vm needs, and Go.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Sequence

from image import image
from machine import CACHE, PROGRESS, Machine, machines, say

from .payload import disk
from .recipe import RECIPE

BOOT_TIME = 900  # seconds: eight CPUs, emulated on two busy cores
CHECKS = Path(__file__).parent
REPOSITORY = Path(__file__).resolve().parents[3]
RESULTS = CACHE / "kubelet-results"
RUN_AFTER_BOOT = "systemctl start opt-kubelet.mount containerd && ctr -n k8s.io images import /opt/kubelet/image.tar"


def up(unused: Sequence[str] = ()) -> None:
    """Boot it on a fresh disk, with the container image in place; one that runs is left alone."""
    node, payload = machine(), disk()
    if node.pid:
        return
    node.remove()
    second = ("-drive", f"file={payload},if=none,id=payload,format=raw,readonly=on", "-device", "virtio-blk-pci,drive=payload,bus=pcie.0")
    node.start(image(node.shape["image"], RECIPE), second)
    node.wait(BOOT_TIME)
    subprocess.run(node.ssh(RUN_AFTER_BOOT), check=True)


def down(unused: Sequence[str] = ()) -> None:
    """End it and take its disk away."""
    machine().remove()
    say(f"{machine().name}: gone")


def ssh(command: Sequence[str]) -> None:
    """A shell on it, or a command."""
    os.execvp("ssh", machine().ssh(*command))


def test(arguments: Sequence[str]) -> None:
    """The checks on a machine made for them. Whatever comes of it, none is left running."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    done = threading.Event()
    threading.Thread(target=_report, args=(done,), daemon=True).start()
    down()
    try:
        up()
        environment = {
            **os.environ,
            "GPUFLEET_VM_NODE": machine().name,
            "GPUFLEET_VM_RESULTS": str(RESULTS),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        checks = [
            sys.executable,
            "-m",
            "pytest",
            "-v",
            "-x",
            "-p",
            "no:cacheprovider",
            f"--basetemp={RESULTS}/tmp",
            str(CHECKS / "check_kubelet.py"),
        ]
        status = subprocess.run([*checks, *arguments], cwd=REPOSITORY, env=environment, check=False).returncode
    finally:
        done.set()
        down()
    sys.exit(status)


def machine() -> Machine:
    (only,) = machines().values()
    return only


def _report(done: threading.Event) -> None:
    while not done.wait(PROGRESS):
        state = "runs" if machine().pid else "is off"
        say(f"testing; {machine().name} {state}; load {os.getloadavg()[0]:.1f}; {time.strftime('%H:%M:%S')}")


ACTIONS = {"up": up, "down": down, "ssh": ssh, "test": test}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="kubelet", description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    ACTIONS[given.action](given.rest)
