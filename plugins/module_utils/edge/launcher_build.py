# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Build the launcher on the controller, once per source and architecture, into a cache outside the collection."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile

from ..core.errors import CommandFailed, InvalidInput
from .launcher_source import SOURCE

# Debian's and Ubuntu's names of the cross compilers; Fedora's gcc-aarch64-linux-gnu is named alike.
_CROSS = "%s-linux-gnu-gcc"
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64", "ppc64le": "powerpc64le"}
_PACKAGES = {"aarch64": "gcc-aarch64-linux-gnu", "powerpc64le": "gcc-powerpc64le-linux-gnu", "x86_64": "gcc-x86-64-linux-gnu"}


def build_launcher(collection: str, source_sha256: str, architecture: str) -> str:
    """The path of the program for an architecture (as uname -m has it), built when the cache doesn't hold it.

    :raises InvalidInput: the controller has no compiler for it
    :raises CommandFailed: make failed
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "gpufleet", "launcher", "%s-%s" % (source_sha256[:16], architecture))
    program = os.path.join(folder, "numaspread")
    if not os.path.isfile(program):
        os.makedirs(folder, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            _make(os.path.join(collection, *SOURCE), work, _compiler(architecture))
            os.replace(os.path.join(work, "numaspread"), program)
    return program


def _compiler(architecture: str) -> str:
    wanted = _ALIASES.get(architecture, architecture)
    here = _ALIASES.get(platform.machine(), platform.machine())
    names = (["gcc", "cc"] if wanted == here else []) + [_CROSS % wanted]
    for name in names:
        if shutil.which(name):
            return name
    raise InvalidInput(
        "The controller has no C compiler for %s." % architecture,
        "Install %s there, or set gpufleet_launcher_build: node where the node has a compiler, or gpufleet_launcher: false."
        % ("gcc" if wanted == here else _PACKAGES.get(wanted, _CROSS % wanted)),
    )


def _make(source: str, out: str, compiler: str) -> None:
    # On the controller there is no AnsibleModule to run it. pylint: disable-next=ansible-bad-function
    done = subprocess.run(["make", "-C", source, "OUT=" + out, "CC=" + compiler], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(
            "Building the launcher with %s failed: %s." % (compiler, " / ".join((done.stderr or done.stdout).strip().splitlines()[-3:])),
            "Install its static C library (libc6-dev, glibc-static), or choose another builder with gpufleet_launcher_build.",
        )
