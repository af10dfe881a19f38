"""Virtual machines with NUMA nodes: QEMU in the background, on an overlay that is thrown away, reached by ssh on the loopback.

A machine's folder holds its disk, its console's output and QEMU's process id. A process is ended only when its id is in that file and its
command line names that folder, so a stale file harms nobody.

The accelerator is TCG with the CPU model Nehalem: with newer models QEMU 7.2 computes wrongly enough for grub-script-check to fail.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence

import yaml

NODES = Path(os.environ.get("GPUFLEET_VM_NODES") or Path(__file__).with_name("nodes.yml"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet" / "vm"
KEY = CACHE / "id_ed25519"
NVME_SIZE = "64M"
PROGRESS = 20.0  # seconds between two lines
PANIC, PANICS = "] Kernel panic", 5  # so many since the machine was started are no accident

_START = time.monotonic()


def say(text: str) -> None:
    """A line of progress with the seconds since the start."""
    print(f"[{time.monotonic() - _START:5.0f} s] {text}", flush=True)


@contextmanager
def progress(text: Callable[[], str]) -> Iterator[None]:
    """Say how it stands now and then, while something goes on that may take minutes."""
    done = threading.Event()

    def report() -> None:
        while not done.wait(PROGRESS):
            say(text())

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        done.set()
        reporter.join()


@dataclass(frozen=True)
class Machine:
    """A machine: its name, its port for ssh, its shape as nodes.yml has it, and the disk image below its overlay."""

    name: str
    port: int
    shape: Mapping[str, Any]

    @property
    def folder(self) -> Path:
        return CACHE / "run" / self.name

    @property
    def console(self) -> Path:
        return self.folder / "console.log"

    @property
    def pid(self) -> Optional[int]:
        """The process id while the machine runs."""
        try:
            pid = int((self.folder / "pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self.folder) in command else None

    def start(self, image: Optional[Path] = None, boot: Sequence[str] = ()) -> None:
        """Start it on its disk, a fresh overlay of ``image`` unless there is one; ``boot``: arguments for QEMU that boot something else."""
        if self.pid:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        disk = self.folder / "disk.qcow2"
        if image and not disk.exists():
            _run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image), "-F", "raw", str(disk))
            _run("qemu-img", "create", "-q", "-f", "qcow2", str(self.folder / "nvme.qcow2"), NVME_SIZE)
        _run(*self.command(disk), *boot)
        say(f"{self.name}: started, process {self.pid}")

    def command(self, disk: Path) -> list[str]:
        """QEMU's command line."""
        return [
            *("qemu-system-x86_64", "-name", self.name, "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "Nehalem"),
            *("-nodefaults", "-vga", "none", "-display", "none", "-serial", f"file:{self.console}", "-daemonize"),
            *(
                "-pidfile",
                str(self.folder / "pid"),
                "-drive",
                f"file={disk},if=none,id=disk,discard=unmap,cache={self.shape.get('cache', 'unsafe')}",
            ),
            *("-device", "virtio-blk-pci,drive=disk,bus=pcie.0", "-device", "virtio-rng-pci,bus=pcie.0"),
            *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{self.port}-:22"),
            *_numa(self.shape["numa_nodes"], self.shape.get("threads", 1)),
            *_devices(self.shape, self.folder),
        ]

    def stop(self, *signals: signal.Signals) -> None:
        """End it at once; its disk stays. By SIGKILL alone it is as a loss of power: what the machine didn't flush may be lost, and all
        on a disk whose cache the shape leaves at unsafe."""
        pid = self.pid
        for number in signals or (signal.SIGTERM, signal.SIGKILL):
            if pid is None or self.pid != pid:
                return
            os.kill(pid, number)
            for unused in range(50):
                if self.pid != pid or _is_zombie(pid):
                    return
                time.sleep(0.1)

    def remove(self) -> None:
        """End it, and take its folder away."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def ssh(self, *command: str) -> list[str]:
        """The command line that runs ``command`` on it, or a login shell."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "ConnectTimeout=60")
        return ["ssh", "-i", str(KEY), "-p", str(self.port), *(f"-o{option}" for option in options), "root@127.0.0.1", *command]

    def wait(self, seconds: float) -> None:
        """Wait until it answers over ssh. A kernel that panics while it boots boots again by itself.

        :raises SystemExit: it didn't, it panicked again and again, or QEMU ended; with the last lines of its console
        """
        begin = time.monotonic()
        with progress(lambda: f"{self.name}: waiting; its console says: {next(iter(self.last_lines(1)), '')}"):
            while self.pid and self.panics() < PANICS and time.monotonic() - begin < seconds:
                if subprocess.run(self.ssh("true"), capture_output=True, check=False).returncode == 0:
                    say(f"{self.name}: up after {time.monotonic() - begin:.0f} s")
                    return
                time.sleep(2)
        state = f"doesn't answer; its kernel panicked {self.panics()} times" if self.pid else "has ended"
        raise SystemExit("\n".join([f"{self.name} {state}. The end of {self.console}:", *self.last_lines(30)]))

    def panics(self) -> int:
        """How often its kernel panicked since it was started."""
        return self.console.read_text(errors="replace").count(PANIC) if self.console.exists() else 0

    def wait_for_end(self, seconds: float) -> None:
        """Wait until it has powered itself off, and end it if it hasn't by then."""
        end = time.monotonic() + seconds
        while self.pid and time.monotonic() < end:
            time.sleep(0.5)
        self.stop()

    def last_lines(self, count: int) -> Iterator[str]:
        """The last lines of its console."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        yield from [line.strip() for line in text.splitlines() if line.strip()][-count:]


def machines() -> dict[str, Machine]:
    """The machines that nodes.yml describes, by name."""
    hosts: dict[str, dict[str, Any]] = yaml.safe_load(NODES.read_text())["all"]["hosts"]
    return {name: Machine(name, host["ansible_port"], host["machine"]) for name, host in hosts.items()}


def leftovers() -> list[Machine]:
    """Machines with a folder that nodes.yml doesn't describe: an image whose building was interrupted, those of another nodes.yml."""
    known = machines()
    folders = sorted((CACHE / "run").iterdir()) if (CACHE / "run").exists() else []
    return [Machine(folder.name, 0, {}) for folder in folders if folder.name not in known]


def _numa(nodes: Sequence[Mapping[str, Any]], threads: int) -> Iterator[str]:
    cpus = sum(_count(node.get("cpus")) for node in nodes)
    sockets = sum("cpus" in node for node in nodes)
    yield from ("-m", f"{sum(node['memory_mib'] for node in nodes)}M")
    yield from ("-smp", f"{cpus},sockets={sockets},cores={cpus // sockets // threads},threads={threads}")
    if len(nodes) == 1:
        return
    for number, node in enumerate(nodes):
        own_cpus = f",cpus={node['cpus']}" if "cpus" in node else ""
        yield from ("-object", f"memory-backend-ram,id=memory{number},size={node['memory_mib']}M")
        yield from ("-numa", f"node,nodeid={number}{own_cpus},memdev=memory{number}")
    for source in range(len(nodes)):
        for target in range(source + 1, len(nodes)):
            yield from ("-numa", f"dist,src={source},dst={target},val=21")


def _count(cpus: Optional[str]) -> int:
    if cpus is None:
        return 0
    first, unused, last = cpus.partition("-")
    return int(last or first) - int(first) + 1


def _devices(shape: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The NIC and the devices; one with a NUMA node is behind a root port of its own below a host bridge of that node."""
    devices = [dict(shape["nic"], options="netdev=net"), *shape["devices"]]
    for node in sorted({device["numa_node"] for device in devices if "numa_node" in device}):
        yield from ("-device", f"pxb-pcie,id=bridge{node},bus_nr={64 + 64 * node},numa_node={node},bus=pcie.0")
    for number, device in enumerate(devices):
        model, place = device["model"], ",bus=pcie.0"
        if "numa_node" in device:
            yield from ("-device", f"pcie-root-port,id=port{number},chassis={number + 1},bus=bridge{device['numa_node']},addr={number:x}")
            place = f",bus=port{number}"
        if model == "ati-vga":  # of conventional PCI
            yield from ("-device", f"pcie-pci-bridge,id=pci{number}{place}")
            place = f",bus=pci{number},addr=1"
        options = device.get("options", "")
        if model == "nvme":
            yield from ("-drive", f"file={folder / 'nvme.qcow2'},if=none,id=nvme{number}")
            options = f"drive=nvme{number},serial=nvme{number}"
        yield from ("-device", ",".join(filter(None, [model + place, options])))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with status {done.returncode}: {done.stderr.strip()}")
