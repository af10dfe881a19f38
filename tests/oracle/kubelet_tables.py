"""Write core/kubelet_tables.py and core/kubelet_gates.py from kubelet's own tables: `make kubelet-tables`.

For each minor, tables/main.go is built against that version of k8s.io/kubernetes and says which feature gates its kubelet registers and
how mature its managers' policy options are. Go modules are fetched, so this needs the module proxy; what it writes is committed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Tuple

HERE = Path(__file__).resolve().parent
CORE = HERE.parent.parent / "plugins" / "module_utils" / "core"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet" / "oracle" / "tables"

# The last patch release of each minor that the module proxy serves; of those the oracle is built for, the same as there.
VERSIONS = ("1.28.15", "1.29.15", "1.30.14", "1.31.14", "1.32.13", "1.33.13", "1.34.4", "1.35.4", "1.36.3", "1.37.2")

LICENCE = """\
# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""

Answer = Dict[str, Any]


def go(*arguments: str, folder: Path) -> str:
    """Run go in a folder; its error output is shown."""
    return subprocess.run(["go", *arguments], cwd=folder, stdout=subprocess.PIPE, check=True, text=True).stdout


def module_file(version: str, published: str) -> str:
    """A go.mod that requires one version of k8s.io/kubernetes. Its own replacements don't count for those who depend on it: named again."""
    staging = sorted(set(re.findall(r"^\s+(k8s\.io/\S+) v0\.0\.0$", published, re.MULTILINE)))
    language = re.search(r"^go (\S+)", published, re.MULTILINE)[1]
    replaced = "".join("\t%s => %s v0.%s\n" % (name, name, version[2:]) for name in staging)
    return "module tables\n\ngo %s\n\nrequire k8s.io/kubernetes v%s\n\nreplace (\n%s)\n" % (language, version, replaced)


def ask(version: str) -> Answer:
    """What the kubelet of this version knows; kept, since a published version doesn't change."""
    folder = CACHE / version
    program = (HERE / "tables" / "main.go").read_text(encoding="utf-8")
    kept, source = folder / "answer.json", folder / "main.go"
    if kept.exists() and source.read_text(encoding="utf-8") == program:
        return json.loads(kept.read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    source.write_text(program, encoding="utf-8")
    kept.unlink(missing_ok=True)
    module = json.loads(go("mod", "download", "-json", "k8s.io/kubernetes@v" + version, folder=folder))
    (folder / "go.mod").write_text(module_file(version, Path(module["GoMod"]).read_text(encoding="utf-8")), encoding="utf-8")
    go("mod", "tidy", folder=folder)
    answer = go("run", ".", module["Dir"], folder=folder)
    kept.write_text(answer, encoding="utf-8")
    return json.loads(answer)


def changes(by_minor: Mapping[int, Any], missing: Any) -> Tuple[Any, ...]:
    """(minor, value) where the value changes; ``missing`` where the name is gone."""
    result: List[Tuple[int, Any]] = []
    for minor in sorted(by_minor):
        value = by_minor[minor]
        if value != (result[-1][1] if result else missing):
            result.append((minor, value))
    return tuple(result)


def history(answers: Mapping[int, Answer], key: str) -> Dict[str, Tuple[Any, ...]]:
    """name → the changes over the minors, of one mapping in the answers."""
    names = sorted({name for answer in answers.values() for name in answer[key]})
    return {name: changes({minor: answer[key].get(name) for minor, answer in answers.items()}, None) for name in names}


def gate_rows(histories: Mapping[str, Any]) -> Dict[str, Tuple[Tuple[Any, ...], ...]]:
    """gate → ((minor, default, locked), …), (minor, None, False) where it is gone."""
    rows = {}
    for name, steps in histories.items():
        states = [(minor, None if gate is None else (gate["default"], gate["locked"])) for minor, gate in steps]
        kept = [step for before, step in zip([None, *states], states) if before is None or before[1] != step[1]]
        rows[name] = tuple((minor, None, False) if state is None else (minor, *state) for minor, state in kept)
    return rows


def stage_rows(histories: Mapping[str, Any], names: Iterable[str]) -> Dict[str, Tuple[Tuple[int, str], ...]]:
    """gate → ((minor, stage), …) of these gates; the stage is "" where the gate isn't known."""
    return {name: changes({minor: gate["stage"] if gate else "" for minor, gate in histories[name]}, "") for name in sorted(names)}


def literal(name: str, annotation: str, comment: Iterable[str], rows: Mapping[str, Any]) -> str:
    """A table as Python source, one row a line."""
    lines = ["# %s" % line for line in comment]
    lines.append("%s: %s = {" % (name, annotation))
    lines += ['    "%s": %s,' % (key, json_tuple(value)) for key, value in rows.items()]
    return "\n".join([*lines, "}", ""])


def json_tuple(value: Any) -> str:
    """A nested tuple as the formatter writes it."""
    if isinstance(value, tuple):
        inner = ", ".join(json_tuple(item) for item in value)
        return "(%s,)" % inner if len(value) == 1 else "(%s)" % inner
    return json.dumps(value) if isinstance(value, str) else repr(value)


def head(docstring: str) -> str:
    """The first lines of a generated module."""
    source = "From kubelet %s." % ", ".join(VERSIONS)
    imports = "from __future__ import annotations\n\nfrom typing import Dict, Optional, Tuple"
    after = "# Generated by `make kubelet-tables`; don't edit.\n\n%s" % imports
    return '%s"""%s\n\n%s\n"""\n\n%s\n\n' % (LICENCE, docstring, source, after)


def write(name: str, text: str) -> None:
    """A module of core, formatted as the others."""
    path = CORE / name
    path.write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(path)], check=True)


def main() -> int:
    """Ask every version, write both modules."""
    answers = {int(version.split(".")[1]): ask(version) for version in VERSIONS}
    gates = gate_rows(history(answers, "gates"))
    consulted = {name for answer in answers.values() for name in answer["manager_gates"]}
    managers = {name for name in gates if name in consulted or name.startswith(("CPUManager", "MemoryManager", "TopologyManager"))}
    managers |= {name for name in gates if re.match("(CPU|Memory|Topology)Manager", name)}  # what users set by hand for them
    needs = history(answers, "dependencies")
    linked = set(needs) | {other for steps in needs.values() for unused, others in steps for other in others or ()}

    stages = "Dict[str, Tuple[Tuple[int, str], ...]]"
    options = ["option: the minors at which its stage (alpha, beta, stable) changes; the first is no earlier than the oldest known."]
    states = "Dict[str, Tuple[Tuple[int, Optional[bool], bool], ...]]"
    gate = ["gate: (minor, default, locked to it), where it changes; default None: removed, and kubelet exits when it is set."]
    write(
        "kubelet_tables.py",
        head("Policy options of kubelet's CPU and topology manager, and the feature gates that its resource managers consult, by minor.")
        + "OLDEST_MINOR, NEWEST_MINOR = %d, %d\n\n" % (min(answers), max(answers))
        + literal("CPU_OPTIONS", stages, options, history(answers, "cpu_options"))
        + "\n"
        + literal("TOPOLOGY_OPTIONS", stages, options, history(answers, "topology_options"))
        + "\n"
        + literal("GATES", states, gate, {name: gates[name] for name in sorted(managers)}),
    )

    depends = ["gate: the gates that it needs when it is on, by the minor at which they change; kubelet exits when one of them is off."]
    write(
        "kubelet_gates.py",
        head("The other feature gates that kubelet knows, by minor: what a user's featureGates are held against.")
        + literal(
            "OTHER_GATES", states, ["As kubelet_tables.GATES, which holds the rest."], {n: r for n, r in gates.items() if n not in managers}
        )
        + "\n"
        + literal(
            "GATE_DEPENDENCIES",
            "Dict[str, Tuple[Tuple[int, Tuple[str, ...]], ...]]",
            depends,
            {name: tuple((minor, tuple(gates or ())) for minor, gates in steps) for name, steps in needs.items()},
        )
        + "\n"
        + literal(
            "GATE_STAGES",
            stages,
            [
                "gate: its stage (alpha, beta, stable, deprecated), where it changes: AllAlpha and AllBeta go by it. Of managers' gates,",
                "and of those that need others or are needed.",
            ],
            stage_rows(history(answers, "gates"), managers | linked),
        ),
    )
    print("kubelet %s: %d feature gates, %d of them the resource managers'" % (", ".join(VERSIONS), len(gates), len(managers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
