"""The grammar of method names: text is taken apart here, once, and everyone else receives a `Method`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from situs.arguments import require_instance, require_several, require_text
from situs.registry import SCALINGS, canonical, is_own, require_options, scaling_named
from situs.registry.spelling import did_you_mean_added

RANDOM, AXIAL = "random", "axial"
"""What can be added with a plus beside scalings."""
BANDS = "situs.encodings.bands"


@dataclass(frozen=True)
class Part:
    """Hold one encoding, or one addition: its name as the registry has it, and its options as they were written.

    An encoding of one's own is named MODULE:CLASS, FILE.py:CLASS or FILE.py.
    """

    text: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def of_ones_own(self) -> bool:
        """Whether it names a class of one's own."""
        return is_own(self.name)


@dataclass(frozen=True)
class Method:
    """Hold a method: which encodings act in which layer, and what is added to them, under the registry's names.

    >>> method = parse("RoPE & ALiBi / none + YaRN")
    >>> method.name, [[part.name for part in layer] for layer in method.pattern], method.added
    ('rotary&alibi/none+yarn', [['rotary', 'alibi'], ['none']], ('yarn',))
    """

    base: str
    """What stands before the first plus."""
    pattern: tuple[tuple[Part, ...], ...]
    """For each layer until they repeat, the encodings that act in it."""
    added: tuple[str, ...] = ()
    """What stands behind each plus, such as ``yarn`` or ``llama3(factor=8)``."""

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """The method's name, by which records, tables and figures call it."""
        return "+".join((self.base, *self.added))

    @property
    def parts(self) -> tuple[Part, ...]:
        """The encodings of all layers."""
        return tuple(part for layer in self.pattern for part in layer)

    @property
    def additions(self) -> tuple[Part, ...]:
        """What is added, taken apart."""
        return tuple(_part(text) for text in self.added)

    @property
    def scaling(self) -> str | None:
        """The scaling of rotary that is added, with its options if any were written."""
        return next((part.text for part in self.additions if part.name in SCALINGS), None)

    @property
    def has_own_factor(self) -> bool:
        """Whether the scaling's factor is written, and so does not depend on the length tested."""
        options = self._scaling_options
        return "factor" in options or "target_length" in options

    @property
    def description(self) -> str:
        """What a reader of the results should know of a scaling's options; empty where none were written."""
        options = self._scaling_options
        if not options:
            return ""
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        if any(has_bands(part.name) for part in self.additions):
            fitted = "What is not written follows from the training length and the length tested"
            return f"{self.name} has bands with {given}, as written. {fitted}."
        factor = (
            "Its factor is the same at every length beyond the training length, and not derived from the length tested"
            if self.has_own_factor
            else "Its factor is derived from the length tested"
        )
        return f"{self.name} is scaled with {given}, as written. {factor}; its ramp, if it has one, is not searched."

    @property
    def _scaling_options(self) -> Mapping[str, Any]:
        return next((part.options for part in self.additions if part.name in SCALINGS), {})

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


def has_bands(scaling: str) -> bool:
    """Whether a scaling changes positions by band of distance, and no frequencies."""
    return scaling in SCALINGS and SCALINGS[scaling].module == BANDS


def parse(text: str) -> Method:
    """Take a method's name apart, in any spelling; whether there are such encodings is for others to ask."""
    require_text("text", text, "it names a method")
    base, *rest = split_outside_brackets(text.strip(), "+")
    if rest and not base.strip():
        raise ValueError(
            f"{text.strip()}: + must stand behind an encoding, since something is added to it; got nothing there."
        )
    pattern = tuple(tuple(_part(part) for part in split_outside_brackets(layer, "&")) for layer in _layers(base))
    added = [_part(each) for each in rest]
    if len(pattern) == len(pattern[0]) == 1 and pattern[0][0].name in SCALINGS:  # yarn is rotary+yarn
        added.insert(0, pattern[0][0])
        pattern = ((Part("rotary", "rotary"),),)
    misplaced = [part.text for layer in pattern for part in layer if part.name in SCALINGS]
    if misplaced:
        raise ValueError(
            f"{text.strip()}: {misplaced[0]} must stand behind a plus where there are several encodings, since it "
            f"scales the frequencies of rotary in all layers; got it as one of them. Write rotary/none+{misplaced[0]}, "
            f"for example."
        )
    return Method(_written(pattern), pattern, tuple(part.text for part in added))


def renamed(method: Method, names: Mapping[str, str]) -> Method:
    """Give a method with other names for some of its encodings; their options stay."""

    def called(part: Part) -> Part:
        name = names.get(part.name, part.name)
        return Part(f"{name}{part.text.removeprefix(part.name)}", name, part.options)

    pattern = tuple(tuple(called(part) for part in layer) for layer in method.pattern)
    return Method(_written(pattern), pattern, method.added)


def _written(pattern: Iterable[Iterable[Part]]) -> str:
    return "/".join("&".join(part.text for part in layer) for layer in pattern)


def parse_all(text: str) -> list[Method]:
    """Take apart names that are separated by commas."""
    require_text("text", text, "it names methods")
    found = [parse(name) for name in split_outside_brackets(text, ",") if name.strip()]
    if not found:
        raise ValueError(f"encodings must be names separated by commas, such as rotary,alibi; got {text!r}.")
    return found


def require_additions(method: Method, known: Iterable[str]) -> None:
    """Raise unless everything that is added is known, and one scaling at most is among it."""
    require_instance("method", method, Method, "it tells what is added", "a Method", "Use parse(text).")
    known = require_several("known", known, "each can be added")
    for each in known:
        require_text("known", each, "each can be added")
    for part in method.additions:
        if part.name not in known:
            cure = did_you_mean_added(part.name, known)
            raise ValueError(f"{method}: + must be followed by one of {', '.join(known)}; got {part.name!r}.{cure}")
        if part.name not in SCALINGS:
            require_options(part.name, (), part.options)
    scalings = [part.name for part in method.additions if part.name in SCALINGS]
    if len(scalings) > 1:
        raise ValueError(
            f"{method}: + must add one scaling at most, since each sets all frequencies of rotary; got "
            f"{' and '.join(scalings)}."
        )


def split_outside_brackets(text: str, sign: str) -> list[str]:
    """Split a text at a sign, but not within brackets, where 1e+5 is a number."""
    parts, depth = [""], 0
    for each in text:
        depth += (each == "(") - (each == ")")
        if each == sign and depth == 0:
            parts.append("")
        else:
            parts[-1] += each
    return parts


def _layers(text: str) -> list[str]:
    """Split a text at slashes, but not within a path to a file of one's own."""
    layers: list[str] = []
    for piece in split_outside_brackets(text, "/"):
        layers.append(piece)
        file = piece.partition(":")[0].partition("(")[0].strip()
        if not file.endswith(".py"):
            continue
        starts = range(len(layers) - 1, -1, -1)
        joined = {start: "/".join(layers[start:]).partition(":")[0].partition("(")[0].strip() for start in starts}
        there = [start for start in starts if Path(joined[start]).expanduser().is_file()]
        # of a path that leads nowhere, as much as is no encoding's name
        named = [start + 1 for start in starts[1:] if layers[start].strip() and _known(layers[start])]
        first = min(there) if there else max(named, default=0)
        layers[first:] = ["/".join(layers[first:])]
    return layers


def _known(text: str) -> bool:
    """Whether a layer's text begins with the name of an encoding, or ends in a file that was joined before."""
    name = split_outside_brackets(text, "&")[-1].partition("(")[0]
    return is_own(name) or canonical(name) is not None


def _part(text: str) -> Part:
    """Read ``name(a=1, b="x")``, whose options must be Python literals, and find the registry's name for it."""
    text = text.strip()
    written, bracket, rest = text.partition("(")
    written = written.strip()
    name = written if is_own(written) else canonical(written) or scaling_named(written) or written
    name = next((each for each in (RANDOM, AXIAL) if each == written.casefold()), name)
    if not bracket:
        return Part(name, name)
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("all must be named")
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError) as problem:
        example = "llama3(factor=8.0)" if name in SCALINGS else "shaw(max_distance=32)"
        raise ValueError(
            f"options must be written {written}(name=value, ...) with plain values, such as {example}; got {text!r}."
        ) from problem
    if len(options) < len(call.keywords):
        raise ValueError(f"options must be given once each, since only one can hold; got {text!r}.")
    return Part(f"{name}({rest}", name, options)
