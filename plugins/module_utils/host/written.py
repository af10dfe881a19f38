# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""When files of ours were written, by a clock that nobody sets: seconds since the boot.

A file's own time can't be held against a process's start where the clock was set between them, or since. What was written before this boot
has been read by every process, so the times lie in /run.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Dict

from .files import write_atomic
from .root import Root

PATH = "/run/gpufleet/written.json"


def note(root: Root, path: str) -> None:
    """The file at the path is about to be written with news. Before the write, so that a run that is killed after it leaves the note."""
    uptime = root.read("/proc/uptime") if root.is_live else None
    if uptime:
        times = {**_times(root), path: float(uptime.split()[0])}
        write_atomic(root.local(PATH), (json.dumps(times, indent=1, sort_keys=True) + "\n").encode(), 0o644)


def started_before(root: Root, pid: str, path: str) -> bool:
    """Whether the process has been running since before the file's last news. False where one of them isn't there."""
    written = _times(root).get(root.resolve(path) or path)
    if written is not None:
        with suppress(IndexError, ValueError):  # no such process
            # Field 22, counted behind the command's name, which may hold blanks: the start in clock ticks since the boot.
            ticks = int((root.read("/proc/%s/stat" % pid) or "").rpartition(")")[2].split()[19])
            return ticks / os.sysconf("SC_CLK_TCK") < written and root.exists(path)
    return False


def _times(root: Root) -> Dict[str, float]:
    try:
        return dict(json.loads(root.read(PATH) or "{}"))
    except (ValueError, TypeError):  # a file that a crash left half-written says nothing
        return {}
