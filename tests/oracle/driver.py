"""Build the oracle for a minor of kubelet, and ask it. Binaries and everything else that go makes lie outside the tree.

python tests/oracle/driver.py    build the newest and say what keeps it from answering here, if anything
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping, Optional, Type

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet" / "oracle"


# What go says where it can't get a module, or a toolchain that is new enough.
OUT_OF_REACH = (
    r"dial tcp|no such host|connection (refused|reset)|i/o timeout|deadline exceeded|TLS handshake|x509: |: 5\d\d |40[37] "
    r"|lookup disabled by GOPROXY|toolchain not available|requires go >="
)


class Unavailable(Exception):
    """The oracle can't be built or run here: no go, no way to the modules, or no namespaces."""


def versions() -> dict[int, str]:
    """Minor → the version of kubelet that the oracle is built with, oldest first."""
    found = {}
    for path in HERE.glob("v1.*/go.mod"):
        version = re.search(r"^\s*(?:require )?k8s\.io/kubernetes v(1\.(\d+)\.\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        found[int(version[2])] = version[1]
    return dict(sorted(found.items()))


def binary(minor: int) -> Path:
    """Where the program for a minor is, or will be."""
    return CACHE / f"oracle-1.{minor}"


def build(minor: int) -> Path:
    """Build the program; go itself knows what is still good.

    :raises Unavailable: no go, or the module proxy can't be reached
    """
    if shutil.which("go") is None:
        raise Unavailable("go isn't installed")
    environment = {**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    modules = ["go", "mod", "download", f"-modfile=v1.{minor}/go.mod"]
    if reached(minor, environment) is False:
        raise Unavailable("the modules can't be downloaded: " + " ".join(modules))
    CACHE.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", f"-modfile=v1.{minor}/go.mod", "-tags", f"v1.{minor}", "-o", str(binary(minor)), "."]
    subprocess.run(command, cwd=HERE, env=environment, check=True)
    return binary(minor)


def reached(minor: int, environment: Mapping[str, str]) -> bool:
    """Whether all packages of the program are here or can be fetched. A package that doesn't compile is no matter of reaching."""
    listing = ["go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", f"-modfile=v1.{minor}/go.mod", "-tags", f"v1.{minor}", "."]
    result = subprocess.run(
        listing, cwd=HERE, env=dict(environment), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if result.returncode == 0:
        return True
    if re.search(OUT_OF_REACH, result.stderr):
        return False
    raise subprocess.CalledProcessError(result.returncode, listing, stderr=result.stderr)


class Oracle:
    """A running program that answers questions in their order."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def ask(self, question: Mapping[str, Any]) -> Any:
        """One answer.

        :raises Unavailable: the program has ended, as it does where it gets no namespaces of its own
        """
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise Unavailable(f"the oracle has ended with status {self._process.wait()}")
        return json.loads(line)


def lacking() -> str:
    """What keeps the newest oracle from answering here, "" if nothing does. One that can't be compiled is an error."""
    try:
        with Oracle(build(max(versions()))) as oracle:
            oracle.ask({"ask": "machine", "root": "/"})
    except Unavailable as problem:
        return str(problem)
    return ""


if __name__ == "__main__":
    reason = lacking()
    print(reason)
    sys.exit(1 if reason else 0)
