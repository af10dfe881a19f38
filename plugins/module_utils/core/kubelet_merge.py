# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What kubelet reads in the end: its main file, the drop-ins over it, its flags over both.

Sources, read at v1.32.0 to v1.37.2: cmd/kubelet/app/server.go (loadConfigFile, mergeKubeletConfigurations, kubeletConfigFlagPrecedence),
cmd/kubelet/app/options/options.go (AddKubeletConfigFlags), component-base/cli/flag. Before 1.32 kubelet merged drop-ins in another way
and lost values, which is why none of ours is read there.
"""

from __future__ import annotations

import json
import re
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple

from . import yaml_text
from .errors import InvalidInput
from .kubelet_fields import (
    EARLIER_GATES,
    ENDPOINT,
    EVICTION_DEFAULTS,
    FIELDS,
    FLAGS,
    HEADER,
    MERGE_EVICTION_MINOR,
    NAMES,
    REPEATED,
    RESERVATIONS,
    SWAP,
    TEXT,
    TEXTS,
    TRUTH,
    TRUTH_WORDS,
    TRUTHS,
)

Text = Optional[str]

_LOWER = {field.lower(): field for field in (*FIELDS, *HEADER)}


def effective(main: Text, drop_ins: Mapping[str, str], flags: Mapping[str, str], minor: int, name: str = "the main file") -> Dict[str, Any]:
    """The fields that the rules look at, as kubelet has them once it has read everything.

    ``main``: None where kubelet is started without a main file. ``drop_ins``: texts by their paths below the drop-in folder.
    ``flags``: as ``kubelet_command.flags`` gives them. evictionHard comes out with the defaults that apply, EARLIER_GATES where gates come
    from several places.

    :raises InvalidInput: a file that kubelet can't read: it would exit, whatever the rest says
    """
    read = None if main is None else fields(main, name)
    return merged(read, [fields(drop_ins[path], path, in_drop_in=True) for path in in_order(drop_ins)], flags, minor)


def merged(
    main: Optional[Mapping[str, Any]], drop_ins: Sequence[Mapping[str, Any]], flags: Mapping[str, str], minor: int
) -> Dict[str, Any]:
    """``effective`` of files that have been read; each has what ``typed`` returns, the drop-ins are in kubelet's order."""
    result: Dict[str, Any] = {}
    by_flag = _of_flag("feature-gates", flags["feature-gates"]) if "feature-gates" in flags else {}
    at_default: Mapping[str, bool] = {}
    if main is not None:
        result = {key: value for key, value in main.items() if value is not None}
        if "evictionHard" not in result:
            result["evictionHard"] = dict(EVICTION_DEFAULTS)
        elif result.get("mergeDefaultEvictionSettings") and minor >= MERGE_EVICTION_MINOR:
            result["evictionHard"] = {**EVICTION_DEFAULTS, **result["evictionHard"]}
        at_default = {**by_flag, **result.get("featureGates", {})}
    for drop_in in drop_ins:
        result = patched(result, drop_in)
    for flag, value in flags.items():
        if flag in FLAGS and (flag, value) != ("reserved-memory", ""):  # which kubelet takes for no flag
            field = FLAGS[flag]
            given = _of_flag(flag, value)
            result[field] = {**result.get(field, {}), **given} if field == "featureGates" else given
    if result.get("featureGates", {}) != at_default or by_flag:
        result[EARLIER_GATES] = (by_flag, at_default)
    return result


def origins(main: Text, drop_ins: Mapping[str, str], flags: Mapping[str, str], name: str) -> Dict[str, List[str]]:
    """Where kubelet has each of the fields from: its flag, the last file that sets it, or all whose entries are put together."""
    found: Dict[str, List[str]] = {}
    for path, text in {name: main or "", **{path: drop_ins[path] for path in in_order(drop_ins)}}.items():
        for key, value in fields(text, path, in_drop_in=path in drop_ins).items() if text else ():
            found[key] = [*(found.get(key, ()) if isinstance(value, Mapping) else ()), path]
    for flag, field in FLAGS.items():
        if flag in flags:
            found[field] = [*(found.get(field, ()) if field == "featureGates" else ()), "kubelet's flag --%s" % flag]
    return found


def runtime_endpoint(main: Text, drop_ins: Mapping[str, str]) -> str:
    """The socket of the container runtime, as kubelet's files say; "" where none does.

    :raises InvalidInput: a file that kubelet can't read
    """
    texts = {"the main file": main or "", **{path: drop_ins[path] for path in in_order(drop_ins)}}
    said = [_parsed(text, name, (ENDPOINT.lower(),)).get(ENDPOINT) for name, text in texts.items() if ENDPOINT in text]
    return ([""] + [str(endpoint) for endpoint in said if endpoint])[-1]


def in_order(drop_ins: Mapping[str, str]) -> List[str]:
    """The paths of drop-ins as kubelet comes upon them: by name, a folder in the place of its own name."""
    return sorted(drop_ins, key=lambda path: path.split("/"))


def patched(base: Mapping[str, Any], over: Mapping[str, Any]) -> Dict[str, Any]:
    """Mappings are merged by key, everything else is replaced whole; null takes away (a JSON merge patch, RFC 7386)."""
    result = dict(base)
    for key, value in over.items():
        if isinstance(value, Mapping):
            result[key] = {name: item for name, item in {**result.get(key, {}), **value}.items() if item is not None}
        elif value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def fields(text: str, name: str, in_drop_in: bool = False) -> Dict[str, Any]:
    """The fields of one file that the rules look at, null where it says so. kubelet reads YAML and JSON.

    :raises InvalidInput: not in a form that can be read, without its head, or a value of another type
    """
    read = _parsed(text, name, _LOWER)
    head = {key if in_drop_in else _LOWER.get(key.lower(), key): value for key, value in read.items()}  # of the main file in any case
    for key, value in HEADER.items():
        if head.get(key) != value:  # B16
            raise InvalidInput(
                "%s has %s %s, and kubelet exits on a file without %s." % (name, key, json.dumps(head.get(key)), value),
                "Write %s: %s into it, or remove the file." % (key, value),
            )
    for key in read if in_drop_in else ():
        if key not in FIELDS and _LOWER.get(key.lower()) in FIELDS:
            raise InvalidInput(
                "%s has %s, which kubelet may take for %s: it reads the names of drop-ins in any case." % (name, key, _LOWER[key.lower()]),
                "Write %s, or take it out." % _LOWER[key.lower()],
            )
    return typed(read, name, in_drop_in)


def typed(read: Mapping[str, Any], name: str, in_drop_in: bool = False) -> Dict[str, Any]:
    """Those of a configuration's fields that the rules look at.

    :raises InvalidInput: a value of another type than the field has
    """
    return {key: _checked(FIELDS[key], value, "%s: %s" % (name, key), in_drop_in) for key, value in read.items() if key in FIELDS}


def _parsed(text: str, name: str, wanted: Collection[str]) -> Dict[str, Any]:
    """The fields of a file whose names in small letters are wanted; of JSON all."""
    if not text.lstrip().startswith("{"):
        found = [(block.key or "", block) for block in yaml_text.blocks(yaml_text.first_document(text), name)]
        return {key: yaml_text.value(block, name) for key, block in found if key.lower() in wanted}
    try:
        read: Dict[str, Any] = json.loads(text)
    except ValueError:
        raise InvalidInput("%s is neither YAML nor JSON." % name, "Mend the file: kubelet can't read it either.") from None
    return read


def _checked(kind: str, value: Any, what: str, in_drop_in: bool) -> Any:
    """The value, of the type that the field has. null in a mapping is an empty text, or in a drop-in takes the entry away."""
    if value is None:
        return None
    if kind == SWAP and isinstance(value, Mapping):
        return _checked(TEXTS, {key: item for key, item in value.items() if key == "swapBehavior"}, what, in_drop_in)
    if kind in (TEXTS, TRUTHS) and isinstance(value, Mapping):
        nothing = None if in_drop_in else "" if kind == TEXTS else False
        of = TEXT if kind == TEXTS else TRUTH
        return {key: nothing if item is None else _checked(of, item, "%s.%s" % (what, key), False) for key, item in value.items()}
    if kind == RESERVATIONS and isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value):
        return [_reservation(entry, what, in_drop_in) for entry in value]
    right = {TEXT: str, TRUTH: bool, NAMES: list}.get(kind)
    if right is None or not isinstance(value, right):
        raise InvalidInput(
            "%s is %s, where kubelet reads %s; it would exit." % (what, json.dumps(value), kind),
            'Put it in quotes: "%s".' % value if kind == TEXT and not isinstance(value, (dict, list)) else "Write %s." % kind,
        )
    return value


def _reservation(entry: Mapping[str, Any], what: str, in_drop_in: bool = False) -> Dict[str, Any]:
    """kubelet reads the amounts along with the file, whatever becomes of them: blanks around one don't count; null is zero, or no entry in
    a drop-in, whose lists are cleared of it too."""
    node = 0 if entry.get("numaNode") is None else entry["numaNode"]
    limits = {} if entry.get("limits") is None else entry["limits"]
    if isinstance(node, bool) or not isinstance(node, int) or not -_INT32 <= node < _INT32 or not isinstance(limits, Mapping):
        raise InvalidInput("%s has an entry that kubelet can't read." % what, "Write entries like {numaNode: 0, limits: {memory: 1Gi}}.")
    amounts = {
        resource: "0" if amount is None else str(amount).strip()
        for resource, amount in limits.items()
        if amount is not None or not in_drop_in
    }
    if amounts:
        from .quantity import parse_quantity  # only nodes with reservedMemory pay for it

        for resource, amount in amounts.items():
            parse_quantity(amount, "%s of NUMA node %s: %s" % (what, node, resource))
    return {"numaNode": node, "limits": amounts}


_INT32 = 1 << 31


# --- flags --------------------------------------------------------------------------------------------------------------------------------


def _of_flag(flag: str, value: str) -> Any:
    """A flag's value as the field has it."""
    kind = FIELDS[FLAGS[flag]]
    if kind == TEXT:
        return value
    if kind == TRUTH:
        return _truth(flag, value)
    if kind == NAMES:
        return value.split(",") if value else []
    if kind == RESERVATIONS:
        given = value.split(REPEATED[flag])
        given = given if given[-1] else given[:-1]  # an empty flag adds nothing, and no other may follow
        return [_reservation_of(flag, part) for text in given for part in text.split(";")]
    parts = value.split(REPEATED[flag])
    pairs = dict(_pair(flag, part, "<" if flag == "eviction-hard" else "=") for part in parts if part or REPEATED[flag] != ",")
    return {name: _truth(flag, text) for name, text in pairs.items()} if kind == TRUTHS else pairs


def _reservation_of(flag: str, text: str) -> Dict[str, Any]:
    node, _colon, limits = text.partition(":")
    if not re.match(r"[+-]?[0-9]{1,18}\Z", node) or not re.match(r"[^=,:]*=[^=,:\s]*(,[^=,:]*=[^=,:\s]*)*\Z", limits):
        raise _bad_flag(flag, text)
    pairs = (part.split("=") for part in limits.split(","))
    return _reservation({"numaNode": int(node), "limits": dict(pairs)}, "kubelet's flag --%s" % flag)


def _pair(flag: str, text: str, sign: str) -> Tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found:
        raise _bad_flag(flag, text)
    return name.strip(), value.strip()


def _truth(flag: str, text: str) -> bool:
    if text not in TRUTH_WORDS:
        raise _bad_flag(flag, text)
    return TRUTH_WORDS[text]


def _bad_flag(flag: str, text: str) -> InvalidInput:
    return InvalidInput("kubelet's flag --%s has \"%s\", which kubelet can't read." % (flag, text), "Mend the flag, or take it out.")


def as_flags(configuration: Mapping[str, Any]) -> List[str]:
    """A configuration as flags without dashes ("cpu-manager-policy=static"), for a kubelet that reads no file of ours.

    Fields that have no flag (memorySwap) are left out.
    """
    words = []
    for flag, field in FLAGS.items():
        value = configuration.get(field)
        if value is None:
            continue
        if field == "reservedMemory":
            parts = ["%d:%s" % (entry["numaNode"], ",".join(map("=".join, entry["limits"].items()))) for entry in value]
        elif isinstance(value, Mapping):
            sign = "<" if flag == "eviction-hard" else "="
            pairs = [name + sign + (json.dumps(item) if isinstance(item, bool) else str(item)) for name, item in value.items()]
            parts = pairs if flag == "cpu-manager-policy-options" else [",".join(pairs)]
        elif isinstance(value, list):
            parts = [",".join(value)]
        else:
            parts = [json.dumps(value) if isinstance(value, bool) else str(value)]
        words += ["%s=%s" % (flag, part) for part in parts]
    return words
