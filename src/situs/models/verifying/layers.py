"""Mistakes in which layer does what: the schedule, layers without positions, windows, temperatures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from situs.models.calls import Call
from situs.models.oracle.parts import ROTATIONS, Group, Part, contents
from situs.models.positions import Layer, spans
from situs.models.verifying.mistake import Mistake, in_groups, line


def _kinds(part: Part) -> list[Layer]:
    return list(dict.fromkeys(group.layer for group in part.groups))


def _exchanged(part: Part, other: dict[Layer, Layer]) -> Part | None:
    """Let layers do what others should."""
    groups = [
        contents(other[group.layer], group) if group.layer in other else group  # under its own name and positions
        for group in part.groups
    ]
    return replace(part, groups=tuple(groups), layers=tuple(other.get(layer, layer) for layer in part.layers))


def _inverted(part: Part) -> Part | None:
    kinds = _kinds(part)
    widths = {layer.heads.dim for layer in kinds if layer.heads is not None}
    if len(kinds) != 2 or len(widths) != 1 or len({group.coordinates for group in part.groups}) != 1:
        return None
    return _exchanged(part, {kinds[0]: kinds[1], kinds[1]: kinds[0]})


def _shifted(by: int) -> Callable[[Part], Part | None]:
    def change(part: Part) -> Part | None:
        if len(set(part.layers)) < 2:
            return None
        return replace(part, layers=part.layers[by:] + part.layers[:by])

    return change


def _rotation(layer: Layer) -> Call | None:
    return next((call for call in layer.calls if call.cls in ROTATIONS), None)


def _rotated_as(chosen: Callable[[Layer], bool], like: Callable[[Layer], bool]) -> Callable[[Part], Part | None]:
    """Let some layers rotate as others do."""

    def change(part: Part) -> Part | None:
        model = next((layer for layer in _kinds(part) if like(layer) and _rotation(layer) is not None), None)
        rotation = None if model is None else _rotation(model)
        if model is None or model.heads is None or rotation is None:
            return None
        other: dict[Layer, Layer] = {}
        for layer in _kinds(part):
            alike = layer.heads is not None and layer.heads.dim == model.heads.dim
            if chosen(layer) and alike and _rotation(layer) != rotation:
                rest = tuple(call for call in layer.calls if call.cls not in ROTATIONS)
                other[layer] = replace(layer, calls=(rotation, *rest))
        return _exchanged(part, other) if other else None

    return change


def _unrotated(part: Part) -> Part | None:
    found = [layer for layer in _kinds(part) if _rotation(layer) is not None]
    rest = {layer: tuple(call for call in layer.calls if call.cls not in ROTATIONS) for layer in found}
    return _exchanged(part, {layer: replace(layer, calls=calls) for layer, calls in rest.items()}) if found else None


def _is_unrotated(layer: Layer) -> bool:
    return _rotation(layer) is None


def _is_sliding(layer: Layer) -> bool:
    return layer.kind == "sliding" and not _is_unrotated(layer)


def _is_full(layer: Layer) -> bool:
    return layer.kind == "full" and not _is_unrotated(layer)


def _windows(change: Callable[[int], int | None]) -> Callable[[Part], Part | None]:
    def of_part(part: Part) -> Part | None:
        if all(layer.window is None for layer in part.layers):
            return None
        layers = [
            layer if layer.window is None else replace(layer, window=change(layer.window)) for layer in part.layers
        ]
        return replace(part, layers=tuple(layers))

    return of_part


def _about_windows(part: Part) -> str:
    return f"{line(part, 'sliding_window')}; a window counts the keys that a query sees, itself included"


def _about_schedule(part: Part) -> str:
    rows = [f"{spans(group.numbers)} {group.layer.kind}" for group in part.groups if not group.name.endswith(".long")]
    unrotated = [spans(group.numbers) for group in part.groups if group.rotation is None and group.shows_rotation]
    without = f"; {', '.join(unrotated)} without rotation" if unrotated else ""
    where = line(part, "layer_types", "sliding_window_pattern", "sliding_window")
    return f"layers are {'; '.join(rows)}{without}; {where}"


def _about_rotations(part: Part) -> str:
    groups = [group for group in part.groups if not group.name.endswith(".long")]
    rows = [
        f"{spans(group.numbers)}: {'none' if group.rotation is None else repr(group.rotation):.120}" for group in groups
    ]
    return f"rotations of layers are {'; '.join(rows)}"


def _heated(change: Callable[[Group, Call], Group | None]) -> Callable[[Part], Part | None]:
    """Change what becomes of a temperature, wherever there is one."""
    return in_groups(lambda group: None if group.temperature is None else change(group, group.temperature))


def _counted(by: int) -> Callable[[Part], Part | None]:
    return _heated(lambda group, call: replace(group, heated=(*group.heated, lambda ids: ids + by)))


def _unrounded(group: Group, call: Call) -> Group | None:
    if call.option("dialect", "llama4") not in ("llama4", "ministral3"):
        return None
    return replace(group, temperature=call.replace(dialect="inkling"))


def _everywhere(part: Part) -> Part | None:
    found = next((group.temperature for group in part.groups if group.temperature is not None), None)
    if found is None or all(group.temperature is not None for group in part.groups):
        return None
    return part.change(lambda group: replace(group, temperature=found) if group.temperature is None else None)


def _about_temperature(part: Part) -> str:
    group = next(group for group in part.groups if group.temperature is not None)
    where = line(part, "attn_temperature_tuning", "llama_4_scaling_beta", "log_scaling_alpha")
    return f"{group.temperature!r} of the position in the document, in layers {spans(group.numbers)}; {where}"


LAYERS: tuple[Mistake, ...] = (
    Mistake("layer schedule inverted", "schedule", _inverted, _about_schedule),
    Mistake("layer schedule begins one layer early", "schedule", _shifted(1), _about_schedule),
    Mistake("layer schedule begins one layer late", "schedule", _shifted(-1), _about_schedule),
    Mistake(
        "layers without positions are rotated",
        "rotated layers",
        _rotated_as(_is_unrotated, lambda layer: True),
        _about_rotations,
    ),
    Mistake(
        "sliding layers rotated as full ones", "rotated layers", _rotated_as(_is_sliding, _is_full), _about_rotations
    ),
    Mistake(
        "full layers rotated as sliding ones", "rotated layers", _rotated_as(_is_full, _is_sliding), _about_rotations
    ),
    Mistake("no layer is rotated", "rotated layers", _unrotated, _about_rotations),
    Mistake("window one too wide", "window", _windows(lambda window: window + 1), _about_windows),
    Mistake("window one too narrow", "window", _windows(lambda window: window - 1), _about_windows),
    Mistake("window ignored", "window", _windows(lambda window: None), _about_windows),
    Mistake(
        "temperature missing",
        "temperature",
        _heated(lambda group, call: replace(group, temperature=None)),
        _about_temperature,
    ),
    Mistake(
        "temperature from the index in the row instead of the position in the document",
        "temperature's positions",
        _heated(lambda group, call: replace(group, heat_by_index=True) if group.has_batch else None),
        _about_temperature,
    ),
    Mistake("temperature counts one token more", "temperature's positions", _counted(1), _about_temperature),
    Mistake("temperature counts one token less", "temperature's positions", _counted(-1), _about_temperature),
    Mistake("temperature without rounding down", "temperature", _heated(_unrounded), _about_temperature),
    Mistake("temperature in every layer", "temperature", _everywhere, _about_temperature),
)
