# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""YAML as far as a KubeletConfiguration needs it: written for people, and changed key by key with everybody else's lines left alone.

A node need not have a YAML library, so a file is taken as top-level blocks, and only the blocks of our keys are looked into. What is
beyond that (flow mappings of our keys, anchors, several documents) is refused, never guessed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

from .errors import InvalidInput

_KEY = re.compile(r"""(?:"([^"\\]+)"|'([^']+)'|([A-Za-z_][\w./-]*))[ \t]*:(?:[ \t]+(.*))?\Z""")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z./-]*(\d+[A-Za-z][\w./-]*)?\Z")
# Plain words that a YAML 1.1 reader takes for something else than text.
_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w.-]*\Z")


@dataclass(frozen=True)
class Block:
    """Some lines of a file: a top-level key with its value, or (key None) comments and blank lines between."""

    key: Optional[str]
    lines: List[str]


def write(mapping: Mapping[str, Any]) -> str:
    """Texts, numbers, truths, mappings and lists as block-style YAML. A text that could be read as something else is quoted."""
    return "".join(line + "\n" for key, value in mapping.items() for line in write_key(key, value))


def write_key(key: str, value: Any) -> List[str]:
    """The lines of one key and its value."""
    name = key if _PLAIN_KEY.match(key) and key.lower() not in _WORDS else json.dumps(key, ensure_ascii=False)
    if isinstance(value, Mapping) and value:
        return [name + ":"] + ["  " + line for item in value.items() for line in write_key(*item)]
    if isinstance(value, (list, tuple)) and value:
        return [name + ":"] + [line for item in value for line in _list_item(item)]
    return ["%s: %s" % (name, _scalar(value))]


def _list_item(item: Any) -> List[str]:
    if not isinstance(item, Mapping):
        return ["- " + _scalar(item)]
    lines = [line for pair in item.items() for line in write_key(*pair)]
    return ["- " + lines[0]] + ["  " + line for line in lines[1:]]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def blocks(text: str, name: str) -> List[Block]:
    """The top-level blocks of a file; joined they are the text again.

    :raises InvalidInput: not a single block-style mapping
    """
    found: List[Block] = []
    for number, line in enumerate(text.splitlines(), 1):
        match = _KEY.match(line)
        if match:
            key = match.group(1) or match.group(2) or match.group(3)
            if any(block.key == key for block in found):
                raise InvalidInput("%s has the key %s twice (line %d)." % (name, key, number), "Take one of them out.")
            found.append(Block(key, [line]))
        elif not line.strip() or line.startswith("#") or (line.rstrip() == "---" and not any(block.key for block in found)):
            found.append(Block(None, [line]))
        elif found and (line[0] in " \t" or line.startswith("- ")):
            _owner(found, name, number).lines.append(line)
        else:
            raise InvalidInput(
                "%s can't be merged into: line %d is not a top-level key of a block-style mapping." % (name, number),
                "Rewrite it in block style, or have kubelet read a drop-in folder (--config-dir).",
            )
    return found


def _owner(found: List[Block], name: str, number: int) -> Block:
    """The block a continued line belongs to; comments and blank lines before it become part of that block."""
    between: List[str] = []
    while found and found[-1].key is None:
        between = found.pop().lines + between
    if not found:
        raise InvalidInput("%s can't be merged into: line %d belongs to no key." % (name, number), "Mend the file.")
    found[-1].lines.extend(between)
    return found[-1]


def join(parts: List[Block]) -> str:
    """The text of the blocks."""
    return "".join(line + "\n" for block in parts for line in block.lines)


def value(block: Block, name: str) -> Any:
    """The value of a key that is a scalar or a mapping of scalars.

    :raises InvalidInput: it is anything else
    """
    match = _KEY.match(block.lines[0])
    inline = _uncommented((match.group(4) or "") if match else "")
    rest = [line for line in block.lines[1:] if line.strip() and not line.lstrip().startswith("#")]
    if not rest:
        return {} if inline == "{}" else _read_scalar(inline, block, name)
    items: Dict[str, Any] = {}
    indent = len(rest[0]) - len(rest[0].lstrip(" "))
    for line in rest:
        item = _KEY.match(line[indent:]) if line[:indent].strip() == "" else None
        if inline or not indent or not item or item.group(4) is None:
            raise _unreadable(block, name)
        items[item.group(1) or item.group(2) or item.group(3)] = _read_scalar(_uncommented(item.group(4)), block, name)
    return items


def _uncommented(text: str) -> str:
    return re.sub(r"(\A|\s)#.*\Z", "", text).strip() if text[:1] not in "\"'" else re.sub(r"\s+#[^\"']*\Z", "", text).strip()


def _read_scalar(text: str, block: Block, name: str) -> Any:
    if text[:1] == '"':
        try:
            return json.loads(text)
        except ValueError:
            raise _unreadable(block, name) from None
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text[:1] in tuple("{[&*!|>%@`"):
        raise _unreadable(block, name)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lower() in ("", "null", "~"):
        return None
    return int(text) if re.match(r"-?(0|[1-9]\d*)\Z", text) else text


def _unreadable(block: Block, name: str) -> InvalidInput:
    return InvalidInput(
        "%s holds %s in a form that isn't merged here." % (name, block.key),
        "Write it as plain lines of key: value, or have kubelet read a drop-in folder.",
    )
