"""The virtual machines of the test bed: `python tests/vm up [NODE…]`, `ssh NODE [COMMAND…]`, `down [NODE…]`, `test [NODE…]`,
`faults [CHECK…]`, `kubelet [CHECK…]`; `lacking [NODE…]` says what keeps machines from running here, if anything; `images [NODE…]` builds
what they boot from and the cache hasn't got.

Run as root on Debian or Ubuntu.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Mapping, Sequence

import report
import yaml
from image import RECIPES, Recipe, image, obtainable
from machine import NODES, Machine, leftovers, machines, progress, say

FOLDER = Path(__file__).resolve().parent
PROGRAMS = ("qemu-system-x86_64", "qemu-img", "debootstrap", "sfdisk", "mke2fs", "ssh")
PACKAGES = "qemu-system-x86 qemu-utils debootstrap debian-archive-keyring fdisk e2fsprogs openssh-client"
BOOT_TIME = 600  # seconds, on two busy cores


def up(names: Sequence[str]) -> None:
    """Boot the machines (all when none is named) on fresh disks; those that run are left alone."""
    reason = _lacking()
    if reason:
        sys.exit(f"{reason}: apt-get install {PACKAGES}")
    chosen = [machine for machine in _chosen(names) if not machine.pid]
    for machine in chosen:
        machine.remove()
        if machine.shape["image"] == "kubelet":
            from kubelet.boot import boot

            boot(machine)
    plain = [machine for machine in chosen if not machine.pid]
    found = _images(plain)
    for machine in plain:
        machine.start(found[machine.shape["image"]])
    for machine in plain:
        machine.wait(BOOT_TIME)


def images(names: Sequence[str]) -> None:
    """Build what the machines boot from and the cache hasn't got."""
    if "kubelet" in _images(_chosen(names)):
        from kubelet.payload import disk

        disk()


def _images(chosen: Sequence[Machine]) -> dict[str, Path]:
    return {name: image(name, _recipe(name)) for name in sorted({machine.shape["image"] for machine in chosen})}


def _recipe(name: str) -> Recipe:
    """The recipe of an image; that of the real kubelet's lies with its checks."""
    if name == "kubelet":
        from kubelet.recipe import RECIPE

        return RECIPE
    return RECIPES[name]


def down(names: Sequence[str]) -> None:
    """End the machines and take their disks away; without names also those that nodes.yml doesn't describe."""
    for machine in [*_chosen(names), *([] if names else leftovers())]:
        machine.remove()
        say(f"{machine.name}: gone")


def ssh(names: Sequence[str]) -> None:
    """A shell on a machine, or a command."""
    machine = _chosen(names[:1])[0]
    os.execvp("ssh", machine.ssh(*names[1:]))


def test(names: Sequence[str]) -> None:
    """The molecule scenario `vm` on machines made for it, all or those named. It writes their lines of the report."""
    chosen = _chosen(names)
    with tempfile.TemporaryDirectory(prefix="gpufleet-vm-") as scratch:
        nodes = Path(scratch) / "nodes.yml"
        inventory = yaml.safe_load(NODES.read_text())
        inventory["all"]["hosts"] = {machine.name: inventory["all"]["hosts"][machine.name] for machine in chosen}
        nodes.write_text(yaml.safe_dump(inventory, allow_unicode=True))
        environment = {"GPUFLEET_VM_NODES": str(nodes), "GPUFLEET_VM_RESULTS": f"{scratch}/results"}
        took = _run(chosen, ["molecule", "test", "--scenario-name", "vm"], environment)
        report.write("nodes" if NODES == FOLDER / "nodes.yml" else None, Path(scratch) / "results", took)


def faults(checks: Sequence[str]) -> None:
    """What goes wrong, on the machine of tests/vm/faults."""
    # A connection that hangs is given up: machines lose their power here.
    _checks_of("faults", checks, "-o ControlMaster=auto -o ControlPersist=600s -o ServerAliveInterval=15 -o ServerAliveCountMax=4")


def kubelet(checks: Sequence[str]) -> None:
    """A real kubelet, on the machine of tests/vm/kubelet."""
    _checks_of("kubelet", checks, "-o ControlMaster=auto -o ControlPersist=600s -o ServerAliveInterval=30 -o ServerAliveCountMax=20")


def _checks_of(part: str, checks: Sequence[str], ssh_arguments: str) -> None:
    """The checks of a folder, all or those whose names hold one of these words, on the only machine of its nodes.yml. With all of them it
    writes its part of the report."""
    nodes = FOLDER / part / "nodes.yml"
    if nodes != NODES:  # machine.py looks once
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "GPUFLEET_VM_NODES": str(nodes)})
    (machine,) = machines().values()
    down([machine.name])
    _exit_on_sigterm()
    try:
        up([])
    except BaseException:
        down([machine.name])
        raise
    with tempfile.TemporaryDirectory(prefix="gpufleet-vm-") as scratch:
        command = [sys.executable, "-m", "pytest", "-v", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={scratch}/tmp"]
        command += ["-k", " or ".join(checks)] if checks else []
        environment = {"GPUFLEET_VM_RESULTS": scratch, "GPUFLEET_VM_NODE": machine.name, "ANSIBLE_SSH_ARGS": ssh_arguments}
        took = _run([machine], [*command, str(FOLDER / part / f"check_{part}.py")], environment)
        report.write(None if checks else part, Path(scratch), took)


def lacking(names: Sequence[str]) -> None:
    """Print what keeps these machines from running here, and fail if there is anything."""
    reason = _lacking()
    for name in sorted({machine.shape["image"] for machine in _chosen(names)}):
        if not reason and not obtainable(name, _recipe(name)):
            reason = f"Debian's mirror doesn't answer, and there is no image {name}"
    print(reason)
    sys.exit(bool(reason))


def _lacking() -> str:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"without {', '.join(missing)}"
    return "" if os.geteuid() == 0 else "not root"


def _exit_on_sigterm() -> None:
    """As on Ctrl-C: what has to be ended is ended on the way out."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def _run(chosen: Sequence[Machine], command: Sequence[str], environment: Mapping[str, str]) -> report.Took:
    """Run the checks with a line of progress now and then. Whatever comes of them, their machines are gone after it.

    :raises SystemExit: with the command's status, if it isn't 0
    """
    names = [machine.name for machine in chosen]
    _exit_on_sigterm()
    begin, loads = time.monotonic(), [os.getloadavg()[0]]
    variables = {**os.environ, "GPUFLEET_VM_NODES": str(NODES), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", **environment}

    def state() -> str:
        loads.append(os.getloadavg()[0])
        states = [f"{machine.name} {'runs' if machine.pid else 'is off'}" for machine in chosen]
        return f"testing; {', '.join(states)}; load {loads[-1]:.1f}; {time.strftime('%H:%M:%S')}"

    process = subprocess.Popen(command, cwd=FOLDER.parents[1], start_new_session=True, env=variables)
    try:
        with progress(state):
            status = process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        for machine in chosen:
            if machine.panics():
                say("\n".join([f"{machine.name}: its kernel panicked. The end of its console:", *machine.last_lines(30)]))
        down(names)
    if status:
        sys.exit(status)
    return report.Took(time.monotonic() - begin, sum(loads) / len(loads), os.cpu_count() or 1)


def _chosen(names: Sequence[str]) -> list[Machine]:
    known = machines()
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"No such node: {', '.join(unknown)}. There are: {', '.join(known)}.")
    return [known[name] for name in names or known]


ACTIONS = {"up": up, "down": down, "ssh": ssh, "test": test, "faults": faults, "kubelet": kubelet, "lacking": lacking, "images": images}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests/vm", description=__doc__)
    parser.add_argument("action", choices=ACTIONS)
    parser.add_argument("names", nargs=argparse.REMAINDER, metavar="NAME")
    given = parser.parse_args()
    ACTIONS[given.action](given.names)
