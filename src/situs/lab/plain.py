"""Records as JSON: dataclasses are written by the names of their fields, and read back by their types.

A field whose default is None is left out where it is None. JSON has no word for some numbers: they are written as the
strings "NaN", "Infinity" and "-Infinity", as Protocol Buffers do. All others come back bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from types import GenericAlias, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from situs.lab.naming.grammar import Method, parse

T = TypeVar("T")
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class UnreadableError(ValueError):
    """Raised for data that is not what a record must be."""


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Write a record, or anything made of records, as JSON."""
    return json.dumps(to_plain(value), indent=indent, allow_nan=False)


def from_json(kind: type[T] | GenericAlias, text: str) -> T:
    """Read a record of one kind from JSON; raises `UnreadableError` if it is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UnreadableError(f"a record must be JSON; got {text[:20]!r}") from problem
    return from_plain(kind, data)


def to_plain(value: Any) -> Any:
    """Turn a record into dicts, lists, strings and finite numbers; a method into its name."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Method):
        return value.name
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    held = {field: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {field.name: to_plain(each) for field, each in held.items() if each is not None or field.default is not None}


def from_plain(kind: type[T] | GenericAlias, value: Any) -> T:
    """Make a record of one kind from plain data; raises `UnreadableError` if it is none."""
    try:
        found: T = _read(kind, value, "a record")
    except UnreadableError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as problem:  # a class's own rules, a name, a number
        raise UnreadableError(
            f"a record must be {getattr(kind, '__name__', kind)}; got one where {problem}"
        ) from problem
    return found


def _read(kind: Any, value: Any, where: str) -> Any:
    """Make a value of an annotation's type; ``where`` names it in errors."""
    origin, members = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None and NoneType in members:
            return None
        (kind,) = (member for member in members if member is not NoneType)
        return _read(kind, value, where)
    if dataclasses.is_dataclass(kind) and isinstance(value, dict) and kind is not Method:
        return _read_fields(kind, value)
    if kind is Method and isinstance(value, str):
        return parse(value)
    if origin is dict and isinstance(value, dict):
        return {members[0](name): _read(members[1], each, where) for name, each in value.items()}
    if origin is list and isinstance(value, list):
        return [_read(members[0], each, where) for each in value]
    if origin is tuple and isinstance(value, list):
        kinds = members[:1] * len(value) if members[-1] is Ellipsis else members
        if len(kinds) == len(value):
            return tuple(_read(each, part, where) for each, part in zip(kinds, value, strict=True))
    if origin is Literal:
        if value in members:
            return value
        raise UnreadableError(f"{where} must be one of {', '.join(members)}; got {value!r:.40}")
    if kind is float and (type(value) in (int, float) or (isinstance(value, str) and value in NOT_FINITE)):
        return float(NOT_FINITE.get(value, value))
    if type(value) is kind:
        return value
    raise UnreadableError(f"{where} must be {getattr(kind, '__name__', kind)}; got {value!r:.40}")


def _read_fields(kind: Any, value: Mapping[str, Any]) -> Any:
    """Make a dataclass; fields that are not there get their defaults, and what it does not know is passed over."""
    found = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            found[field.name] = _read(_types(kind)[field.name], value[field.name], field.name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UnreadableError(f"{kind.__name__} must have {field.name}; got {', '.join(value) or 'nothing'}")
    return kind(**found)


@lru_cache(maxsize=64)
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
