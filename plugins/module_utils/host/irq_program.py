# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that places a node's device interrupts again: at boot, when a device is bound, when a device's interrupts changed.

It is this module with what it imports, in one file that needs Python's standard library alone (``host/bundle.py``). Its plan names devices
and CPUs; the IRQ numbers are read anew each time.
"""

# Not a module: it prints and exits like any program.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

from ..core.errors import GpufleetError, InvalidInput, UnreadableRoot
from .root import Root

SEEN = "/run/gpufleet/irq.seen"
_FOLDER = "/sys/bus/pci/devices/%s/msi_irqs"
_USAGE = "usage: irq_affinity [--root DIR] [--if-changed] PLAN"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The program; its exit status is 1, with a sentence on standard error, when it can't do its work."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        root = Root(_take(given, "--root", "/"))
        if_changed = "--if-changed" in given
        paths = [argument for argument in given if argument != "--if-changed"]
        if len(paths) != 1 or paths[0].startswith("-"):
            raise InvalidInput("The arguments can't be understood.", _USAGE)
        _run(root, _plan(root, paths[0]), if_changed)
    except GpufleetError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _take(arguments: List[str], option: str, default: str) -> str:
    """Take an option with its value out of the arguments."""
    if option not in arguments[:-1]:
        return default
    position = arguments.index(option)
    value = arguments[position + 1]
    del arguments[position : position + 2]
    return value


def _plan(root: Root, path: str) -> Dict[str, Any]:
    text = root.read(path)
    try:
        section = json.loads(text or "null")
    except ValueError:
        section = None
    if not isinstance(section, dict):
        raise UnreadableRoot("%s is %s." % (path, "missing" if text is None else "damaged"), "Let the role gpufleet.node.irq write it.")
    return section


def _run(root: Root, section: Mapping[str, Any], if_changed: bool) -> None:
    now = signature(root, [planned["device"] for planned in section.get("devices", ())])
    if if_changed and now == root.read(SEEN):
        return
    # Loaded only now: twice a minute nothing has changed, and that answer should cost little more than Python's start.
    from .files import write_atomic
    from .irq_live import place

    for line in place(root, section):
        print(line)
    write_atomic(root.local(SEEN), now.encode("utf-8", "surrogateescape"), 0o644)


def signature(root: Root, devices: Iterable[str]) -> str:
    """What changes with a device's interrupts: their numbers, and when it gets the same ones again the inode of their folder."""
    return "".join("%s %d %s\n" % (device, _inode(root, device), " ".join(root.names(_FOLDER % device))) for device in devices)


def _inode(root: Root, device: str) -> int:
    with suppress(OSError):
        return os.stat(root.local(_FOLDER % device)).st_ino
    return 0


if __name__ == "__main__":
    sys.exit(main())
