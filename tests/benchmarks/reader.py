"""The reader against lscpu and lstopo on one captured machine, and its growth with the number of CPUs.

    python tests/benchmarks reader

The peers read the same root as programs; the reader runs in this process. They take turns, and a figure is the median of the
ratios of all turns. The capture has 112 CPUs, 300 PCI functions and 1,857 device interrupts.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from captures.unpack import CAPTURES, unpacked
from table import Row

from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import SUBSETS, read_topology
from machines.build import build, load

CAPTURE = "ppc.master.internal"
ROUNDS = 15
LIMIT, LIMIT_WITH_INTERRUPTS, LIMIT_FILES_PER_IRQ = 1.0, 3.0, 2.0
WITHOUT_INTERRUPTS = tuple(name for name in SUBSETS if name != "interrupts")
SMALL, LARGE = 16, 384


def read(root: Path, subsets: Sequence[str]) -> tuple[Topology, list[str]]:
    """The facts and the files that were opened for them."""
    node = Root(str(root))
    return read_topology(node, Command(node), subsets), node.opened


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def peers(root: Path) -> float:
    """Both programs, one after the other."""
    lstopo = ["lstopo-no-graphics", "--input", str(root), "--if", "fsroot", "--whole-io", "--of", "xml"]
    return sum(
        seconds(lambda command=command: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        for command in (["lscpu", "--sysroot", str(root)], lstopo)
    )


def against_peers() -> list[Row]:
    if not (CAPTURES / f"{CAPTURE}.tar.xz").is_file() or not shutil.which("lscpu") or not shutil.which("lstopo-no-graphics"):
        return [Row("reader against lscpu + lstopo", 0, detail="not measured: the capture, lscpu or lstopo isn't here")]
    root = unpacked(CAPTURE)
    turns = [
        (peers(root), seconds(lambda: read(root, WITHOUT_INTERRUPTS)), seconds(lambda: read(root, SUBSETS))) for _turn in range(ROUNDS)
    ]
    theirs, plain, full = (statistics.median(times) * 1000 for times in zip(*turns))
    _facts, opened = read(root, WITHOUT_INTERRUPTS)
    facts, opened_with = read(root, SUBSETS)
    interrupts = sum(len(device.interrupts) for device in facts.interrupts)
    of_irqs = sum(path.startswith("/proc/irq/") for path in opened_with)
    ratio, ratio_with = (statistics.median(turn[which] / turn[0] for turn in turns) for which in (1, 2))
    detail = f"{CAPTURE}: %.1f ms; lscpu and lstopo {theirs:.1f} ms"
    return [
        Row("reader", ratio, LIMIT, "of lscpu + lstopo", detail % plain),
        Row("reader with interrupts", ratio_with, LIMIT_WITH_INTERRUPTS, "of lscpu + lstopo", detail % full),
        Row("files per interrupt", of_irqs / interrupts, LIMIT_FILES_PER_IRQ, "files", f"{interrupts} interrupts"),
        Row("files opened", len(opened), unit="files", detail=f"with interrupts {len(opened_with)}"),
    ]


def growth() -> list[Row]:
    nodes = [{"id": id_, "cores": 4, "memory": "8GiB"} for id_ in (0, 1)]
    small = {"cpu": {"packages": 2, "cores": 4, "threads": 2}, "numa": {"nodes": nodes}}
    large = {**load("reference"), "pci": []}
    times, files = [], []
    with tempfile.TemporaryDirectory() as folder:
        for cpus, description in ((SMALL, small), (LARGE, large)):
            root = build(description, Path(folder) / str(cpus))
            facts, opened = read(root, WITHOUT_INTERRUPTS)
            assert len(facts.cpus.online) == cpus
            files.append(len(opened))
            times.append(min(seconds(lambda root=root: read(root, WITHOUT_INTERRUPTS)) for _turn in range(ROUNDS)) * 1000)
    detail = f"{times[0]:.1f} ms and {times[1]:.1f} ms, {files[0]} and {files[1]} files; linear is {LARGE // SMALL}"
    return [Row(f"reader, {LARGE} CPUs over {SMALL}", times[1] / times[0], unit="times", detail=detail)]


def rows() -> list[Row]:
    return [*against_peers(), *growth()]
