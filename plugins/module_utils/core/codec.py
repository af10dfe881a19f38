# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Frozen dataclasses to plain JSON values and back, by their type hints: the one place that knows how a value is written."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from functools import cache
from typing import Any, Dict, Type, TypeVar

from .cpuset import CpuSet
from .errors import InvalidInput, unknown_name

T = TypeVar("T")


@cache
def _hints(cls: type) -> Dict[str, Any]:
    return typing.get_type_hints(cls)


def to_json(value: Any) -> Any:
    """A JSON value: a CpuSet becomes its cpulist, a tuple a list, a dataclass an object, a mapping key a string."""
    if isinstance(value, CpuSet):
        return value.to_list()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    return value


def digest(value: Any) -> str:
    """The SHA-256 of a JSON value, its keys in their order: they are the order of what is written."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def from_json(cls: Type[T], data: Any, where: str = "") -> T:
    """The dataclass ``cls`` from a JSON object.

    :raises InvalidInput: an unknown or missing key, or a value of the wrong type, named by its path
    """
    return typing.cast(T, _decode(cls, data, where or cls.__name__))


def _decode(hint: Any, data: Any, where: str) -> Any:
    if hint is CpuSet:
        return CpuSet.parse(_expect(str, data, where))
    if dataclasses.is_dataclass(hint):
        return _decode_dataclass(hint, data, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union:
        return None if data is None else _decode(arguments[0], data, where)
    if origin is tuple:
        return tuple(_decode(arguments[0], item, "%s[%d]" % (where, i)) for i, item in enumerate(_expect(list, data, where)))
    if origin is dict:
        return {arguments[0](key): _decode(arguments[1], item, "%s.%s" % (where, key)) for key, item in _expect(dict, data, where).items()}
    return data if hint is Any else _expect(hint, data, where)


def _decode_dataclass(cls: Any, data: Any, where: str) -> Any:
    hints = _hints(cls)
    given = _expect(dict, data, where)
    for key in given:
        if key not in hints:
            raise unknown_name("key of %s" % where, str(key), hints)
    values = {key: _decode(hints[key], item, "%s.%s" % (where, key)) for key, item in given.items()}
    try:
        return cls(**values)
    except TypeError:
        required = [
            f.name for f in dataclasses.fields(cls) if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        ]
        missing = ", ".join(sorted(set(required) - set(values)))
        raise InvalidInput("%s lacks %s." % (where, missing), "Pass the value as gpufleet.node wrote it.") from None


def _expect(kind: Any, data: Any, where: str) -> Any:
    """Type check; a bool is no int, and text is turned into str (Ansible hands out a str subclass)."""
    if kind is str and isinstance(data, str):
        return str(data)
    if isinstance(data, kind) and not (kind is int and isinstance(data, bool)):
        return data
    raise InvalidInput("%s is %r, which is not %s." % (where, data, kind.__name__), "Pass the value as gpufleet.node wrote it.")
