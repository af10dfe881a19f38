"""A process that is killed (SIGKILL) at the n-th of its system calls, to see what it leaves behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COLLECTIONS = Path(__file__).resolve().parent.parent / "playbooks" / "collections"

HARNESS = """
import os, signal, sys
sys.path.insert(0, {collections!r})
calls = 0
def counted(name):
    real = getattr(os, name)
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == {stop}:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    setattr(os, name, call)
for name in {names!r}:
    counted(name)
"""


def run_killed(body: str, argument: Path, stop: int, names: tuple[str, ...]) -> None:
    """Run the Python text ``body`` with ``argument`` as sys.argv[1], killed before call number ``stop`` of the os functions ``names``."""
    script = HARNESS.format(collections=str(COLLECTIONS), stop=stop, names=names) + body
    subprocess.run([sys.executable, "-c", script, str(argument)], check=False)
