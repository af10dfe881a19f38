"""The launcher on a real arm64 kernel with NUMA nodes: `python3 tests/launcher/arm64_vm.py [--cache DIR]`.

Boots Debian's arm64 kernel in qemu-system-aarch64 with two nodes that have CPUs and a third that has memory only, from an initramfs
that holds the static launcher, two small programs, and an init that runs the cases below. Nothing is installed or mounted here. Takes a
minute or two, and 3 GB of memory. Needs qemu-system-aarch64, gcc-aarch64-linux-gnu, and apt for the kernel's package (kept in the cache).
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from launcher.launching import BIND, INTERLEAVE, LOCAL, PREFERRED_MANY, build_launcher, build_program

COMPILER = "aarch64-linux-gnu-gcc"
TOOLS = ("qemu-system-aarch64", COMPILER, "apt-get", "dpkg-deb", "make")
NODES = {0: ("0-1", 1024), 1: ("2-3", 1024), 2: ("", 512)}
"""CPUs and MiB of each node."""

Check = Callable[[int, str], bool]


def policy(mode: int, nodes: list[int], cpus: list[int] | None = None) -> Check:
    """The command ran under this policy."""

    def check(status: int, output: str) -> bool:
        seen = json.loads(output.splitlines()[-1])
        return (status, seen["policy"], seen["nodes"]) == (0, mode, nodes) and cpus in (None, seen["cpus"])

    return check


def divided(*nodes: int) -> Check:
    """The pages lie on these nodes alone, 1.00 ± 0.02 on each."""

    def check(status: int, output: str) -> bool:
        pages = {int(node): int(count) for node, count in (line.split() for line in output.splitlines())}
        share = sum(pages.values()) / len(nodes)
        return status == 0 and set(pages) == set(nodes) and all(abs(count / share - 1) <= 0.02 for count in pages.values())

    return check


def refused(words: str) -> Check:
    """The launcher refused, in one sentence with these words."""
    return lambda status, output: status == 125 and words in output and len(output.splitlines()) == 1


def says(words: str) -> Check:
    """The command ran, and these words were printed."""
    return lambda status, output: status == 0 and words in output


CASES: dict[str, Check] = {
    "/numaspread --version": says("numaspread 1."),
    "/numaspread --dry-run": says("left out: 2 (no CPUs"),
    "/numaspread --verify /show": policy(INTERLEAVE, [0, 1]),
    "/numaspread /pages 1024": divided(0, 1),
    "/numaspread --nodes 0-2 /pages 384": divided(0, 1, 2),
    "/numaspread --cpuless --verify /show": policy(INTERLEAVE, [0, 1, 2]),
    "/numaspread --mode bind --nodes 2 --verify /pages 64": divided(2),
    "/numaspread --mode preferred-many --nodes 1 --verify /pages 64": divided(1),
    "/numaspread --mode preferred-many --verify /show": policy(PREFERRED_MANY, [0, 1]),
    "/numaspread --mode bind --verify /show": policy(BIND, [0, 1]),
    "/numaspread --mode local --verify /show": policy(LOCAL, []),
    "/numaspread --cpus 2-3 --verify /show": policy(INTERLEAVE, [0, 1], [2, 3]),
    "/numaspread --cpus 2-9 /show": refused("drops 4-9"),
    "/numaspread --nodes 0-3 /show": refused("asks for 3 (not on this machine);"),
    "node1 /numaspread --verify /show": policy(INTERLEAVE, [1]),
    "node1 /numaspread --nodes 0-1 /show": refused("asks for 0 (outside the cpuset of this process);"),
    "node1 /numaspread --nodes 0-1 --best-effort --verify /show": policy(INTERLEAVE, [1]),
    "node1 /numaspread --dry-run": says("left out: 0,2 (outside the cpuset"),
    "/numaspread --mode weighted /show": refused("came with Linux 6.9"),
    "/numaspread --mode weighted --best-effort --verify /show": policy(INTERLEAVE, [0, 1]),
    "/numaspread /nothing-there": lambda status, output: status == 127,
}


def fetch_kernel(cache: Path) -> Path:
    """Debian's current arm64 kernel, through apt with a state of its own: nothing is installed here."""
    kernels = sorted(cache.glob("boot/vmlinuz-*"))
    if kernels:
        return kernels[-1]
    for folder in ("state/lists/partial", "archives/partial"):
        (cache / folder).mkdir(parents=True, exist_ok=True)
    (cache / "status").touch()
    configuration = cache / "apt.conf"
    configuration.write_text(
        f'APT::Architecture "arm64";\nAPT::Architectures {{ "arm64"; }};\nAPT::Sandbox::User "root";\nDir::State "{cache}/state";\n'
        f'Dir::State::status "{cache}/status";\nDir::Cache "{cache}";\n'
    )
    env = {**os.environ, "APT_CONFIG": str(configuration)}

    def apt(*words: str) -> str:
        return subprocess.run(words, cwd=cache, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout

    apt("apt-get", "--quiet", "update")
    package = re.search(r"Depends: (linux-image-\S+)", apt("apt-cache", "depends", "linux-image-arm64"))
    if not package:
        raise SystemExit("the archive's linux-image-arm64 names no kernel package; look at /etc/apt/sources.list")
    apt("apt-get", "--quiet", "download", package[1])
    archive = next(cache.glob("linux-image-*.deb"))
    content = subprocess.run(["dpkg-deb", "--fsys-tarfile", archive], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", cache, "--wildcards", "./boot/vmlinuz-*"], input=content, check=True)
    return max(cache.glob("boot/vmlinuz-*"))


def pack(files: dict[str, bytes]) -> bytes:
    """An initramfs: a cpio archive in the kernel's `newc` format, with a console and these executable files."""
    entries = [("dev", stat.S_IFDIR | 0o755, b"", (0, 0)), ("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))]
    entries += [(name, stat.S_IFREG | 0o755, content, (0, 0)) for name, content in files.items()]
    archive = b""
    for number, (name, mode, content, device) in enumerate([*entries, ("TRAILER!!!", 0, b"", (0, 0))], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += b"\0" * (-len(archive) % 4) + content
        archive += b"\0" * (-len(archive) % 4)
    return gzip.compress(archive, 1)


def boot(kernel: Path, initramfs: Path) -> str:
    """Run the guest until it powers itself off; return its console."""
    command = ["qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a57", "-accel", "tcg,thread=multi", "-smp", "4", "-nographic"]
    command += ["-no-reboot", "-nic", "none", "-m", f"{sum(size for unused, size in NODES.values())}M"]
    for node, (cpus, size) in NODES.items():
        command += ["-object", f"memory-backend-ram,id=m{node},size={size}M"]
        command += ["-numa", f"node,nodeid={node},memdev=m{node}" + (f",cpus={cpus}" if cpus else "")]
    command += ["-kernel", str(kernel), "-initrd", str(initramfs), "-append", "console=ttyAMA0 quiet panic=-1 rdinit=/init"]
    console = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=900, check=True).stdout
    return console.decode(errors="replace").replace("\r", "")


def main() -> int:
    """Print each case with its verdict; fail when one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/gpufleet/arm64", help="where the kernel is kept")
    cache = parser.parse_args().cache
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        print(f"skipped: not installed: {', '.join(missing)}")
        return 0
    kernel = fetch_kernel(cache)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        programs = {name: build_program(name, work, COMPILER, "-static", "-s").read_bytes() for name in ("show", "pages")}
        programs["init"] = build_program("guest", work, COMPILER, "-static", "-s").read_bytes()
        programs["numaspread"] = build_launcher(work, COMPILER).read_bytes()
        programs["cases"] = "".join(f"{case}\n" for case in CASES).encode()
        (work / "initramfs").write_bytes(pack(programs))
        console = boot(kernel, work / "initramfs")
    found = re.findall(r"@case ([^\n]*)\n(.*?)\n@status (\d+)", console, re.DOTALL)
    answers = {case: (int(status), output.strip()) for case, output, status in found}
    wrong = 0
    print(f"{kernel.name.removeprefix('vmlinuz-')} in qemu-system-aarch64, nodes {NODES}")
    for case, check in CASES.items():
        status, output = answers.get(case, (-1, "no answer"))
        try:
            right = check(status, output)
        except (ValueError, KeyError, IndexError):
            right = False
        wrong += not right
        print(f"{'ok' if right else 'WRONG':6}{case}", textwrap.indent(f"{status}: {output}", " " * 8), sep="\n")
    if not answers:
        print(console[-4000:])
    print(f"{len(CASES) - wrong} of {len(CASES)} cases are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
