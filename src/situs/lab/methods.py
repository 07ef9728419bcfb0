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

import ast
import difflib
import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from situs.encodings.base import Encoding
from situs.encodings.rotary import Rotary
from situs.encodings.scaling import Scaling
from situs.encodings.scalings import NTK, DynamicNTK, Linear, Llama3, NTKByParts, YaRN
from situs.registry import did_you_mean, entry, find_class, names

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
            build(part, {**sizes, **fitted(_name(part), sizes["max_length"]), **options_of(part)})
            for part in self.pattern[layer % len(self.pattern)]
        ]

    def sources(self) -> str:
        """A hash of the modules that classes of one's own come from; nothing where there are none."""
        own = sorted({_name(part) for layer in self.pattern for part in layer if ":" in _name(part)})
        files = [inspect.getsourcefile(find_class(name)) for name in own]
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
    base, *added = name.split("+")
    if not base:
        raise ValueError(f"encodings must be names parted by commas, such as rotary,alibi; got {text!r}.")
    scaling, randomised = None, False
    for each in added:
        if each == RANDOM:
            randomised = True
        elif each in SCALINGS and scaling is None:
            scaling = each
        else:
            raise ValueError(_unknown_addition(name, each))
    if scaling is not None and added[-1] != scaling:
        raise ValueError(f"{name}: the scaling must come last, since it is added after training; got {added[-1]!r}.")
    pattern = tuple(tuple(part.strip() for part in layer.split("&")) for layer in base.split("/"))
    parts = [part for layer in pattern for part in layer]
    for part in parts:
        _require(part)
    late = [part for layer in pattern[1:] for part in layer if find_class(_name(part)).place == "input"]
    if late:
        raise ValueError(
            f"{name}: {late[0]} must stand in the first layer's place, since it acts once, before all layers; got it "
            f"in a later one. Write {late[0]}/... or {late[0]}&..."
        )
    if scaling is not None and not any(_name(part) == "rotary" for part in parts):
        raise ValueError(f"{name}: +{scaling} scales the frequencies of rotary; got {base!r}.")
    return Method(name, pattern, scaling, randomised)


def parse_all(text: str) -> list[Method]:
    """Methods parted by commas outside of brackets, each once."""
    found = [parse(each) for each in split_names(text)]
    return list({method.name: method for method in found}.values())


def split_names(text: str) -> list[str]:
    """Names parted by commas outside of brackets."""
    names, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            names.append("")
        else:
            names[-1] += sign
    found = [name.strip() for name in names if name.strip()]
    if not found:
        raise ValueError(f"encodings must be names parted by commas, such as rotary,alibi; got {text!r}.")
    return found


def fitted(name: str, train_length: int) -> dict[str, Any]:
    """Options that suit a decoder trained at this length, where an encoding's defaults suit another."""
    options: dict[str, dict[str, Any]] = {
        "t5": {"max_distance": max(32, train_length), "bidirectional": False, "softmax_scale": None},
        "learned": {"max_length": train_length},
        "tupe": {"max_length": train_length, "untie_cls": False},
        "deberta": {"max_distance": max(2, train_length)},
        "fire": {"threshold": float(train_length)},
        "cope": {"max_position": train_length},
    }
    return options.get(name, {})


def _unknown_addition(name: str, each: str) -> str:
    known = [*SCALINGS, RANDOM]
    close = difflib.get_close_matches(each, known, n=1)
    cure = f" Did you mean +{close[0]}?" if close else ""
    return f"{name}: + must be followed by one of {', '.join(known)}; got {each!r}.{cure}"


def _name(part: str) -> str:
    return part.partition("(")[0]


def options_of(part: str) -> dict[str, Any]:
    """``name(a=1, b="x")`` as options, which must be Python literals."""
    name, bracket, rest = part.partition("(")
    if not bracket:
        return {}
    try:
        call = ast.parse(f"f({rest}", mode="eval").body
        assert isinstance(call, ast.Call)
        assert not call.args
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, AssertionError) as problem:
        raise ValueError(
            f"options must be written {name}(name=value, ...) with plain values, such as shaw(max_distance=32); got "
            f"{part!r}."
        ) from problem


def _require(part: str) -> None:
    """Raise unless an encoding of that name exists, takes its options and suits text."""
    require_options(part)
    name = _name(part)
    if name in OF_IMAGES:
        raise ValueError(f"encodings must suit text; {name} is for images. Use {OF_IMAGES[name]}.")


def require_options(part: str) -> None:
    """Raise unless an encoding of that name exists and takes its options."""
    name = _name(part)
    known = inspect.signature(find_class(name)).parameters
    for option in options_of(part):
        if option not in known:
            cure = did_you_mean(option, known)
            raise ValueError(f"{name} takes {', '.join(known) or 'no options'}; got {option!r}.{cure}")


def build(part: str, options: dict[str, Any]) -> Encoding:
    """An encoding with those of the options that it takes."""
    cls = find_class(_name(part))
    known = inspect.signature(cls).parameters
    return cls(**{option: value for option, value in options.items() if option in known})


def suiting_text() -> list[str]:
    """The names of all registered encodings that text has a use for."""
    return [name for name in names() if name not in OF_IMAGES]
