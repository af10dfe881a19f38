# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program that runs once per boot, before kubelet: state files that kubelet would not start on are taken away, and it says why.

It is this module with what it imports, in one file that needs Python's standard library alone (``host/bundle.py``). It reads kubelet's
unit, configuration and version anew, so an upgrade or a downgrade that waited for the boot counts as well.
"""

# Not a module: it prints and exits like any program.
# pylint: disable=ansible-bad-function

from __future__ import annotations

import posixpath
import sys
from typing import Any, Dict, Iterator, Optional, Sequence

from ..core import kubelet_merge as merging
from ..core.errors import GpufleetError
from ..core.kubelet_tables import NEWEST_MINOR
from ..core.kubelet_version import minor_of
from ..core.topology import Kubelet
from .command import Command
from .facts.kubelet import read_kubelet
from .files import remove
from .kubelet_files import drop_ins
from .kubelet_state import in_use, read_states, refused
from .root import Root
from .store import Store

_USAGE = "usage: kubelet_state [--root DIR]"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The program; its exit status is 1, with a sentence on standard error, when it can't do its work. kubelet starts all the same."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and (given[0] != "--root" or len(given) != 2):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        root = Root(given[1] if given else "/")
        for line in clear(root, Command(root)):
            print(line)
    except GpufleetError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def clear(root: Root, command: Command) -> Iterator[str]:
    """Take away the state files that kubelet would not start on, and say so; what was taken lies in /var/lib/gpufleet/set-aside.

    :raises GpufleetError: kubelet's files can't be read, or a file not be removed
    """
    kubelet = read_kubelet(root, command, ours=True)
    states = read_states(root, kubelet.root_dir) if kubelet else {}
    if kubelet is None or not states:
        return
    minor = minor_of(kubelet.version) if kubelet.version else NEWEST_MINOR
    bad = refused(root, states, effective(root, kubelet, minor), minor)
    holders = in_use(root, states, minor, at_boot=True) if bad else []
    for name, reason in bad.items():
        path = posixpath.join(kubelet.root_dir, name)
        if holders:  # no fresh boot, or pods that something else started
            yield "%s stays, although kubelet would not start on it (%s): %s runs by it" % (path, reason, ", ".join(holders))
            continue
        kept = Store(root).set_aside(path)
        remove(root.local(path))
        yield "%s is taken away, because kubelet would not start on it (%s); it is kept as %s" % (path, reason, kept)


def effective(root: Root, kubelet: Kubelet, minor: int) -> Dict[str, Any]:
    """The fields that are in force in the end: main file, drop-ins, flags."""
    main = root.read(kubelet.config_file) if kubelet.config_file else None
    return merging.effective(main, drop_ins(root, kubelet.config_dir or ""), dict(kubelet.flags), minor, kubelet.config_file or "")


if __name__ == "__main__":
    sys.exit(main())
