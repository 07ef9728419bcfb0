"""Which models a scaling of rotary extends, and what to do with the others instead."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from situs.models.calls import Call
from situs.models.numbers import ROTATIONS, rotation_call
from situs.models.positions import Layer, ModelPositions
from situs.models.readers.families import family_of
from situs.models.readers.schedule import KINDS
from situs.models.reading import FIXED
from situs.models.sources.strict import ConfigError
from situs.models.training import training_of

Method = Literal["linear", "ntk", "dynamic", "yarn", "llama3", "longrope"]
METHODS: tuple[Method, ...] = ("linear", "ntk", "dynamic", "yarn", "llama3", "longrope")

SCALED_BY: dict[str, Method] = {
    "LinearScaling": "linear",
    "ProportionalScaling": "linear",
    "NTKScaling": "ntk",
    "DynamicNTKScaling": "dynamic",
    "YaRN": "yarn",
    "Llama3Scaling": "llama3",
    "LongRoPE": "longrope",
}
"""The method by which each scaling of a configuration extends."""


def far_layers(main: ModelPositions) -> list[tuple[int, Layer]]:
    """Layers that rotate by larger distances in a longer text, one of each group with its number: those without a
    window or dual chunks, and those that reach farther than what the model was trained on."""
    training = training_of(main)
    known = math.inf if training is None else training.length
    found = []
    for numbers, layer in main.groups():
        if rotation_call(layer) is not None and (layer.kind == "full" if layer.reach is None else layer.reach > known):
            found.append((numbers[0], layer))
    return sorted(found, key=lambda each: each[0])


def full_rotation(main: ModelPositions) -> Call | None:
    """The rotation of the first layer that rotates and sees farther in a longer text."""
    return next((rotation_call(layer) for _, layer in far_layers(main)), None)


def scaling_method(main: ModelPositions) -> Method | None:
    """The method by which a model is scaled already; None where it is not."""
    call = full_rotation(main)
    scaling = None if call is None else call.option("scaling")
    return None if scaling is None else SCALED_BY[scaling.cls]


def takes(main: ModelPositions, method: Method) -> bool:
    """Whether a model type reads what a method writes; Phi 3 takes "yarn" for another name of longrope."""
    types = family_of(main.model_type).rope_types
    return not types or ("default" if method == "ntk" else method) in types


def default_method(main: ModelPositions) -> Method:
    """The method that a model has, or yarn, or what comes next to it where the model type does not read that."""
    return scaling_method(main) or ("yarn" if takes(main, "yarn") else "ntk")


NOTHING = "There is nothing to set."


def is_gguf(main: ModelPositions) -> bool:
    """Whether a model was read from a GGUF file, whose settings are named by architecture."""
    return any(key.endswith(".block_count") for key in main.config)


def require_extendable(model: ModelPositions) -> None:
    """Raise unless a scaling of rotary can make a model's texts longer; say what would."""
    reason = why_not(model.main)
    if reason:
        raise ConfigError(
            f"source must have layers of full attention that rotate by rope parameters; got {model.main.model_type}: "
            f"{reason}"
        )


def why_not(main: ModelPositions) -> str:
    """Say why no scaling of rotary makes texts longer, and what would; "" where one does."""
    if not main.layers:
        return "no layers of it are known."
    if is_gguf(main):
        return "it is a GGUF file, which holds no configuration. Extend the config.json that it was converted from."
    table = next((call for call in main.input if call.cls == "Learned"), None)
    if table is not None:
        return (
            f"its positions are a learned table of {table.option('max_length'):,} rows, which no setting makes longer. "
            f"Extend the table and train on: situs.Learned.extend."
        )
    if full_rotation(main) is not None:
        return "its frequencies are computed by a fixed formula, which no setting changes." * (main.model_type in FIXED)
    calls = {call.cls for layer in main.layers for call in layer.calls}
    chunks = next((layer.reach for layer in main.layers if layer.kind == "full" and layer.reach is not None), None)
    if chunks is not None:
        return f"dual chunks let no distance grow beyond {chunks:,}, however long the text is. {NOTHING}"
    if calls & set(ROTATIONS):
        full = any(layer.kind == "full" for layer in main.layers)
        return (
            f"the layers that rotate see a window or a chunk alone, so that no distance grows with the text"
            f"{', and those of full attention do not rotate' * full}. {NOTHING}"
        )
    if calls & {"ALiBi", "T5Bias", "Deberta", "Boxes", "Shaw", "ProjectedBias", "TransformerXL"}:
        return f"its scores go by {' and '.join(sorted(calls))}, which is defined for every distance. {NOTHING}"
    if any(call.cls == "Sinusoidal" for call in main.input):
        return f"its sinusoids are computed for any position. {NOTHING}"
    return f"its layers have no positions that a scaling could change. {NOTHING}"


def rope_labels(main: ModelPositions, rope: Mapping[str, Any]) -> tuple[str, ...]:
    """Of rope parameters by type of layer, the names of those that layers of full attention read."""
    family = family_of(main.model_type)
    if not family.by_type:
        return ()
    near = {"sliding"} if all(layer.kind == "full" for _, layer in far_layers(main)) else set()
    sliding = {dict(family.labels).get(type_, type_) for type_, kind in KINDS.items() if kind in near}
    return tuple(label for label, each in rope.items() if label not in sliding and each is not None)
