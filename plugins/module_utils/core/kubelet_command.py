# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The command line that a systemd unit gives a kubelet, from the texts of the unit, its drop-ins and environment files.

k3s and RKE2 pass flags on to the kubelet in their own process.

Sources: systemd.service(5) on ExecStart, systemd.exec(5) on Environment and EnvironmentFile.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from .kubelet_fields import FIELDS, FLAGS, TRUTH, with_words

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_ASSIGNMENT = re.compile(r"""^[ \t]*([A-Za-z_]\w*)=(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\n]*))""", re.MULTILINE | re.DOTALL)
_RANCHER_KEYS = ("data-dir", "kubelet-arg")


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


def _settings(text: str) -> Iterable[Tuple[str, str]]:
    """The assignments of the section [Service], continued lines joined."""
    section = ""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and line[0] not in "#;":
            key, _equals, value = line.partition("=")
            yield key.strip(), value.strip()


def environment_file(text: str) -> Dict[str, str]:
    """The variables of an environment file. A value may be quoted and go over several lines."""
    found = {}
    for name, double, single, bare in _ASSIGNMENT.findall(text.replace("\\\n", " ")):
        found[name] = double or single or bare.strip()
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


def flags(words: Sequence[str]) -> Dict[str, str]:
    """The flags among the words, without dashes: --name=value, --name value, or a lone --name, which is "true". Flags that the rules know
    are read as kubelet does: one that is true or false takes no word of its own, the others whatever follows.

    Of a repeated flag the last one counts, or the values are joined where kubelet adds them up. kubelet takes "_" for "-".
    """
    found: List[str] = []
    position = 0
    while position < len(words):
        name, equals, value = words[position].partition("=")
        position += 1
        if not name.startswith("-") or not name.strip("-"):
            continue
        name = name.lstrip("-").replace("_", "-")
        if not equals:
            value = "true"
            kind = FIELDS.get(FLAGS.get(name, ""))
            if position < len(words) and kind != TRUTH and (kind or not words[position].startswith("-")):
                value = words[position]
                position += 1
        found.append("%s=%s" % (name, value))
    return with_words({}, found)


def nested_flags(words: Sequence[str], listed: Sequence[str] = ()) -> Dict[str, str]:
    """The flags that k3s and RKE2 pass on: those that their files list under kubelet-arg, or --kubelet-arg words of their own instead."""
    pairs = [word.partition("=") for word in words]
    own = [
        value if equals else "".join(words[position + 1 : position + 2])
        for position, (name, equals, value) in enumerate(pairs)
        if name == "--kubelet-arg"
    ]
    return flags(["--" + word.lstrip("-") for word in own or listed if word])


def rancher_settings(files: Mapping[str, str]) -> Dict[str, List[str]]:
    """What k3s and RKE2 are told by their files, texts by path: data-dir and kubelet-arg, a lone value as a list of one.

    Later files count: the main one is the first, those of its folder follow by name. A value replaces earlier ones; one whose key ends in
    "+" adds to them. Source: k3s's pkg/configfilearg/parser.go.

    :raises InvalidInput: a file that can't be read here
    """
    found: Dict[str, List[str]] = {}
    for path in sorted(files):
        for key, values in rancher_values(files[path], path).items():
            name = key.rstrip("+")
            found[name] = [*found.get(name, ()), *values] if key != name else values
    return found


def rancher_values(text: str, path: str) -> Dict[str, List[str]]:
    """The same of one file, by keys as they stand there."""
    if not any(name in text for name in _RANCHER_KEYS):
        return {}
    from . import yaml_text  # few nodes have k3s or RKE2

    given = {
        block.key: yaml_text.value(block, path) for block in yaml_text.blocks(text, path) if (block.key or "").rstrip("+") in _RANCHER_KEYS
    }
    return {str(key): [_said(one) for one in (value if isinstance(value, list) else [value])] for key, value in given.items()}


def _said(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _words(text: str) -> List[str]:
    """The text cut as a shell would; as blanks cut it when a quote isn't closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
