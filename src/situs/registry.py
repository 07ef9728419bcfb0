"""The registry: every encoding by name, with what people ask about it first.

Tests, the command line, documentation and the lab all read it, so an encoding that is registered appears everywhere.
Names are known before modules are loaded, each of which is when its encoding is first asked for.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from situs.encodings.base import Encoding

E = TypeVar("E", bound="type[Encoding]")


@dataclass(frozen=True)
class Entry:
    """Hold an encoding's name, class and origin; paper and formula are empty for a class that nobody has registered."""

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


# Written by `make names` from the files in encodings/, and compared with them by tests.
# names: begin
ENCODINGS: dict[str, tuple[str, str]] = {
    "alibi": ("situs.encodings.alibi", "ALiBi"),
    "cope": ("situs.encodings.cope", "CoPE"),
    "deberta": ("situs.encodings.deberta", "Deberta"),
    "fire": ("situs.encodings.fire", "Fire"),
    "kerple": ("situs.encodings.kerple", "Kerple"),
    "learned": ("situs.encodings.learned", "Learned"),
    "learned_grid": ("situs.encodings.learned_grid", "LearnedGrid"),
    "none": ("situs.encodings.nope", "NoPE"),
    "rotary": ("situs.encodings.rotary", "Rotary"),
    "sandwich": ("situs.encodings.sandwich", "Sandwich"),
    "shaw": ("situs.encodings.shaw", "Shaw"),
    "sinusoidal": ("situs.encodings.sinusoidal", "Sinusoidal"),
    "swin": ("situs.encodings.swin", "SwinBias"),
    "t5": ("situs.encodings.t5", "T5Bias"),
    "transformer_xl": ("situs.encodings.transformer_xl", "TransformerXL"),
    "tupe": ("situs.encodings.tupe", "Tupe"),
    "xpos": ("situs.encodings.xpos", "XPos"),
}
# names: end
"""Name -> module that registers it and class there: the one list of our encodings, which ``situs`` exports too."""

_entries: dict[str, Entry] = {}
_aliases = {"nope": "none", "rope": "rotary"}


def register(*, name: str, paper: str, formula: str, dialects: Mapping[str, str] | None = None) -> Callable[[E], E]:
    """Decorate a class to make an encoding known by ``name``, for ``create``, the CLI and the lab. ``dialects`` says
    which options released models, or the paper, need where they differ."""
    for argument, given in (("name", name), ("paper", paper), ("formula", formula)):
        _require_text(argument, given, "people read it")
    if dialects is not None and not isinstance(dialects, Mapping):
        raise TypeError(f"dialects must be a mapping, since each has a name and its options; got {dialects!r}.")

    def add(cls: E) -> E:
        _require_new(name, cls)
        _entries[name] = found = Entry(name, cls, paper, formula, dialects or {})
        if name in ENCODINGS:
            cls.settled = frozenset(found.options)
        return cls

    return add


def _require_new(name: str, cls: type[Encoding]) -> None:
    """Raise if a name means another encoding, loaded or not; the same class may come again, as reloading brings it."""
    if name in _aliases:
        meant, same = repr(_aliases[name]), False
    elif name in _entries:
        meant = _address(_entries[name].cls)
        same = meant == _address(cls)
    else:
        meant = ENCODINGS[name][0] if name in ENCODINGS else cls.__module__
        same = meant == cls.__module__
    if not same:
        raise ValueError(f"name must be new, since {name!r} already means {meant}; got it again for {_address(cls)}.")


def _address(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def names() -> list[str]:
    """List the names of all encodings, sorted."""
    return sorted(_entries.keys() | ENCODINGS.keys())


def entry(name: str) -> Entry:
    """Look up what is known about an encoding."""
    _require_text("name", name, "encodings are known by it")
    name = _aliases.get(name, name)
    if name not in _entries and name in ENCODINGS:
        importlib.import_module(ENCODINGS[name][0])
    if name not in _entries:
        raise ValueError(f"name must be one of {', '.join(names())}; got {name!r}.{did_you_mean(name, names())}")
    return _entries[name]


def _require_text(argument: str, given: object, reason: str) -> None:
    """Raise unless a string is given. ``situs.arguments`` would bring torch, which names have no need of."""
    if not isinstance(given, str):
        raise TypeError(f"{argument} must be a string, since {reason}; got {given!r}.")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """End an error message about a name that is not known with the nearest one that is, if one is near."""
    close = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def require_options(name: str, known: Iterable[str], options: Iterable[str]) -> None:
    """Raise if what is called so does not know one of the options."""
    known = list(known)
    for option in options:
        if option not in known:
            cure = did_you_mean(option, known)
            raise TypeError(f"{name} takes {', '.join(known) or 'no options'}; got {option!r}.{cure}")


def create(name: str, **options: Any) -> Encoding:
    """Make an encoding by name: ``create("rotary", head_dim=64)``."""
    found = entry(name)
    require_options(name, found.options, options)
    return found.cls(**options)
