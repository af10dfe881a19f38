"""Modules from an archive are compiled once each, and know their place as zipimport tells it."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once

PROGRAM = """
import json, sys
compiled = []
sys.addaudithook(lambda event, what: compiled.append(str(what[1])) if event == "compile" else None)
sys.path.insert(0, sys.argv[1])
import package.before
if sys.argv[2] == "once":
    import package.compile_once
import package.below.module as module
compilations = [path for path in compiled if path.endswith("module.py")]
print(json.dumps([compilations, module.__file__, module.__package__, sys.modules["package.below"].__file__]))
"""


def run(folder: Path, how: str) -> list:
    archive = folder / "archive.zip"
    with zipfile.ZipFile(archive, "w") as files:
        for name in ("package/__init__.py", "package/before.py", "package/below/__init__.py", "package/below/module.py"):
            files.writestr(name, "")
        files.writestr("package/compile_once.py", Path(compile_once.__file__).read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(archive), how], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_a_module_is_compiled_once(tmp_path: Path) -> None:
    module = f"{tmp_path}/archive.zip/package/below/module.py"
    compiled, *places = run(tmp_path, "once")
    assert compiled == [module]
    twice, *usual_places = run(tmp_path, "as ever")
    assert twice == [module] * 2, "zipimport itself has learnt it: compile_once may go"
    assert places == usual_places == [module, "package.below", f"{tmp_path}/archive.zip/package/below/__init__.py"]


def test_elsewhere_it_leaves_imports_alone() -> None:
    assert compile_once.Importer not in sys.path_hooks
