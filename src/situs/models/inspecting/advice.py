"""What to set so that a model reads longer texts: a method and a factor with reasons, and what each method would do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from situs.models.extendable import METHODS, Method, default_method, far_layers, is_gguf, scaling_method, why_not
from situs.models.extending import Extension, extend
from situs.models.inspecting.pairs import pairs_of
from situs.models.positions import ModelPositions
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
RAISED = {"mpt": "max_seq_len", "gptj": "n_positions", "codegen": "n_positions"}
"""Settings that make the table of a model type longer, where it is computed."""
YARN = (
    "Of the methods that leave no pair with new angles, yarn is the one that most engines read, and its authors found "
    "it ahead of linear and ntk (Peng et al. 2023). Measure it on texts of your own."
)


@dataclass(frozen=True)
class Option:
    """Hold what one method would do."""

    method: Method
    factor: float | int
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

    def heading(self, place: str) -> str:
        """Say where settings are pasted, and which settings of the configuration must go for them."""
        instead = "" if self.extension is None or place != PLACES["transformers"] else self.extension.instead()
        return f"{place}, {instead}" if instead else place


def advise(model: ModelPositions, target: int) -> Advice:
    """Recommend what to set for texts of ``target`` tokens."""
    main = model.main
    training = training_of(main)
    limit = main.lengths.limit
    reason = why_not(main)
    if limit is not None and target > limit:
        return _beyond_limit(main, target, reason)
    if training is not None and target <= training.length:
        return Advice(f"Nothing has to be set: the model is made for {training.length:,} tokens.")
    if reason:
        return Advice(f"Nothing can be recommended: {reason}" if is_gguf(main)
                      else f"No scaling of rotary is needed or would help: {reason}")  # fmt: skip
    if training is None:
        return Advice("Nothing can be recommended, since the configuration names no length.")
    if not _unseen(main, training, target):
        return Advice(
            "Nothing has to be set: no pair of channels meets an angle that training did not show.",
            ("What a model makes of so many tokens is another question: measure it.",),
        )
    return _extended(model, training, target)


def _extended(model: ModelPositions, training: Training, target: int) -> Advice:
    main = model.main
    made: dict[str, Extension] = {}
    for method in METHODS:
        with suppress(ConfigError):  # of a method that this model does not take, such as longrope without its lists
            made[method] = extend(model, target=target, method=method)
    options = tuple(
        Option(each.method, each.factor, _unseen(each.positions.main, training, target, main), each.change)
        for each in made.values()
    )
    has = scaling_method(main)
    best = made.get(default_method(main))
    if best is None:
        return Advice(
            f"No factor alone carries {has} to {target:,} tokens: its divisors were found for one length.",
            ("A search finds new ones, or another method takes its place:",),
            None,
            options,
        )
    before = _unseen(main, training, target)
    after = next(each.unseen for each in options if each.method == best.method)
    pairs = sum(len(pairs_of(layer, training, target)) for _, layer in far_layers(main))
    if 2 * after > before:
        return Advice(
            f"No method that {main.model_type} reads carries it to {target:,} tokens.",
            (f"{before} of {pairs} pairs meet angles that training did not show; with {best.method}, {after}.",),
            None,
            options,
        )
    reasons = [
        YARN
        if has is None and best.method == "yarn"
        else f"{main.model_type} reads {best.method}."
        if has is None
        else f"The model was trained with {has}, so that its factor grows.",
        f"As it is, {before} of {pairs} pairs meet angles that training did not show; with {best.method}, {after}.",
        str(best.change),
        *(f"Note: {note}." for note in best.notes),
    ]
    headline = f"Set {best.method} with factor {best.factor:.6g} for {target:,} tokens."
    return Advice(headline, tuple(reasons), best, options, settings_of(best, model))


def _beyond_limit(main: ModelPositions, target: int, reason: str) -> Advice:
    """What to say of a text that is longer than a model can run."""
    headline = f"{target:,} tokens cannot be read as it is: {main.lengths.reason}."
    setting = RAISED.get(main.model_type)
    if setting is None:
        cure = f"{reason[0].upper()}{reason[1:]}" if reason else "Nothing in the configuration changes that."
        return Advice(headline, (cure,))
    cures = [f'Set "{setting}": {target}.']
    training = training_of(main)
    unseen = 0 if training is None else _unseen(main, training, target)
    if unseen:
        cures.append(
            f"{unseen} pairs then meet angles that training did not show, and {main.model_type} has no scaling."
        )
    return Advice(headline, tuple(cures))


def settings_of(extension: Extension, model: ModelPositions) -> dict[str, str]:
    """What to paste where, for each engine that has the model's own file."""
    found = {PLACES["transformers"]: json.dumps(extension.pasted(), indent=2)}
    changed = _with_settings(extension.positions, model)
    for form in ("vllm-overrides", "llama.cpp-flags"):
        try:
            found[PLACES[form]] = write(changed, form=form) + f" -c {extension.target}" * (form == "llama.cpp-flags")
        except ConfigError as problem:
            found[PLACES[form]] = str(problem)
    return found


def _with_settings(changed: ModelPositions, model: ModelPositions) -> ModelPositions:
    """Positions with the settings of another model, which they are a change of."""
    parts = {name: _with_settings(part, model.submodels[name]) for name, part in changed.submodels.items()}
    return replace(changed, config=model.config, submodels=parts)


def _unseen(main: ModelPositions, training: Training, target: int, trained: ModelPositions | None = None) -> int:
    """How many pairs of layers of full attention meet new angles."""
    found = 0
    for number, layer in far_layers(main):
        before = None if trained is None else trained.layers[number]
        found += sum(each.state == "never seen" for each in pairs_of(layer, training, target, trained=before))
    return found
