"""The grammar of method names: text is taken apart here, once, and everyone else receives a `Method`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from situs.arguments import require_instance, require_several, require_text
from situs.lab.naming.scalings import RANDOM, SCALINGS
from situs.registry import did_you_mean


@dataclass(frozen=True)
class Part:
    """Hold one encoding as it was written: its name, which may be MODULE:CLASS, and its options."""

    text: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def of_ones_own(self) -> bool:
        """Whether it is MODULE:CLASS."""
        return ":" in self.name


@dataclass(frozen=True)
class Method:
    """Hold a method as it was written: which encodings act in which layer, and what is added to them.

    >>> method = parse("rotary&alibi/none+yarn")
    >>> [[part.name for part in layer] for layer in method.pattern], method.added
    ([['rotary', 'alibi'], ['none']], ('yarn',))
    """

    base: str
    """What stands before the first plus."""
    pattern: tuple[tuple[Part, ...], ...]
    """For each layer until they repeat, the encodings that act in it."""
    added: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The method as it was written."""
        return "+".join((self.base, *self.added))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The encodings of all layers."""
        return tuple(part for layer in self.pattern for part in layer)

    @property
    def scaling(self) -> str | None:
        """The scaling of rotary that is added, if one is."""
        return next((each for each in self.added if each in SCALINGS), None)

    @property
    def randomised(self) -> bool:
        """Whether positions are drawn at random."""
        return RANDOM in self.added

    @property
    def without_last(self) -> Method:
        """The method without what was added last."""
        return Method(self.base, self.pattern, self.added[:-1])

    @property
    def trained(self) -> Method:
        """The method whose training it shares, which may be itself: a scaling changes frequencies, not weights."""
        return self if self.scaling is None else self.without_last


def parse(text: str) -> Method:
    """Take a method's name apart; whether there are such encodings is for others to ask."""
    require_text("text", text, "it names a method")
    base, *added = _split(text.strip(), "+")
    if added and not base.strip():
        raise ValueError(
            f"{text.strip()}: + must stand behind an encoding, since something is added to it; got nothing there."
        )
    pattern = tuple(tuple(_part(part.strip()) for part in _split(layer, "&")) for layer in _split(base, "/"))
    return Method(base, pattern, tuple(added))


def parse_all(text: str) -> list[Method]:
    """Take apart names that are separated by commas."""
    require_text("text", text, "it names methods")
    found = [parse(name) for name in _split(text, ",") if name.strip()]
    if not found:
        raise ValueError(f"encodings must be names separated by commas, such as rotary,alibi; got {text!r}.")
    return found


def require_additions(method: Method, known: Iterable[str]) -> None:
    """Raise unless everything that is added is known, and one scaling at most is among it."""
    require_instance("method", method, Method, "it tells what is added", "a Method", "Use parse(text).")
    known = require_several("known", known, "each can be added")
    for each in known:
        require_text("known", each, "each can be added")
    for each in method.added:
        if each not in known:
            cure = did_you_mean(each, known)
            raise ValueError(f"{method}: + must be followed by one of {', '.join(known)}; got {each!r}.{cure}")
    scalings = [each for each in method.added if each in SCALINGS]
    if len(scalings) > 1:
        raise ValueError(
            f"{method}: + must add one scaling at most, since each sets all frequencies of rotary; got "
            f"{' and '.join(scalings)}."
        )


def _split(text: str, sign: str) -> list[str]:
    """Split a text at a sign, but not within brackets, where 1e+5 is a number."""
    parts, depth = [""], 0
    for each in text:
        depth += (each == "(") - (each == ")")
        if each == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return parts


def _part(text: str) -> Part:
    """Read ``name(a=1, b="x")``, whose options must be Python literals."""
    name, bracket, rest = text.partition("(")
    if not bracket:
        return Part(text, name)
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("all must be named")
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as problem:
        raise ValueError(
            f"options must be written {name}(name=value, ...) with plain values, such as shaw(max_distance=32); got "
            f"{text!r}."
        ) from problem
    return Part(text, name, options)
