"""What a launcher adds to the start of a command: numactl, numaspread, and the floor, a static program that only execs.

`python3 tests/benchmarks/launcher_startup.py [ROUNDS [RUNS]]` prints one table of ratios.

Each round runs every program `RUNS` times, one after the other in turn, so that what else the machine does falls on all of them alike;
a row's figure is the median over the rounds of its time divided by the floor's in the same round. The floor is compared with a copy of
itself: that ratio is the noise of the whole measurement. Only system calls lie between a fork and the end of `true`; a small C program
does them, so that the interpreter isn't in the figures.
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


def measure(timer: Path, commands: dict[str, list[str]], rounds: int, runs: int) -> list[dict[str, float]]:
    """Microseconds per run of each command, one mapping for each round."""
    words: list[str] = []
    for command in commands.values():
        words += ["--", *command]
    output = subprocess.run([timer, str(rounds), str(runs), *words], check=True, capture_output=True, text=True).stdout
    return [dict(zip(commands, map(float, line.split()))) for line in output.splitlines()]


def main(rounds: int = 9, runs: int = 500) -> int:
    """Print the table; fail when a limit is missed."""
    if not (shutil.which("gcc") and shutil.which("make")):
        print("skipped: gcc and make are not installed")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        launcher = build_launcher(work)
        floor = build_program("floor", work, "gcc", "-static", "-s", "-fstack-protector-strong")
        copy = shutil.copy(floor, work / "copy")
        true = build_program("nothing", work, "gcc", "-static", "-s")
        timer = build_program("timer", work)
        commands = {"true alone": [str(true)], "floor": [str(floor), str(true)], "floor, copy": [str(copy), str(true)]}
        commands["numaspread"] = [str(launcher), str(true)]
        commands["numaspread --verify"] = [str(launcher), "--verify", str(true)]
        if shutil.which("numactl"):
            commands["numactl --interleave=all"] = ["numactl", "--interleave=all", str(true)]
        measured = measure(timer, commands, rounds, runs)

    def ratio(name: str, base: str) -> float:
        return statistics.median(one[name] / one[base] for one in measured)

    print(f"start of a command, {rounds} rounds of {runs} runs in turn; ratios are medians of the rounds\n")
    print(f"{'program':28}{'µs':>8}{'of floor':>10}{'of numactl':>12}")
    for name in commands:
        of_numactl = f"{ratio(name, 'numactl --interleave=all'):12.3f}" if "numactl --interleave=all" in commands else f"{'-':>12}"
        print(f"{name:28}{statistics.median(one[name] for one in measured):8.0f}{ratio(name, 'floor'):10.3f}{of_numactl}")
    noise = abs(ratio("floor, copy", "floor") - 1)
    passed = ratio("numaspread", "floor") <= LIMIT_OVER_FLOOR + noise
    verdict = f"numaspread over floor {ratio('numaspread', 'floor'):.3f} (limit {LIMIT_OVER_FLOOR} + noise {noise:.3f})"
    if "numactl --interleave=all" in commands:
        passed = passed and ratio("numaspread", "numactl --interleave=all") <= LIMIT_OF_NUMACTL
        verdict += f", of numactl {ratio('numaspread', 'numactl --interleave=all'):.3f} (limit {LIMIT_OF_NUMACTL})"
    print(f"\n{verdict}: {'met' if passed else 'MISSED'}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
