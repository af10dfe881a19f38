"""Build the root of an example machine from its description.

A root is a folder that holds the /sys, /proc, /etc and /boot files of a node as its kernel and its distribution would have
them, as far as a reader or a provisioning tool looks at them. The description is the single source: `build` writes the root,
`expected` says what a correct reader must find in it.

    python tests/machines/build.py reference /tmp/reference     build one machine
    python tests/machines/build.py --list                       name them all

A description is a mapping (YAML) that machines/description.py documents; every key has a default, so `{}` is a machine too.
"""
from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import yaml

if not __package__:     # run as a script
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from machines.description import HERE, DescriptionError, nearest
from machines.machine import Machine, expected
from machines.writer import write

__all__ = ["DescriptionError", "Machine", "build", "expected", "load", "names"]


def build(description: dict[str, Any], directory: str | os.PathLike[str]) -> Path:
    """Write the root of the described machine into a new or empty folder and return its path."""
    machine = Machine(description)
    root = Path(directory)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise DescriptionError(f"{root} exists and isn't an empty folder.")
    root.mkdir(parents=True, exist_ok=True)
    write(machine, root)
    return root


def names() -> list[str]:
    """The machines of the example fleet."""
    return sorted(path.stem for path in HERE.glob("*.yml"))


def load(name: str) -> dict[str, Any]:
    """The description of a machine of the fleet."""
    if name not in names():
        raise DescriptionError(f"There is no machine {name!r}; {nearest(name, names())}.")
    description: dict[str, Any] = yaml.safe_load((HERE / f"{name}.yml").read_text(encoding="utf-8"))
    return description


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the root of an example machine.")
    parser.add_argument("machine", nargs="?", help="a name that --list shows")
    parser.add_argument("directory", nargs="?", help="a new or empty folder")
    parser.add_argument("--list", action="store_true", help="name the machines, with a line about each")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:12} {load(name)['summary']}" for name in names()))
        return 0
    if not options.machine or not options.directory:
        parser.error("MACHINE and DIR are needed")
    try:
        print(build(load(options.machine), options.directory))
    except DescriptionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
