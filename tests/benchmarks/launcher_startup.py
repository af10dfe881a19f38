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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launcher.launching import build_launcher, build_program

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


def table(title: str, measured: list[dict[str, float]]) -> bool:
    """Print one clock's figures; return whether they are within the limits."""

    def cost(name: str) -> list[float]:
        return [one[name] - one[ALONE] for one in measured]

    def ratio(name: str, base: str) -> float:
        return statistics.median(mine / its for mine, its in zip(cost(name), cost(base)))

    def times(name: str, base: str) -> str:
        return f"{ratio(name, base):12.3f}" if base in measured[0] and name != ALONE else f"{'':12}"

    print(f"{title:26}{'time, µs':>10}{'cost, µs':>10}{'of floor':>12}{'of numactl':>12}")
    for name in measured[0]:
        time = statistics.median(one[name] for one in measured)
        print(f"{name:26}{time:10.0f}{statistics.median(cost(name)):10.0f}{times(name, FLOOR)}{times(name, NUMACTL)}")
    noise = abs(ratio(COPY, FLOOR) - 1)
    of_numactl = ratio(LAUNCHER, NUMACTL) if NUMACTL in measured[0] else 0.0
    met = ratio(LAUNCHER, FLOOR) <= LIMIT_OVER_FLOOR + noise and of_numactl <= LIMIT_OF_NUMACTL
    print(
        f"limits: {LIMIT_OVER_FLOOR} of the floor and {noise:.3f} of noise, {LIMIT_OF_NUMACTL} of numactl: {'met' if met else 'MISSED'}\n"
    )
    return met


def main(rounds: int = 9, runs: int = 500) -> int:
    """Print the tables; fail when the processor's figures miss a limit."""
    if not (shutil.which("gcc") and shutil.which("make")):
        print("skipped: gcc and make are not installed")
        return 0
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
    print(f"start of a command: {rounds} rounds of {runs} runs in turn, medians of the rounds; cost = time less {ALONE}\n")
    table("wall clock", wall)
    return 0 if table("processor time", processor) else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
