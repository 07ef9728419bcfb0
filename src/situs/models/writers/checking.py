"""Reading what was written gives the same positions, or it is refused: settings cannot say everything."""

from __future__ import annotations

from situs.models.calls import Call
from situs.models.positions import Layer, ModelPositions, spans
from situs.models.sources.strict import ConfigError


def require_as_many(model: ModelPositions, before: ModelPositions) -> None:
    """Raise unless a model has as many layers as it was read with."""
    if len(before.layers) != len(model.layers):
        raise ConfigError(
            f"layers must be {len(before.layers)}, as many as {model.model_type} was read with, since each has "
            f"weights; got {len(model.layers)}."
        )


def require_same(model: ModelPositions, found: ModelPositions, *, name: str = "") -> None:
    """Raise unless settings say what a model does; ``found`` is what they are read as."""
    where = f"{name}: " if name else ""
    apart = [index for index, pair in enumerate(zip(model.layers, found.layers, strict=True)) if pair[0] != pair[1]]
    if apart:
        first = apart[0]
        ours, theirs = model.layers[first], found.layers[first]
        alike = tuple(index for index in apart if model.layers[index] == ours)
        which = f"layer{'s' * (len(alike) > 1)} {spans(alike)}"
        if ours.paired("halves") == theirs.paired("halves"):
            _refuse_pairing(model, ours, theirs, f"{where}{which}")
        raise ConfigError(
            f"{where}{which} must do what settings of {model.model_type} can say, since anything else would be lost; "
            f"got {ours}, which would be read as {theirs}."
        )
    if model.input != found.input:
        raise ConfigError(
            f"{where}input must have what settings of {model.model_type} can say, since anything else would be lost; "
            f"got {_listed(model.input)}, which would be read as {_listed(found.input)}."
        )
    if model.lengths.declared != found.lengths.declared:
        raise ConfigError(
            f"{where}lengths.declared must be one that settings of {model.model_type} can say; got "
            f"{model.lengths.declared}, which would be read as {found.lengths.declared}."
        )
    for part, each in model.submodels.items():
        require_same(each, found.submodels.get(part, ModelPositions(each.model_type)), name=part)


def _refuse_pairing(model: ModelPositions, ours: Layer, theirs: Layer, which: str) -> None:
    got, must = ours.pairing, theirs.pairing
    raise ConfigError(
        f"pairing of {which} must be {must!r}, since {model.model_type} of transformers has no other, and no setting "
        f"says it; got {got!r}. Convert the weights with situs.convert_pairing, and write with pairing={must!r}."
    )


def _listed(calls: tuple[Call, ...]) -> str:
    return " + ".join(map(repr, calls)) or "nothing"
