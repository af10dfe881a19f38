# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""YAML as far as a KubeletConfiguration needs it: written for people, and changed key by key with everybody else's lines left alone.

A node need not have a YAML library, so a file is taken as top-level blocks, and only the blocks of our keys are looked into. What is
beyond that (JSON, anchors that others use, several documents) is refused, never guessed.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Set, Tuple

from .errors import InvalidInput

_KEY = re.compile(r"""(?:"([^"\\]+)"|'([^']+)'|([A-Za-z_][\w./+-]*))[ \t]*:(?:[ \t]+(.*))?\Z""")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z./-]*(\d+[A-Za-z][\w./-]*)?\Z")
# Plain words that a YAML 1.1 reader takes for something else than text.
_WORDS = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
_PLAIN_KEY = re.compile(r"[A-Za-z_][\w.-]*\Z")
_LINE_END = re.compile(r"\r\n|\r|\n")
_OF_DOCUMENTS = re.compile(r"\A\ufeff|^(?:%|---|\.\.\.)", re.MULTILINE)
_START = re.compile(r"---([ \t]+#.*)?[ \t]*\Z")  # of a document
# What a file is that has a line which begins like this, where a top-level key is looked for.
_OTHER_FORMS = {
    "\ufeff": "starts with a byte order mark",
    "%": "has a YAML directive",
    "{": "is JSON, or a mapping in braces",
    "---": "holds several documents",
    "...": "holds several documents",
    "": "has what is not a top-level key",
}


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
    if not isinstance(item, Mapping) or not item:
        return ["- " + _scalar(item)]
    lines = [line for pair in item.items() for line in write_key(*pair)]
    return ["- " + lines[0]] + ["  " + line for line in lines[1:]]


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)


def blocks(text: str, name: str, instead: str = "") -> List[Block]:
    """The top-level blocks of a file; joined they are the text again. ``instead``: what else can be done about one in another form.

    :raises InvalidInput: not a single block-style mapping
    """
    found: List[Block] = []
    level = 0  # how far the first key below the block's own is indented
    for number, line in enumerate(_lines(text), 1):
        match = _KEY.match(line)
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise InvalidInput(
                "%s has a tab before the text of line %d, and YAML is indented with blanks; nothing reads it." % (name, number),
                "Put blanks in its place.",
            )
        if match:
            key = _name(match)
            if any(block.key == key for block in found):
                raise InvalidInput("%s has the key %s twice (line %d)." % (name, key, number), "Take one of them out.")
            found.append(Block(key, [line]))
            level = 0
        elif not line.strip() or line.startswith("#") or (_START.match(line) and not any(block.key for block in found)):
            found.append(Block(None, [line]))
        elif found and (line[0] in " \t" or _is_item(line)):
            owner, indent = _owner(found, name, number), len(line) - len(line.lstrip())
            if 0 < indent < level and not line.lstrip().startswith("#"):
                raise InvalidInput(
                    "%s has line %d indented less than what stands before it, and no key that it could belong to." % (name, number),
                    "Indent it as its neighbours are, or not at all.",
                )
            level = indent if len(owner.lines) == 1 and owner.lines[0].rstrip().endswith(":") and _KEY.match(line.strip()) else level
            owner.lines.append(line)
        else:
            form = next(form for start, form in _OTHER_FORMS.items() if line.startswith(start))
            raise InvalidInput(
                "%s %s (line %d); only one mapping in block style can be taken apart here." % (name, form, number),
                "Make it one mapping in block style%s." % instead,
            )
    return found


def first_document(text: str) -> str:
    """What a reader takes of a file: no byte order mark, no directives, and nothing after the first document."""
    if not _OF_DOCUMENTS.search(text):
        return text
    lines = _lines(text.removeprefix("\ufeff"))
    start = next((number for number, line in enumerate(lines) if line.strip() and not line.startswith(("%", "#"))), len(lines))
    end = next((number for number, line in enumerate(lines) if number > start and re.match(r"(---|\.\.\.)(\s|\Z)", line)), len(lines))
    return "\n".join("" if line.startswith("%") else line for line in lines[:end])


def _lines(text: str) -> List[str]:
    lines = _LINE_END.split(text)
    return lines if lines[-1] else lines[:-1]


def _name(match: re.Match[str]) -> str:
    return match.group(1) or match.group(2) or match.group(3)


def _owner(found: List[Block], name: str, number: int) -> Block:
    """The block a continued line belongs to; comments and blank lines before it become part of that block."""
    between: List[str] = []
    while found and found[-1].key is None:
        between = found.pop().lines + between
    if not found:
        raise InvalidInput("%s has line %d indented, and no key that it could belong to." % (name, number), "Mend the file.")
    found[-1].lines.extend(between)
    return found[-1]


def join(parts: List[Block], end: str = "\n") -> str:
    """The text of the blocks, with this end of each line."""
    return "".join(line + end for block in parts for line in block.lines)


def line_end(text: str) -> str:
    """How the lines of a file end: as the first one does."""
    match = _LINE_END.search(text)
    return match.group() if match else "\n"


def with_entries(block: Block, entries: Mapping[str, Any], name: str) -> Block:
    """The block of a mapping with these entries. Lines of entries that stay are left as they are, comments too, unless the mapping is in
    braces or has an entry over several lines: then it is written anew.

    :raises InvalidInput: it can't be read
    """
    present, key = value(block, name), block.key or ""
    anew = Block(key, write_key(key, entries))
    lines, end, indent, missing = [block.lines[0]], 1, "  ", dict(entries)
    if not isinstance(present, dict) or not entries or not _uncommented(block.lines[0]).endswith(":"):
        return anew
    for line in block.lines[1:]:
        match = _KEY.match(line.strip())
        if not line.strip() or line.lstrip().startswith("#"):
            lines.append(line)
        elif match is None or isinstance(present.get(_name(match), []), (dict, list)):
            return anew
        else:
            item, indent = _name(match), line[: len(line) - len(line.lstrip())]
            if item in missing:
                wanted = missing.pop(item)
                lines.append(line if wanted == present[item] else indent + write_key(item, wanted)[0])
                end = len(lines)
    lines[end:end] = [indent + line for item, wanted in missing.items() for line in write_key(item, wanted)]
    return Block(key, lines)


_ANCHOR = re.compile(r"""(?<![^\s\[{,])(?:"(?:[^"\\]|\\.)*"|'[^']*'|([&*][^\s\[\]{},]+))""")


def anchors(block: Block, sign: str) -> Set[str]:
    """The names of the anchors in the block (``sign`` "&"), or of those that it refers to ("*")."""
    found = (match for line in block.lines for match in _ANCHOR.findall(_uncommented(line)))
    return {match[1:] for match in found if match.startswith(sign)}


class _Unreadable(Exception):
    """Not the subset of YAML that is read here."""


def value(block: Block, name: str) -> Any:
    """The value of a key: scalars, mappings and lists, in block style or as flow collections.

    :raises InvalidInput: anything else (anchors, tags, texts over several lines)
    """
    lines = [
        (len(line) - len(line.lstrip(" ")), _uncommented(line.strip()))
        for line in block.lines
        if line.strip() and not line.lstrip().startswith("#")
    ]
    try:
        found, rest = _mapping(lines, lines[0][0])
        if rest:
            raise _Unreadable
    except _Unreadable:
        raise InvalidInput(
            "%s holds %s in a form that isn't read here." % (name, block.key),
            "Write it as plain lines of key: value.",
        ) from None
    return found[block.key or ""]


_Lines = List[Tuple[int, str]]  # how far a line is indented, and its text without comment


def _mapping(lines: _Lines, indent: int) -> Tuple[Dict[str, Any], _Lines]:
    """The mapping whose keys stand at this indentation, and the lines after it."""
    items: Dict[str, Any] = {}
    while lines and lines[0][0] == indent and not _is_item(lines[0][1]):
        match = _KEY.match(lines[0][1])
        key = _name(match) if match else ""
        if match is None or key in items:
            raise _Unreadable
        items[key], lines = _content((match.group(4) or "").strip(), lines[1:], indent, True)
    return items, lines


def _list(lines: _Lines, indent: int) -> Tuple[List[Any], _Lines]:
    items = []
    while lines and lines[0][0] == indent and _is_item(lines[0][1]):
        text = lines[0][1][1:]
        inner = indent + 1 + len(text) - len(text.lstrip(" "))
        item: Any
        if _KEY.match(text.strip()):
            item, lines = _mapping([(inner, text.strip()), *lines[1:]], inner)
        else:
            item, lines = _content(text.strip(), lines[1:], indent, False)
        items.append(item)
    return items, lines


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _content(inline: str, lines: _Lines, indent: int, of_key: bool) -> Tuple[Any, _Lines]:
    """What a key or a dash holds: the rest of its line, or the deeper lines below. (The dashes of a key's list may be no deeper.)"""
    if inline[:1] in ("{", "["):
        while lines and lines[0][0] > indent:
            inline, lines = inline + " " + lines[0][1], lines[1:]
        found, position = _flow(inline, 0)
        if position < len(inline):
            raise _Unreadable
        return found, lines
    if inline:
        if lines and lines[0][0] > indent:
            raise _Unreadable
        return _read_scalar(inline), lines
    if lines and lines[0][0] > indent:
        return _list(lines, lines[0][0]) if _is_item(lines[0][1]) else _mapping(lines, lines[0][0])
    if of_key and lines and lines[0][0] == indent and _is_item(lines[0][1]):
        return _list(lines, indent)
    return None, lines


_FLOW_SCALAR = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\[\]{},:"'\s](?:[^\[\]{},:]|:(?!\s|\Z))*)""")


def _flow(text: str, position: int) -> Tuple[Any, int]:
    """A scalar or flow collection from ``position`` on, and where it ends, blanks behind it included."""
    closing = {"{": "}", "[": "]"}.get(text[position : position + 1])
    if closing is None:
        match = _FLOW_SCALAR.match(text, position)
        if match is None:
            raise _Unreadable
        return _read_scalar(match.group(1).strip()), _past_blanks(text, match.end())
    mapping: Dict[str, Any] = {}
    items: List[Any] = []
    position = _past_blanks(text, position + 1)
    while text[position : position + 1] != closing:
        found, position = _flow(text, position)
        if closing == "]":
            items.append(found)
        elif text[position : position + 1] == ":" and isinstance(found, str):
            mapping[found], position = _flow(text, _past_blanks(text, position + 1))
        else:
            raise _Unreadable
        if text[position : position + 1] == ",":
            position = _past_blanks(text, position + 1)
        elif text[position : position + 1] != closing:
            raise _Unreadable
    return (mapping if closing == "}" else items), _past_blanks(text, position + 1)


def _past_blanks(text: str, position: int) -> int:
    return position + len(text[position:]) - len(text[position:].lstrip())


_COMMENT = re.compile(r"""((?<![^\s\[{,])(?:"(?:[^"\\]|\\.)*"|'[^']*'))|\s#.*\Z""")


def _uncommented(text: str) -> str:
    """A line without its comment: from a "#" behind a blank on, outside of quotes."""
    return _COMMENT.sub(lambda match: match.group(1) or "", text).strip()


def _read_scalar(text: str) -> Any:
    """A scalar as YAML 1.1 has it and kubelet's reader takes it: yes and on are truths."""
    if text[:1] == '"':
        try:
            return json.loads(text)
        except ValueError:
            raise _Unreadable from None
    if text[:1] == "'":
        if len(text) < 2 or text[-1] != "'":
            raise _Unreadable
        return text[1:-1].replace("''", "'")
    if text[:1] in tuple("{[&*!|>%@`") or text[:2] in ("? ", "- "):
        raise _Unreadable
    if text in _TRUTHS:
        return _TRUTHS[text]
    if text.lower() in ("", "null", "~"):
        return None
    if re.match(r"[-+]?(0|[1-9][0-9]*)\Z", text):
        return int(text)
    number = float(text) if re.match(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?\Z", text) else math.inf
    return text if math.isinf(number) else number  # one that is too large stays a text


_TRUTHS = {
    form: truth
    for truth, words in ((True, ("true", "yes", "on", "y")), (False, ("false", "no", "off", "n")))
    for word in words
    for form in (word, word.capitalize(), word.upper())
}
