"""The node that things go wrong on. Its Python can be told where to die: at a write of a file or at a command, before or after it."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from vm.machine import machines
from vm.node import Node

BOOT_TIME = 600  # seconds, on two busy cores
ARMED, REACHED = "/run/fault", "the fault's place is reached"

# Every Python of the node reads it at its start. /run/fault: "before" or "after", a function, a word in what it is given, what to do then.
HOOK = f"""
import os, signal, subprocess

def arm():
    try:
        with open({ARMED!r}) as file:
            when, function, word, action = file.read().split()
    except OSError:
        return
    owner = subprocess if function == "run" else os
    real = getattr(owner, function)

    def reached():
        os.unlink({ARMED!r})
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        with open("/dev/ttyS0", "w") as console:
            console.write("\\n{REACHED}\\n")
        signal.pause()

    def call(*arguments, **options):
        given = os.readlink("/proc/self/fd/%d" % arguments[0]) if function == "fsync" else repr(arguments)
        if word not in given or not os.path.exists({ARMED!r}):
            return real(*arguments, **options)
        if when == "before":
            reached()
        result = real(*arguments, **options)
        reached()
        return result

    setattr(owner, function, call)

arm()
"""

# What the node's memory says against what is there: a path holds its original, what was to be written, or what was found before.
INTACT = """
import glob, hashlib, json, os

def digest(path):
    if os.path.islink(path):
        return "link:" + os.readlink(path)
    return hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.exists(path) else None

wrong, folder = [], "/var/lib/gpufleet"
state = json.load(open(folder + "/state.json")) if os.path.exists(folder + "/state.json") else {"files": {}}
for path, known in state["files"].items():
    original = known["original"] or {}
    first = "link:" + original["link"] if "link" in original else original.get("sha256")
    if digest(path) not in (known["written"], known["before"], first):
        wrong.append(path + " is half-written")
    if path.startswith("/etc/") and digest("/root/before" + path) != first:
        wrong.append(path + ": what was there first is not known")
    if "sha256" in original and digest(folder + "/originals/" + first) != first:
        wrong.append(path + ": what was there first is lost")
leftovers = [path for top in ("/etc", "/boot", "/usr/local", folder) for path in glob.glob(top + "/**/.gpufleet-*", recursive=True)]
print(json.dumps({"files": len(state["files"]), "wrong": wrong, "leftovers": leftovers}))
"""


@dataclass(frozen=True)
class FaultyNode(Node):
    """A node whose Python can be told to die."""

    def arm(self, when: str, function: str, word: str, action: str) -> None:
        """Have the next Python that calls ``function`` with ``word`` in its arguments killed, or stopped with a word on the console."""
        self.run(f"echo {when} {function} {word} {action} >{ARMED}")

    def armed(self) -> bool:
        """Whether that hasn't come yet."""
        return "yes" in self.run(f"test -e {ARMED} && echo yes", check=False)

    def cut_power(self, word: str = REACHED, seconds: float = 600) -> None:
        """End the machine as soon as its console has the word again."""
        end, known = time.monotonic() + seconds, self.machine.console.read_text(errors="replace").count(word)
        while self.machine.console.read_text(errors="replace").count(word) == known:
            assert time.monotonic() < end and self.machine.pid, f"its console never said {word!r}"
            time.sleep(0.02)
        self.machine.stop(signal.SIGKILL)

    def boot(self) -> None:
        """Start it again."""
        self.machine.start()
        self.machine.wait(BOOT_TIME)

    def intact(self) -> int:
        """That no file is half-written and no original lost; how many files the node's memory knows."""
        found = json.loads(self.run(f"python3 - <<'END'\n{INTACT}\nEND"))
        assert not found["wrong"]
        return int(found["files"])

    def leftovers(self) -> list[str]:
        """Temporary files of a run that was killed."""
        return list(json.loads(self.run(f"python3 - <<'END'\n{INTACT}\nEND"))["leftovers"])


# What the report says of the machine.
SYSTEM = """
import json, os, platform
with open("/sys/devices/system/cpu/online") as online:
    cpus = online.read().strip()
said = {"cpus": {"online": cpus}, "kernel_release": platform.release(), "numa_nodes": [{"id": 0, "cpus": cpus}]}
print(json.dumps({"system": platform.freedesktop_os_release()["PRETTY_NAME"], "topology": said}))
"""


@pytest.fixture(scope="session")
def node() -> FaultyNode:
    """The machine that runs, and what its files were like before the first run."""
    found = FaultyNode(next(iter(machines().values())), {}, {})
    found.run("mkdir -p /root/before && cp -a /etc /boot/grub /root/before")
    folder = found.run("python3 -c 'import site; print(site.getsitepackages()[0])'").strip()
    found.run(f"cat >{folder}/fault.py <<'END'\n{HOOK}\nEND\necho import fault >{folder}/fault.pth")
    Path(os.environ["GPUFLEET_VM_RESULTS"], "f.json").write_text(found.run(f"python3 - <<'END'\n{SYSTEM}\nEND"))
    return found
