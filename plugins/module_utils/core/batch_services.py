# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a user writes below gpufleet_batch_services and gpufleet_pinned_services, checked key by key.

The two classes are the tables of keys: default, check and meaning stand beside each other. What depends on the node (which CPUs, which NUMA
nodes) is settled where the plan is made.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, Type, TypeVar

from .allocators import ALLOCATORS
from .checks import boolean, choice, cpulist, integer, words
from .cpuset import CpuSet
from .errors import InvalidInput, unknown_name
from .quantity import MIB, parse_bytes

# Names of units that are ours already: gpufleet-<name>.service must not be one of them.
TAKEN = ("irq", "irq-watch", "batch-cpus")
RESTARTS = ("no", "on-success", "on-failure", "on-abnormal", "on-abort", "on-watchdog", "always")
MODES = ("interleave", "weighted", "preferred-many", "bind", "local")
POLICIES = ("other", "fifo", "rr")
# The kernel's interrupt threads run at FIFO 50: a service that feeds a GPU must not keep its interrupts waiting.
HIGHEST_PRIORITY = 49
IO_LIMITS = {
    "read_bytes": ("IOReadBandwidthMax", parse_bytes),
    "write_bytes": ("IOWriteBandwidthMax", parse_bytes),
    "read_iops": ("IOReadIOPSMax", lambda value, what: integer(1)(what, value)),
    "write_iops": ("IOWriteIOPSMax", lambda value, what: integer(1)(what, value)),
}
Check = Callable[[str, Any], Any]
S = TypeVar("S", bound="Service")


def _matching(pattern: str, remedy: str) -> Check:
    def check(what: str, value: Any) -> str:
        if not isinstance(value, (str, int)) or isinstance(value, bool) or not re.fullmatch(pattern, str(value), re.ASCII):
            raise InvalidInput('%s is "%s".' % (what, value), remedy)
        return str(value)

    return check


TIMER: Dict[str, Check] = {
    "on_calendar": _matching(r"[\w *:,./~+-]+", 'Write it as systemd.time(7) has it: "daily", "*-*-* 02:00".'),
    "on_boot_seconds": integer(0),
    "every_seconds": integer(1),
    "randomized_delay_seconds": integer(0),
    "persistent": boolean,
}
_ACCOUNT = _matching(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", "Give a name or a number.")


def _text(what: str, value: Any) -> str:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise InvalidInput('%s is "%s", which is not a text.' % (what, value), "Write it in quotes.")
    return str(value)


def _name(what: str, value: Any) -> str:
    name: str = _matching(r"[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?", "Use lower-case letters, digits, dots and dashes.")(what, value)
    if name in TAKEN:
        raise InvalidInput('%s is "%s", which is a unit of gpufleet.node itself.' % (what, name), "Choose another name.")
    return name


def _command(what: str, value: Any) -> Tuple[str, ...]:
    """A list of texts, or one text split as a shell would split it; nothing in it is expanded."""
    if isinstance(value, str):
        try:
            found: Tuple[str, ...] = tuple(shlex.split(value))
        except ValueError:
            raise InvalidInput('%s is "%s", whose quotes don\'t match.' % (what, value), "Write the command as a YAML list.") from None
    else:
        found = words(what, value)
    if not found or not found[0]:
        raise InvalidInput("%s is empty." % what, "Give the program and its arguments.")
    return found


def _texts(key: str, remedy: str) -> Check:
    """A mapping of names of that form to texts."""

    def check(what: str, value: Any) -> Dict[str, str]:
        if not isinstance(value, Mapping):
            raise InvalidInput('%s is "%s", which is not a mapping.' % (what, value), 'Write "name: value" lines below it.')
        return {_matching(key, remedy)(what, name): _text("%s.%s" % (what, name), item) for name, item in value.items()}

    return check


def _path(what: str, value: Any) -> str:
    return str(_matching(r"/[^\x00-\x1f]*", "Give an absolute path.")(what, value)) if value != "~" else "~"


def _bytes(what: str, value: Any) -> int:
    amount: int = parse_bytes(value, what)
    if amount < MIB:
        raise InvalidInput('%s is "%s", which no program fits in.' % (what, value), 'Write it like "64Gi".')
    return amount


def _io_limits(what: str, value: Any) -> Tuple[Dict[str, Any], ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Mapping) for item in value):
        raise InvalidInput('%s is "%s", which is not a list of mappings.' % (what, value), "Write one mapping for each device.")
    return tuple(_io_limit("%s[%d]" % (what, position), item) for position, item in enumerate(value))


def _io_limit(what: str, given: Mapping[str, Any]) -> Dict[str, Any]:
    for key in given:
        if key not in ("device", *IO_LIMITS):
            raise unknown_name("key of %s" % what, str(key), ("device", *IO_LIMITS))
    device = _matching(r"/dev/[^\s%\"'\\]+", "Give a block device like /dev/nvme0n1.")("%s.device" % what, given.get("device", ""))
    limits: Dict[str, Any] = {key: read(given[key], "%s.%s" % (what, key)) for key, (_setting, read) in IO_LIMITS.items() if key in given}
    if not limits:
        raise InvalidInput("%s limits nothing." % what, "Give one of: %s." % ", ".join(IO_LIMITS))
    return {"device": device, **limits}


def _timer(what: str, value: Any) -> Dict[str, Any]:
    given = {"on_calendar": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise InvalidInput('%s is "%s".' % (what, value), 'Write a calendar expression ("daily") or a mapping.')
    for key in given:
        if key not in TIMER:
            raise unknown_name("key of %s" % what, str(key), TIMER)
    found = {key: TIMER[key]("%s.%s" % (what, key), item) for key, item in given.items()}
    if not set(found) & {"on_calendar", "on_boot_seconds", "every_seconds"}:
        raise InvalidInput("%s never elapses." % what, "Give on_calendar, on_boot_seconds or every_seconds.")
    return found


def _node_list(what: str, value: Any) -> str:
    return "auto" if value == "auto" else cpulist(what, value).to_list()


def _devices(what: str, value: Any) -> Tuple[str, ...]:
    check = _matching(r"(/dev/|char-|block-)[^\s%\"'\\]+", 'Give device files ("/dev/fuse") or groups ("char-infiniband").')
    return tuple(check(what, item) for item in words(what, value))


def _key(check: Check, about: str, *default: Any) -> Any:
    """A key; required without a default. An empty mapping as default stands for a new one each time."""
    extra: Dict[str, Any] = {"default_factory": dict} if default == ({},) else {"default": default[0]} if default else {}
    return dataclasses.field(metadata={"check": check, "about": about}, **extra)  # pylint: disable=invalid-field-call


@dataclass(frozen=True)
class Service:
    """What batch and pinned services have in common."""

    name: str = _key(_name, "The unit is gpufleet-<name>.service")
    command: Tuple[str, ...] = _key(_command, "The program and its arguments; they arrive byte for byte")
    user: str = _key(_ACCOUNT, "Who runs it")
    group: str = _key(_ACCOUNT, "Its group; default is the user's", "")
    description: str = _key(_text, "What it is, for people", "")
    environment: Dict[str, str] = _key(
        _texts(r"[A-Za-z_][A-Za-z0-9_]*", "Use letters, digits and underscores."), "Variables; everyone on the node can read them", {}
    )
    environment_file: str = _key(_path, "A file with more variables, for secrets", "")
    working_directory: str = _key(_path, 'A folder, or "~"', "")
    allocator: str = _key(choice(*ALLOCATORS), "jemalloc or tcmalloc in place of the C library's", "")
    allocator_settings: Dict[str, str] = _key(_texts(r"[A-Za-z0-9_.]+", "Use the allocator's own names."), "Settings of the allocator", {})
    memory_max: Optional[int] = _key(_bytes, "The most memory it may have", None)
    memory_high: Optional[int] = _key(_bytes, "Where it is slowed down; default is nine tenths of memory_max", None)
    restart: str = _key(choice(*RESTARTS), "When systemd starts it again", "on-failure")
    restart_seconds: int = _key(integer(0), "How long systemd waits before", 10)
    timer: Dict[str, Any] = _key(_timer, "When it is started instead of at boot", {})
    page_migration: bool = _key(boolean, "Allow move_pages and migrate_pages", False)

    def __post_init__(self) -> None:
        """:raises InvalidInput: keys that contradict each other"""
        if self.memory_max and self.memory_high and self.memory_high > self.memory_max:
            raise InvalidInput("Service %s has memory_high above memory_max." % self.name, "Swap them, or leave memory_high out.")
        if self.allocator and "LD_PRELOAD" in self.environment:
            raise InvalidInput("Service %s has an allocator and LD_PRELOAD of its own." % self.name, "Keep one of them.")
        if self.allocator_settings and not self.allocator:
            raise InvalidInput("Service %s has allocator_settings and no allocator." % self.name, "Name the allocator.")

    @property
    def unit(self) -> str:
        """The name of its service unit."""
        return "gpufleet-%s.service" % self.name

    @property
    def timer_unit(self) -> str:
        """The name of its timer, wanted or not."""
        return "gpufleet-%s.timer" % self.name

    @property
    def slowed_at(self) -> Optional[int]:
        """MemoryHigh in bytes."""
        return self.memory_high or (self.memory_max * 9 // 10 // MIB * MIB if self.memory_max else None)


@dataclass(frozen=True)
class Batch(Service):
    """A CPU job. ``nodes`` is "auto" or a list of NUMA nodes, as the launcher has it."""

    nodes: str = _key(_node_list, "NUMA nodes to spread memory over: auto, or a list", "auto")
    mode: str = _key(choice(*MODES), "The launcher's memory policy", "interleave")
    best_effort: bool = _key(boolean, "Run even where the kernel refuses the policy", False)
    cpu_weight: int = _key(integer(1, 10000), "Its share among the batch services", 100)
    io_weight: int = _key(integer(1, 10000), "Its share of I/O among the batch services", 100)
    io_limits: Tuple[Dict[str, Any], ...] = _key(_io_limits, "Limits by device: device, read_bytes, write_bytes, read_iops, write_iops", ())
    oom_score_adjust: int = _key(integer(-999, 1000), "Who dies first when memory runs out; CPU jobs do", 1000)
    devices: Tuple[str, ...] = _key(_devices, "Devices it may use beyond /dev/null and kin", ())


@dataclass(frozen=True)
class Pinned(Service):
    """A service that feeds GPUs. ``gpu`` is a PCI address; ``threads`` asks for that many CPUs, one for each."""

    gpu: str = _key(_matching(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", "Give the GPU's PCI address."), "Its GPU", "")
    cpus: CpuSet = _key(cpulist, "Its CPUs; default are the isolated ones of its GPU's NUMA node", CpuSet())
    threads: int = _key(integer(1, 4096), "One CPU for each of so many threads", 0)
    policy: str = _key(choice(*POLICIES), "other, fifo or rr", "other")
    priority: int = _key(integer(1, HIGHEST_PRIORITY), "Priority of fifo and rr", 10)
    nice: int = _key(integer(-20, 19), "Nice level of policy other", -5)
    memory_nodes: CpuSet = _key(cpulist, "NUMA nodes of its memory; default is that of its GPU, else of its CPUs", CpuSet())


def parse_services(cls: Type[S], variable: str, given: Tuple[Mapping[str, Any], ...]) -> Tuple[S, ...]:
    """The services of a list.

    :raises InvalidInput: an unknown key (with the nearest known one), a missing one, a value that can't be, a name used twice
    """
    return tuple(_parse(cls, "%s[%d]" % (variable, position), item) for position, item in enumerate(given))


def _parse(cls: Type[S], what: str, given: Mapping[str, Any]) -> S:
    keys = {key.name: key for key in dataclasses.fields(cls)}
    values = {}
    for name, value in given.items():
        if name not in keys:
            raise unknown_name("key of %s" % what, str(name), keys)
        if value is not None:
            values[name] = keys[name].metadata["check"]("%s.%s" % (what, name), value)
    for required in ("name", "command", "user"):
        if required not in values:
            raise InvalidInput("%s has no %s." % (what, required), "Give it: name, command and user are what a service needs.")
    return cls(**values)
