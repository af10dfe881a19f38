"""numaspread and numactl on the same cases, as a table: `python3 tests/launcher/head_to_head.py`.

What counts is what the kernel is asked for, so each launcher runs under strace, and the arguments of its set_mempolicy call are shown
with what the command then did. Machines that this one is not are shown to numactl by bind mounts over /sys/devices/system/node and its
/proc/PID/status, and to numaspread by --root. Needs root, unshare, strace, numactl and gcc.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launcher.launching import (
    GB200,
    GRACE_HOPPER,
    POWER9,
    SECCOMP,
    TWO_SOCKETS,
    Machine,
    Node,
    build_launcher,
    build_program,
    listed,
    run,
)

TOOLS = ("gcc", "make", "numactl", "strace", "unshare")
HERE = Machine({})
"""This machine, as it is."""
ENOSYS = ["set_mempolicy=38", "get_mempolicy=38", "--"]
OLD_KERNEL = ["set_mempolicy:6=22", "--"]


@dataclass(frozen=True)
class Case:
    """One situation: how each launcher is asked, where, and what numaspread must answer ({…} is the set it must ask for)."""

    title: str
    ours: Sequence[str]
    theirs: Sequence[str]
    expected: str
    machine: Machine = HERE
    seccomp: Sequence[str] = ()
    command: Sequence[str] = ("true",)


ALL, AUTO = ["--interleave=all"], ["--nodes=auto"]
CASES = [
    Case("interleave over everything, one node", AUTO, ALL, "{0}"),
    Case("two sockets", AUTO, ALL, "{0-1}", Machine(TWO_SOCKETS)),
    Case("Grace Hopper: GPU memory is node 1", AUTO, ALL, "{0}", Machine(GRACE_HOPPER)),
    Case("GB200: 34 nodes, 2 with CPUs", AUTO, ALL, "{0-1}", Machine(GB200)),
    Case("POWER9: nodes 0, 8 and GPU memory on 252-255", AUTO, ALL, "{0,8}", Machine(POWER9)),
    Case("a node with CPUs and without memory", AUTO, ALL, "{0}", Machine({0: Node([0]), 1: Node([1], gib=0)})),
    Case("100 nodes", AUTO, ALL, "{0-99}", Machine({n: Node([n]) for n in range(100)})),
    Case("CXL memory, left alone", AUTO, ALL, "{0-1}", Machine({**TWO_SOCKETS, 2: Node(gib=128)})),
    Case("CXL memory, wanted", ["--cpuless"], ALL, "{0-2}", Machine({**TWO_SOCKETS, 2: Node(gib=128)})),
    Case("a cpuset with node 0 only", AUTO, ALL, "{0}", Machine(TWO_SOCKETS, mems_allowed=[0])),
    Case("a list within the machine", ["--nodes=0-1"], ["--interleave=0-1"], "{0-1}", Machine(TWO_SOCKETS)),
    Case("a list partly outside the cpuset", ["--nodes=0-1"], ["--interleave=0-1"], "125", Machine(TWO_SOCKETS, mems_allowed=[0])),
    Case("a list with a node without memory", ["--nodes=0-2"], ["--interleave=0-2"], "125", Machine({**TWO_SOCKETS, 2: Node(gib=0)})),
    Case("a list with an absent node", ["--nodes=0,7"], ["--interleave=0,7"], "125", Machine(TWO_SOCKETS)),
    Case("an open range", ["--nodes=0-"], ["--interleave=0-"], "125"),
    Case("a range that runs backwards", ["--nodes=1-0"], ["--interleave=1-0"], "125", Machine(TWO_SOCKETS)),
    Case("an empty item", ["--nodes=0,,1"], ["--interleave=0,,1"], "125", Machine(TWO_SOCKETS)),
    Case("a word", ["--nodes=x"], ["--interleave=x"], "125"),
    Case("a number beyond 64 bits", ["--nodes=99999999999999999999"], ["--interleave=99999999999999999999"], "125"),
    Case("4294967296, which is 0 in 32 bits", ["--nodes=4294967296"], ["--interleave=4294967296"], "125"),
    Case("an empty list", ["--nodes="], ["--interleave="], "125"),
    Case("an absent CPU", ["--cpus=0,999"], ["--physcpubind=0,999"], "125"),
    Case("bind", ["--mode=bind", "--nodes=0"], ["--membind=0"], "{0}"),
    Case("preferred-many", ["--mode=preferred-many", "--nodes=0-1"], ["--preferred-many=0-1"], "{0-1}", Machine(TWO_SOCKETS)),
    Case("weighted", ["--mode=weighted"], ["--weighted-interleave=all"], "{0}"),
    Case("weighted on a kernel before 6.9", ["--mode=weighted"], ["--weighted-interleave=all"], "125", seccomp=OLD_KERNEL),
    Case("the same, best effort", ["--mode=weighted", "--best-effort"], ["--weighted-interleave=all"], "{0}", seccomp=OLD_KERNEL),
    Case("a container's seccomp profile", AUTO, ALL, "125", seccomp=SECCOMP),
    Case("the same, best effort", ["--best-effort"], ALL, "runs, no policy", seccomp=SECCOMP),
    Case("an emulator: ENOSYS", AUTO, ALL, "125", seccomp=ENOSYS),
    Case("no command", AUTO, ALL, "125", command=()),
    Case("a command that isn't there", AUTO, ALL, "127", command=("no-such-command",)),
    Case("a command that can't be run", AUTO, ALL, "126", command=("/etc/passwd",)),
    Case("the command exits 3", AUTO, ALL, "{0} exit 3", command=("sh", "-c", "exit 3")),
]


def outcome(launcher: str, words: Sequence[object], trace: Path) -> tuple[str, str]:
    """What a launcher asked the kernel for, how it ended, and the first line it said. `words` is the whole command."""
    result = run("strace", "-qq", "-e", "trace=set_mempolicy,execve", "-o", trace, *words)
    said = next((line for line in result.stderr.splitlines() if line), "")
    calls = re.split(rf'execve\("[^"]*{launcher}",.* = 0\n', trace.read_text())[-1]
    if not re.search(r"^execve.* = 0$", calls, re.MULTILINE):
        return str(result.returncode), said
    asked = "runs, no policy"
    for mask in re.findall(r"set_mempolicy\([^,]+, \[([^\]]*)\].* = 0", calls):
        value = sum(int(word, 16) << 64 * index for index, word in enumerate(mask.rstrip(". ,").split(", ")))
        asked = f"{{{listed(bit for bit in range(value.bit_length()) if value >> bit & 1)}}}"
    return asked + (f" exit {result.returncode}" if result.returncode else ""), said


def compare(case: Case, work: Path, launcher: Path, refuse: Path) -> tuple[tuple[str, str], tuple[str, str]]:
    """The outcomes of numaspread and numactl."""
    filtered = [refuse, *case.seccomp] if case.seccomp else []
    rooted: list[object] = []
    mounts = 'exec "$@"'
    if case.machine is not HERE:
        root = case.machine.write(Path(tempfile.mkdtemp(dir=work)) / "root")
        rooted = ["--root", root]
        mounts = (
            f"mount --bind {root}/sys/devices/system/node /sys/devices/system/node;"
            f" sh -c 'mount --bind {root}/proc/self/status /proc/$PPID/status'; {mounts}"
        )
    ours = outcome("numaspread", [*filtered, launcher, *rooted, *case.ours, "--", *case.command], work / "ours")
    numactl = ["numactl", *case.theirs, *case.command]
    theirs = outcome("numactl", ["unshare", "--mount", "sh", "-c", mounts, "sh", *filtered, *numactl], work / "theirs")
    return ours, theirs


def missing() -> str:
    """What keeps the comparison from running here, or nothing."""
    tools = [tool for tool in TOOLS if not shutil.which(tool)]
    if tools:
        return f"not installed: {', '.join(tools)}"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "mount namespaces need root"
    return "" if Path("/sys/devices/system/node").is_dir() else "this kernel has no NUMA"


def main() -> int:
    """Print the table; fail if numaspread did anything but what is expected."""
    reason = missing()
    if reason:
        print(f"skipped: {reason}")
        return 0
    wrong = 0
    print("| case | numaspread | numactl | numactl says |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        launcher, refuse = build_launcher(work), build_program("refuse", work)
        for case in CASES:
            (ours, unused), (theirs, said) = compare(case, work, launcher, refuse)
            wrong += ours != case.expected
            print(f"| {case.title} | {ours}{'' if ours == case.expected else f' (expected {case.expected})'} | {theirs} | {said} |")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
