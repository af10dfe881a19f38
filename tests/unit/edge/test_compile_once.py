"""Modules from an archive are compiled once each, or not at all where bytecode was kept, and know their place as zipimport tells it."""

from __future__ import annotations

import json
import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once
from ansible_collections.gpufleet.node.plugins.module_utils.host.bundle import bundle

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
    assert compiled == ["package/below/module.py"]
    twice, *usual_places = run(tmp_path, "as ever")
    assert twice == [module] * 2, "zipimport itself has learnt it: compile_once may go"
    assert places == usual_places == [module, "package.below", f"{tmp_path}/archive.zip/package/below/__init__.py"]


KEPT = """
import pwd, sys, types
pwd.getpwuid = lambda user: types.SimpleNamespace(pw_dir=sys.argv[2])
compiled = []
sys.addaudithook(lambda event, what: compiled.append(str(what[1])) if event == "compile" else None)
sys.path.insert(0, sys.argv[1])
from ansible_collections.gpufleet.node.plugins.module_utils.edge import compile_once
import below.module
compile_once.keep()
print(below.module.VALUE, len([path for path in compiled if path.endswith("below/module.py")]))
"""


class Cached:
    """Calls with a cache folder of their own, one process each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"

    def call(self, value: str) -> list[str]:
        """What a module says whose source holds ``value``, and how often it was compiled."""
        archive = self.folder / "archive.zip"
        archive.write_bytes(bundle("ansible_collections.gpufleet.node.plugins.module_utils.edge.compile_once"))
        with zipfile.ZipFile(archive, "a") as files:
            files.writestr("below/__init__.py", "")
            files.writestr("below/module.py", f"VALUE = {value!r}\n")
        command = [sys.executable, "-S", "-c", KEPT, str(archive), str(self.home)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    @property
    def file(self) -> Path:
        (found,) = (self.home / ".cache" / "gpufleet").glob("bytecode-*")
        return found


@pytest.fixture
def cached(tmp_path: Path) -> Cached:
    return Cached(tmp_path)


needs_get_code = pytest.mark.skipif(sys.version_info < (3, 10), reason="zipimport of Python 3.9 asks no loader for code")


@needs_get_code
def test_what_is_kept_is_not_compiled_again(cached: Cached) -> None:
    assert cached.call("one") == ["one", "1"]
    kept = cached.file.read_bytes()
    assert cached.call("one") == ["one", "0"]
    assert cached.file.read_bytes() == kept and cached.file.stat().st_mode & 0o777 == 0o600


@needs_get_code
def test_another_source_is_compiled(cached: Cached) -> None:
    cached.call("one")
    assert cached.call("two") == ["two", "1"]
    assert cached.call("two") == ["two", "0"]


@needs_get_code
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.chmod(0o666),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.rename(path.with_name("other")) and path.symlink_to(path.with_name("other")),
        lambda path: path.write_bytes(path.read_bytes()[:40] + b"x" + path.read_bytes()[41:]),
    ],
    ids=["anybody writes it", "cut", "empty", "a link", "a byte is another"],
)
def test_a_cache_that_may_be_anybodys_or_is_damaged_is_none(cached: Cached, spoil: Callable[[Path], None]) -> None:
    cached.call("one")
    spoil(cached.file)
    assert cached.call("one") == ["one", "1"]
    assert cached.call("one") == ["one", "0"]


def test_a_cache_that_cant_be_written_is_none(cached: Cached) -> None:
    cached.home.write_text("no folder")
    assert cached.call("one") == ["one", "1"]


def test_an_archive_with_bytecode_alone_is_imported(tmp_path: Path) -> None:
    source, archive = tmp_path / "alone.py", tmp_path / "archive.zip"
    source.write_text("VALUE = 'here'\n")
    archive.write_bytes(bundle("ansible_collections.gpufleet.node.plugins.module_utils.edge.compile_once"))
    with zipfile.ZipFile(archive, "a") as files:
        files.write(py_compile.compile(str(source), str(tmp_path / "alone.pyc"), doraise=True), "alone.pyc")
    program = f"import sys; sys.path.insert(0, sys.argv[1]); import {compile_once.__name__}, alone; print(alone.VALUE)"
    done = subprocess.run([sys.executable, "-S", "-c", program, str(archive)], capture_output=True, text=True, check=True)
    assert done.stdout == "here\n"


def test_elsewhere_it_leaves_imports_alone() -> None:
    assert compile_once.Importer not in sys.path_hooks
