# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What systemd makes of a service's files: the command line that it starts, from the texts of the unit, its drop-ins and environment files.

Sources: systemd.syntax(7), systemd.service(5) on ExecStart, systemd.exec(5) on Environment and EnvironmentFile, and where these say too
little src/shared/conf-parser.c and src/basic/env-file.c.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_LINE_END = re.compile(r"\r\n?|\n")

# A quoted part of a value; one that isn't closed goes to the end of the file.
_QUOTED = r"""[ \t]*(?:"((?:[^"\\]|\\.)*)(?:"|\Z)|'([^']*)(?:'|\Z))"""
_PART = re.compile(_QUOTED, re.DOTALL)
# Of an environment file: a comment, an assignment with its value as it is written (quoted parts, then bare text), or any other line.
_ENTRY = re.compile(r"\s*(?:[#;][^\n]*|([^=\n]+)=((?:%s)*)[ \t]*((?:[^\\\n]|\\.)*)|[^\n]+)" % _QUOTED, re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w*\Z", re.ASCII)


@dataclass(frozen=True)
class Service:
    """What counts of a unit with its drop-ins: the last ExecStart, the environment, the environment files in order (without "-")."""

    exec_start: str = ""
    environment: Tuple[Tuple[str, str], ...] = ()
    environment_files: Tuple[str, ...] = ()


def service(texts: Iterable[str]) -> Service:
    """A unit and its drop-ins in the order in which systemd reads them. An empty assignment drops what earlier files gave."""
    exec_start = ""
    environment: List[Tuple[str, str]] = []
    files: List[str] = []
    for key, value in (pair for text in texts for pair in _settings(text)):
        if key == "ExecStart":
            exec_start = value
        elif key == "Environment":
            pairs = [word.partition("=") for word in _words(value)]
            environment = [*environment, *((name, content) for name, _equals, content in pairs)] if value else []
        elif key == "EnvironmentFile":
            files = [*files, value.lstrip("-")] if value else []
    return Service(exec_start, tuple(environment), tuple(files))


def _settings(text: str) -> Iterator[Tuple[str, str]]:
    """The assignments of the section [Service]."""
    section = ""
    for line in map(str.strip, _whole_lines(text)):
        if line.startswith("["):
            section = line
        elif section == "[Service]":
            key, _equals, value = line.partition("=")
            yield key.strip(), value.strip()


def _whole_lines(text: str) -> Iterator[str]:
    """The lines without comments. A backslash at the end is a blank, after which the next line that is no comment goes on."""
    whole = ""
    for line in _LINE_END.split(text):
        if line.lstrip().startswith(("#", ";")):
            continue
        whole += line
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1] + " "
        else:
            yield whole
            whole = ""
    yield whole


def environment_file(text: str) -> Dict[str, str]:
    """The variables of an environment file. A value may be quoted, in parts too, and go over several lines: a backslash before a line's end
    goes with it, but between single quotes. A comment ends with its line, as since systemd 254."""
    found = {}
    for match in _ENTRY.finditer(_LINE_END.sub("\n", text)):
        name, quoted, bare = (match.group(1) or "").rstrip(), match.group(2), match.group(5)
        if _NAME.match(name):
            parts = [re.sub(r'\\(?:\n|(["\\`$]))', r"\1", double) + single for double, single in _PART.findall(quoted)]
            found[name] = "".join(parts) + re.sub(r"\\(?:\n|(.))", r"\1", bare.rstrip())
    return found


def command_line(unit: Service, files: Sequence[Mapping[str, str]]) -> List[str]:
    """The words of ExecStart. Files override Environment=. A lone $NAME becomes as many words as its value has, ${NAME} one or a part."""
    variables = dict(unit.environment)
    for file in files:
        variables.update(file)
    words: List[str] = []
    for word in _words(unit.exec_start.lstrip("@-:+!")):
        match = _VARIABLE.match(word)
        if match and match.end() == len(word) and match.group(2):
            words.extend(_words(variables.get(match.group(2), "")))
        else:
            words.append(_VARIABLE.sub(lambda m: variables.get(m.group(1) or m.group(2), ""), word))
    return words


def _words(text: str) -> List[str]:
    """The text cut as a shell would; as blanks cut it when a quote isn't closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
