"""Run `ansible-test sanity` on a copy of this checkout. Arguments are handed on to it (`--test validate-modules`, a path).

ansible-test wants the checkout at .../ansible_collections/gpufleet/node and without links that lead back into it, and it
fetches pip's bootstrap script from a server of its own. Here the files that git knows or would add are copied into a
temporary folder (outside of any git checkout: inside one it would ask that git), and a stand-in for that script is put
into ansible-test's cache, unless one is there already.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LINKS = "playbooks/collections/"

# The oldest Python that a node may have: modules and module_utils are compiled and imported with it where it is installed.
NODE_PYTHON = "3.9"

GET_PIP = '''\
"""Stands in for pip's bootstrap script: the pip that Python brings installs the packages asked for."""

import subprocess
import sys

# In a process of its own: ensurepip drops pip's settings from the environment of the process that it runs in.
subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
wanted = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet"] + wanted))
'''


def copy_checkout(folder: Path) -> Path:
    """Copy the files that are tracked, or would be, to where ansible-test wants a collection below ``folder``."""
    checkout = folder / "ansible_collections" / "gpufleet" / "node"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    for name in listed.split("\0"):
        source = REPOSITORY / name
        if name and not name.startswith(LINKS) and source.is_file():
            target = checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return checkout


def provide_get_pip() -> None:
    """Put the stand-in where the installed ansible-test looks for its bootstrap script; the version in the name is in its source."""
    package = importlib.util.find_spec("ansible_test")
    if package is None or not package.submodule_search_locations:
        sys.exit("ansible-test isn't installed beside this Python. Run `make venv` first.")
    source = Path(package.submodule_search_locations[0], "_internal", "python_requirements.py").read_text(encoding="utf-8")
    versions = set(re.findall(r"""\bpip=["']([0-9.]+)["']""", source))
    if not versions:
        sys.exit("This ansible-test doesn't say which pip it bootstraps. Run `ansible-test sanity` by hand and read what it downloads.")
    cache = Path.home() / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    for version in versions:
        script = cache / f"get_pip_{version.replace('.', '_')}.py"
        if not script.exists():
            script.write_text(GET_PIP, encoding="utf-8")


def search_path() -> str:
    """PATH with this environment's programs first, then the folder of the nodes' oldest Python, if there is one.

    pyenv's shims are left out: ansible-test takes one for an interpreter, and it fails when that version isn't selected.
    """
    found = subprocess.run([REPOSITORY / "scripts" / "find-python", NODE_PYTHON, NODE_PYTHON], check=False, capture_output=True, text=True)
    interpreters = [sys.executable, *found.stdout.split()]
    rest = [folder for folder in os.environ["PATH"].split(os.pathsep) if Path(folder).name != "shims"]
    return os.pathsep.join([*(str(Path(python).parent) for python in interpreters), *rest])


def main(arguments: list[str]) -> int:
    """Copy, provide, run; the exit status is ansible-test's."""
    provide_get_pip()
    command = [str(Path(sys.executable).parent / "ansible-test"), "sanity", "--local", "--color", "no", "--truncate", "0", *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
    environment["PATH"] = search_path()
    with tempfile.TemporaryDirectory(prefix="gpufleet-sanity-") as folder:
        return subprocess.run(command, cwd=copy_checkout(Path(folder)), env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
