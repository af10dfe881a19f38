# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The launcher's source on the controller: which version a node is to have, and how to tell that it was built from this source."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Dict, Optional

SOURCE = ("roles", "launcher", "files", "numaspread")
_VERSION = re.compile(rb'#define\s+PROGRAM_VERSION\s+"([^"]+)"')


def launcher_source(collection: str) -> Optional[Dict[str, str]]:
    """``version`` and ``source_sha256`` (over names and contents of the files in the source folder); None when it isn't there."""
    folder = os.path.join(collection, *SOURCE)
    if not os.path.isfile(os.path.join(folder, "numaspread.c")):
        return None
    digest, version = hashlib.sha256(), b""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not os.path.isfile(path) or name.startswith("."):
            continue
        with open(path, "rb") as file:
            content = file.read()
        digest.update(b"%s\0%d\0%s" % (os.fsencode(name), len(content), content))
        found = _VERSION.search(content)
        version = found.group(1) if found else version
    return {"version": version.decode("ascii"), "source_sha256": digest.hexdigest()}
