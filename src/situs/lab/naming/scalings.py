"""Scalings of rotary in the lab: what each is made with where nothing is written, and what it is not offered for."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Iterable
from typing import Any, cast

from situs.encodings.rotary import Rotary
from situs.encodings.scaling import Scaling
from situs.lab.naming.grammar import RANDOM as RANDOM
from situs.lab.naming.grammar import Method, Part, has_bands, parse
from situs.registry import SCALINGS, entry, require_options

Ramp = tuple[float, float]
RAMPED = ("ntk_by_parts", "yarn")
"""Scalings whose ramp is tried, where they are written without options."""
PAPER: Ramp = (32.0, 1.0)
"""The turns between which YaRN's ramp lies in its paper."""
RAMPS: tuple[Ramp, ...] = ((2.0, 0.25), (4.0, 0.5), (8.0, 1.0), PAPER)
"""From how many turns within the training length on a pair has its own frequency, and below how many it is stretched.
The paper's suit thousands of tokens: at 64, the fastest pair turns ten times. Which suits is tried on held-out text
that is not scored."""

SEARCHED = ("short_factors", "long_factors")
NEAR, CHUNK, LOCAL = 4, (3, 4), 16
"""Bands that are written without options: a window of a quarter of the training length, within which distances stay;
dual chunks of three quarters of it and a sixteenth, as in the authors' code."""
TRAINED_WITH = "proportional"
"""The scaling that a model is trained with: it leaves pairs without rotation."""


def require_scaling(method: Method) -> None:
    """Raise unless the scaling of a method, if it has one, takes its options and can be made with them."""
    if method.scaling is None:
        return
    part = part_of(method.scaling)
    require_options(part.name, inspect.signature(class_of(part.name)).parameters, part.options)
    missing = [name for name in SEARCHED if part.name == "longrope" and name not in part.options]
    if missing:
        raise ValueError(
            f"{method}: longrope must be given {' and '.join(missing)}, since they were searched for one model; got "
            f"none. Write longrope(short_factors=(...), long_factors=(...)) with one number per pair, as in the "
            f"rope_scaling of the model's config.json."
        )
    if part.name == TRAINED_WITH and "fraction" not in part.options:
        raise ValueError(
            f"{method}: proportional must be given a fraction, since it rotates that share of the pairs; got none. "
            f"Write proportional(fraction=0.25)."
        )
    make_scaling(method.scaling, factor=2.0, train_length=64)


def require_added_after_training(method: Method) -> None:
    """Raise for a scaling that changes what a model must be trained with."""
    if method.scaling is not None and part_of(method.scaling).name == TRAINED_WITH:
        raise ValueError(
            f"{method}: proportional must be part of the training, since it takes the rotation from pairs that were "
            f"trained with one, and scalings are added after it here. Use rotary(rotary_dim=...), or situs plot."
        )


def require_rotary(method: Method) -> None:
    """Raise unless a scaling, if there is one, follows rotary or a subclass of it that takes one."""
    if method.scaling is None:
        return
    rotary = [part for part in method.parts if issubclass(entry(part.name).cls, Rotary)]
    if not rotary:
        raise ValueError(
            f"{method}: +{method.scaling} must follow rotary, since it scales its frequencies; got {method.base!r}."
        )
    for part in rotary:
        _require_option(f"{method}: {part.name}", entry(part.name).options, "scaling")


def _require_option(whose: str, takes: Iterable[str], option: str) -> None:
    """Raise unless a subclass of rotary takes an option that it is made again with."""
    takes = list(takes)
    if option not in takes:
        raise ValueError(
            f"{whose} must take the option {option}, since it is made again with another; got a class that takes "
            f"{', '.join(takes) or 'no options'}. Add {option}=None to its __init__, and pass it on to "
            f"super().__init__."
        )


def part_of(scaling: str) -> Part:
    """Take a scaling apart: its name and the options it was written with."""
    return parse(f"rotary+{scaling}").additions[0]


def make_scaling(scaling: str, *, factor: float, train_length: int, ramp: Ramp = PAPER) -> Scaling:
    """Make a scaling from lengths ``factor`` times that of training; options that are written are used as they are.

    ramp: of a scaling that is written without options; with options, it has its paper's unless they say otherwise.
    """
    part = part_of(scaling)
    if has_bands(part.name):
        return class_of(part.name)(**_bands(part, factor, train_length))
    chosen: dict[str, Any] = {"factor": factor, "original_length": train_length}
    if not part.options:
        chosen |= {"beta_fast": ramp[0], "beta_slow": ramp[1]}
    if part.name == TRAINED_WITH or "target_length" in part.options:
        del chosen["factor"]  # not stretched unless that is written, or given by two lengths
    if part.name in ("linear", "ntk"):
        del chosen["original_length"]  # not measured against
    takes = inspect.signature(class_of(part.name)).parameters
    return class_of(part.name)(**{name: each for name, each in chosen.items() if name in takes} | dict(part.options))


def _bands(part: Part, factor: float, train_length: int) -> dict[str, Any]:
    """Choose what is not written of bands, so that no distance is beyond those of training."""
    written = dict(part.options)
    if part.name == "dualchunk":
        chunk = written.get("chunk_size", max(1, CHUNK[0] * train_length // CHUNK[1]))
        return {"chunk_size": chunk, "local_size": train_length // LOCAL} | written
    window = written.get("window", max(1, train_length // NEAR))
    fitted = {"window": window}
    if part.name == "selfextend":
        room = train_length - window if type(window) is int else 0
        # a text of room * group + window tokens has no distance beyond those of training
        fitted["group"] = math.ceil((factor * train_length - window) / room) if room > 0 else 1
    return fitted | written


def scaled(rotary: Rotary, scaling: str | None, *, factor: float, train_length: int, ramp: Ramp = PAPER) -> Rotary:
    """Scale the frequencies of a rotary encoding to texts ``factor`` times as long as those of training; None takes a
    scaling away."""
    made = None if scaling is None else make_scaling(scaling, factor=factor, train_length=train_length, ramp=ramp)
    return made_again(rotary, scaling=made)


def made_again(rotary: Rotary, **changed: Any) -> Rotary:
    """Make a rotary encoding, or a subclass of one's own, again with other options; its parameters stay."""
    for option in changed:
        _require_option(type(rotary).__name__, rotary.config, option)
    again = type(rotary)(**{**rotary.config, **changed})
    again.load_state_dict(rotary.state_dict(), assign=True)  # the same tensors, on whatever device they are
    return again.train(rotary.training)


def class_of(name: str) -> type[Scaling]:
    """The class of a scaling, by the registry's name."""
    listed = SCALINGS[name]
    return cast("type[Scaling]", getattr(importlib.import_module(listed.module), listed.cls))
