"""Extend a configuration to longer texts: a scaling of rotary, written where the model type reads it.

    linear    frequencies divided by the factor
    ntk       a larger base, which is all that has to be set
    dynamic   the same, growing with the text: short texts stay as they are
    yarn      slow pairs divided by the factor, fast ones left, cosines and sines multiplied
    llama3    the same with another ramp, and no magnitude
    longrope  a divisor for each pair, found by a search for one model

Of original length, target and factor any two give the third. A model that has a scaling keeps its method, since it was
trained with it, and gets a larger factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from situs.models.calls import Call
from situs.models.engines.merging import yarn_magnitude
from situs.models.extendable import (
    METHODS,
    Method,
    default_method,
    far_layers,
    full_rotation,
    require_extendable,
    rope_labels,
    scaling_method,
    takes,
)
from situs.models.numbers import rotation_by, rotation_call, rotation_of
from situs.models.positions import ModelPositions
from situs.models.readers.facts import Facts, facts_of
from situs.models.readers.families import family_of
from situs.models.readers.ladders import CHUNKS
from situs.models.reading import as_positions, read
from situs.models.scores import Change, change_between
from situs.models.sources.strict import ConfigError
from situs.models.training import training_of
from situs.models.writing import write
from situs.registry.spelling import did_you_mean

KEPT = (
    "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved", "xdrope_section",
    "llama_4_scaling_beta",
)  # fmt: skip
"""What rope parameters of another type keep."""
LENGTH = "max_position_embeddings"
BASES = "layer_rope_theta"
"""A base for each layer, beside which rope_theta has no effect."""
CLOSE = 0.01  # by which original times factor may miss the target: people round


@dataclass(frozen=True)
class Extension:
    """Hold a configuration that was extended, and what that changes."""

    config: Mapping[str, Any]
    positions: ModelPositions
    method: Method
    factor: float | int
    original: int
    target: int
    change: Change
    """Of frequencies and of scores within the original length."""
    notes: tuple[str, ...]
    replaces: tuple[str, ...] = ()
    """Settings of the configuration as it was that must go where ``pasted`` is put into it: transformers prefers some
    of them."""

    def pasted(self) -> dict[str, Any]:
        """The settings that changed, within the part of a model that has them, to be put into its configuration."""
        part = main_settings(dict(self.config), self.positions)
        keys = (
            *_length_keys(self.positions.main.model_type, part),
            "original_max_position_embeddings",
            "rope_parameters",
        )
        found: dict[str, Any] = {key: part[key] for key in keys if key in part}
        for key in reversed(main_path(self.config, self.positions)):
            found = {key: found}
        return found

    def instead(self) -> str:
        """The settings that those to be pasted take the place of, in words; "" where there are none."""
        if not self.replaces:
            return ""
        *most, last = self.replaces
        return f"in place of {', '.join(most)} and {last}" if most else f"in place of {last}"


def extend(
    source: object,
    *,
    target: int | None = None,
    method: Method | None = None,
    factor: float | int | None = None,
    original: int | None = None,
    factors: Mapping[str, Sequence[float | int]] | None = None,
) -> Extension:
    """Extend a model's configuration to texts of ``target`` tokens.

    source: anything that `read` takes, or what it gave. It stays as it is.
    method: the one that the model has, or yarn.
    factor: by which the length grows; follows from the lengths.
    original: what the model was trained on before any extension; the configuration's own where left out.
    factors: LongRoPE's short_factor and long_factor, a divisor for each pair.

    >>> from situs import models
    >>> sizes = {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 4}
    >>> longer = models.extend({"model_type": "llama", "max_position_embeddings": 4096, **sizes}, target=16384)
    >>> longer.method, longer.factor, longer.config["rope_parameters"]["original_max_position_embeddings"]
    ('yarn', 4.0, 4096)
    """
    model = as_positions(source)
    main = model.main
    call = full_rotation(main)
    require_extendable(model)
    assert call is not None
    old: Call | None = call.option("scaling")
    has = scaling_method(main)
    chosen = _method(main, method, old)
    if factors is not None and chosen != "longrope":
        raise ConfigError(f"factors must be left out with {chosen}, since only longrope divides by them; got some.")
    if chosen in ("ntk", "dynamic"):
        _require_pairs(chosen, call)
    plan = _plan(main, old if chosen == has else None, target=target, factor=factor, original=original)
    config = write(model, form="transformers")
    part, before = main_settings(config, model), main_settings(dict(model.config), model)
    replaces = tuple(key for key, value in before.items() if value is not None and key not in part)
    rope = part["rope_parameters"]
    for label in rope_labels(main, rope) or ("",):
        given = rope[label] if label else rope
        made = _rope(given, chosen, plan, call, factors, kept=chosen == has)
        given.clear()
        given.update(made)
    if chosen == "ntk" and BASES in part:
        part[BASES] = _larger_bases(part[BASES], main, plan)
    if chosen != "dynamic":  # which transformers counts from max_position_embeddings
        for key in _length_keys(main.model_type, part):
            part[key] = plan.target
    if "original_max_position_embeddings" in part:
        part["original_max_position_embeddings"] = plan.original
    longer = read(config)
    notes = (*_inferred(main, original), *_growing(main, plan, factor), *_notes(main, longer.main, chosen, has))
    change = _change(main, longer.main, plan.original)
    return Extension(config, longer, chosen, plan.factor, plan.original, plan.target, change, notes, replaces)


def _length_keys(model_type: str, part: Mapping[str, Any]) -> Iterator[str]:
    """The settings that say how long texts are: by the name that the model type has, and Command R's second one."""
    own = (facts_of(model_type) or Facts()).renamed.get(LENGTH, LENGTH)
    yield own if own in part else LENGTH
    longest = family_of(model_type).longest
    if longest is not None and part.get(longest) is not None:
        yield longest


def main_path(config: Mapping[str, Any], model: ModelPositions) -> list[str]:
    """The keys that lead to the settings of a model's main part."""
    if model.main is model:
        return []
    name, part = next((name, each) for name, each in model.submodels.items() if each.main is model.main)
    key = f"{name}_config" if f"{name}_config" in config else name
    return [key, *main_path(config[key], part)]


def main_settings(config: dict[str, Any], model: ModelPositions) -> dict[str, Any]:
    """The settings of a model's main part, within those of the whole."""
    for key in main_path(config, model):
        config = config[key]
    return config


def _require_pairs(method: Method, call: Call) -> None:
    """Raise for a single pair, whose frequency is 1 with any base."""
    if rotation_by(call).rotary_dim <= 2:
        raise ConfigError(
            f"method must leave the base as it is where one pair of channels is rotated, since its frequency is 1 with "
            f"any base; got {method!r}. Choose linear or yarn."
        )


@dataclass(frozen=True)
class _Plan:
    original: int
    target: int
    factor: float | int


def _method(main: ModelPositions, method: Method | None, old: Call | None) -> Method:
    """The method that is asked for, or that of the model; raises where the model type cannot have it."""
    chosen = default_method(main) if method is None else method
    if chosen not in METHODS:
        raise ConfigError(
            f"method must be one of {', '.join(METHODS)}, since each changes frequencies by its own formula; got "
            f"{chosen!r}.{did_you_mean(str(chosen), METHODS)}"
        )
    if old is not None and old.cls == "ProportionalScaling" and chosen != "linear":
        raise ConfigError(
            f"method must be linear for rope_type proportional, since only a factor goes with channels that hold no "
            f"position; got {chosen!r}."
        )
    if not takes(main, chosen):
        those = " or ".join(each for each in METHODS if takes(main, each))
        raise ConfigError(
            f"method must be {those} for {main.model_type}, since it reads no other rope_type; got {chosen!r}."
        )
    return chosen


def _plan(
    main: ModelPositions, old: Call | None, *, target: int | None, factor: float | int | None, original: int | None
) -> _Plan:
    """Settle original length, target and factor, of which two are needed."""
    _require("target", target, whole=True)
    _require("original", original, whole=True)
    _require("factor", factor, whole=False)
    training = training_of(main)
    first = original or (None if training is None else training.plain)
    if first is None:
        raise ConfigError("original must be given, since the configuration names no length; got none.")
    start, already = first, 1.0
    if old is not None and original is None and training is not None and old.cls in _GROWING:
        start, already = training.declared, old.option("factor") or 1.0  # the factor belongs to the declared length
    if target is None and factor is None:
        raise ConfigError("target or factor must be given, since one of them says how long texts become; got neither.")
    reached = start if factor is None else round(start * factor / already)
    if target is None:
        target = reached
    elif factor is not None and abs(reached - target) > CLOSE * target:
        raise ConfigError(
            f"target must be what the factor makes of the original length, since any two of the three give the third; "
            f"got target={target:,}, factor={factor:g} and original={first:,}, which reach {reached:,}. Leave out one."
        )
    known = max(start, first)
    if target <= known:
        raise ConfigError(
            f"target must be more than {known:,}, since the model is made for texts of that length as it is; got "
            f"{target:,}."
        )
    return _Plan(first, target, already * target / start if factor is None else factor)


_GROWING = ("LinearScaling", "Llama3Scaling", "ProportionalScaling")
"""Scalings of released models whose factor times the original length is not the length they declare."""


def _require(name: str, value: object, *, whole: bool) -> None:
    if value is None:
        return
    number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
    if not 1 <= number <= 2**53 or (whole and number != int(number)):
        kind = "a whole number of tokens" if whole else "a number"
        raise ConfigError(
            f"{name} must be {kind}, 1 or more and at most 2^53, since texts become longer; got {value!r:.60}."
        )


def _rope(
    given: Mapping[str, Any], method: Method, plan: _Plan, call: Call,
    factors: Mapping[str, Sequence[float | int]] | None, *, kept: bool,
) -> dict[str, Any]:  # fmt: skip
    """The rope parameters of an extended model."""
    if given.get("rope_type") == "proportional":
        return {**given, "factor": plan.factor}
    rope = dict(given) if kept else {key: given[key] for key in KEPT if key in given}
    lengths = {"factor": plan.factor, "original_max_position_embeddings": plan.original}
    if method == "ntk":
        return {**rope, "rope_type": "default", "rope_theta": _larger(given["rope_theta"], call, plan)}
    if method in ("linear", "dynamic"):
        return {**rope, "rope_type": method, "factor": plan.factor}
    if method == "yarn":
        return {**_without_old_factor(rope), "rope_type": "yarn", **lengths}
    if method == "llama3":
        ramp = {
            "low_freq_factor": rope.get("low_freq_factor", 1.0),
            "high_freq_factor": rope.get("high_freq_factor", 4.0),
        }
        return {**rope, "rope_type": "llama3", **lengths, **ramp}
    return {**rope, "rope_type": "longrope", **lengths, **_lists(factors, call)}


def _larger(base: float, call: Call, plan: _Plan) -> float:
    """The base that NTK's rule makes of one."""
    dim = rotation_by(call).rotary_dim
    return float(base * plan.factor ** (dim / (dim - 2)))


def _larger_bases(bases: Sequence[float], main: ModelPositions, plan: _Plan) -> list[float]:
    """The bases of all layers, larger in those that see farther in a longer text."""
    far = {layer for _, layer in far_layers(main)}
    return [
        _larger(base, call, plan) if layer in far and (call := rotation_call(layer)) is not None else base
        for base, layer in zip(bases, main.layers, strict=True)
    ]


def _without_old_factor(rope: dict[str, Any]) -> dict[str, Any]:
    """Rope parameters without an attention_factor that is only YaRN's own for the factor of before."""
    given, factor = rope.get("attention_factor"), rope.get("factor")
    follows = given is not None and factor and math.isclose(given, yarn_magnitude(factor), rel_tol=1e-6)
    return {key: each for key, each in rope.items() if key != "attention_factor" or not follows}


def _lists(factors: Mapping[str, Sequence[float | int]] | None, call: Call) -> dict[str, list[float | int]]:
    """LongRoPE's divisors, which no formula gives."""
    pairs = len(rotation_by(call, 1).frequencies)
    names = ("short_factor", "long_factor")
    if not isinstance(factors, Mapping) or any(name not in factors for name in names):
        raise ConfigError(
            f"factors must hold short_factor and long_factor, {pairs} numbers each, since longrope divides each "
            f"frequency by a number that a search found for one model and length; got "
            f"{_named(factors)}. Without them, choose yarn."
        )
    found: dict[str, list[float | int]] = {}
    for name in names:
        given = factors[name]
        if not isinstance(given, (list, tuple)) or len(given) != pairs:
            many = f"{len(given)}" if isinstance(given, (list, tuple)) else f"{given!r:.60}"
            raise ConfigError(f"factors[{name!r}] must be {pairs} numbers, one for each pair; got {many}.")
        found[name] = list(given)
    return found


def _named(factors: object) -> str:
    if factors is None:
        return "none"
    return ", ".join(map(str, factors)) or "neither" if isinstance(factors, Mapping) else f"{factors!r:.60}"


def _change(main: ModelPositions, longer: ModelPositions, original: int) -> Change:
    """What an extension changes below the original length, in the first layer that sees farther."""
    number, before = far_layers(main)[0]
    after = longer.layers[number]
    first, second = (rotation_of(layer, original) for layer in (before, after))
    assert first is not None
    assert second is not None
    return change_between(first, second, original, scale=(after.scale or 1) / (before.scale or 1))


def _inferred(main: ModelPositions, original: int | None) -> Iterator[str]:
    training = training_of(main)
    if original is None and training is not None and training.inferred:
        yield (
            f"the original length is inferred: {training.plain:,} is the declared {training.declared:,} divided by the "
            f"factor"
        )


def _growing(main: ModelPositions, plan: _Plan, factor: float | int | None) -> Iterator[str]:
    """Say where a factor that follows comes from, where it is not the target divided by the original length."""
    training = training_of(main)
    if factor is None and training is not None and abs(plan.original * plan.factor - plan.target) > CLOSE * plan.target:
        already = plan.factor * training.declared / plan.target
        yield f"the factor grows as the declared length does: it is {already:g} for {training.declared:,} tokens"


def _notes(main: ModelPositions, longer: ModelPositions, method: Method, has: str | None) -> Iterator[str]:
    if has is not None and method != has:
        yield f"{method} replaces {has}, which the model was trained with"
    if any(a != b and a.kind == "sliding" for a, b in zip(main.layers, longer.layers, strict=True)):
        yield "sliding layers change too, since this model type has one set of frequencies for all layers"
    scaled = full_rotation(longer)
    if method == "yarn" and scaled is not None and scaled.option("scaling").option("attention_factor") is not None:
        yield "attention_factor stays as the configuration has it, and does not follow the factor"
    if any(call.option("split") is not None for layer in main.layers for call in layer.calls):
        yield "positions of images advance by less than one per token: texts with images need a smaller factor"
    if CHUNKS in main.config:
        yield f"{CHUNKS} stays, and vLLM goes by it instead of {method}: remove it there"
    if method == "dynamic":
        yield "keys cached at one length do not fit another: engines must rotate them anew, or cache them unrotated"
