"""JSON from anywhere, read within bounds: a configuration is data that somebody else wrote.

    at most 64 MiB, a million values, 64 levels; every name once in its object

`json` would keep the last of two equal names, take any size and fail by recursion. What is refused is said with the
line where it stands. Numbers that are not finite are read, since released configurations hold them where no position
is meant (``"time_step_limit": [0.0, Infinity]``); whoever needs a number refuses them.
"""

from __future__ import annotations

import json
from typing import Any

BYTES = 64 * 2**20
VALUES = 1_000_000
LEVELS = 64


class ConfigError(ValueError):
    """Raised where a configuration cannot be read, or says what cannot be."""


def parse(given: bytes | str, name: str) -> dict[str, Any]:
    """Read one JSON object; ``name`` is what errors call it."""
    text = _decode(given, name)
    values = 1 + sum(text.count(each) for each in ",[{")
    if values > VALUES:
        raise ConfigError(
            f"{name} must have at most {VALUES:,} values, since it is a configuration; got about {values:,}."
        )
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except _TwiceError as problem:
        raise ConfigError(
            f"{name} must have every key once in an object, since readers differ in which they take; got "
            f"{problem.args[0]!r} twice. Remove one of them."
        ) from None
    except json.JSONDecodeError as problem:
        raise ConfigError(
            f"{name} must be JSON; got {problem.msg[0].lower()}{problem.msg[1:]} in line {problem.lineno}, column "
            f"{problem.colno}.{_cut(text, problem.pos)}"
        ) from None
    except RecursionError:
        _refuse_depth(name)
    except ValueError:  # a number of more digits than Python reads
        raise ConfigError(f"{name} must have numbers of at most 4,300 digits; got a longer one.") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{name} must be a JSON object, since settings have names; got {_told(found)}.")
    require_depth(found, name)
    return found


def require_depth(found: object, name: str) -> None:
    """Raise if objects and lists hold each other in more levels than any configuration has."""
    level: list[Any] = [found]
    levels = 0
    while level:
        if levels > LEVELS:
            _refuse_depth(name)
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, (dict, list, tuple))
        ]
        levels += 1


def _refuse_depth(name: str) -> None:
    raise ConfigError(f"{name} must have at most {LEVELS} levels, since it is a configuration; got more.")


class _TwiceError(ValueError):
    """Raised for a name that stands twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        raise _TwiceError(next(key for index, key in enumerate(names) if key in names[:index]))
    return found


def _decode(given: bytes | str, name: str) -> str:
    size = len(given)
    if size > BYTES:
        raise ConfigError(f"{name} must have at most 64 MiB, since it is a configuration; got {size / 2**20:,.0f} MiB.")
    if isinstance(given, str):
        return given.removeprefix("\ufeff")
    try:
        return given.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ConfigError(
            f"{name} must be text in UTF-8, since JSON is; got a byte {given[problem.start]:#04x} at {problem.start}."
        ) from None


def _cut(text: str, position: int) -> str:
    """What to say where the text ends before its object does."""
    return " The file seems to be cut off." if position >= len(text.rstrip()) and text.strip() else ""


def _told(found: object) -> str:
    kinds = {list: "a list", str: "a string", bool: "a truth value", int: "a number", float: "a number"}
    return kinds.get(type(found), "null")
