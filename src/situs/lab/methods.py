"""Methods: what is compared, as a person writes it.

    alibi                    a registered encoding, with the options that suit the training length
    shaw(max_distance=32)    with options of one's own
    my_module:MyEncoding     one's own class, built with those sizes that it takes
    rotary/none              layers take turns
    rotary&alibi             both in every layer
    rotary+yarn              trained as rotary, and tested with its frequencies scaled to each length
    rotary+random            trained and tested with positions drawn from a larger range

Scalings share the training of what they scale: they change numbers, not weights.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from situs.encodings.base import Encoding
from situs.encodings.finding import find_entry
from situs.encodings.rotary import Rotary
from situs.encodings.scaling import Scaling
from situs.encodings.scalings import NTK, DynamicNTK, Linear, Llama3, NTKByParts, YaRN
from situs.lab.grammar import name_of, options_of, split_additions, split_layers, split_names
from situs.registry import entry, names, require_options

RANDOM = "random"
OF_IMAGES = {"learned_grid": "learned", "swin": "t5"}
"""Encodings of images, which text has no use for, and what would serve it."""

Ramp = tuple[float, float]
SCALINGS: dict[str, Callable[[float, int, Ramp], Scaling]] = {
    "linear": lambda factor, length, ramp: Linear(factor=factor),
    "ntk": lambda factor, length, ramp: NTK(factor=factor),
    "dynamic_ntk": lambda factor, length, ramp: DynamicNTK(factor=factor, original_length=length),
    "ntk_by_parts": lambda factor, length, ramp: NTKByParts(
        factor=factor, original_length=length, beta_fast=ramp[0], beta_slow=ramp[1]
    ),
    "yarn": lambda factor, length, ramp: YaRN(
        factor=factor, original_length=length, beta_fast=ramp[0], beta_slow=ramp[1]
    ),
    "llama3": lambda factor, length, ramp: Llama3(factor=factor, original_length=length),
}
RAMPED = ("ntk_by_parts", "yarn")
RAMPS: tuple[Ramp, ...] = ((2.0, 0.25), (4.0, 0.5), (8.0, 1.0), (32.0, 1.0))
"""From how many turns within the training length on a pair keeps its frequency, and below how many it is stretched. The
paper's 32 and 1 suit thousands of tokens: at 64, the fastest pair turns ten times. Which suits is tried on held-out
text that is not scored."""


@dataclass(frozen=True)
class Fitted:
    """Options of an encoding that suit a training length, and what a reader of the results should know of them."""

    options: Callable[[int], dict[str, Any]]
    said: str


FITTED = {
    "t5": Fitted(
        lambda length: {"max_distance": max(32, length), "bidirectional": False, "softmax_scale": None},
        "t5 and its buckets end at what was trained, or 32",
    ),
    "deberta": Fitted(
        lambda length: {"max_distance": max(2, length)},
        "deberta looks no farther than what was trained",
    ),
    "fire": Fitted(
        lambda length: {"threshold": float(length)},
        "fire's threshold is the training length",
    ),
    "cope": Fitted(
        lambda length: {"max_position": length},
        "cope counts no farther than the training length",
    ),
    "tupe": Fitted(
        lambda length: {"max_length": length, "untie_cls": False},
        "tupe's table is as long as what was trained",
    ),
    "learned": Fitted(
        lambda length: {"max_length": length},
        "learned's table is as long as what was trained",
    ),
}
"""Where an encoding's defaults suit another length, or another model than a decoder."""


@dataclass(frozen=True)
class Method:
    """One row of the comparison."""

    name: str
    pattern: tuple[tuple[str, ...], ...]
    """For each layer until it repeats, the encodings that act in it."""
    scaling: str | None = None
    randomised: bool = False

    @property
    def trained_as(self) -> str:
        """The name of the method whose training it shares, which may be its own."""
        return self.name.rpartition("+")[0] if self.scaling else self.name

    def encodings(self, layer: int, sizes: dict[str, Any]) -> list[Encoding]:
        """Those that act in a layer, newly made; encodings of the input stand in the first."""
        return [
            build(part, {**sizes, **fitted(name_of(part), sizes["max_length"])})
            for part in self.pattern[layer % len(self.pattern)]
        ]

    def sources(self) -> str:
        """A hash of the modules that classes of one's own come from; nothing where there are none."""
        own = sorted({name_of(part) for layer in self.pattern for part in layer if ":" in name_of(part)})
        files = [inspect.getsourcefile(find_entry(name).cls) for name in own]
        content = b"".join(Path(file).read_bytes() for file in files if file is not None)
        return hashlib.sha256(content).hexdigest()[:16] if own else ""

    def scaled(self, encoding: Rotary, factor: float, train_length: int, ramp: Ramp) -> Rotary:
        """A rotary encoding for texts ``factor`` times as long as those of training."""
        options = {name: getattr(encoding, name) for name in entry("rotary").options if name != "scaling"}
        assert self.scaling is not None
        scaling = SCALINGS[self.scaling](factor, train_length, ramp) if factor > 1 else None
        return Rotary(**options, scaling=scaling)


def parse(text: str) -> Method:
    """A method from its name; raises if there is no such thing."""
    name = text.strip()
    base, added = split_additions(name, [*SCALINGS, RANDOM])
    scaling = scaling_of(name, added)
    if scaling is not None and added[-1] != scaling:
        raise ValueError(f"{name}: the scaling must come last, since it is added after training; got {added[-1]!r}.")
    pattern = split_layers(base)
    parts = [part for layer in pattern for part in layer]
    for part in parts:
        require_part(part)
        if name_of(part) in OF_IMAGES:
            raise ValueError(
                f"encodings must suit text; {name_of(part)} is for images. Use {OF_IMAGES[name_of(part)]}."
            )
    late = [part for layer in pattern[1:] for part in layer if find_entry(name_of(part)).place == "input"]
    if late:
        raise ValueError(
            f"{name}: {late[0]} must stand in the first layer's place, since it acts once, before all layers; got it "
            f"in a later one. Write {late[0]}/... or {late[0]}&..."
        )
    if scaling is not None and not any(name_of(part) == "rotary" for part in parts):
        raise ValueError(f"{name}: +{scaling} scales the frequencies of rotary; got {base!r}.")
    return Method(name, pattern, scaling, RANDOM in added)


def parse_all(text: str) -> list[Method]:
    """Methods separated by commas, each once."""
    found = [parse(each) for each in split_names(text)]
    return list({method.name: method for method in found}.values())


def scaling_of(name: str, added: Sequence[str]) -> str | None:
    """The scaling among what is added, if there is one; raises if there are two."""
    found = [each for each in added if each in SCALINGS]
    if len(found) > 1:
        raise ValueError(
            f"{name}: + must add one scaling at most, since each sets all frequencies of rotary; got "
            f"{' and '.join(found)}."
        )
    return found[0] if found else None


def fitted(name: str, train_length: int) -> dict[str, Any]:
    """Options that suit a decoder trained at this length, where an encoding's defaults suit another."""
    return FITTED[name].options(train_length) if name in FITTED else {}


def require_part(part: str) -> None:
    """Raise unless an encoding of that name exists and takes its options."""
    require_options(name_of(part), find_entry(name_of(part)).options, options_of(part))


def build(part: str, sizes: Mapping[str, Any]) -> Encoding:
    """An encoding with its options, and those of the sizes that it takes."""
    return find_entry(name_of(part)).build(**{**sizes, **options_of(part)})


def suiting_text() -> list[str]:
    """The names of all registered encodings that text has a use for."""
    return [name for name in names() if name not in OF_IMAGES]
