# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's restart as one step: stop, take away state files that it would not start on, write, start, wait until it is healthy.

When it doesn't become healthy, files and state are put back as they were, and the error says what its journal says. A run that was killed
while kubelet was stopped leaves a note in /run, by which the next one finishes the work.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Sequence, Tuple

from ..core import kubelet_state_unit
from ..core.change import DRIFT, REMOVAL, RESTART, File, Finding
from ..core.errors import CommandFailed, GpufleetError
from ..core.kubelet import in_force
from ..core.kubelet_state import POLICY_FIELDS, policy_of
from . import files, kubelet
from .apply import Node, Outcome, apply, inspect
from .kubelet_files import drop_ins
from .root import Root

SETTLED_SECONDS = 6.0  # how long it has to stay well
# kubelet answers healthz before it starts its managers, and exits when one of them refuses. The last one, for devices, makes this socket
# anew, always here. Source: Start in pkg/kubelet/cm/container_manager_linux.go and devicemanager/plugin/v1beta1/server.go.
LAST_MANAGER = "/var/lib/kubelet/device-plugins/kubelet.sock"
TIMEOUT_SECONDS = 180
_TRIES = 3  # systemd starts it again and again: by then it is no accident
_POLL_SECONDS = 0.5
_SHOWN_LINES, _SHOWN_WIDTH = 5, 300
_HEALTHZ = re.compile(r"""^healthz(Port|BindAddress):\s*["']?([^\s"'#]+)""", re.MULTILINE)


@dataclass(frozen=True)
class Restarted:
    """``outcome`` as of any run; ``drain_required``: pods hold what the state files to be taken away give them."""

    outcome: Outcome
    restarted: bool = False
    drain_required: bool = False


def configure(node: Node, section: Mapping[str, Any], check_mode: bool = False, timeout: float = TIMEOUT_SECONDS) -> Restarted:
    """Bring kubelet's configuration to the plan, with a restart where the plan says so and a difference needs one.

    :raises GpufleetError: pods hold what would be taken from them (nothing was changed), or kubelet didn't become healthy (the old
        configuration is back)
    """
    reading = kubelet.read(node.root, node.command, section)
    artifacts = kubelet.CONCERN.artifacts(section, reading)
    found = inspect(artifacts, node)
    if not any(finding.status == DRIFT and finding.until in (REMOVAL, RESTART) for finding in found):
        return Restarted(apply(artifacts, node, check_mode))
    refused = [finding.item for finding in found if finding.until == REMOVAL]
    if check_mode:
        shown = [_removed(finding, section, reading.states) if finding.until == REMOVAL else finding for finding in found]
        return Restarted(Outcome(shown, shown, changed=True), drain_required=bool(refused and reading.users))
    _nobody_may_hold(refused, reading.users, "Nothing was changed.")
    return Restarted(_Transaction(node, section, found, timeout).run(), restarted=True)


def _removed(finding: Finding, section: Mapping[str, Any], states: Mapping[str, str]) -> Finding:
    path = posixpath.join(section["kubelet"]["root_dir"], finding.item)
    return finding._replace(path=path, before=states.get(finding.item, ""), after="")


def _nobody_may_hold(refused: Sequence[str], users: Sequence[str], state_of_things: str) -> None:
    """``users`` of either file: kubelet admits pods that run anew at its start, and one manager with an empty memory could refuse them."""
    if refused and users:
        raise GpufleetError(
            "kubelet would not start on %s, which may not go while pods hold CPUs or memory: %s."
            % (" and ".join(refused), ", ".join(users)),
            "%s Drain the node (gpufleet_drain does so in a run), take static pods like these out of kubelet's folder, and run again."
            % state_of_things,
        )


class _Transaction:
    """One restart, and the way back."""

    def __init__(self, node: Node, section: Mapping[str, Any], found: Sequence[Finding], timeout: float) -> None:
        self.node, self.section, self.found, self.timeout = node, section, list(found), timeout
        self.unit, self.folder = section["kubelet"]["unit"], section["kubelet"]["root_dir"]
        self.in_force: Mapping[str, Any] = {}  # what it is configured to in the end, flags and the files of others included
        self.before: Dict[str, Optional[str]] = {}  # every path of kubelet's that is changed, as it was
        self.socket_before = _identity(node.root, LAST_MANAGER)
        self.healthy_before = _unhealthy(self._shown()) is None

    def run(self) -> Outcome:
        """Do it, or put everything back and say why.

        :raises GpufleetError: it is as before, or as near as it can be had
        """
        note = self.node.root.local(kubelet.STOPPED_NOTE)
        files.write_atomic(note, b"", 0o644)
        started = time.time()
        self._systemctl("stop")
        try:
            self._change()
            self._start()
            problem = self._wait(self._states_differ)
        except Exception as error:  # whatever it is, kubelet doesn't stay stopped
            problem = str(error)
        if problem:
            raise self._put_back(problem, started)
        files.remove(note)
        return self._outcome()

    def _change(self) -> None:
        """The files, and the state that kubelet wrote last: between the first look and its end a pod may have come."""
        reading = kubelet.read(self.node.root, self.node.command, self.section)
        artifacts = kubelet.CONCERN.artifacts(self.section, reading)
        found = inspect(artifacts, self.node)
        refused = [finding.item for finding in found if finding.until == REMOVAL]
        _nobody_may_hold(refused, reading.users, "It was put back as it was.")
        for path in [posixpath.join(self.folder, name) for name in POLICY_FIELDS] + [
            finding.path
            for artifact, finding in zip(artifacts, found)
            if isinstance(artifact, File) and finding.status == DRIFT and artifact.path not in kubelet_state_unit.PATHS
        ]:
            self.before[path] = self.node.root.read(path)
        for name in refused:
            path = posixpath.join(self.folder, name)
            self.node.store.set_aside(path)
            files.remove(self.node.root.local(path))
        apply(artifacts, self.node)
        self.in_force = in_force(self.section["kubelet"], kubelet.read(self.node.root, self.node.command, self.section))

    def _start(self) -> None:
        """Without waiting: a unit of type notify that fails would keep systemctl for as long as it tries."""
        if self._shown("NeedDaemonReload").get("NeedDaemonReload") == "yes":
            self.node.command.run(("systemctl", "daemon-reload"))
        self.node.command.query(("systemctl", "reset-failed", self.unit))
        self._systemctl("start", "--no-block")

    def _wait(self, look_further: Callable[[], Optional[str]] = lambda: None) -> Optional[str]:
        """None once kubelet has been healthy with the same process for a while; else the reason."""
        deadline, since, pid = time.monotonic() + self.timeout, 0.0, ""
        address = _healthz_address(self.node.root, self.section["kubelet"])
        while True:
            shown, now = self._shown(), time.monotonic()
            problem = _unhealthy(shown, address) or self._managers_missing() or look_further()
            if problem or shown.get("MainPID") != pid:
                since, pid = now, shown.get("MainPID", "")
            elif now - since >= SETTLED_SECONDS:
                return None
            if int(shown.get("NRestarts") or 0) >= _TRIES or shown.get("ActiveState") == "failed" or now > deadline:
                return problem or "%s doesn't stay up" % self.unit
            time.sleep(_POLL_SECONDS)

    def _managers_missing(self) -> Optional[str]:
        """All of its managers have started, in whichever of its starts since it was stopped."""
        now = _identity(self.node.root, LAST_MANAGER)
        return None if now and now != self.socket_before else "its managers haven't started"

    def _states_differ(self) -> Optional[str]:
        """Its CPU and memory managers have written their files, as they do under policy none too."""
        for name in POLICY_FIELDS:
            try:
                written = json.loads(self.node.root.read(posixpath.join(self.folder, name)) or "null")["policyName"]
            except (ValueError, TypeError, KeyError):
                return "it hasn't written %s" % name
            wanted = policy_of(name, self.in_force)
            if written != wanted:
                return "its %s is of policy %s, not %s" % (name, written, wanted)
        return None

    def _put_back(self, problem: str, started: float) -> GpufleetError:
        """Everything as it was, and the error for it."""
        journal = self._journal(started)
        try:
            self._systemctl("stop")
            for path, text in self.before.items():
                _write_back(self.node.root, path, text)
            self.socket_before = _identity(self.node.root, LAST_MANAGER)
            self._start()
            after = self._wait() if self.healthy_before else None
        except GpufleetError as error:
            after = str(error)
        files.remove(self.node.root.local(kubelet.STOPPED_NOTE))
        state = "it runs with that" if self.healthy_before else "it wasn't healthy before either"
        if after:
            state = "even so %s" % after
        return CommandFailed(
            "The restart of %s failed: %s.%s" % (self.unit, problem.rstrip("."), journal),
            "The old configuration and state are back, and %s. Mend what it says and run again." % state,
        )

    def _journal(self, since: float) -> str:
        """The last lines that tell of errors, or the last lines."""
        argv = ("journalctl", "-u", self.unit, "-o", "cat", "--no-pager", "-n", "200", "--since", "@%d" % since)
        lines = (self.node.command.query(argv) or "").strip().splitlines()
        told = [line for line in lines if re.match(r"[EF]\d{4} ", line) or re.search(r"\berr(or)?\b", line, re.IGNORECASE)] or lines
        return " Its journal: %s" % " | ".join(line[:_SHOWN_WIDTH] for line in told[-_SHOWN_LINES:]) if told else ""

    def _outcome(self) -> Outcome:
        reading = kubelet.read(self.node.root, self.node.command, self.section)
        findings = inspect(kubelet.CONCERN.artifacts(self.section, reading), self.node)
        states = {posixpath.basename(path): text or "" for path, text in self.before.items()}
        found = [_removed(finding, self.section, states) if finding.until == REMOVAL else finding for finding in self.found]
        return Outcome(found, findings, changed=True)

    def _systemctl(self, verb: str, *options: str) -> None:
        self.node.command.run(("systemctl", *options, verb, self.unit))

    def _shown(self, *names: str) -> Dict[str, str]:
        """Properties of the unit."""
        wanted = names or ("ActiveState", "MainPID", "NRestarts")
        text = self.node.command.query(("systemctl", "show", "--property=" + ",".join(wanted), self.unit)) or ""
        return dict(line.partition("=")[::2] for line in text.splitlines())


def _identity(root: Root, path: str) -> Optional[Tuple[int, int]]:
    """What tells a file from one that was there before it; None of no file."""
    try:
        status = os.lstat(root.local(path))
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _write_back(root: Root, path: str, text: Optional[str]) -> None:
    if text is None:
        files.remove(root.local(path))
    elif root.read(path) != text:
        files.write_atomic(root.local(path), text.encode("utf-8", "surrogateescape"), 0o600)


def _healthz_address(root: Root, section: Mapping[str, Any]) -> str:
    """Where kubelet says that it is well; "" where it is told not to."""
    main = root.read(section["config_file"]) if section["config_file"] else None
    said = {"Port": "10248", "BindAddress": "127.0.0.1"}
    for text in (main or "", *drop_ins(root, section["config_dir"] or "").values()):
        said.update(_HEALTHZ.findall(text))
    flags = section["flags"]
    port = flags.get("healthz-port", said["Port"])
    host = flags.get("healthz-bind-address", said["BindAddress"])
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return "" if port == "0" else "%s:%s" % ("[%s]" % host if ":" in host else host, port)


def _unhealthy(shown: Mapping[str, str], address: str = "") -> Optional[str]:
    """Why kubelet isn't well, or None."""
    if shown.get("ActiveState") != "active":
        return "its unit is %s" % shown.get("ActiveState", "unknown")
    return _ask(address) if address else None


def _ask(address: str) -> Optional[str]:
    from http.client import HTTPConnection, HTTPException  # rarely needed

    connection = HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, HTTPException) as problem:
        return "http://%s/healthz doesn't answer (%s)" % (address, problem)
    finally:
        connection.close()
    return None if status == 200 else "http://%s/healthz answers %d" % (address, status)
