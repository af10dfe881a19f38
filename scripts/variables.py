"""Write the table of variables into README.md from the Policy class, the one place that knows them. `--check` only compares."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "playbooks" / "collections"))

from ansible_collections.gpufleet.node.plugins.module_utils.core import policy  # noqa: E402

README = REPOSITORY / "README.md"
BEGIN, END = "<!-- variables: make variables writes this table -->\n", "<!-- end of variables -->\n"


def table() -> str:
    """The variables of the plan, then those of the playbooks, as Markdown."""
    lines = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for setting in policy.SETTINGS.values():
        default = {} if setting.default is dataclasses.MISSING else setting.default
        lines.append(f"| `{policy.PREFIX}{setting.name}` | {shown(default)} | {cell(setting.metadata['about'])} |")
    for name, about in policy.PLAY_VARIABLES.items():
        if about:
            lines.append(f"| `{policy.PREFIX}{name}` |  | {cell(about)} |")
    return "\n".join(lines) + "\n"


def shown(default: object) -> str:
    if default is None or default in ({}, ()):
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|").rstrip(".")


def with_table(readme: str) -> str:
    """The README with the table as it should be."""
    head, unused, rest = readme.partition(BEGIN)
    tail = rest.partition(END)[2]
    return head + BEGIN + "\n" + table() + "\n" + END + tail


def main() -> int:
    now = README.read_text(encoding="utf-8")
    wanted = with_table(now)
    if "--check" not in sys.argv:
        README.write_text(wanted, encoding="utf-8")
    elif now != wanted:
        print("The table of variables in README.md is out of date: run `make variables`.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
