"""What to set so that a model reads longer texts: a method and a factor with reasons, and what each method would do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from situs.models.extendable import SCALED_BY, full_rotation, why_not
from situs.models.extending import METHODS, Extension, Method, extend, main_settings
from situs.models.inspecting.pairs import pairs_of
from situs.models.numbers import rotation_call
from situs.models.positions import Layer, ModelPositions
from situs.models.scores import Change
from situs.models.sources.strict import ConfigError
from situs.models.training import Training, training_of
from situs.models.writing import write

PLACES = {
    "transformers": "transformers, in config.json",
    "vllm-overrides": "vLLM",
    "llama.cpp-flags": "llama.cpp",
}
"""The forms of settings, and where each is pasted."""


@dataclass(frozen=True)
class Option:
    """Hold what one method would do."""

    method: Method
    factor: float
    unseen: int
    """Pairs that still meet angles of which training showed none."""
    change: Change


@dataclass(frozen=True)
class Advice:
    """Hold what to set, or why nothing."""

    headline: str
    reasons: tuple[str, ...] = ()
    extension: Extension | None = None
    options: tuple[Option, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    """By the place where they are pasted."""


def advise(model: ModelPositions, target: int) -> Advice:
    """Recommend what to set for texts of ``target`` tokens."""
    main = model.main
    training = training_of(main)
    limit = main.lengths.limit
    reason = why_not(main)
    if limit is not None and target > limit:
        told = reason.removeprefix(f"got {main.model_type}, ") or "Nothing in the configuration changes that."
        return Advice(f"{target:,} tokens cannot be read: {main.lengths.reason}.", (f"{told[0].upper()}{told[1:]}",))
    if training is None:
        return Advice("Nothing can be recommended, since the configuration names no length.")
    if target <= training.length:
        return Advice(f"Nothing has to be set: the model is made for {training.length:,} tokens.")
    if reason:
        return Advice(f"Nothing can be set: {reason.removeprefix(f'got {main.model_type}, ')}")
    if not _unseen(main, training, target):
        return Advice(
            "Nothing has to be set: no pair of channels meets an angle that training did not show.",
            ("What a model makes of so many tokens is another question: measure it.",),
        )
    return _extended(model, training, target)


def _extended(model: ModelPositions, training: Training, target: int) -> Advice:
    main = model.main
    made = {}
    for method in METHODS:
        try:
            made[method] = extend(model, target=target, method=method)
        except ConfigError:  # a method that this model does not take, such as longrope without its lists
            continue
    options = tuple(
        Option(method, each.factor, _unseen(each.positions.main, training, target), each.change)
        for method, each in made.items()
    )
    call = full_rotation(main)
    assert call is not None
    old = call.option("scaling")
    has = None if old is None else SCALED_BY[old.cls]
    best = made.get(has) if has is not None else made.get("yarn")  # type: ignore[call-overload]
    if best is None:
        return Advice(
            f"No factor alone carries {has} to {target:,} tokens: its divisors were found for one length.",
            ("A search finds new ones, or another method replaces them:",),
            None,
            options,
        )
    before = _unseen(main, training, target)
    after = next(each.unseen for each in options if each.method == best.method)
    pairs = sum(len(pairs_of(layer, training, target)) for layer in _first_full(main))
    reasons = [
        f"As it is, {before} of {pairs} pairs meet angles that training did not show; with {best.method}, {after}.",
        f"Below {best.original:,} tokens, frequencies change by up to {100 * best.change.frequency:.3g} % and scores "
        f"by up to {best.change.score:.2g} (at distance {best.change.distance:,}; a token with itself has 1).",
    ]
    if has is not None:
        reasons.insert(0, f"The model was trained with {has}, so that its factor grows.")
    headline = f"Set {best.method} with factor {best.factor:.6g} for {target:,} tokens."
    return Advice(headline, (*reasons, *(f"{note[0].upper()}{note[1:]}." for note in best.notes)), best, options,
                  settings_of(best))  # fmt: skip


def settings_of(extension: Extension) -> dict[str, str]:
    """What to paste where, for each engine."""
    found = {}
    for form, place in PLACES.items():
        try:
            written = write(extension.positions, form=form)  # type: ignore[arg-type]
        except ConfigError as problem:
            found[place] = str(problem)
            continue
        if form == "transformers":
            part = main_settings(dict(extension.config), extension.positions)
            keys = ("max_position_embeddings", "original_max_position_embeddings", "rope_parameters")
            shown = {key: part[key] for key in keys if key in part}
            found[place] = json.dumps(shown, indent=2)
        else:
            found[place] = written if isinstance(written, str) else json.dumps(written)
    return found


def _unseen(main: ModelPositions, training: Training, target: int) -> int:
    """How many pairs of layers of full attention meet new angles."""
    states = (each.state for layer in _first_full(main) for each in pairs_of(layer, training, target))
    return sum(state == "never seen" for state in states)


def _first_full(main: ModelPositions) -> list[Layer]:
    """One of each group of layers of full attention that rotate."""
    return [layer for _, layer in main.groups() if layer.kind == "full" and rotation_call(layer) is not None]
