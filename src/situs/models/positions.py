"""What a released model does with positions, layer by layer: the result of reading its configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from situs.models.calls import Call
from situs.models.sources.strict import ConfigError

if TYPE_CHECKING:
    from situs.encodings.base import Encoding

Kind = Literal["full", "sliding", "chunked", "linear", "none"]
"""Attention to all tokens, to a window, within chunks; linear attention or a state space, which has its own order;
no attention, as in convolutions."""
Pairing = Literal["halves", "interleaved"]
PAIRED = ("Rotary", "RotaryValue")
"""Encodings whose channels are paired one way or the other."""


@dataclass(frozen=True)
class Heads:
    """Hold the sizes of a layer's attention."""

    queries: int
    keys: int
    dim: int
    """Of a query and a key."""
    values: int
    """Channels of a value."""
    latent: int | None = None
    """What latent attention caches for a token instead of keys and values."""

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(
                f"heads must have a channel each at least, since scores are formed of them; got {self.queries} heads "
                f"that share fewer."
            )


@dataclass(frozen=True)
class Cached:
    """Hold what a layer caches, where that is not a key and a value of every token that it sees.

    token: numbers of a token that is cached by itself.
    window: the latest tokens that are; all that the layer sees where left out.
    rate: tokens that share an entry, of which the whole text has some beside; none where left out.
    entry: numbers of an entry, with those by which entries are chosen.
    """

    token: int
    window: int | None = None
    rate: int | None = None
    entry: int = 0


@dataclass(frozen=True)
class Layer:
    """Hold what one layer does: `attend` takes all of it."""

    kind: Kind
    calls: tuple[Call, ...] = ()
    heads: Heads | None = None
    window: int | None = None
    chunk: int | None = None
    causal: bool = True
    scale: float | None = None
    """Of the softmax, with every factor that positions put on it."""
    softcap: float | None = None
    sinks: bool = False
    norm: Literal["before", "after"] | None = None
    """Where queries and keys are normalised: before they are rotated, or after."""
    cached: Cached | None = None
    """What it caches of a text; None for keys and values, or what latent attention has instead of them."""

    @cached_property
    def encodings(self) -> tuple[Encoding, ...]:
        """The encodings as Situs has them, made when they are first asked for; parameters are as they are made."""
        return tuple(call.build() for call in self.calls)

    @property
    def temperature(self) -> Encoding | None:
        """The encoding among them that multiplies queries by a number of their position; None where none does."""
        pairs = zip(self.calls, self.encodings, strict=True)
        return next((each for call, each in pairs if call.cls == "Temperature"), None)

    @property
    def reach(self) -> int | None:
        """How many distances it rotates by: its window, its chunk, or those of dual chunks; None for a text's own."""
        scalings = (call.option("scaling") for call in self.calls)
        sizes = (each.option("chunk_size") for each in scalings if each is not None and each.cls == "DualChunk")
        return self.window or self.chunk or next(sizes, None)

    @property
    def pairing(self) -> Pairing:
        """How its channels are paired; "halves" where none are."""
        pairings: Iterator[Pairing] = (call.option("pairing", "halves") for call in self.calls if call.cls in PAIRED)
        return next(pairings, "halves")

    def paired(self, pairing: Pairing) -> Layer:
        """The same layer with another pairing of its channels."""
        told = None if pairing == "halves" else pairing
        calls = (call.replace(pairing=told) if call.cls in PAIRED else call for call in self.calls)
        return replace(self, calls=tuple(calls))

    def options(self) -> dict[str, Any]:
        """What `attend` is called with beside encodings; sinks are a parameter, which the model has."""
        named = {"causal": self.causal, "window": self.window, "chunk": self.chunk, "scale": self.scale,
                 "softcap": self.softcap}  # fmt: skip
        return {name: value for name, value in named.items() if value is not None}

    def __str__(self) -> str:
        if self.kind == "linear":
            return "linear attention or a state, which has an order by itself"
        if self.kind == "none":
            return "no attention"
        words = [" + ".join(call.shown() for call in self.calls) or "no positions"]
        if self.window is not None:
            words.append(f"window {self.window:,}")
        if self.chunk is not None:
            words.append(f"chunks of {self.chunk:,}")
        if self.cached is not None and self.cached.rate is not None:
            words.append(f"sees an entry for every {self.cached.rate:,} tokens and the last {self.cached.window:,}")
        if self.scale is not None and (self.heads is None or self.scale != self.heads.dim**-0.5):
            words.append(f"scale {self.scale:.6g}")
        if self.softcap is not None:
            words.append(f"softcap {self.softcap:g}")
        words += ["sinks"] * self.sinks + ["not causal"] * (not self.causal)
        return ", ".join(words)


@dataclass(frozen=True)
class Lengths:
    """Hold how many tokens a model is made for."""

    declared: int | None = None
    """What its configuration calls the longest."""
    original: int | None = None
    """What it was trained on before it was extended."""
    limit: int | None = None
    """Beyond which it cannot run."""
    reason: str = ""
    """Of the limit."""
    served: int | None = None
    """What an engine serves where it is not told more; None where it has no rule of its own."""


@dataclass(frozen=True)
class Note:
    """Hold something that a reader should know: a key that changes nothing, or where a program goes wrong."""

    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.key}: {self.text}" if self.key else self.text


@dataclass(frozen=True, repr=False)
class ModelPositions:
    """Hold what a model does with positions.

    verified: whether its model type is in the table, whose rows are tested against transformers; if not, it was read
        by the rule that most models follow.

    Two are equal where the models do the same, however their files spell it: notes and settings are not compared.
    """

    model_type: str
    verified: bool = True
    input: tuple[Call, ...] = ()
    layers: tuple[Layer, ...] = ()
    lengths: Lengths = Lengths()
    submodels: Mapping[str, ModelPositions] = field(default_factory=dict)
    notes: tuple[Note, ...] = field(default=(), compare=False)
    config: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The settings that it was read from, under the names of transformers."""

    def layer(self, index: int) -> Layer:
        """One layer, of the text where a model has several parts."""
        layers = self.main.layers
        if type(index) is not int or not -len(layers) <= index < len(layers):
            raise IndexError(
                f"layer must be a number below {len(layers)}, since {self.main.model_type} has that many layers; got "
                f"{index!r}."
            )
        return layers[index]

    @property
    def main(self) -> ModelPositions:
        """The part whose length people speak of: itself, or that of the text, or the decoder."""
        if self.layers or not self.submodels:
            return self
        for name in ("text", "decoder", "language", "llm", "thinker"):
            if name in self.submodels:
                return self.submodels[name].main
        return next(iter(self.submodels.values())).main

    def stacks(self, name: str = "") -> Iterator[tuple[str, ModelPositions]]:
        """Every part that has layers or a table at the input, itself first, with the names that lead to it."""
        if self.layers or self.input:
            yield name, self
        for part, each in self.submodels.items():
            yield from each.stacks(f"{name}.{part}" if name else part)

    def groups(self) -> Iterator[tuple[tuple[int, ...], Layer]]:
        """Equal layers, with their numbers."""
        found: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            found.setdefault(layer, []).append(index)
        return ((tuple(numbers), layer) for layer, numbers in found.items())

    def schedule(self) -> tuple[Kind, ...]:
        """The kind of each layer."""
        return tuple(layer.kind for layer in self.main.layers)

    def describe(self) -> dict[str, Any]:
        """All of it as plain data."""
        groups = [{"layers": spans(numbers), **_described(layer)} for numbers, layer in self.groups()]
        return {
            "model_type": self.model_type,
            "verified": self.verified,
            "lengths": {name: value for name, value in vars(self.lengths).items() if value},
            "input": [call.to_plain() for call in self.input],
            "groups": groups,
            "notes": [str(note) for note in self.notes],
            "submodels": {name: each.describe() for name, each in self.submodels.items()},
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """`describe` as JSON."""
        return json.dumps(self.describe(), indent=indent)

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self, indent: str = "", name: str = "") -> Iterator[str]:
        unknown = "" if self.verified else ", not in the table: read by the general rule"
        yield f"{indent}{name}{self.model_type}{unknown}"
        for call in self.input:
            yield f"{indent}  input: {call!r}"
        for numbers, layer in self.groups():
            yield f"{indent}  layer{'s' * (len(numbers) > 1)} {spans(numbers)}: {layer}"
        for note in self.notes:
            yield f"{indent}  note: {note}"
        for part, each in self.submodels.items():
            yield from each._lines(f"{indent}  ", f"{part}: ")


def spans(numbers: tuple[int, ...]) -> str:
    """Numbers in words, those that follow each other joined: 0-4, 6-10, 12."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{each[0]}-{each[-1]}" if len(each) > 1 else str(each[0]) for each in found)


def _described(layer: Layer) -> dict[str, Any]:
    held = {name: value for name, value in vars(layer).items() if name not in ("calls", "encodings", "heads", "cached")}
    heads, cached = (None if each is None else vars(each) for each in (layer.heads, layer.cached))
    return {**held, "heads": heads, "cached": cached, "encodings": [call.to_plain() for call in layer.calls]}
