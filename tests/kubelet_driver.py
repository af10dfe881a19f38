"""kubelet's restart on a folder whose units are run by a real systemd: the part that runs beside it (see test_kubelet_restart.py).

    python kubelet_driver.py FOLDER

FOLDER/steps.json holds a list of steps, each a list of a name below and its arguments. The answers come to FOLDER/answers.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
from ansible_collections.gpufleet.node.plugins.module_utils.host import kubelet_restart
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.refusals import Refusals
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.store import Store

UNIT = "kubelet.service"
kubelet_restart.SETTLED_SECONDS = 0.6
kubelet_restart._POLL_SECONDS = 0.1


class UserManager(Command):
    """Commands of a live node whose system manager is the user's one here. The units' output is in a file."""

    def __init__(self, root: Root) -> None:
        super().__init__(root)
        self.live, self.done, self._log = True, [], root.local("/kubelet.log")

    def run(self, argv: Sequence[str], stdin: str = "") -> str:
        if argv[0] == "systemctl" and argv[1] != "show":
            self.done.append(" ".join(argv[1:]))
        return super().run(["systemctl", "--user", *argv[1:]] if argv[0] == "systemctl" else argv, stdin)

    def query(self, argv: Sequence[str]) -> str | None:
        return Path(self._log).read_text() if argv[0] == "journalctl" else super().query(argv)


class Driver:
    def __init__(self, folder: str) -> None:
        self.folder, self.root = Path(folder), Root(folder)
        self.root.is_live = True
        self.node = Node(self.root, UserManager(self.root), Store(self.root), Refusals(self.root))

    def start(self) -> None:
        """kubelet as somebody else started it."""
        self.systemctl("start")
        while not all((self.folder / "var/lib/kubelet" / name).exists() for name in ("cpu_manager_state", "memory_manager_state")):
            pass

    def systemctl(self, verb: str) -> None:
        subprocess.run(("systemctl", "--user", verb, UNIT), check=True)

    def configure(self, section: dict[str, Any], check_mode: bool = False) -> dict[str, Any]:
        self.node = Node(self.root, UserManager(self.root), Store(self.root), Refusals(self.root))
        try:
            done = kubelet_restart.configure(self.node, {"kubelet": section}, check_mode, timeout=15)
        except GpufleetError as error:
            return {"error": str(error), **self.seen()}
        left = [[finding.item, finding.status] for finding in done.outcome.findings if finding.status != "in_place"]
        about = {"restarted": done.restarted, "drain_required": done.drain_required, "changed": done.outcome.changed, "left": left}
        return {**about, **self.seen()}

    def seen(self) -> dict[str, Any]:
        shown = self.node.command.query(("systemctl", "show", "--property=ActiveState,MainPID", UNIT)) or ""
        return {**dict(line.split("=") for line in shown.splitlines()), "commands": self.node.command.done}

    def write(self, path: str, text: str) -> None:
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def read(self, *paths: str) -> list[str | None]:
        places = [self.folder / path.lstrip("/") for path in paths]
        return [place.read_text() if place.exists() else None for place in places]


def main(folder: str) -> None:
    driver, answers, steps = Driver(folder), [], Path(folder, "steps.json").read_text()
    try:
        answers.extend(getattr(driver, name)(*arguments) for name, *arguments in json.loads(steps))
    except Exception:
        answers.append(traceback.format_exc())
    Path(folder, "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
