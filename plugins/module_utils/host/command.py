# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The one runner of commands on a node: no shell, a fixed locale, every exit status checked. Only a live root runs any."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Optional, Sequence

from ..core.errors import CommandFailed
from .root import Root

# The sbin folders are missing from the PATH of many ssh logins.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TAIL_LINES = 5


class Command:
    """Runs commands on a live root; on any other none are run and ``query`` knows nothing."""

    def __init__(self, root: Root) -> None:
        self.live = root.is_live

    def find(self, name: str) -> Optional[str]:
        """The path of a program; None when it isn't there or the root isn't live."""
        return shutil.which(name, path=_PATH) if self.live else None

    def run(self, argv: Sequence[str], stdin: str = "") -> str:
        """Standard output of the command.

        :raises CommandFailed: not found, or a non-zero exit status, with the last lines it wrote
        """
        environment = dict(os.environ, PATH=_PATH, LC_ALL="C", LANGUAGE="C")
        try:
            done = subprocess.run(  # pylint: disable=ansible-bad-function  # there is no AnsibleModule here: a unit runs this code at boot
                list(argv), input=stdin, capture_output=True, text=True, errors="surrogateescape", env=environment, check=False
            )
        except OSError as problem:
            raise CommandFailed(
                "%s could not be run: %s." % (argv[0], problem.strerror), "Install it, or check PATH and permissions."
            ) from problem
        if done.returncode != 0:
            said = " / ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-_TAIL_LINES:]) or "nothing said"
            raise CommandFailed(
                '"%s" ended with status %d: %s.' % (" ".join(argv), done.returncode, said.rstrip(".")), "Mend that and run again."
            )
        return done.stdout

    def query(self, argv: Sequence[str]) -> Optional[str]:
        """Standard output of a read-only command; None when it can't answer (not live, not there, non-zero)."""
        if not self.find(argv[0]):
            return None
        try:
            return self.run(argv)
        except CommandFailed:
            return None
