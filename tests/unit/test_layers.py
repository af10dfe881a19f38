"""The rules that keep the collection in layers, read from the source itself.

Imports go one way: modules, action, filter -> edge -> host -> core. core computes and touches nothing, edge alone knows Ansible
on the node's side, and a module or a role is too short to hide a decision in.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PLUGINS = REPOSITORY / "plugins"
PACKAGE = "ansible_collections.gpufleet.node.plugins"

# What each layer may import of this collection; `ansible` stands for Ansible's own package.
ALLOWED = {
    "module_utils/core": {"module_utils/core"},
    "module_utils/host": {"module_utils/core", "module_utils/host"},
    "module_utils/edge": {"module_utils/core", "module_utils/host", "module_utils/edge", "ansible"},
    "modules": {"module_utils/core", "module_utils/host", "module_utils/edge", "ansible"},
    "action": {"module_utils/core", "module_utils/edge", "ansible"},
    "doc_fragments": set(),
    "filter": {"module_utils/core", "module_utils/edge", "ansible"},
}

# Standard modules that only compute. Anything else in core is a way to the outside.
PURE = {
    "__future__", "abc", "base64", "binascii", "bisect", "collections", "copy", "dataclasses", "decimal", "difflib", "enum", "fnmatch",
    "fractions", "functools",
    "hashlib", "heapq", "hmac", "ipaddress", "itertools", "json", "keyword", "math", "operator", "posixpath", "re", "shlex",
    "string", "struct", "textwrap", "types", "typing",
}  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}

# Not part of Python: a node may lack them, so host imports them only where their absence is handled.
OPTIONAL_ON_NODE = {"yaml", "psutil"}

DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
HEADER = (
    "# Copyright: gpufleet contributors",
    "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)",
)


def layer_of(path: Path) -> str:
    """The layer of a file under plugins/."""
    parts = path.relative_to(PLUGINS).parts
    return "/".join(parts[:2]) if parts[0] == "module_utils" else parts[0]


def sources(*layers: str) -> list[Path]:
    """The Python files of the layers, all when none is named."""
    return sorted(path for path in PLUGINS.rglob("*.py") if not layers or layer_of(path) in layers)


def imports(path: Path, tree: ast.AST) -> Iterator[str]:
    """Every imported module as an absolute dotted name."""
    package = [*PACKAGE.split("."), *path.relative_to(PLUGINS).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from . import cpuset` names modules, `from .cpuset import CpuSet` names one: the prefix tells the layer in both.
            yield from (f"{base}.{alias.name}" for alias in node.names)


def target_layer(name: str) -> str | None:
    """The layer that an imported name belongs to: one of ours, `ansible`, or None for anything else."""
    if name.startswith(PACKAGE + "."):
        parts = name[len(PACKAGE) + 1 :].split(".")
        return "/".join(parts[:2]) if parts[0] == "module_utils" else parts[0]
    return "ansible" if name.split(".")[0] == "ansible" else None


def identify(path: Path) -> str:
    """The test's name for a file."""
    return str(path.relative_to(REPOSITORY))


def code_lines(text: str) -> int:
    """Lines that are neither blank, nor comments, nor the documentation that ansible-doc reads."""
    documented = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in DOCUMENTATION
    )
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#")) - documented


@pytest.mark.parametrize("path", sources(), ids=identify)
def test_imports_go_one_way(path: Path) -> None:
    layer = layer_of(path)
    assert layer in ALLOWED, f"plugins/{layer} is no layer; known: {', '.join(ALLOWED)}"
    for name in imports(path, ast.parse(path.read_text(encoding="utf-8"))):
        target = target_layer(name)
        assert target is None or target in ALLOWED[layer], f"{layer} must not import {name}"


@pytest.mark.parametrize("path", sources("module_utils/core"), ids=identify)
def test_core_is_pure(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name in imports(path, tree):
        assert target_layer(name) or name.split(".")[0] in PURE, f"core must not import {name}"
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & IMPURE_CALLS


@pytest.mark.skipif(sys.version_info < (3, 10), reason="sys.stdlib_module_names")
@pytest.mark.parametrize("path", sources("module_utils/host", "module_utils/edge", "modules"), ids=identify)
def test_a_node_needs_nothing_but_python(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {name for node in ast.walk(tree) if isinstance(node, ast.Try) for name in imports(path, node)}
    for name in imports(path, tree):
        top = name.split(".")[0]
        handled = top in OPTIONAL_ON_NODE and name in guarded
        assert target_layer(name) or top in sys.stdlib_module_names or handled, f"{name} may be missing on a node"


@pytest.mark.parametrize("path", sources(), ids=identify)
def test_every_file_names_its_licence_and_postpones_annotations(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#!")]
    assert tuple(lines[:2]) == HEADER
    assert "from __future__ import annotations" in lines


@pytest.mark.parametrize("path", sources("modules", "action"), ids=identify)
def test_modules_are_thin(path: Path) -> None:
    assert code_lines(path.read_text(encoding="utf-8")) <= 60


@pytest.mark.parametrize("path", [path for path in sources("modules") if "def main" in path.read_text(encoding="utf-8")], ids=identify)
def test_a_node_compiles_what_a_module_imports_once(path: Path) -> None:
    first, *_others = imports(path, ast.parse(path.read_text(encoding="utf-8").replace("from __future__ import annotations", "")))
    assert first == f"{PACKAGE}.module_utils.edge.compile_once"


@pytest.mark.parametrize("path", sorted((REPOSITORY / "roles").glob("*/tasks/main.yml")), ids=identify)
def test_roles_are_thin(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    for word in ("ansible.builtin.set_fact", "ansible.builtin.shell", "ansible.builtin.raw"):
        assert word not in text, f"a role calls a module and notifies a handler; {word} decides something"


def test_the_rules_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PLUGINS", tmp_path)
    core = tmp_path / "module_utils" / "core" / "guilty.py"
    core.parent.mkdir(parents=True)
    for line in ("import os", "from ..host.root import Root", "import ansible.module_utils", "from ... import modules", "open('/a')"):
        core.write_text(line + "\n", encoding="utf-8")
        with pytest.raises(AssertionError):
            test_imports_go_one_way(core)
            test_core_is_pure(core)
    assert code_lines('DOCUMENTATION = """\na\nb\n"""\n\n# why\nx = 1\ny = 2\n') == 2
