"""All benchmarks, one table. Every figure is a ratio of two measurements of one run, or a count; the bound stands beside it.

    python tests/benchmarks [--report] [NAME ...]      NAME: a file of this folder without .py

The exit status is 1 when a bound is missed; with --report, as in `make test`, a busy machine fails nothing.

A benchmark is a module with `rows() -> list[Row]`.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent / "playbooks" / "collections")]

from table import Row, show  # noqa: E402


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--report"]
    names = arguments or sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("__main__", "table"))
    rows: list[Row] = []
    for name in names:
        print(f"... {name}", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            rows += importlib.import_module(name).rows()
        except FileNotFoundError as missing:
            print(f"    left out: {missing.filename or missing} isn't here", file=sys.stderr)
        print(f"    {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    print(show(rows))
    return 1 if any(row.missed for row in rows) and "--report" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
