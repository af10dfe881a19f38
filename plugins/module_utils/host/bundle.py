# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A module of this collection with all that it imports, as one file that a bare Python runs.

The sources come from the loaders of the modules themselves, so it works from a checkout and from inside the archive that Ansible sends to
a node. The same sources give the same bytes: names in order, one fixed date, no compression.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import zipfile
from typing import Any, Dict, Iterator, List, Optional

_DATE = (1980, 1, 1, 0, 0, 0)  # the oldest a zip archive can say
_IMPORT = re.compile(r"^ *from (\.+[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_FIRST = "%s.edge.compile_once" % __name__.rpartition(".host.")[0]
_START = "import sys\n\nimport %s\nfrom %s import main\n\nsys.exit(main())\n"


def bundle(module: str) -> bytes:
    """A zip archive that runs ``main()`` of the module. Module names stay as they are."""
    sources: Dict[str, str] = {}
    todo: List[str] = [_FIRST, module]
    while todo:
        name = todo.pop(0)
        if name in sources or name.rpartition(".")[0] in sources:  # a module has no modules below it
            continue
        source = _source(name)
        if source is not None:
            sources[name] = source
            todo.extend(_imports(name, source))
    return _archive({"__main__.py": _START % (_FIRST, module), **_files(sources)})


def _source(name: str) -> Optional[str]:
    """The text of a module; None for a name that isn't one. It is read and no more: to look for it as a module would compile it."""
    package, _dot, module = name.rpartition(".")
    loader: Any = globals()["__spec__"].loader  # where this module comes from, all of them do: a folder or an archive
    try:
        content = loader.get_data("%s/%s.py" % (importlib.import_module(package).__path__[0], module))
    except OSError:
        return None
    return None if content is None else content.decode()


def _imports(name: str, source: str) -> Iterator[str]:
    """Every name that may be a module: ``from .a import b`` gives package.a and package.a.b. Our sources import in no other form."""
    package = name.rpartition(".")[0]
    for base, names in _IMPORT.findall(source):
        module = importlib.util.resolve_name(base, package)
        yield module
        yield from ("%s.%s" % (module, word) for word in re.findall(r"\w+", names))


def _files(sources: Dict[str, str]) -> Dict[str, str]:
    """The modules and their packages as files. Packages are empty: ours hold no code."""
    files: Dict[str, str] = {}
    for name, source in sources.items():
        parts = name.split(".")
        files.update(("/".join([*parts[:depth], "__init__.py"]), "") for depth in range(1, len(parts)))
        files["/".join(parts) + ".py"] = source
    return files


def _archive(files: Dict[str, str]) -> bytes:
    stream = io.BytesIO()
    stream.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _DATE), files[name].encode())
    return stream.getvalue()
