# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kubelet concern: the plan's KubeletConfiguration where this kubelet reads it.

A kubelet with a drop-in folder gets a file of its own there. Otherwise our keys are merged into its main file: everybody else's
lines stay as they are, and a comment on top names the keys that are ours, so that a later plan can take them out again.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Callable, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import kubelet_fields, kubelet_state_unit, systemd, yaml_text
from . import kubelet_merge as merging
from . import kubelet_rules as rules
from .change import DRIFT, FOREIGN, NOT_APPLICABLE, PENDING, REMOVAL, RESTART, Artifact, File, Observation, Text, always
from .cpuset import CpuSet
from .errors import InvalidInput, unknown_name
from .kubelet_command import nested_flags, rancher_settings, rancher_values
from .kubelet_fields import EMBEDDED, FLAGS, MAIN_FILE, PATCH
from .kubelet_tables import NEWEST_MINOR
from .kubelet_version import minor_of, reads_drop_ins
from .quantity import parse_quantity
from .unit_reading import service

# kubelet reads *.conf in the order of their names; each needs apiVersion and kind, and an empty one makes it exit (B16).
DROP_IN = "zz-gpufleet.conf"
KNOWN_FOLDERS = (
    "/etc/kubernetes/kubelet.conf.d",
    "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d",
    "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
)

CONFIGURATION = "kubelet configuration"  # the item of findings about the files that it reads

# The keys of the plan's section.
_SECTION = ("configuration", "version", "distribution", "unit", "config_file", "config_dir", "root_dir", "flags", "restart", "machine",
            "exec_start", "patches")  # fmt: skip

DROP_IN_COMMENT = "# Written by gpufleet.node from the node's plan; changes made here are overwritten.\n"
MARK = "# gpufleet.node sets: "

# What else can be done about a main file that can't be edited.
_INSTEAD = ", or leave it and set gpufleet_kubelet_config_dir: kubelet 1.%d and newer then reads our part from a folder" % (
    kubelet_fields.DROP_IN_MINOR
)

# Mappings of which only our entries are ours; every other field is taken whole.
SHARED_MAPPINGS = ("evictionHard", "featureGates", "kubeReserved", "systemReserved")
# Fields that the plan decides, set or not.
PLANNED = (*rules.WORDS, "cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "reservedSystemCPUs", "reservedMemory")


class History(NamedTuple):
    """Of a main file that our keys were merged into: its text before our first write, and what we wrote last; None where it isn't known."""

    original: Text = None
    written: Text = None


UNKNOWN = History()


@dataclass(frozen=True)
class Reading:
    """What the node has. ``drop_ins`` are the other files of the folder that kubelet reads; ``ours`` paths of files of ours that are
    there; ``merged`` other main files that may hold keys of ours; ``histories`` of main files that we wrote to; ``texts`` what lies at
    the paths of ``at_start``. ``arguments`` are the other files that k3s or RKE2 takes kubelet's flags from.
    ``states`` are the texts of kubelet's state files by name, ``machine`` what kubelet holds them against (kubelet_state.Machine),
    ``users`` pods that hold CPUs or memory by them, in words. ``stale``: kubelet has been running since before the last news in its
    configuration. ``restarts``: the plan has it restarted here. ``program`` checks the state files at boot, run by ``interpreter``.
    ``sysctls``: the kernel's values of what kubelet may demand, where one of its files or flags has protectKernelDefaults.
    """

    main: Text = None
    drop_ins: Dict[str, str] = field(default_factory=dict)
    ours: Tuple[str, ...] = ()
    merged: Tuple[str, ...] = ()
    histories: Dict[str, History] = field(default_factory=dict)
    states: Dict[str, str] = field(default_factory=dict)
    texts: Dict[str, Text] = field(default_factory=dict)
    arguments: Dict[str, str] = field(default_factory=dict)
    stale: bool = False
    restarts: bool = False
    machine: Any = None
    users: Tuple[str, ...] = ()
    program: Text = None
    interpreter: str = "/usr/bin/python3"
    sysctls: Dict[str, str] = field(default_factory=dict)


def main_of(kubelet: Mapping[str, Any]) -> str:
    """kubelet's main file; "" where it has none (k3s and RKE2, which bring their own drop-ins)."""
    return kubelet.get("config_file") or ("" if kubelet.get("config_dir") or kubelet.get("distribution") in EMBEDDED else MAIN_FILE)


def place(kubelet: Mapping[str, Any]) -> str:
    """The path that our configuration goes to: a drop-in of ours, kubelet's main file, or a list of flags for k3s and RKE2."""
    if reads_drop_ins(kubelet.get("config_dir"), kubelet.get("version")):
        return _drop_in(kubelet)
    return main_of(kubelet) or _arguments(kubelet)


def flags_after(kubelet: Mapping[str, Any]) -> Dict[str, str]:
    """The flags that kubelet has once the plan is applied: ours come after the node's where it reads no file of ours."""
    words = merging.as_flags(kubelet["configuration"]) if place(kubelet) == _arguments(kubelet) else []
    return kubelet_fields.with_words(kubelet.get("flags", {}), words)


def is_ours(path: str, head: Text) -> bool:
    """Whether a path that a run of ours has written is a file of this concern: by its name, or as a drop-in by its first line."""
    name = posixpath.basename(path)
    return name in (PATCH, kubelet_fields.UNIT_DROP_IN, posixpath.basename(kubelet_fields.ARGUMENTS)) or (
        name == DROP_IN and (head or "").startswith(DROP_IN_COMMENT)
    )


def at_start(kubelet: Mapping[str, Any]) -> List[str]:
    """The paths that kubelet reads when it starts and that may hold something of ours."""
    return [path for path in (main_of(kubelet), _drop_in(kubelet), _arguments(kubelet), _unit_drop_in(kubelet)) if path]


def _drop_in(kubelet: Mapping[str, Any]) -> str:
    return posixpath.join(kubelet["config_dir"], DROP_IN) if kubelet.get("config_dir") else ""


def _arguments(kubelet: Mapping[str, Any]) -> str:
    distribution = kubelet.get("distribution")
    return kubelet_fields.ARGUMENTS % distribution if distribution in EMBEDDED else ""


def _unit_drop_in(kubelet: Mapping[str, Any]) -> str:
    """The path of the part of kubelet's unit that has it read our folder of drop-ins."""
    return "%s/%s.d/%s" % (systemd.UNIT_FOLDER, kubelet["unit"], kubelet_fields.UNIT_DROP_IN) if kubelet.get("unit") else ""


def check_section(kubelet: Mapping[str, Any]) -> None:
    """The plan's section is whole, or empty.

    :raises InvalidInput: a key that it doesn't have, or that is missing
    """
    missing = [key for key in _SECTION if key not in kubelet]
    for key in kubelet:
        if key not in _SECTION:
            raise unknown_name("key of kubelet", key, _SECTION)
    if kubelet and missing:
        raise InvalidInput("kubelet lacks %s." % ", ".join(missing), "Pass gpufleet_plan.kubelet as gpufleet.node.node_plan returned it.")
    if not isinstance(kubelet.get("configuration", {}), dict):
        raise InvalidInput(
            "kubelet.configuration is %r, which is not a mapping." % kubelet["configuration"], "Give a KubeletConfiguration."
        )


def artifacts(section: Mapping[str, Any], reading: Reading) -> List[Artifact]:
    """What must hold for the plan's ``kubelet`` section.

    :raises InvalidInput: what kubelet would read in the end is something it refuses, or a file can't be merged into
    """
    kubelet = section["kubelet"] or {}
    if not kubelet:
        return [*_leftovers(reading, ()), _merge_into(MAIN_FILE, {}, reading), *kubelet_state_unit.artifacts({}, None, "")]
    configuration = kubelet["configuration"]
    minor = _minor(kubelet)
    path, main_file = place(kubelet), main_of(kubelet)
    main, drop_ins, flags = reading.main, dict(reading.drop_ins), flags_after(kubelet)
    own: List[Artifact] = []
    foreign: List[Artifact] = []
    if path == main_file:
        main = merge(main, configuration, main_file, reading.histories.get(main_file, UNKNOWN))
        own.append(_merge_into(main_file, configuration, reading))
        foreign = _foreign(flags, configuration, drop_ins)
    elif path == _drop_in(kubelet):
        order = merging.in_order({**drop_ins, path: ""})
        earlier = {other: drop_ins[other] for other in order[: order.index(path)]}
        base = merging.effective(_as_read(main, main_file), earlier, {}, minor, main_file)
        try:
            configuration = _override(configuration, base, minor)
        except InvalidInput as refusal:
            origins = merging.origins(_as_read(main, main_file), earlier, {}, main_file)
            raise _of_others(refusal, configuration, merging.patched(base, configuration), origins) from None
        foreign = _foreign(flags, configuration, {other: text for other, text in drop_ins.items() if other not in earlier})
        drop_ins[path] = DROP_IN_COMMENT + yaml_text.write(configuration)
        own.append(File(CONFIGURATION, path, always(drop_ins[path])))
        if main_file:
            own.append(_merge_into(main_file, {}, reading))
    else:
        text = DROP_IN_COMMENT + yaml_text.write({"kubelet-arg+": merging.as_flags(configuration)})
        flags = _flags_with(kubelet, reading, text)
        foreign = _foreign_arguments({other: reading.arguments[other] for other in reading.arguments if other > path}, configuration)
        own.append(File("kubelet arguments", path, always(text)))
    read = (_as_read(main, main_file), drop_ins, flags)
    planned = merging.effective(*read, minor, main_file)
    try:
        rules.check(planned, minor, rules.machine(kubelet["machine"]))
        rules.check_kernel(planned, reading.sysctls, kubelet["machine"].get("sysctls", ()))
    except InvalidInput as refusal:
        raise _of_others(refusal, configuration, planned, merging.origins(*read, main_file)) from None
    ignored = rules.ignored_reserves(planned)
    if ignored:
        foreign = [*foreign, *_ignored(ignored, merging.origins(*read, main_file))]
    own.extend(_beside(kubelet, configuration))
    leftovers = _leftovers(reading, [one.path for one in own if isinstance(one, File)])
    texts = {path: reading.texts.get(path) for path in at_start(kubelet)}
    files = [one for one in (*leftovers, *own) if isinstance(one, File) and one.path in texts]
    news = any(one.edit(texts[one.path]) != texts[one.path] for one in files) and _is_news(kubelet, reading, planned)
    own = [one._replace(news=news) if isinstance(one, File) else one for one in own]
    boot = kubelet_state_unit.artifacts(kubelet, reading.program, reading.interpreter)
    return [*leftovers, *own, *foreign, *boot, *_restart(kubelet, planned, minor, reading, news), *_unchecked(minor, reading)]


def _minor(kubelet: Mapping[str, Any]) -> int:
    return minor_of(kubelet["version"]) if kubelet["version"] else NEWEST_MINOR


def _as_read(main: Text, main_file: str) -> Text:
    """The main file's text; None of a kubelet without one. A file that isn't there yet counts as empty but for its head."""
    return main if main is not None or not main_file else yaml_text.write(kubelet_fields.HEADER)


def _beside(kubelet: Mapping[str, Any], configuration: Mapping[str, Any]) -> List[Artifact]:
    """What makes our configuration count, and last: kubelet's unit passes the folder, and kubeadm's next upgrade merges it in again."""
    found: List[Artifact] = []
    if kubelet["exec_start"]:
        text = "%s[Service]\nExecStart=\nExecStart=%s\n" % (systemd.MARK, kubelet["exec_start"])
        path = _unit_drop_in(kubelet)
        found += [File("kubelet's folder of drop-ins", path, always(text)), _reload(path)]
    if kubelet["patches"]:
        text = DROP_IN_COMMENT + yaml_text.write(configuration)
        found.append(File("kubeadm's patch of kubelet's configuration", kubelet["patches"], always(text)))
    return found


def _reload(path: str) -> Artifact:
    """systemd reads a unit's drop-ins again, where it says that it has to."""
    return systemd.reload_effect({posixpath.basename(posixpath.dirname(path))[: -len(".d")]: False}, systemd.RELOAD_HAZARD)


def _leftovers(reading: Reading, keep: Collection[str]) -> List[Artifact]:
    """Files and keys of ours in places that the plan no longer names, or that another kubelet read."""
    gone = [path for path in reading.ours if path not in keep]
    return [
        *(File(CONFIGURATION, path, always(None)) for path in gone),
        *(_reload(path) for path in gone if path.endswith(kubelet_fields.UNIT_DROP_IN)),
        *(_merge_into(path, {}, reading) for path in reading.merged),
    ]


def _merge_into(path: str, configuration: Mapping[str, Any], reading: Reading) -> File:
    history = reading.histories.get(path, UNKNOWN)
    return File(CONFIGURATION, path, lambda current: merge(current, configuration, path, history))


# --- the main file ------------------------------------------------------------------------------------------------------------------------


def merge(current: Text, configuration: Mapping[str, Any], name: str, history: History = UNKNOWN) -> Text:
    """The main file with our configuration in it; {} takes ours out. Lines of others stay, and where ours isn't wanted any more, what it
    took the place of comes back. A key of ours that somebody changed since is theirs.

    :raises InvalidInput: the file is in a form that can't be edited
    """
    if current is None and not configuration:
        return None
    marked = MARK in (current or "")
    before = _keys(current) if marked else _keys(history.written)
    if not configuration and not marked and not before:
        return current
    try:
        return _merged(current or "", configuration, name, before, history)
    except InvalidInput:
        if configuration or marked:
            raise
        return current  # somebody wrote it anew in a form of their own


def _merged(current: str, configuration: Mapping[str, Any], name: str, before: FrozenSet[str], history: History) -> str:
    wanted = {key: value for key, value in configuration.items() if key not in kubelet_fields.HEADER}
    merge = _Merge(name, wanted, bool(configuration), before, history)
    parts = [block for block in yaml_text.blocks(current, name, _INSTEAD) if not _is_mark(block)]
    result = [changed for block in parts for changed in [merge.block(block)] if changed]
    _check_anchors([block for block in parts if block not in result], result, name)
    present = {block.key for block in result}
    for key, value in ({**kubelet_fields.HEADER, **wanted} if configuration else {}).items():
        if key not in present:
            result.append(yaml_text.Block(key, yaml_text.write_key(key, value)))
    if configuration:
        result.insert(0, yaml_text.Block(None, [MARK + " ".join(_paths(wanted))]))
    else:  # what the plan took out without having a value of its own for it
        result.extend(merge.original[key] for key in PLANNED if key in merge.original and key not in present and key not in before)
    return yaml_text.join(result, yaml_text.line_end(current))


def _keys(text: Text) -> FrozenSet[str]:
    """The names of our keys, by the line that says so: entries of shared mappings one by one."""
    return frozenset(name for line in (text or "").splitlines() if line.startswith(MARK) for name in line[len(MARK) :].split())


def _is_mark(block: yaml_text.Block) -> bool:
    return block.key is None and block.lines[0].startswith(MARK)


def _by_key(text: Text, name: str) -> Dict[str, yaml_text.Block]:
    return {block.key: block for block in yaml_text.blocks(text or "", name) if block.key}


def _check_anchors(gone: Sequence[yaml_text.Block], kept: Sequence[yaml_text.Block], name: str) -> None:
    for block in gone:
        for anchor in sorted(yaml_text.anchors(block, "&")):
            users = [str(other.key) for other in kept if anchor in yaml_text.anchors(other, "*")]
            if users:
                raise InvalidInput(
                    "%s has %s with an anchor (&%s), and %s refers to it; without it kubelet couldn't read the file."
                    % (name, block.key, anchor, users[0]),
                    "Write the value itself where *%s stands." % anchor,
                )


def _paths(wanted: Mapping[str, Any]) -> List[str]:
    """The names of our keys: entries of shared mappings one by one."""
    return [
        name
        for key in sorted(wanted)
        for name in (["%s/%s" % (key, item) for item in sorted(wanted[key])] if key in SHARED_MAPPINGS else [key])
    ]


class _Merge:
    """What to do with each block. ``planned``: there is a configuration; ``before``: the names of our keys so far."""

    def __init__(self, name: str, wanted: Mapping[str, Any], planned: bool, before: FrozenSet[str], history: History) -> None:
        self.name, self.wanted, self.planned, self.before, self.history = name, wanted, planned, before, history

    @cached_property
    def original(self) -> Dict[str, yaml_text.Block]:
        """The blocks of the text before our first write."""
        return _by_key(self.history.original, self.name)

    @cached_property
    def written(self) -> Dict[str, yaml_text.Block]:
        """The blocks of what we wrote last."""
        return _by_key(self.history.written, self.name)

    def block(self, block: yaml_text.Block) -> Optional[yaml_text.Block]:
        """The block as it is to be; None: gone."""
        key = block.key
        if key is None:
            return block
        if key in SHARED_MAPPINGS:
            return self._shared(key, block)
        if key in self.wanted:
            return yaml_text.Block(key, yaml_text.write_key(key, self.wanted[key]))
        if self.planned and key in PLANNED:
            return None
        return self.original.get(key) if key in self.before and self._is_ours(key, block) else block

    def _is_ours(self, key: str, block: yaml_text.Block) -> bool:
        """Whether a key of ours still has our value, as far as it is known."""
        if key not in self.written:
            return not self.written
        try:
            return bool(yaml_text.value(block, self.name) == yaml_text.value(self.written[key], self.name))
        except InvalidInput:  # we don't write such forms
            return False

    def _shared(self, key: str, block: yaml_text.Block) -> Optional[yaml_text.Block]:
        """Entry by entry, as ``block`` does it for keys."""
        ours = self.wanted.get(key, {})
        if not ours and not any(path.startswith(key + "/") for path in self.before):
            return block
        present, original, written = (self._entries(blocks, key) for blocks in ({key: block}, self.original, self.written))
        entries = {}
        for item, value in present.items():
            is_ours = "%s/%s" % (key, item) in self.before and (not self.written or written.get(item) == value)
            if not is_ours or item in original:
                entries[item] = original[item] if is_ours else value
        entries.update(ours)
        if entries == present:
            return block
        if entries == original:
            return self.original.get(key)
        return yaml_text.with_entries(block, entries, self.name) if entries else None

    def _entries(self, blocks: Mapping[str, yaml_text.Block], key: str) -> Dict[str, Any]:
        entries = yaml_text.value(blocks[key], self.name) if key in blocks else None
        if entries is not None and not isinstance(entries, dict):
            raise InvalidInput("%s: %s is %r, where kubelet reads a mapping." % (self.name, key, entries), "Write a mapping.")
        return entries or {}


# --- what kubelet reads in the end --------------------------------------------------------------------------------------------------------


def in_force(kubelet: Mapping[str, Any], reading: Reading) -> Dict[str, Any]:
    """The fields that the rules look at, as kubelet has them by what lies there now.

    :raises InvalidInput: it doesn't start on that
    """
    drop_ins, flags, main_file = dict(reading.drop_ins), dict(kubelet["flags"]), main_of(kubelet)
    of_drop_in, of_arguments = (reading.texts.get(path) for path in (_drop_in(kubelet), _arguments(kubelet)))
    if of_drop_in is not None:
        drop_ins[_drop_in(kubelet)] = of_drop_in
    if of_arguments is not None:
        flags = _flags_with(kubelet, reading, of_arguments)
    return merging.effective(_as_read(reading.main, main_file), drop_ins, flags, _minor(kubelet), main_file)


def _flags_with(kubelet: Mapping[str, Any], reading: Reading, ours: str) -> Dict[str, str]:
    """The flags of a kubelet of k3s or RKE2 with this text in our file among theirs."""
    files = {**reading.arguments, _arguments(kubelet): ours}
    return nested_flags((), rancher_settings(files).get("kubelet-arg", ()))


def _is_news(kubelet: Mapping[str, Any], reading: Reading, planned: Mapping[str, Any]) -> bool:
    """Whether kubelet's next start gives it something else than what lies there: other words for the same don't."""
    if service([reading.texts.get(_unit_drop_in(kubelet)) or ""]).exec_start != kubelet["exec_start"]:
        return True
    try:
        now = in_force(kubelet, reading)
        return now != planned and _meaning(now) != _meaning(planned)
    except InvalidInput:
        return True


def _meaning(fields: Mapping[str, Any]) -> Dict[str, Any]:
    """The fields so that what is the same to kubelet is equal: CPUs as sets, amounts as numbers, an empty mapping as none."""
    return {key: _MEANINGS.get(key, lambda value: value)(value) for key, value in fields.items() if value != {}}


def _amounts(table: Mapping[str, str]) -> Dict[str, Any]:
    return {name: text if "%" in text else parse_quantity(text, name) for name, text in table.items()}


_MEANINGS: Dict[str, Callable[[Any], Any]] = {
    "reservedSystemCPUs": CpuSet.parse,
    "reservedMemory": lambda entries: {entry["numaNode"]: _amounts(entry["limits"]) for entry in entries},
    **dict.fromkeys(("evictionHard", "kubeReserved", "systemReserved"), _amounts),
}


def _override(configuration: Mapping[str, Any], base: Mapping[str, Any], minor: int) -> Dict[str, Any]:
    """The drop-in's content. It adds and overrides, so an option of others that we don't want is set to what is no option: "false".

    :raises InvalidInput: options of others beside CPU manager policy none, on which kubelet exits whatever they are set to
    """
    result = dict(configuration)
    for key in ("cpuManagerPolicyOptions", "topologyManagerPolicyOptions"):
        ours = configuration.get(key, {})
        unwanted = sorted(set(base.get(key) or {}) - set(ours))
        if unwanted and key == "cpuManagerPolicyOptions" and configuration["cpuManagerPolicy"] != "static":
            raise InvalidInput(
                "cpuManagerPolicy is none, and kubelet exits on any cpuManagerPolicyOptions beside it (%s)." % ", ".join(unwanted),
                "Take cpuManagerPolicyOptions out there.",
            )
        if unwanted:
            result[key] = {**ours, **{name: rules.OFF.get(name, "false") for name in unwanted}}
    gates = {
        **configuration.get("featureGates", {}),
        **rules.gates_for(result.get("cpuManagerPolicyOptions", {}), result.get("topologyManagerPolicyOptions", {}), minor),
    }
    return {**result, **({"featureGates": gates} if gates else {})}


def _foreign(flags: Mapping[str, str], configuration: Mapping[str, Any], later: Mapping[str, str]) -> List[Artifact]:
    """Flags, and drop-ins that come after ours, which set something that is ours: kubelet takes theirs."""
    found: List[Artifact] = [
        Observation("kubelet flag --%s" % flag, FOREIGN, "kubelet is started with it, and it beats %s in the file" % FLAGS[flag])
        for flag in sorted(flags)
        if FLAGS.get(flag) in configuration
    ]
    for path in merging.in_order(later):
        theirs = merging.fields(later[path], path)
        beaten = sorted(key for key in theirs if key in configuration and theirs[key] != configuration[key])
        if beaten:
            found.append(Observation(path, FOREIGN, "kubelet reads it after ours, and it sets %s" % ", ".join(beaten)))
    return found


def _of_others(
    refusal: InvalidInput, configuration: Mapping[str, Any], in_force: Mapping[str, Any], origins: Mapping[str, List[str]]
) -> InvalidInput:
    """The refusal with where the fields that it speaks of come from, as far as they aren't as we write them."""

    def named(words: Collection[str]) -> bool:
        return bool(re.search(r"(?<![\w-])(?:%s)(?![\w-])" % "|".join(map(re.escape, words)), str(refusal)))

    said = [
        "%s comes from %s." % (name, " and ".join(places))
        for name, places in origins.items()
        if in_force.get(name) != configuration.get(name) and named([name, *(in_force.get(name) or () if name in _BY_ENTRY else ())])
    ]
    return InvalidInput(" ".join([refusal.problem, *said]), refusal.remedy)


# Fields that a refusal may speak of by the name of an entry alone.
_BY_ENTRY = ("cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "featureGates")


def _ignored(names: List[str], origins: Mapping[str, List[str]]) -> List[Artifact]:
    message = "%s sets it, and kubelet ignores it beside reservedSystemCPUs"
    return [Observation("%s.cpu" % name, FOREIGN, message % " and ".join(origins[name])) for name in names]


def _foreign_arguments(later: Mapping[str, str], configuration: Mapping[str, Any]) -> List[Artifact]:
    """Files of k3s or RKE2 that come after ours, and whose flags replace ours, or beat some of them."""
    found: List[Artifact] = []
    for path in sorted(later):
        values = rancher_values(later[path], path)
        beaten = sorted({FLAGS.get(flag, "") for flag in nested_flags((), values.get("kubelet-arg+", ()))} & set(configuration))
        if "kubelet-arg" in values:
            message = "it is read after ours, and its kubelet-arg replaces all flags before it: write kubelet-arg+ there"
            found.append(Observation(path, FOREIGN, message))
        elif beaten:
            found.append(Observation(path, FOREIGN, "it is read after ours, and it sets %s" % ", ".join(beaten)))
    return found


# --- what waits for kubelet ---------------------------------------------------------------------------------------------------------------


def _restart(kubelet: Mapping[str, Any], planned: Mapping[str, Any], minor: int, reading: Reading, news: bool) -> List[Artifact]:
    """kubelet reads its configuration at its start, and refuses to start on state files of another one (A1): then a mere restart would be
    the end of it, so none is asked for. Where the plan has kubelet restarted, all of this is drift, which the module mends."""
    status = DRIFT if reading.restarts else PENDING
    found: List[Artifact] = []
    if reading.states:
        from .kubelet_state import stale_because  # only nodes with kubelet at work pay for it

        for name, text in reading.states.items():
            reason = stale_because(name, text, planned, reading.machine, minor)
            if reason:
                held = " (%s)" % ", ".join(reading.users) if reading.users else ""
                message = "kubelet would not start on it, because %s: drain%s, stop %s, remove the file, start it"
                found.append(Observation(name, status, message % (reason, held, kubelet["unit"]), REMOVAL))
    if not found and (news or reading.stale):
        found.append(Observation(kubelet["unit"], status, "reads its configuration when it is restarted", RESTART))
    return found


def _unchecked(minor: int, reading: Reading) -> List[Artifact]:
    """Checksums that may be wrong, and aren't held against their files."""
    if not reading.states:
        return []
    from .kubelet_state import CHECKSUM_MINOR, is_unchecked  # as above

    names = [name for name, text in reading.states.items() if is_unchecked(name, text, minor)]
    message = "not checked: it isn't as we reckon it, and our reckoning is proven for kubelet 1.%d and newer" % CHECKSUM_MINOR
    return [Observation("checksum of %s" % " and ".join(names), NOT_APPLICABLE, message)] if names else []
