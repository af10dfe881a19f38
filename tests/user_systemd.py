"""A real systemd for tests: a user's manager in name spaces of its own, with a /run that looks booted and cgroups of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SYSTEMD = next((path for path in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd") if Path(path).exists()), None)
_SPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# The manager is a child of the shell: as the first process it would take itself for the system's.
_SCRIPT = """\
mount -t tmpfs none /run && mkdir -p /run/user /run/systemd/system /run/systemd/inaccessible/dir
cd /run/systemd/inaccessible && touch reg && mkfifo fifo && mknod chr c 0 0 && mknod blk b 0 0; cd /
umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
timeout 60 %s --user --unit=%s --log-target=console
"""


def runs() -> bool:
    """Whether this machine lets one run: root, name spaces, a systemd that is installed."""
    if not SYSTEMD or not shutil.which("unshare") or os.geteuid() != 0:
        return False
    return subprocess.run([*_SPACES, "--cgroup", "mount", "-t", "tmpfs", "none", "/run"], check=False, capture_output=True).returncode == 0


def start(home: Path, unit: str, units: dict[str, str]) -> subprocess.Popen:
    """The manager, starting ``unit``. Its units are those given; kill the process to end it with all that it started."""
    folder = home / ".config/systemd/user"
    folder.mkdir(parents=True)
    for name, text in units.items():
        (folder / name).write_text(text, encoding="utf-8")
    return subprocess.Popen(
        [*_SPACES, "--cgroup", "sh", "-c", _SCRIPT % (SYSTEMD, unit)],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": "/run/user", "LC_ALL": "C.UTF-8"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def run_to_end(home: Path, name: str, text: str) -> None:
    """Run one service to its end, however it ends."""
    over = "[Unit]\nSuccessAction=exit-force\nFailureAction=exit-force\nDefaultDependencies=no\n"
    with start(home, name, {name: over + text}) as process:
        process.wait()
