# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""TOML as far as containerd's configuration needs it: Python has a reader of its own from 3.11 on only.

All of TOML's structure is read: tables, dotted and quoted keys, inline tables, lists over several lines, every form of text. Of scalars
only texts, truths and whole decimal numbers get their values; others (dates, floats) stay words, since none of ours is one.
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List

from .errors import InvalidInput

_TOKEN = re.compile(
    r"""(?:[ \t\r]|\#[^\n]*)*(\n | [\[\]{}=,.] | [^\s\[\]{}=,.\#"']+
    | \"{3}(?:[^\\]|\\.)*?\"{3,5} | '{3}.*?'{3,5} | "(?:[^"\\\n]|\\.)*" | '[^'\n]*' | \Z)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:(U)([0-9A-Fa-f]{8})|[ \t\r]*\n\s*|u[0-9A-Fa-f]{4}|.)", re.DOTALL)


def read(text: str) -> Dict[str, Any]:
    """The document as a mapping. An array of tables is a list; of a key that is given twice, which TOML forbids, the last counts.

    :raises InvalidInput: no TOML
    """
    try:
        return _Reader(text).document()
    except (IndexError, KeyError, TypeError, AttributeError, ValueError):
        raise InvalidInput("The text is no TOML.", "Mend it where its reader says so.") from None


class _Reader:
    """The tokens of a text, from a position on. What doesn't fit raises one of the errors that ``read`` knows."""

    def __init__(self, text: str) -> None:
        self._tokens: List[str] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError
            self._tokens.append(match.group(1))
            position = match.end()
        self._tokens += ["\n", ""]
        self._position = 0

    def document(self) -> Dict[str, Any]:
        result: Dict[str, Any] = {}
        table = result
        while self._past_newlines():
            if self._skip("["):
                is_item = self._skip("[")
                keys = self._keys()
                self._expect("]" * (1 + is_item))
                table = _below(result, keys[:-1])
                if is_item:
                    table.setdefault(keys[-1], []).append({})
                table = _below(table, keys[-1:])
            else:
                self._assignment(table)
            self._expect("\n")
        return result

    def _assignment(self, table: Dict[str, Any]) -> None:
        keys = self._keys()
        self._expect("=")
        _below(table, keys[:-1])[keys[-1]] = self._value()

    def _keys(self) -> List[str]:
        """A key with its dots."""
        keys = [_text(self._next())]
        while self._skip("."):
            keys.append(_text(self._next()))
        return keys

    def _value(self) -> Any:
        if self._skip("["):
            items: List[Any] = []
            while self._past_newlines() != "]":
                items.append(self._value())
                self._past_newlines()
                if not self._skip(","):
                    break
            self._past_newlines()
            self._expect("]")
            return items
        if self._skip("{"):
            table: Dict[str, Any] = {}
            while self._past_newlines() != "}":
                self._assignment(table)
                self._past_newlines()
                if not self._skip(","):
                    break
            self._expect("}")
            return table
        return self._scalar()

    def _scalar(self) -> Any:
        token = self._next()
        if token[0] in "\"'":
            return _text(token)
        while self._tokens[self._position] not in ("", "\n", ",", "]", "}"):  # the rest of a date or of a number with a point
            token += self._tokens[self._position]
            self._position += 1
        if token in ("true", "false"):
            return token == "true"
        return int(token) if re.match(r"[+-]?\d+(_\d+)*\Z", token, re.ASCII) else token

    def _past_newlines(self) -> str:
        """The next token that is no end of a line."""
        while self._skip("\n"):
            pass
        return self._tokens[self._position]

    def _skip(self, token: str) -> bool:
        found = self._tokens[self._position] == token
        self._position += found
        return found

    def _expect(self, tokens: str) -> None:
        for token in tokens:
            if not self._skip(token):
                raise ValueError

    def _next(self) -> str:
        token = self._tokens[self._position]
        if token in ("", "\n", "[", "]", "{", "}", "=", ",", "."):
            raise ValueError
        self._position += 1
        return token


def _below(table: Dict[str, Any], keys: List[str]) -> Dict[str, Any]:
    """The table that the keys lead to, made where it isn't there; of a list of tables the last."""
    for key in keys:
        inner = table.setdefault(key, {})
        table = inner[-1] if isinstance(inner, list) else inner
    return table


def _text(token: str) -> str:
    """What a quoted or bare token says."""
    quote = token[0] if token[0] in "\"'" else ""
    width = 3 if quote and token.startswith(3 * quote) and len(token) >= 6 else len(quote)
    content = token[width : len(token) - width]
    content = re.sub(r"\A\r?\n", "", content) if width == 3 else content
    return _ESCAPE.sub(lambda match: _unescaped(match.group(), match.group(2)), content) if quote == '"' else content


def _unescaped(escape: str, code: str) -> str:
    if code:
        return chr(int(code, 16))
    unescaped: str = "" if escape[1:].isspace() else "\x1b" if escape == "\\e" else json.loads('"%s"' % escape)
    return unescaped
