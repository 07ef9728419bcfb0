"""The registry: every encoding by name, with what people ask about it first.

Tests, the command line, documentation, the lab and the explorer all read it, so an encoding that is
registered appears everywhere.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from situs.encodings.base import Encoding

E = TypeVar("E", bound="type[Encoding]")


@dataclass(frozen=True)
class Entry:
    """An encoding's name, class and origin."""

    name: str
    cls: type[Encoding]
    paper: str
    formula: str

    @property
    def place(self) -> str:
        """Where the encoding acts."""
        return self.cls.place

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The constructor's arguments."""
        parameters = inspect.signature(self.cls).parameters
        return dict(parameters)

    def build(self, **sizes: Any) -> Encoding:
        """Make the encoding for a model of these sizes; it takes those it knows (dim, head_dim, ...)."""
        return self.cls(**{name: value for name, value in sizes.items() if name in self.options})


_entries: dict[str, Entry] = {}


def register(*, name: str, paper: str, formula: str) -> Callable[[E], E]:
    """Class decorator: make an encoding known by ``name``, for ``create``, the CLI and the lab."""

    def add(cls: E) -> E:
        known = _entries.get(name)
        if known is not None and known.cls.__qualname__ != cls.__qualname__:
            raise ValueError(
                f"name must be new, since {name!r} already means {known.cls.__qualname__}; got it again for "
                f"{cls.__qualname__}."
            )
        _entries[name] = Entry(name, cls, paper, formula)
        return cls

    return add


def names() -> list[str]:
    """The names of all encodings, sorted."""
    return sorted(_entries)


def entry(name: str) -> Entry:
    """What is known about an encoding."""
    if name not in _entries:
        close = difflib.get_close_matches(name, _entries, n=1)
        cure = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"name must be one of {', '.join(names())}; got {name!r}.{cure}")
    return _entries[name]


def create(name: str, **options: Any) -> Encoding:
    """An encoding by name: ``create("rotary", head_dim=64)``."""
    found = entry(name)
    unknown = [option for option in options if option not in found.options]
    if unknown:
        close = difflib.get_close_matches(unknown[0], found.options, n=1)
        cure = f" Did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{name} takes {', '.join(found.options) or 'no options'}; got {unknown[0]!r}.{cure}")
    return found.cls(**options)
