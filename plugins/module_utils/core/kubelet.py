# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kubelet concern: the plan's KubeletConfiguration where this kubelet reads it.

A kubelet with a drop-in folder gets a file of its own there. Otherwise our keys are merged into its main file: everybody else's
lines stay as they are, and a comment on top names the keys that are ours, so that a later plan can take them out again.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import kubelet_rules as rules
from . import yaml_text
from .change import FOREIGN, PENDING, RESTART, Artifact, File, Observation, Text
from .errors import InvalidInput, unknown_name

# kubelet reads *.conf in the order of their names; each needs apiVersion and kind, and an empty one makes it exit (B16).
DROP_IN = "zz-gpufleet.conf"
MAIN_FILE = "/var/lib/kubelet/config.yaml"
KNOWN_FOLDERS = (
    "/etc/kubernetes/kubelet.conf.d",
    "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d",
    "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d",
)

# The keys of the plan's section.
_SECTION = ("configuration", "version", "distribution", "unit", "config_file", "config_dir", "root_dir", "flags", "restart")

DROP_IN_COMMENT = "# Written by gpufleet.node from the node's plan; changes made here are overwritten.\n"
MARK = "# gpufleet.node sets: "

# Mappings of which only our entries are ours; every other field is taken whole.
SHARED_MAPPINGS = ("evictionHard", "featureGates", "kubeReserved", "systemReserved")
# Fields that the plan decides, set or not.
PLANNED = (*rules.WORDS, "cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "reservedSystemCPUs", "reservedMemory")
# Fields of others that the rules look at.
_LOOKED_AT = (*SHARED_MAPPINGS, *rules.WORDS, "cpuManagerPolicyOptions", "topologyManagerPolicyOptions", "reservedSystemCPUs",
              "systemReservedCgroup", "kubeReservedCgroup", "mergeDefaultEvictionSettings")  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What the node has. ``drop_ins`` are the other files of the folder that kubelet reads, in order; ``ours`` paths of drop-ins of ours
    that are there; ``merged`` other main files that still hold keys of ours. ``states`` are the texts of kubelet's state files by name.
    ``stale``: kubelet has been running since before its configuration was last written.
    """

    main: Text = None
    drop_ins: Dict[str, str] = field(default_factory=dict)
    ours: Tuple[str, ...] = ()
    merged: Tuple[str, ...] = ()
    states: Dict[str, str] = field(default_factory=dict)
    own_text: Text = None
    stale: bool = False


def main_of(kubelet: Mapping[str, Any]) -> str:
    """kubelet's main file; "" where it reads drop-ins only."""
    return kubelet.get("config_file") or ("" if kubelet.get("config_dir") else MAIN_FILE)


def place(kubelet: Mapping[str, Any]) -> str:
    """The path that our configuration goes to: a drop-in of ours, or kubelet's main file."""
    folder = kubelet.get("config_dir")
    return posixpath.join(folder, DROP_IN) if folder else main_of(kubelet)


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
        return [*_leftovers(reading, ""), _merge_into(MAIN_FILE, {})]
    configuration = kubelet["configuration"]
    minor = rules.minor_of(kubelet["version"]) if kubelet["version"] else rules.NEWEST_MINOR
    path, main_file = place(kubelet), main_of(kubelet)
    if kubelet.get("config_dir"):
        base = _effective([(main_file, reading.main), *reading.drop_ins.items()])
        configuration = _override(configuration, base, minor)
        rules.check({**base, **_joined(base, configuration)}, minor, eviction_defaults_join="evictionHard" not in base)
        own: List[Artifact] = [File("kubelet configuration", path, lambda _current: DROP_IN_COMMENT + yaml_text.write(configuration))]
        if main_file:
            own.append(_merge_into(main_file, {}))
    else:
        merged = merge(reading.main, configuration, main_file)
        rules.check(_effective([(main_file, merged)]), minor)
        own = [_merge_into(main_file, configuration)]
    changes = any(isinstance(one, File) and one.path == path and one.edit(reading.own_text) != reading.own_text for one in own)
    return [*_leftovers(reading, path), *own, *_flags(kubelet, configuration), *_restart(kubelet, configuration, reading, changes)]


def _leftovers(reading: Reading, keep: str) -> List[Artifact]:
    """Drop-ins and keys of ours in folders and files that the plan no longer names, or that another kubelet read."""
    drop_ins: List[Artifact] = [File("kubelet configuration", path, lambda _current: None) for path in reading.ours if path != keep]
    return [*drop_ins, *(_merge_into(path, {}) for path in reading.merged)]


def _merge_into(path: str, configuration: Mapping[str, Any]) -> File:
    return File("kubelet configuration", path, lambda current: merge(current, configuration, path))


# --- the main file ------------------------------------------------------------------------------------------------------------------------


def merge(current: Text, configuration: Mapping[str, Any], name: str) -> Text:
    """The main file with our configuration in it; {} takes ours out. Lines of others stay.

    :raises InvalidInput: the file is not block-style YAML
    """
    if current is None and not configuration:
        return None
    if current is not None and not configuration and MARK not in current:
        return current
    parts = yaml_text.blocks(current or "", name)
    before = {path for block in parts for path in _marked(block)}
    parts = [block for block in parts if not _marked(block)]
    wanted = {key: value for key, value in configuration.items() if key not in rules.HEADER}
    result = [changed for block in parts for changed in [_merge_block(block, wanted, before, bool(configuration), name)] if changed]
    present = {block.key for block in result}
    for key, value in ({**rules.HEADER, **wanted} if configuration else {}).items():
        if key not in present:
            result.append(yaml_text.Block(key, yaml_text.write_key(key, value)))
    if configuration:
        result.insert(0, yaml_text.Block(None, [MARK + " ".join(_paths(wanted))]))
    return yaml_text.join(result)


def _marked(block: yaml_text.Block) -> List[str]:
    return block.lines[0][len(MARK) :].split() if block.key is None and block.lines[0].startswith(MARK) else []


def _paths(wanted: Mapping[str, Any]) -> List[str]:
    """The names of our keys: entries of shared mappings one by one."""
    return [
        name
        for key in sorted(wanted)
        for name in (["%s/%s" % (key, item) for item in sorted(wanted[key])] if key in SHARED_MAPPINGS else [key])
    ]


def _merge_block(
    block: yaml_text.Block, wanted: Mapping[str, Any], before: set[str], planned: bool, name: str
) -> Optional[yaml_text.Block]:
    """The block as it is to be; None: gone."""
    key = block.key
    if key is None:
        return block
    if key in SHARED_MAPPINGS:
        ours = wanted.get(key, {})
        entries = yaml_text.value(block, name) if ours or any(path.startswith(key + "/") for path in before) else None
        if entries is None and not ours:
            return block
        kept = {item: value for item, value in (entries or {}).items() if item in ours or "%s/%s" % (key, item) not in before}
        merged = {**kept, **ours}
        if merged == entries:
            return block
        return yaml_text.Block(key, yaml_text.write_key(key, merged)) if merged else None
    if key in wanted:
        return yaml_text.Block(key, yaml_text.write_key(key, wanted[key]))
    return None if key in before or (planned and key in PLANNED) else block


# --- what kubelet reads in the end --------------------------------------------------------------------------------------------------------


def _effective(files: List[Tuple[str, Text]]) -> Dict[str, Any]:
    """The fields that the rules look at, from files in kubelet's order: mappings by key, the rest whole (B17)."""
    result: Dict[str, Any] = {}
    for name, text in files:
        found = _fields(text or "", name)
        result.update(_joined(result, {key: value for key, value in found.items() if value is not None}))
    return result


def _fields(text: str, name: str) -> Dict[str, Any]:
    """The fields of one file that the rules look at. kubelet reads JSON too."""
    if text.lstrip().startswith("{"):
        try:
            return {key: value for key, value in json.loads(text).items() if key in _LOOKED_AT or key == "reservedMemory"}
        except ValueError:
            raise InvalidInput("%s is neither YAML nor JSON." % name, "Mend the file: kubelet can't read it either.") from None
    found: Dict[str, Any] = {}
    for block in yaml_text.blocks(text, name):
        if block.key == "reservedMemory":
            found[block.key] = _reserved_memory(block)
        elif block.key in _LOOKED_AT:
            found[block.key] = yaml_text.value(block, name)
    return found


def _joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> Dict[str, Any]:
    return {key: {**base.get(key, {}), **value} if isinstance(value, Mapping) else value for key, value in over.items()}


def _reserved_memory(block: yaml_text.Block) -> List[Dict[str, Any]]:
    """The entries as far as they have the shape that we write; another shape is left to kubelet."""
    entries: List[Dict[str, Any]] = []
    for line in block.lines[1:]:
        key, _colon, text = line.strip().lstrip("- ").partition(":")
        if key == "numaNode":
            entries.append({"numaNode": int(text), "limits": {}})
        elif key == "memory" and entries:
            entries[-1]["limits"]["memory"] = text.strip().strip("\"'")
    return entries


def _override(configuration: Mapping[str, Any], base: Mapping[str, Any], minor: int) -> Dict[str, Any]:
    """The drop-in's content. A drop-in can't take an option away, so one that others set and we don't want is set to "false"."""
    unwanted = {name for name in base.get("cpuManagerPolicyOptions") or {} if name not in configuration.get("cpuManagerPolicyOptions", {})}
    if not unwanted:
        return dict(configuration)
    if configuration["cpuManagerPolicy"] != "static":
        raise InvalidInput(
            "kubelet exits when CPU manager policy none has options, and another of its files sets %s." % ", ".join(sorted(unwanted)),
            "Take them out there.",
        )
    options = {**configuration.get("cpuManagerPolicyOptions", {}), **dict.fromkeys(sorted(unwanted), "false")}
    gates = {**configuration.get("featureGates", {}), **rules.gates_for(options, {}, minor)}
    return {**configuration, "cpuManagerPolicyOptions": options, **({"featureGates": gates} if gates else {})}


# --- what waits for kubelet ---------------------------------------------------------------------------------------------------------------


def _flags(kubelet: Mapping[str, Any], configuration: Mapping[str, Any]) -> List[Artifact]:
    return [
        Observation(
            "kubelet flag --%s" % flag.lstrip("-"),
            FOREIGN,
            "kubelet is started with it, and it beats %s in the file" % rules.FLAGS[flag.lstrip("-")],
        )
        for flag in sorted(kubelet.get("flags") or {})
        if rules.FLAGS.get(flag.lstrip("-")) in configuration
    ]


def _restart(kubelet: Mapping[str, Any], configuration: Mapping[str, Any], reading: Reading, changes: bool) -> List[Artifact]:
    """kubelet reads its configuration at its start, and refuses to start on state files of another policy (A1): then a mere restart
    would be the end of it, so none is asked for."""
    wanted = {"cpu_manager_state": configuration["cpuManagerPolicy"], "memory_manager_state": configuration["memoryManagerPolicy"]}
    blocking = [name for name, text in reading.states.items() if _state_policy(text) != wanted[name]]
    if blocking:
        message = "is of another policy than %s, so kubelet will not start on it: drain, stop %s, remove the file, start it"
        return [Observation(name, PENDING, message % (wanted[name], kubelet["unit"])) for name in blocking]
    if changes or reading.stale:
        return [Observation(kubelet["unit"], PENDING, "reads its configuration when it is restarted", RESTART)]
    return []


def _state_policy(text: str) -> Optional[str]:
    try:
        state = json.loads(text)
    except ValueError:
        return None
    return state.get("policyName") if isinstance(state, dict) else None
