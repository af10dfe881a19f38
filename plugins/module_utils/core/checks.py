# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Checks of what a user wrote: each takes the variable's name and the value given, and returns the value meant.

:raises InvalidInput: by every check, for a value that can't be
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from .cpuset import CpuSet
from .errors import InvalidInput

Check = Callable[[str, Any], Any]

_YAML_BOOLEANS = {"on": True, "yes": True, "off": False, "no": False}


def refuse(name: str, value: Any, why: str, remedy: str) -> InvalidInput:
    return InvalidInput('%s is "%s", %s.' % (name, value, why), remedy)


def choice(*words: str) -> Check:
    """One of these words. Case matters to kubelet and to the kernel, so it does here.

    YAML reads a bare ``off`` as false and a bare ``no`` too: where one of them is a choice, false means it.
    """
    by_boolean = {_YAML_BOOLEANS[word]: word for word in words if word in _YAML_BOOLEANS}

    def check(name: str, value: Any) -> str:
        if isinstance(value, bool) and value in by_boolean:
            return by_boolean[value]
        if value in words:
            return str(value)
        other_case = [word for word in words if word.lower() == str(value).lower()]
        if other_case:
            raise refuse(name, value, "and case matters", 'Write "%s".' % other_case[0])
        raise refuse(name, value, "which is not a choice", "Choose one of: %s." % ", ".join(words))

    return check


def boolean(name: str, value: Any) -> bool:
    """True or false, also as the text that -e name=value gives."""
    known = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    word = str(value).lower()
    if word not in known:
        raise refuse(name, value, "which is neither true nor false", "Write true or false.")
    return known[word]


def integer(least: int, most: Optional[int] = None) -> Check:
    """A whole number from ``least`` to ``most``."""

    def check(name: str, value: Any) -> int:
        if isinstance(value, (bool, float)) or not re.match(r"-?\d+\Z", str(value)):
            raise refuse(name, value, "which is not a whole number", "Write digits only.")
        number = int(value)
        if number < least or (most is not None and number > most):
            limits = "at least %d" % least if most is None else "from %d to %d" % (least, most)
            raise refuse(name, value, "which is out of range", "Give a number %s." % limits)
        return number

    return check


def cpulist(name: str, value: Any) -> CpuSet:
    """A non-empty CPU list."""
    if not isinstance(value, (str, int)) or isinstance(value, bool):
        raise refuse(name, value, "which is not a CPU list", 'Write it like "0-3,8".')
    try:
        cpus = CpuSet.parse(str(value))
    except InvalidInput as error:
        raise InvalidInput("%s: %s" % (name, error.problem), error.remedy) from None
    if not cpus:
        raise refuse(name, value, "which is empty", "Name at least one CPU, or leave the variable out.")
    return cpus


def words(name: str, value: Any) -> Tuple[str, ...]:
    """A list of texts; one text is a list of its blank-separated words."""
    if isinstance(value, str):
        return tuple(value.split())
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, (str, int)) for item in value):
        raise refuse(name, value, "which is not a list", "Write a YAML list of texts.")
    return tuple(str(item) for item in value)


def one_word(name: str, value: Any) -> str:
    """A single word."""
    found = words(name, value)
    if len(found) != 1:
        raise refuse(name, value, "which is not one word", "Write a single name.")
    return found[0]


def folder(name: str, value: Any) -> str:
    """The absolute path of a folder."""
    if not isinstance(value, str) or not value.startswith("/") or any(character.isspace() for character in value):
        raise refuse(name, value, "which is not the absolute path of a folder", 'Write it like "/etc/kubernetes/kubelet.conf.d".')
    return value.rstrip("/") or "/"


def mappings(name: str, value: Any) -> Tuple[Dict[str, Any], ...]:
    """A list of mappings; what they hold is checked by the concern they belong to."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, Mapping) for item in value):
        raise refuse(name, value, "which is not a list of mappings", "Write a YAML list, one mapping for each service.")
    return tuple(dict(item) for item in value)


def mapping(check_item: Callable[[str, str, Any], Any]) -> Check:
    """A mapping whose items pass ``check_item(variable, key, value)``."""

    def check(name: str, value: Any) -> Dict[str, Any]:
        if not isinstance(value, Mapping):
            raise refuse(name, value, "which is not a mapping", 'Write "key: value" lines below it.')
        return {str(key): check_item(name, str(key), item) for key, item in value.items()}

    return check
