"""Modules, run by Ansible, on roots that are damaged, hostile or none, and with plans that nobody made: a sentence, and nothing written.

One playbook runs all of it. That a pipe is never waited for shows in that it ends.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machines.build import build, load
from machines.scratch import scratch

SYSCTL = "etc/sysctl.d/zz-gpufleet.conf"
ONLINE = "sys/devices/system/cpu/online"
STATE = "var/lib/gpufleet/state.json"
FSTAB = "etc/fstab"
# No end of line at the end: not even that is ours to add.
LOOKALIKES = (
    b"#/swap.img none swap sw 0 0\n/dev/sdb\t/srv/swap-archive ext4 defaults 0 2\nswap swap tmpfs defaults\r\n"
    b"/dev/vda1 / ext4 noatime,comment=swap 0 1\nnone swap"
)


def replaced(path: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    """A change of a root: `make` puts something else where the path leads."""

    def change(root: Path) -> None:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir():
            place.rename(place.with_name(place.name + ".away"))
        elif place.exists():
            place.unlink()
        make(place)

    return change


def holding(content: bytes) -> Callable[[Path], Any]:
    return lambda place: place.write_bytes(content)


def locked(path: str) -> Callable[[Path], None]:
    """A change of a root: nobody may read this file."""
    return lambda root: (root / path).chmod(0)


def untouched(root: Path) -> None:
    """A good root."""


def nothing(root: Path) -> None:
    """An empty folder."""
    root.rename(root.with_name("set aside"))
    root.mkdir()


def a_file(root: Path) -> None:
    root.rename(root.with_name("set aside"))
    root.write_text("")


FACTS, VERIFY, TUNING = "topology_facts", "node_verify", "host_tuning"
KERNEL, IRQ, KUBELET, ROLLBACK = "kernel_args", "irq_affinity", "kubelet_config", "node_rollback"
SWAPPINESS = {"sysctl": {"vm.swappiness": "1"}}
INTERRUPTS = {"placement": "housekeeping", "irqbalance": "off", "default_affinity": "0", "isolated": "", "devices": []}
SECTIONS = ("confine", "governor", "hugepages", "interrupts", "kernel_arguments", "kubelet", "launcher", "limits", "swap", "sysctl",
            "transparent_hugepage", "units")  # fmt: skip

# What the root is, the module, its options, and the sentence.
REFUSED: dict[str, tuple[Callable[[Path], None], str, dict[str, Any], str]] = {
    "a file": (a_file, TUNING, SWAPPINESS, "is not a folder. Give the folder that holds the node's /etc, /proc and /sys."),
    "an empty folder, read": (nothing, FACTS, {}, "has neither /sys/devices/system/cpu nor /proc/cpuinfo."),
    "an empty folder, written": (nothing, TUNING, SWAPPINESS, "is no node's: it has none of /etc, /proc and /sys."),
    "an empty folder, rolled back": (nothing, ROLLBACK, {}, "is no node's: it has none of /etc, /proc and /sys."),
    "garbage for CPUs": (replaced(ONLINE, holding(b"\xff\xfe\x00\x81")), FACTS, {}, "which can't be parsed. The file is damaged or"),
    "a number too large": (replaced(ONLINE, holding(b"0-99999999999\n")), FACTS, {}, 'holds "0-99999999999", which can\'t be parsed.'),
    "a truncated meminfo": (replaced("sys/devices/system/node/node0/meminfo", holding(b"Node 0 MemTo")), FACTS, {},
                            'node0/meminfo below the root'),
    "a loop of links": (replaced("etc/sysctl.d", lambda place: place.symlink_to("sysctl.d")), TUNING, SWAPPINESS, "leads into a loop of"),
    "a file for a folder": (replaced("etc/sysctl.d", holding(b"")), TUNING, SWAPPINESS, "can't be written: Not a directory."),
    "a folder for our file": (replaced(SYSCTL, Path.mkdir), TUNING, SWAPPINESS, "is in the way: it is no regular file."),
    "a pipe for our file": (replaced(SYSCTL, os.mkfifo), TUNING, SWAPPINESS, "is in the way: it is no regular file."),
    "a state of other things": (replaced(STATE, holding(b'{"files": {"/etc/fstab": 7}}')), TUNING, SWAPPINESS, "state.json is damaged"),
    "a state that is a list": (replaced(STATE, holding(b"[1]")), ROLLBACK, {}, "state.json is damaged and can't be read."),
    "no way to write the memory": (replaced("var/lib", holding(b"")), TUNING, SWAPPINESS, "can't be written: File exists."),
    "an argument with a blank": (untouched, KERNEL, {"kernel_arguments": ["a b"]}, 'The kernel argument "a b" has a blank, a quote or'),
    "a THP word": (untouched, TUNING, {"transparent_hugepage": {"enabled": "sometimes"}}, "can't be \"sometimes\" on this kernel."),
    "pages without a node": (untouched, TUNING, {"hugepages": {"2097152": 7}}, "{every node: 7}} are not whole numbers."),
    "a sysctl that leads away": (untouched, TUNING, {"sysctl": {"../../etc/passwd": "1"}}, "is not the name of a kernel parameter."),
    "a section with an own key": (untouched, IRQ, {"interrupts": {**INTERRUPTS, "cpus": "1"}}, '"cpus" is not a known key of interrupts.'),
    "a section that lacks keys": (untouched, KUBELET, {"kubelet": {"configuration": {}}}, "kubelet lacks version, distribution, unit,"),
    "a plan of nothing": (untouched, VERIFY, {"plan": {}}, "The plan lacks confine, governor, hugepages, interrupts,"),
    "a plan of other things": (untouched, VERIFY, {"plan": dict.fromkeys(SECTIONS, 7)}, "is 7, which is not a mapping."),
    "a plan of nulls": (untouched, VERIFY, {"plan": dict.fromkeys(SECTIONS)}, "is None, which is not a mapping."),
}  # fmt: skip

if os.geteuid():  # root may read anything
    REFUSED.update({
        "a file that may not be read": (locked(FSTAB), TUNING, {"swap": "off"}, "/etc/fstab can't be read: permission denied. Run as"),
        "facts that may not be read": (locked("etc/systemd/system/k3s-agent.service"), VERIFY, {},
                                       "The facts lack what a plan needs: kubelet."),
    })  # fmt: skip

# What looks bad and isn't, and the paths that stay as they are.
TAKEN: dict[str, tuple[Callable[[Path], None], str, dict[str, Any], tuple[str, ...]]] = {
    "long lines": (replaced("proc/interrupts", holding(
        b" ".join(b"CPU%d" % cpu for cpu in range(1152)) + b"\n" + b"".join(
            b" %d: %s PCI-MSI %d-edge nvme0q%d\n" % (n, b" ".join([b"1234567890"] * 1152), n, n) for n in range(20)))), FACTS, {}, ()),
    "a pipe for a foreign file": (replaced(FSTAB, os.mkfifo), TUNING, {"swap": "off"}, (FSTAB,)),
    "lines that only look like swap": (replaced(FSTAB, holding(LOOKALIKES)), TUNING, {"swap": "off"}, (FSTAB,)),
    "garbage in a foreign file": (replaced(FSTAB, holding(b"\xff\x00\n/dev/sdb none swap sw 0 0\n\x81")), TUNING, {"swap": "off"}, ()),
    "a host name beyond ASCII": (replaced("etc/hostname", holding("knöten-é\n".encode())), FACTS, {}, ()),
    "a link that climbs out": (replaced(FSTAB, lambda place: place.symlink_to("/../../../../etc/hostname")), TUNING, {"swap": "off"},
                               (FSTAB, "etc/hostname")),
}  # fmt: skip


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    """What lies below a root, but for the lock that each run takes."""
    found = {}
    for folder, _folders, names in os.walk(root):
        for name in names:
            path = Path(folder) / name
            mode = path.lstat().st_mode
            readable = stat.S_ISREG(mode) and mode & stat.S_IRUSR
            content = os.readlink(path).encode() if stat.S_ISLNK(mode) else path.read_bytes() if readable else b""
            if path.relative_to(root).as_posix() != "var/lib/gpufleet/lock":
                found[str(path.relative_to(root))] = (mode, content)
    return found


def run(folder: Path, environment: dict[str, str]) -> dict[str, tuple[dict[str, Any], set[str]]]:
    """Per case what the module answered and which paths of the root are otherwise than before."""
    tasks, before, roots = [], {}, {}
    for number, (name, (change, module, options, _told)) in enumerate({**REFUSED, **TAKEN}.items()):
        roots[name] = folder / str(number) / "root"
        build({**load("cloudvm"), "pci": []}, roots[name])
        change(roots[name])
        before[name] = contents(roots[name])
        call = {f"gpufleet.node.{module}": {"root": str(roots[name]), **options}}
        tasks.append({"name": name, **call, "register": f"answer_{number}", "ignore_errors": True, "timeout": 60})
    told = folder / "answers.json"
    collected = "{{ [" + ", ".join(task["register"] for task in tasks) + "] | to_json }}"
    tasks.append({"name": "Tell", "ansible.builtin.copy": {"dest": str(told), "content": collected, "mode": "0600"}})
    play = folder / "play.yml"
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    command = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", "ansible_python_interpreter={{ ansible_playbook_python }}"]
    done = subprocess.run([*command, str(play)], check=False, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    answers = zip(before, json.loads(told.read_text()))
    return {name: (answer, {path for path, _kept in contents(roots[name]).items() ^ before[name].items()}) for name, answer in answers}


def test_a_sentence_and_nothing_written(ansible_env: dict[str, str]) -> None:
    with scratch() as folder:
        answers = run(folder, ansible_env)
    wrong = []
    for name, (_change, _module, _options, sentence) in REFUSED.items():
        answer, changed = answers[name]
        ours = answer["msg"] == "%s %s" % (answer.get("problem"), answer.get("remedy"))  # a refusal, not an accident
        if not (answer["failed"] and ours and not changed and sentence in answer["msg"]):
            wrong.append((name, answer["msg"], changed))
    for name, (_change, _module, _options, kept) in TAKEN.items():
        answer, changed = answers[name]
        if answer["failed"] or changed & {*kept}:
            wrong.append((name, answer.get("msg"), changed))
    assert not wrong
