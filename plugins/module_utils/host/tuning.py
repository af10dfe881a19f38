# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node has of the tuning concern: other owners of our settings, units, swap, cgroups. Only what the given sections need is read."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..core import confine, limits, swap, sysctl, sysfs, tuned, tuning
from ..core.cpuset import CpuSet
from ..core.systemd import DROP_IN, UNIT_FOLDER, drop_in_path
from .command import Command
from .concern import Concern, Section
from .root import Root
from .systemd import reload_is_hazard

# Where unit files lie, without those that generators made: their sources are dealt with, and their names come and go.
_UNIT_FOLDERS = (
    UNIT_FOLDER,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
_GOVERNOR_SERVICES = ("power-profiles-daemon.service", "ondemand.service", "cpufrequtils.service", "tlp.service", "auto-cpufreq.service")
_WANTS = UNIT_FOLDER + "/multi-user.target.wants"

# Names of cgroups that hold workloads wherever they are: container engines, batch systems, virtual machines.
_GUESTS = (
    (re.compile(r"docker-[0-9a-f]{12,}\.scope\Z"), "a Docker container"),
    (re.compile(r"libpod-[0-9a-f]{12,}\.scope\Z"), "a Podman container"),
    (re.compile(r"(crio-|cri-containerd-|nerdctl-)[0-9a-f]{12,}\.scope\Z"), "a container"),
    (re.compile(r"(.*_)?slurmstepd\.scope\Z"), "Slurm jobs"),
    (re.compile(r"kubepods(\.slice)?\Z"), "Kubernetes pods"),
    (re.compile(r"machine-qemu.*\.scope\Z"), "a virtual machine"),
)
_GPU_NODE = re.compile(r"/dev/(nvidia\d+|kfd)\Z")
_CGROUP_DEPTH = 6  # user.slice/user-1000.slice/user@1000.service/user.slice/libpod-….scope/container


def read(root: Root, command: Command, section: Section) -> tuning.Reading:
    """The node as far as the sections that are given need it."""
    wants = {name: section.get(name) for name in tuning.SECTIONS}
    return tuning.Reading(
        sysctl_files=_sysctl_files(root) if wants["sysctl"] else (),
        misspelt=misspelt(root, wants["sysctl"]) if wants["sysctl"] and root.is_live else {},
        sysfs=_sysfs(root, wants),
        swap=_swap(root) if wants["swap"] is not None else swap.SwapReading(),
        limits=_limits(root, command) if wants["limits"] is not None else limits.LimitsReading(),
        confine=_confine(root, wants["confine"]) if wants["confine"] is not None else confine.ConfineReading(),
        tuned=_tuned(root),
        governor_services=tuple(sorted(set(_GOVERNOR_SERVICES) & set(root.names(_WANTS)))) if wants["governor"] else (),
        reload_hazard=reload_is_hazard(root),
    )


def _texts(root: Root, paths: Iterable[str]) -> Tuple[Tuple[str, str], ...]:
    """(path, text) of those paths that are there."""
    return tuple((path, text) for path, text in ((path, root.read(path)) for path in paths) if text is not None)


def _by_name(root: Root, folders: Sequence[str]) -> List[str]:
    """The .conf files of systemd-style folders in the order they are read: by name, an earlier folder hiding a name of a later one."""
    first: Dict[str, str] = {}
    for folder in folders:
        for name in root.names(folder):
            if name.endswith(".conf"):
                first.setdefault(name, "%s/%s" % (folder, name))
    return [first[name] for name in sorted(first)]


def _sysctl_files(root: Root) -> Tuple[Tuple[str, str], ...]:
    return _texts(root, [*_by_name(root, sysctl.FOLDERS), sysctl.MAIN])


def misspelt(root: Root, names: Iterable[str]) -> Dict[str, str]:
    """Kernel parameters that are absent and look like one that is there. Only a live node has them all."""
    found = {}
    for name in names:
        path = sysctl.proc_path(name)
        meant = None if root.exists(path) else sysctl.looks_like(name, root.names(path.rsplit("/", 1)[0]))
        if meant:
            found[name] = meant
    return found


# Below /sys -------------------------------------------------------------------------------------------------------------


def _sysfs(root: Root, wants: Mapping[str, Any]) -> sysfs.SysfsReading:
    with_pools = wants["hugepages"] is not None
    nodes = [name for name in root.names(sysfs.NODES) if re.match(r"node\d+\Z", name)] if with_pools else []
    return sysfs.SysfsReading(
        thp={name: root.read("%s/%s" % (sysfs.THP, name)) or "" for name in wants["transparent_hugepage"] or ()},
        pools=dict(_pools(root, nodes)),
        nodes={int(name[4:]): _memory(root.read("%s/%s/meminfo" % (sysfs.NODES, name)) or "") for name in nodes},
        hugepages_file=root.read(sysfs.HUGEPAGES_FILE) if with_pools else None,
        governors=_governors(root) if wants["governor"] else {},
    )


def _pools(root: Root, nodes: Sequence[str]) -> Iterator[Tuple[sysfs.Pool, int]]:
    for node in nodes:
        folder = "%s/%s/hugepages" % (sysfs.NODES, node)
        for name in root.names(folder):
            match = re.match(r"hugepages-(\d+)kB\Z", name)
            pages = root.read("%s/%s/nr_hugepages" % (folder, name)) if match else None
            if match and pages is not None and pages.strip().isdigit():
                yield (int(match.group(1)) * 1024, int(node[4:])), int(pages)


def _memory(meminfo: str) -> Tuple[int, int]:
    kib = dict(re.findall(r"(MemTotal|MemFree):\s+(\d+) kB", meminfo))
    return int(kib.get("MemTotal", 0)) * 1024, int(kib.get("MemFree", 0)) * 1024


def _governors(root: Root) -> Dict[str, Tuple[str, ...]]:
    policies = [name for name in root.names(sysfs.POLICIES) if re.match(r"policy\d+\Z", name)]
    return {
        policy: tuple((root.read("%s/%s/scaling_available_governors" % (sysfs.POLICIES, policy)) or "").split())
        for policy in sorted(policies, key=lambda name: int(name[6:]))
        if root.exists("%s/%s/scaling_governor" % (sysfs.POLICIES, policy))
    }


# Swap -------------------------------------------------------------------------------------------------------------------


def _swap(root: Root) -> swap.SwapReading:
    there = {name for folder in _UNIT_FOLDERS for name in root.names(folder)}
    there.update(name + ".service" for name in root.names("/etc/init.d"))
    ours = {name[:-2] for name in root.names(UNIT_FOLDER) if name.endswith(".d") and DROP_IN in root.names("%s/%s" % (UNIT_FOLDER, name))}
    in_etc = {name for name in root.names(UNIT_FOLDER) if root.link_target("%s/%s" % (UNIT_FOLDER, name)) != "/dev/null"}
    return swap.SwapReading(
        fstab=root.read("/etc/fstab"),
        units=frozenset(filter(swap.makes_swap, there)),
        own_units=frozenset(filter(swap.makes_swap, in_etc | ours)),  # a unit that is gone may have left our drop-in behind
        partitions=tuple(_gpt_swap_partitions(root)),
        zram=_zram(root),
        resume=root.read(swap.RESUME),
    )


def _gpt_swap_partitions(root: Root) -> Iterator[str]:
    """The nodes of block devices that udev found to be GPT partitions of type swap, in use or not."""
    for name in root.names("/run/udev/data"):
        if name.startswith("b") and "E:ID_PART_ENTRY_TYPE=" + swap.GPT_SWAP in (root.read("/run/udev/data/" + name) or ""):
            device = re.search(r"^DEVNAME=(.+)$", root.read("/sys/dev/block/%s/uevent" % name[1:]) or "", re.MULTILINE)
            if device:
                yield "/dev/" + device.group(1)


def _zram(root: Root) -> Tuple[Tuple[str, str], ...]:
    folders = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
    drop_ins = _by_name(root, ["%s/zram-generator.conf.d" % folder for folder in folders])
    return _texts(root, [*("%s/zram-generator.conf" % folder for folder in folders), *drop_ins])


# Limits -----------------------------------------------------------------------------------------------------------------


def _limits(root: Root, command: Command) -> limits.LimitsReading:
    units = tuple(unit for unit in limits.RUNTIMES if any(root.exists("%s/%s" % (folder, unit)) for folder in _UNIT_FOLDERS))
    later = [name for name in root.names(limits.SERVICES_FOLDER) if name.endswith(".conf") and name > limits.SERVICES.rsplit("/", 1)[1]]
    nr_open = (root.read("/proc/sys/fs/nr_open") or "").strip()
    return limits.LimitsReading(
        units=units,
        running=_main_processes(command, units),
        services=root.read(limits.SERVICES),
        later=tuple(
            (path, text)
            for path, text in _texts(root, ["%s/%s" % (limits.SERVICES_FOLDER, name) for name in later])
            if re.search(r"^\s*DefaultLimit(MEMLOCK|NOFILE)\s*=", text, re.MULTILINE)
        ),
        nr_open=int(nr_open) if nr_open.isdigit() else None,
    )


def _main_processes(command: Command, units: Sequence[str]) -> Tuple[Tuple[str, int], ...]:
    shown = command.query(("systemctl", "show", "--property=MainPID", "--value", "--", *units)) if units else None
    pids = [line for line in (shown or "").split("\n") if line]
    return tuple((unit, int(pid)) for unit, pid in zip(units, pids) if pid.isdigit() and pid != "0")


# Confinement ------------------------------------------------------------------------------------------------------------


def _confine(root: Root, wanted: Mapping[str, Any]) -> confine.ConfineReading:
    online = root.read("/sys/devices/system/cpu/online")
    slices = [name for name in wanted.get("slices", confine.SLICES) if name in confine.SLICES] if wanted else []
    groups = {name: list(_cgroups(root, "%s/%s" % (confine.CGROUPS, name))) for name in slices}
    return confine.ConfineReading(
        online=CpuSet.parse(online or ""),
        unified=not root.is_live or root.exists(confine.CGROUPS + "/cgroup.controllers"),
        drop_ins={name: text for name in confine.SLICES for _path, text in _texts(root, [drop_in_path(name)])},
        workloads=tuple((name, guest) for name in slices for guest in _guests(root, name, groups[name])),
        strays=tuple((name, stray) for name in slices for stray in _strays(root, name, groups[name])),
    )


def _cgroups(root: Root, path: str, depth: int = _CGROUP_DEPTH) -> Iterator[str]:
    """The path and all cgroups below it. A cgroup's own files all have a dot after a controller's name."""
    yield path
    for name in root.names(path) if depth else ():
        if not _CGROUP_FILE.match(name):
            yield from _cgroups(root, "%s/%s" % (path, name), depth - 1)


_CGROUP_FILE = re.compile(r"(cgroup|cpu|cpuset|io|memory|hugetlb|pids|rdma|misc|dmem|irq)\.[a-z0-9_.A-Z]+\Z")


def _guests(root: Root, name: str, groups: Sequence[str]) -> Iterator[str]:
    for path in groups:
        leaf = path.rsplit("/", 1)[1]
        for pattern, description in _GUESTS:
            if pattern.match(leaf):
                yield "%s (%s)" % (description, leaf[:40])
    if name == "user.slice":  # a GPU in use by a login's process is training, not administration
        for pid in _processes(root, groups):
            folder = "/proc/%s/fd" % pid
            if any(_GPU_NODE.match(root.link_target("%s/%s" % (folder, fd)) or "") for fd in root.names(folder)):
                yield "a login's process with a GPU open (%s, pid %s)" % ((root.read("/proc/%s/comm" % pid) or "?").strip(), pid)


def _strays(root: Root, name: str, groups: Sequence[str]) -> Iterator[str]:
    """Processes of a confined slice that may run outside of its CPUs: none, if the kernel does as it says."""
    allowed = CpuSet.parse(root.read("%s/%s/cpuset.cpus" % (confine.CGROUPS, name)) or "")
    if not allowed:
        return
    for pid in _processes(root, groups):
        may = re.search(r"^Cpus_allowed_list:\s*(\S+)$", root.read("/proc/%s/status" % pid) or "", re.MULTILINE)
        if may and not CpuSet.parse(may.group(1)) <= allowed:
            comm = (root.read("/proc/%s/comm" % pid) or "?").strip()
            yield "%s (pid %s) may run on %s, outside of the slice's %s: restart it" % (comm, pid, may.group(1), allowed)


def _processes(root: Root, groups: Sequence[str]) -> Iterator[str]:
    for path in groups:
        yield from (root.read(path + "/cgroup.procs") or "").split()


# tuned ------------------------------------------------------------------------------------------------------------------


def _tuned(root: Root) -> Optional[Tuple[str, Mapping[str, str]]]:
    """The active profile and its settings, includes first; None when tuned is neither enabled nor running."""
    if "tuned.service" not in root.names(_WANTS) and not root.exists("/run/tuned/tuned.pid"):
        return None
    profile = " ".join((root.read("/etc/tuned/active_profile") or "").split())
    settings: Dict[str, str] = {}
    for name in profile.split():
        settings = _tuned_profile(root, name, settings)
    return (profile, settings) if profile else None


def _tuned_profile(root: Root, name: str, settings: Dict[str, str], depth: int = 8) -> Dict[str, str]:
    """What holds when a profile, with those that it includes, comes after others with these settings."""
    folders = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
    found = _texts(root, ["%s/%s/tuned.conf" % (folder, name) for folder in folders])
    if not found or not depth:
        return settings
    profile = tuned.parse(found[0][1])
    for included in profile.includes:
        settings = _tuned_profile(root, included, settings, depth - 1)
    return profile.after(settings)


CONCERN = Concern(name="tuning", sections=tuning.SECTIONS, read=read, artifacts=tuning.artifacts)
