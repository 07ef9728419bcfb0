"""Methods of a comparison: encodings made for a decoder by a method's name.

An encoding gets the sizes of the model that it takes, options that suit the training length where its defaults suit
another, and those that were written. A scaling shares the training of what it scales: it changes frequencies, not
weights.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from situs.encodings.base import Encoding
from situs.lab.naming.grammar import RANDOM, Method, Part, parse_all, require_additions
from situs.lab.naming.scalings import (
    TRAINED_WITH,
    require_added_after_training,
    require_rotary,
    require_scaling,
)
from situs.registry import SCALINGS, entry, names, require_options

OF_IMAGES = {"boxes": "t5", "learned_grid": "learned", "rope_mixed": "rotary", "swin": "t5", "vitdet": "shaw"}
"""Encodings of images and pages, which text has no use for, and what would serve it."""


@dataclass(frozen=True)
class Fitted:
    """Hold options of an encoding that suit a training length, and what a reader of the results should know of them."""

    options: Callable[[int], dict[str, Any]]
    said: str
    unless: str | None = None
    """An option that these would not suit, where it is written."""


FITTED = {
    "t5": Fitted(
        lambda length: {"max_distance": max(32, length), "bidirectional": False, "softmax_scale": None},
        "t5's buckets tell distances apart up to the training length, or up to 32 if that is longer",
    ),
    "deberta": Fitted(
        lambda length: {"max_distance": max(2, length)},
        "deberta looks no farther than what was trained",
    ),
    "fire": Fitted(
        lambda length: {"threshold": float(length)},
        "fire's threshold is the training length",
    ),
    "gated": Fitted(
        lambda length: {
            "options": {"num_buckets": 32, "max_distance": max(32, length), "bidirectional": False},
        },
        "gated has t5's buckets, which tell distances apart up to the training length, or up to 32 if that is longer",
        unless="bias",
    ),
    "mlp": Fitted(
        lambda length: {"log_distance": True},
        "mlp is handed logarithms of distances",
    ),
    "cope": Fitted(
        lambda length: {"max_position": length},
        "cope counts no farther than the training length",
    ),
    "projected": Fitted(
        lambda length: {"distances": length},
        "projected has profiles of the distances that were trained",
    ),
    "temperature": Fitted(
        lambda length: {"original_length": max(2, length)},
        "temperature multiplies queries beyond the training length",
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


def parse_methods(text: str) -> list[Method]:
    """Take apart names that are separated by commas, each once; raises for one that cannot be trained on text."""
    methods = list({method.name: method for method in parse_all(text)}.values())
    for method in methods:
        require_trainable(method)
    return methods


def require_trainable(method: Method) -> None:
    """Raise unless all that is written exists, suits text and can be put together."""
    require_added_after_training(method)
    require_additions(method, [*(name for name in SCALINGS if name != TRAINED_WITH), RANDOM])
    if method.scaling is not None and method.added[-1] != method.scaling:
        last = method.added[-1]
        raise ValueError(f"{method}: the scaling must come last, since it is added after training; got {last!r}.")
    for part in method.parts:
        require_part(part)
        if part.name in OF_IMAGES:
            raise ValueError(f"encodings must suit text; {part.name} is for images. Use {OF_IMAGES[part.name]}.")
    late = [part.text for layer in method.pattern[1:] for part in layer if entry(part.name).place == "input"]
    if late:
        raise ValueError(
            f"{method}: {late[0]} must stand in the first layer's place, since it acts once, before all layers; got it "
            f"in a later one. Write {late[0]}/... or {late[0]}&..."
        )
    require_rotary(method)
    require_scaling(method)


def require_part(part: Part) -> None:
    """Raise unless an encoding of that name exists and takes its options."""
    require_options(part.name, entry(part.name).options, part.options)


def build(part: Part, sizes: Mapping[str, Any]) -> Encoding:
    """Make an encoding with its options, and those of the sizes that it takes."""
    return entry(part.name).build(**{**sizes, **part.options})


def build_layer(method: Method, layer: int, sizes: Mapping[str, Any]) -> list[Encoding]:
    """Make the encodings that act in a layer; encodings of the input stand in the first."""
    parts = method.pattern[layer % len(method.pattern)]
    return [build(part, {**sizes, **fitted(part.name, sizes["max_length"], part.options)}) for part in parts]


def fitted(name: str, train_length: int, written: Collection[str] = ()) -> dict[str, Any]:
    """Give options that suit a decoder trained at this length, where an encoding's defaults suit another; ``written``
    are those that the method's name has."""
    found = FITTED.get(name)
    return {} if found is None or found.unless in written else found.options(train_length)


def suiting_text() -> list[str]:
    """List the names of all registered encodings that text has a use for."""
    return [name for name in names() if name not in OF_IMAGES]
