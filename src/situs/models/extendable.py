"""Which models a scaling of rotary extends, and what to do with the others instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from situs.models.calls import Call
from situs.models.numbers import rotation_call
from situs.models.positions import ModelPositions
from situs.models.readers.families import family_of
from situs.models.readers.schedule import KINDS
from situs.models.reading import FIXED
from situs.models.sources.strict import ConfigError

SCALED_BY = {
    "LinearScaling": "linear",
    "ProportionalScaling": "linear",
    "NTKScaling": "ntk",
    "DynamicNTKScaling": "dynamic",
    "YaRN": "yarn",
    "Llama3Scaling": "llama3",
    "LongRoPE": "longrope",
}
"""The method by which each scaling of a configuration extends."""


def full_rotation(main: ModelPositions) -> Call | None:
    """The rotation of the first layer that sees the whole text and rotates."""
    return next((rotation_call(layer) for layer in main.layers if layer.kind == "full" and rotation_call(layer)), None)


def require_extendable(model: ModelPositions) -> None:
    """Raise unless a scaling of rotary can make a model's texts longer; say what would."""
    main = model.main
    reason = why_not(main)
    if reason:
        raise ConfigError(f"source must have layers of full attention that rotate and read rope parameters; {reason}")


def why_not(main: ModelPositions) -> str:
    """Say why no scaling of rotary makes texts longer, and what would; "" where one does."""
    name = main.model_type
    if not main.layers:
        return f"got {name}, of which no layers are known."
    table = next((call for call in main.input if call.cls == "Learned"), None)
    if table is not None:
        rows = table.option("max_length")
        return (
            f"got {name}, whose positions are a learned table of {rows:,} rows, which no setting makes longer. Extend "
            f"the table and train on: situs.Learned.extend."
        )
    if full_rotation(main) is not None:
        if name in FIXED:
            return f"got {name}, whose frequencies no setting changes: transformers computes them by a fixed formula."
        return ""
    calls = {call.cls for layer in main.layers for call in layer.calls}
    if calls & {"Rotary", "LeRoPE"}:
        rest = [layer for layer in main.layers if layer.kind == "full"]
        return (
            f"got {name}, whose layers that rotate see a window or a chunk alone, so that no distance grows with the "
            f"text{', and whose layers of full attention have no rotation' if rest else ''}. There is nothing to set."
        )
    if calls & {"ALiBi", "T5Bias", "Deberta", "Boxes", "Shaw", "ProjectedBias"}:
        names = " and ".join(sorted(calls))
        return f"got {name}, whose scores go by {names}, which take any distance. There is nothing to set."
    if any(call.cls == "Sinusoidal" for call in main.input):
        return f"got {name}, whose sinusoids are computed for any position. There is nothing to set."
    return f"got {name}, whose layers have no positions that a scaling could change. There is nothing to set."


def rope_labels(main: ModelPositions, rope: Mapping[str, Any]) -> tuple[str, ...]:
    """Of rope parameters by type of layer, the names of those that layers of full attention read."""
    family = family_of(main.model_type)
    if not family.by_type:
        return ()
    sliding = {dict(family.labels).get(type_, type_) for type_, kind in KINDS.items() if kind == "sliding"}
    return tuple(label for label, each in rope.items() if label not in sliding and each is not None)
