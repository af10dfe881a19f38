# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Importing this has the modules that are imported after it compiled once each, where they come from an archive: AnsiballZ's, or a program
of ours.

zipimport compiles a module to tell its file's name, which every import asks for, and again to run it. Compiling is most of what a call of
ours costs a node. So every module and program of ours imports this before anything else.
"""

from __future__ import annotations

import sys
from zipimport import zipimporter


class Importer(zipimporter):
    """Modules of an archive without bytecode: where a module's file lies follows from its name."""

    def get_filename(self, fullname: str) -> str:
        """As zipimporter's, without compiling."""
        path = "%s/%s%s" % (self.archive, self.prefix, fullname.rpartition(".")[2])
        return path + ("/__init__.py" if self.is_package(fullname) else ".py")


if isinstance(globals()["__spec__"].loader, zipimporter):
    sys.path_hooks.insert(0, Importer)
    sys.path_importer_cache.clear()
