# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""kubelet's flags, from the words of its command line or of the files of k3s and RKE2."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

from .kubelet_fields import FIELDS, FLAGS, TRUTH, with_words

_RANCHER_KEYS = ("data-dir", "kubelet-arg")


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
