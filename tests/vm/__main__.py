"""The virtual machines of the test bed: `python tests/vm up [NODE…]`, `ssh NODE [COMMAND…]`, `down [NODE…]`, `test`.

Run as root on Debian or Ubuntu.
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
from typing import Sequence

from image import image
from machine import NODES, PROGRESS, Machine, leftovers, machines, say

PROGRAMS = ("qemu-system-x86_64", "qemu-img", "debootstrap", "sfdisk", "mke2fs", "ssh")
PACKAGES = "qemu-system-x86 qemu-utils debootstrap fdisk e2fsprogs openssh-client"
BOOT_TIME = 400  # seconds, on two busy cores


def up(names: Sequence[str]) -> None:
    """Boot the machines (all when none is named) on fresh disks; those that run are left alone. One after the other: cores are few."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid():
        sys.exit(f"This needs root and {', '.join(missing) or 'nothing else'}: apt-get install {PACKAGES}")
    for machine in _chosen(names):
        if not machine.pid:
            machine.remove()
            machine.start(image(machine.shape["image"]))
            machine.wait(BOOT_TIME)


def down(names: Sequence[str]) -> None:
    """End the machines and take their disks away; without names also those that nodes.yml doesn't describe."""
    for machine in [*_chosen(names), *([] if names else leftovers())]:
        machine.remove()
        say(f"{machine.name}: gone")


def ssh(names: Sequence[str]) -> None:
    """A shell on a machine, or a command."""
    machine = _chosen(names[:1])[0]
    os.execvp("ssh", machine.ssh(*names[1:]))


def test(arguments: Sequence[str]) -> None:
    """The molecule scenario `vm`, on machines made for it. Whatever comes of it, none is left running."""
    down(list(machines()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    environment = {**os.environ, "GPUFLEET_VM_NODES": str(NODES), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(["molecule", "test", "--scenario-name", "vm", *arguments], start_new_session=True, env=environment)
    done = threading.Event()
    threading.Thread(target=_report, args=(done,), daemon=True).start()
    try:
        status = process.wait()
    finally:
        done.set()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        down(list(machines()))
    sys.exit(status)


def _report(done: threading.Event) -> None:
    while not done.wait(PROGRESS):
        states = [f"{machine.name} {'runs' if machine.pid else 'is off'}" for machine in machines().values()]
        say(f"testing; {', '.join(states)}; load {os.getloadavg()[0]:.1f}; {time.strftime('%H:%M:%S')}")


def _chosen(names: Sequence[str]) -> list[Machine]:
    known = machines()
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"No such node: {', '.join(unknown)}. There are: {', '.join(known)}.")
    return [known[name] for name in names or known]


ACTIONS = {"up": up, "down": down, "ssh": ssh, "test": test}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests/vm", description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("names", nargs=argparse.REMAINDER, metavar="NODE")
    given = parser.parse_args()
    ACTIONS[given.action](given.names)
