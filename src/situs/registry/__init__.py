"""The registry: every encoding by name, with what people ask about it first.

Tests, the command line, documentation and the lab all read it, so an encoding that is registered appears everywhere.
Names are known before modules are loaded, each of which is when its encoding is first asked for.

    rotary, RoPE, Rotary             a name, another name for it, its class: case, dashes and spaces do not matter
    rotary+yarn, yarn                rotary with a scaling of its frequencies
    my_module:Own, folder/own.py     a class of one's own
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from situs.registry.listed import ENCODINGS, SCALINGS
from situs.registry.own import is_own, load, require_makeable
from situs.registry.spelling import (
    SYNONYMS,
    did_you_mean,
    did_you_mean_added,
    did_you_mean_encoding,
    fold,
    require_options,
)  # fmt: skip

if TYPE_CHECKING:
    from situs.encodings.base import Encoding
    from situs.encodings.scaling import Scaling

__all__ = [
    "ENCODINGS", "SCALINGS", "Entry", "canonical", "create", "did_you_mean", "entry", "fold", "is_own", "names",
    "register", "require_options", "scaling_named",
]  # fmt: skip

E = TypeVar("E", bound="type[Encoding]")


@dataclass(frozen=True)
class Entry:
    """Hold an encoding's name, class and origin; paper and formula are empty for a class that nobody has registered."""

    name: str
    cls: type[Encoding]
    paper: str
    formula: str
    dialects: Mapping[str, str] = field(default_factory=dict)
    scaling: type[Scaling] | None = None
    """The class that scales the frequencies of rotary, whose options are then taken beside those of rotary."""

    @property
    def place(self) -> str:
        """Where the encoding acts."""
        return self.cls.place

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The constructor's arguments."""
        own = dict(inspect.signature(self.cls).parameters)
        if self.scaling is not None:
            del own["scaling"]
            own |= inspect.signature(self.scaling).parameters
        return own

    def make(self, **options: Any) -> Encoding:
        """Make the encoding with these options, which it must know."""
        require_options(self.name, self.options, options)
        if is_own(self.name):
            require_makeable(self.name, self.cls, options)
        if self.scaling is None:
            return self.cls(**options)
        scaled_by = inspect.signature(self.scaling).parameters
        own = {name: value for name, value in options.items() if name not in scaled_by}
        scaling = self.scaling(**{name: value for name, value in options.items() if name in scaled_by})
        return self.cls(**{**own, "scaling": scaling})

    def build(self, **sizes: Any) -> Encoding:
        """Make the encoding for a model of these sizes; it takes those it knows (dim, head_dim, ...)."""
        return self.make(**{name: value for name, value in sizes.items() if name in self.options})


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
    named = {fold(each): each for each in names()}.get(fold(name), name)
    if fold(name) in _aliases:
        meant, same = repr(_aliases[fold(name)]), False
    elif fold(name) in {fold(each) for each in SCALINGS}:
        meant, same = "a scaling of rotary", False
    elif named in _entries:
        meant = _address(_entries[named].cls)
        same = meant == _address(cls) and named == name
    else:
        meant = ENCODINGS[named].module if named in ENCODINGS else cls.__module__
        same = meant == cls.__module__ and named == name
    if not same:
        raise ValueError(f"name must be new, since {name!r} already means {meant}; got it again for {_address(cls)}.")


def _address(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def names() -> list[str]:
    """List the names of all encodings, sorted."""
    return sorted(_entries.keys() | ENCODINGS.keys())


def _spellings() -> dict[str, str]:
    """Map what an encoding may be called, folded, to its name: its class, a common name, or the name itself."""
    classes = {fold(each.cls.__name__): name for name, each in _entries.items()}
    ours = {fold(each.cls): name for name, each in ENCODINGS.items()}
    return {**classes, **ours, **_aliases, **{fold(name): name for name in names()}}


def canonical(name: str) -> str | None:
    """Find the registered name that people mean by what they write; None where there is none.

    >>> canonical("Transformer-XL"), canonical("RoPE"), canonical("T5Bias"), canonical("rotery")
    ('transformer_xl', 'rotary', 't5', None)
    """
    return name if name in _entries or name in ENCODINGS else _spellings().get(fold(name))


def scaling_named(name: str) -> str | None:
    """Find the scaling of rotary that people mean by what they write, its class among it; None where there is none."""
    folded = fold(name)
    return next((each for each, listed in SCALINGS.items() if folded in (fold(each), fold(listed.cls))), None)


def entry(name: str) -> Entry:
    """Look up what is known about an encoding, by any spelling of its name; or load a class of one's own."""
    _require_text("name", name, "encodings are known by it")
    if is_own(name):
        return Entry(name.strip(), load(name), paper="", formula="")
    found = canonical(name)
    if found is None:
        return _scaled(name)
    if found not in _entries:
        importlib.import_module(ENCODINGS[found].module)
    return _entries[found]


def _scaled(name: str) -> Entry:
    """Look up rotary with a scaling, by ``rotary+yarn`` or by the scaling's name alone."""
    base, plus, added = (part.strip() for part in name.partition("+"))
    scaling = scaling_named(added if plus else base)
    if plus and scaling is None:
        cure = did_you_mean_added(added, SCALINGS)
        raise ValueError(f"{name}: + must be followed by one of {', '.join(SCALINGS)}; got {added!r}.{cure}")
    if plus and canonical(base) != "rotary":
        raise ValueError(
            f"{name}: + must follow rotary, since {scaling} scales its frequencies; got {base!r}. Write "
            f"rotary+{scaling}."
        )
    if scaling is None:
        from situs.registry import families  # which reads the names that are listed here

        known = _spellings() | {fold(each): f"rotary+{each}" for each in SCALINGS}
        cure = did_you_mean_encoding(name, known)
        if fold(name) not in SYNONYMS and (methods := families.methods_of(name)):
            cure = f" Did you mean {' or '.join(map(repr, methods))}, which this model has?"
        if Path(f"{name.strip()}.py").is_file():
            cure = f" Did you mean '{name.strip()}.py'?"
        raise ValueError(f"name must be one of {', '.join(names())}; got {name!r}.{cure}")
    listed = SCALINGS[scaling]
    cls: type[Scaling] = getattr(importlib.import_module(listed.module), listed.cls)
    return Entry(f"rotary+{scaling}", entry("rotary").cls, listed.paper, listed.formula, scaling=cls)


def _require_text(argument: str, given: object, reason: str) -> None:
    """Raise unless a string is given. ``situs.arguments`` would bring torch, which names have no need of."""
    if not isinstance(given, str):
        raise TypeError(f"{argument} must be a string, since {reason}; got {given!r}.")


def create(name: str, **options: Any) -> Encoding:
    """Make an encoding by name: ``create("rotary", head_dim=64)``.

    The options of a scaling stand beside those of rotary:
    ``create("rotary+yarn", head_dim=64, factor=4.0, original_length=4096)``.
    """
    return entry(name).make(**options)
