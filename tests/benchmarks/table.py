"""The one table that benchmarks print."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A figure and the most it may be; `bound` None: shown for information. `detail` says what was measured."""

    benchmark: str
    figure: float
    bound: float | None = None
    unit: str = ""
    detail: str = ""

    @property
    def missed(self) -> bool:
        return self.bound is not None and self.figure > self.bound


def show(rows: list[Row]) -> str:
    """The rows as a table, a verdict on each that has a bound."""
    cells = [("figure", "", "at most", "", "benchmark", "detail")]
    for row in rows:
        verdict = "" if row.bound is None else "MISSED" if row.missed else "met"
        cells.append((number(row.figure), row.unit, "" if row.bound is None else number(row.bound), verdict, row.benchmark, row.detail))
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.rjust(w) if i in (0, 2) else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths))).rstrip()
        for line in cells
    )


def number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
