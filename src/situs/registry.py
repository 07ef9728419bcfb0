"""The registry: every encoding by name, with what people ask about it first.

Tests, the command line, documentation, the lab and the explorer all read it, so an encoding that is
registered appears everywhere.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
    dialects: Mapping[str, str] = field(default_factory=dict)

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
_modules: dict[str, str] = {}
_aliases = {"nope": "none"}


def expect(modules: Mapping[str, str]) -> None:
    """Make names known before their modules are loaded: ``{name: module that registers it}``."""
    _modules.update(modules)


def register(*, name: str, paper: str, formula: str, dialects: Mapping[str, str] | None = None) -> Callable[[E], E]:
    """Class decorator: make an encoding known by ``name``, for ``create``, the CLI and the lab. ``dialects`` says which
    options released models, or the paper, need where they differ."""

    def add(cls: E) -> E:
        known = _entries.get(name)
        meant = _modules.get(name, cls.__module__) if known is None else known.cls.__qualname__
        if meant not in (cls.__module__, cls.__qualname__):
            raise ValueError(
                f"name must be new, since {name!r} already means {meant}; got it again for {cls.__qualname__}."
            )
        _entries[name] = Entry(name, cls, paper, formula, dialects or {})
        return cls

    return add


def names() -> list[str]:
    """The names of all encodings, sorted."""
    return sorted(_entries.keys() | _modules.keys())


def entry(name: str) -> Entry:
    """What is known about an encoding."""
    name = _aliases.get(name, name)
    if name not in _entries and name in _modules:
        importlib.import_module(_modules[name])
    if name not in _entries:
        raise ValueError(f"name must be one of {', '.join(names())}; got {name!r}.{did_you_mean(name, names())}")
    return _entries[name]


def find_class(name: str) -> type[Encoding]:
    """The class of a registered name, or of MODULE:CLASS, which may lie in the working directory."""
    if ":" not in name:
        return entry(name).cls
    from situs.encodings.base import Encoding

    module_name, _, class_name = name.partition(":")
    sys.path.insert(0, "")  # as python -m would find it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise ValueError(
            f"name must be MODULE:CLASS with a module that can be imported; got {name!r}: {problem}."
        ) from problem
    finally:
        sys.path.remove("")
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, Encoding)):
        raise ValueError(f"{class_name} must be a situs.Encoding in module {module_name}; got {cls!r}.")
    return cls


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message about a name that is not known: the nearest one that is, if one is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def create(name: str, **options: Any) -> Encoding:
    """An encoding by name: ``create("rotary", head_dim=64)``."""
    found = entry(name)
    unknown = [option for option in options if option not in found.options]
    if unknown:
        cure = did_you_mean(unknown[0], found.options)
        raise TypeError(f"{name} takes {', '.join(found.options) or 'no options'}; got {unknown[0]!r}.{cure}")
    return found.cls(**options)
