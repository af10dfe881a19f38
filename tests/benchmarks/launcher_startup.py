"""What a launcher adds to the start of a command: numactl, numaspread, and the floor, a static program that only execs.

`python3 tests/benchmarks/launcher_startup.py [ROUNDS [RUNS]]` prints one table of ratios.

Each round runs every program `RUNS` times, one of each in turn and in random order, so that
what else the machine does falls on all of them alike.
The cost of a program is its time less that of the command alone in the same round; a figure is the median over the rounds of the cost
divided by the floor's, or numactl's, in that round. The floor against a copy of itself is the noise of the whole measurement. A small C
program starts and times the commands, so that no interpreter is in the figures; the command is a static program that returns.
Two clocks: the wall's, which is what a user waits, and the processor's, which other load doesn't lengthen and which the limits judge.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

from launcher.launching import build_launcher, build_program  # noqa: E402
from table import Row, show  # noqa: E402

LIMIT_OVER_FLOOR, LIMIT_OF_NUMACTL = 1.15, 0.65
ALONE, FLOOR, COPY, LAUNCHER, NUMACTL = "the command alone", "floor", "floor, copy", "numaspread", "numactl --interleave=all"


def measure(timer: Path, commands: dict[str, list[str]], rounds: int, runs: int) -> list[list[dict[str, float]]]:
    """Microseconds per run of each command, one mapping for each round: first those of the wall clock, then those of the processor."""
    words: list[str] = []
    for command in commands.values():
        words += ["--", *command]
    output = subprocess.run([timer, str(rounds), str(runs), *words], check=True, capture_output=True, text=True).stdout
    figures = [[float(word) for word in line.split()] for line in output.splitlines()]
    return [[dict(zip(commands, line[clock::2])) for line in figures] for clock in (0, 1)]


@dataclass(frozen=True)
class Figures:
    """One clock's measurements, a mapping for each round."""

    clock: str
    rounds: list[dict[str, float]]

    def cost(self, name: str) -> list[float]:
        """Microseconds over the command alone, for each round."""
        return [one[name] - one[ALONE] for one in self.rounds]

    def ratio(self, name: str, base: str) -> float:
        """The cost in costs of `base`: the median of the rounds."""
        return statistics.median(mine / its for mine, its in zip(self.cost(name), self.cost(base)))

    @property
    def noise(self) -> float:
        """How far the floor is from a copy of itself."""
        return abs(self.ratio(COPY, FLOOR) - 1)

    def show(self) -> str:
        """A line for each program."""
        lines = [f"{self.clock:26}{'time, µs':>10}{'cost, µs':>10}{'of floor':>12}{'of numactl':>12}"]
        for name in self.rounds[0]:
            line = f"{name:26}{statistics.median(one[name] for one in self.rounds):10.0f}{statistics.median(self.cost(name)):10.0f}"
            for base in (FLOOR, NUMACTL):
                line += f"{self.ratio(name, base):12.3f}" if base in self.rounds[0] and name != ALONE else ""
            lines.append(line)
        return "\n".join(lines)


def figures(rounds: int = 9, runs: int = 500) -> tuple[Figures, Figures]:
    """Build the programs, run them, return the figures of the wall clock and of the processor."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        built = {name: build_program(name, work, "gcc", "-static", "-s") for name in ("floor", "nothing")}
        built["numaspread"] = build_launcher(work)
        # Copies all, as an installed program is: a file that the linker wrote in pieces starts slower.
        order = ("nothing", "floor", "floor", "numaspread")
        nothing, floor, copy, launcher = (str(shutil.copy(built[name], work / f"copy-{number}")) for number, name in enumerate(order))
        commands = {
            ALONE: [nothing],
            FLOOR: [floor, nothing],
            COPY: [copy, nothing],
            LAUNCHER: [launcher, nothing],
            f"{LAUNCHER} --verify": [launcher, "--verify", nothing],
        }
        if shutil.which("numactl"):
            commands[NUMACTL] = [*NUMACTL.split(), nothing]
        wall, processor = measure(build_program("timer", work), commands, rounds, runs)
    return Figures("wall clock", wall), Figures("processor time", processor)


def judge(wall: Figures, processor: Figures) -> list[Row]:
    """The figures with their bounds."""
    result = [
        Row(
            "launcher start",
            processor.ratio(LAUNCHER, FLOOR),
            LIMIT_OVER_FLOOR + processor.noise,
            "of floor",
            f"processor time over the command alone; {processor.noise:.3f} of the bound is noise: the floor against its copy",
        ),
        Row("launcher start", wall.ratio(LAUNCHER, FLOOR), None, "of floor", f"wall clock; noise {wall.noise:.3f}"),
    ]
    if NUMACTL in wall.rounds[0]:
        result += [
            Row("launcher start", processor.ratio(LAUNCHER, NUMACTL), LIMIT_OF_NUMACTL, "of numactl", f"processor time, {NUMACTL}"),
            Row("launcher start", wall.ratio(LAUNCHER, NUMACTL), None, "of numactl", "wall clock"),
        ]
    return result


def rows() -> list[Row]:
    """What the table of all benchmarks shows; nothing where there is no compiler."""
    return judge(*figures()) if shutil.which("gcc") and shutil.which("make") else []


def main(rounds: int = 9, runs: int = 500) -> int:
    """Print both clocks' figures and the bounds; fail when one is missed."""
    wall, processor = figures(rounds, runs)
    print(f"start of a command: {rounds} rounds of {runs} runs in turn, medians of the rounds; cost = time less {ALONE}\n")
    print(f"{wall.show()}\n\n{processor.show()}\n\n{show(judge(wall, processor))}")
    return 1 if any(row.missed for row in judge(wall, processor)) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
