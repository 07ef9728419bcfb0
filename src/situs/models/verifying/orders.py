"""Mistakes in which position a token has, which layer does what, and what tables of the input begin with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import Tensor

from situs.models.calls import Call
from situs.models.oracle.parts import ROTATIONS, Group, Part, Table, contents
from situs.models.positions import Layer, spans
from situs.models.verifying.mistake import Mistake, in_groups, line, said, scaling_of

Length = Callable[[Part], int | None]


def _moved(move: Callable[[Tensor], Tensor]) -> Callable[[Part], Part | None]:
    """Give every token another position, in all groups, tables and batches."""

    def change(part: Part) -> Part | None:
        if not part.groups and not part.tables:
            return None
        return replace(
            part,
            groups=tuple(replace(group, moves=(*group.moves, move)) for group in part.groups),
            tables=tuple(replace(table, moves=(*table.moves, move)) for table in part.tables),
            moves=(*part.moves, move),
        )

    return change


def _beyond(length: Length, move: Callable[[Tensor, int], Tensor]) -> Callable[[Part], Part | None]:
    """Give tokens beyond some length another position."""

    def change(part: Part) -> Part | None:
        most = length(part)
        return None if most is None else _moved(lambda positions: move(positions, most))(part)

    return change


def _original(part: Part) -> int | None:
    found = (scaling_of(group) for group in part.groups)
    return next((each.option("original_length") for each in found if each is not None), None)


def _declared(part: Part) -> int | None:
    declared = part.model.lengths.declared
    return None if declared == _original(part) else declared


def _window(part: Part) -> int | None:
    return next((layer.window for layer in part.layers if layer.window is not None), None)


def _chunk(part: Part) -> int | None:
    return next((layer.chunk for layer in part.layers if layer.chunk is not None), None)


def _padding(part: Part) -> Part | None:
    batch = part.batch
    return None if batch is None else replace(part, batch=replace(batch, counts_padding=not batch.counts_padding))


def _documents(part: Part) -> Part | None:
    return None if part.batch is None else replace(part, batch=replace(part.batch, joins_documents=True))


def _about_padding(part: Part) -> str:
    if part.batch is not None and part.batch.counts_padding:
        return "this model counts padding: the position of a token is its index in the row"
    return (
        "positions count real tokens: cumsum(mask) - 1. Rotation alone does not mind, since scores go by differences; "
        "tables, temperatures and lengths do"
    )


def _by_layers(part: Part) -> list[Layer]:
    return list(dict.fromkeys(group.layer for group in part.groups))


def _exchanged(part: Part, other: dict[Layer, Layer]) -> Part | None:
    """Let layers do what others should."""
    changed = [
        replace(contents(other[group.layer], group), name=group.name) if group.layer in other else group
        for group in part.groups
    ]
    layers = tuple(other.get(layer, layer) for layer in part.layers)
    return replace(part, groups=tuple(changed), layers=layers)


def _inverted(part: Part) -> Part | None:
    kinds = _by_layers(part)
    if len(kinds) != 2 or kinds[0].heads is None or kinds[1].heads is None or kinds[0].heads.dim != kinds[1].heads.dim:
        return None
    return _exchanged(part, {kinds[0]: kinds[1], kinds[1]: kinds[0]})


def _shifted(by: int) -> Callable[[Part], Part | None]:
    def change(part: Part) -> Part | None:
        if len(set(part.layers)) < 2:
            return None
        return replace(part, layers=part.layers[by:] + part.layers[:by])

    return change


def _as_rotated(chosen: Callable[[Layer], bool], like: Callable[[Layer], bool]) -> Callable[[Part], Part | None]:
    """Let some layers rotate as others do."""

    def change(part: Part) -> Part | None:
        kinds = _by_layers(part)
        model = next((layer for layer in kinds if like(layer) and _rotation(layer) is not None), None)
        if model is None or model.heads is None:
            return None
        width, rotation = model.heads.dim, _rotation(model)
        other: dict[Layer, Layer] = {}
        for layer in kinds:
            if chosen(layer) and layer.heads is not None and layer.heads.dim == width and _rotation(layer) != rotation:
                rest = tuple(call for call in layer.calls if call.cls not in ROTATIONS)
                other[layer] = replace(layer, calls=(rotation, *rest)) if rotation is not None else layer
        return _exchanged(part, other) if other else None

    return change


def _rotation(layer: Layer) -> Call | None:
    return next((call for call in layer.calls if call.cls in ROTATIONS), None)


def _unrotated(part: Part) -> Part | None:
    found = [layer for layer in _by_layers(part) if _rotation(layer) is not None]
    rest = {layer: tuple(call for call in layer.calls if call.cls not in ROTATIONS) for layer in found}
    return _exchanged(part, {layer: replace(layer, calls=calls) for layer, calls in rest.items()}) if found else None


def _windows(change: Callable[[int], int | None]) -> Callable[[Part], Part | None]:
    def of_part(part: Part) -> Part | None:
        if _window(part) is None:
            return None
        layers = [
            layer if layer.window is None else replace(layer, window=change(layer.window)) for layer in part.layers
        ]
        return replace(part, layers=tuple(layers))

    return of_part


def _about_schedule(part: Part) -> str:
    rows = [f"{spans(group.numbers)} {group.layer.kind}" for group in part.groups if not group.name.endswith(".long")]
    unrotated = [spans(group.numbers) for group in part.groups if group.rotation is None and group.shows_rotation]
    without = f"; {', '.join(unrotated)} without rotation" if unrotated else ""
    return f"layers {'; '.join(rows)}{without}; {line(part, 'layer_types', 'sliding_window_pattern', 'sliding_window')}"


def _heated(change: Callable[[Group], Group | None]) -> Callable[[Part], Part | None]:
    return in_groups(lambda group: None if group.temperature is None else change(group))


def _fixed(group: Group) -> bool:
    return group.temperature is not None and group.temperature.option("dialect", "llama4") in ("llama4", "ministral3")


def _everywhere(part: Part) -> Part | None:
    found = next((group.temperature for group in part.groups if group.temperature is not None), None)
    if found is None or all(group.temperature is not None for group in part.groups):
        return None
    return part.change(lambda group: replace(group, temperature=found) if group.temperature is None else None)


def _about_temperature(part: Part) -> str:
    group = next(group for group in part.groups if group.temperature is not None)
    keys = ("attn_temperature_tuning", "llama_4_scaling_beta", "log_scaling_alpha")
    return f"{group.temperature!r} at the position in the document, in layers {spans(group.numbers)}; {line(part, *keys)}"


def _table(change: Callable[[Call], Call | None]) -> Callable[[Part], Part | None]:
    def of_table(table: Table) -> Table | None:
        found = change(table.call)
        return None if found is None or found == table.call else replace(table, call=found)

    def of_part(part: Part) -> Part | None:
        changed = [of_table(table) for table in part.tables]
        if not any(changed):
            return None
        return replace(part, tables=tuple(new or old for new, old in zip(changed, part.tables, strict=True)))

    return of_part


def _of(cls: str, change: Callable[[Call], Call]) -> Callable[[Part], Part | None]:
    return _table(lambda call: change(call) if call.cls == cls else None)


def _about_table(part: Part) -> str:
    return f"the input is {', '.join(map(repr, (table.call for table in part.tables)))}"


def _restarts() -> Iterator[Mistake]:
    for where, length in (("original length", _original), ("declared length", _declared), ("chunk", _chunk),
                          ("window", _window)):  # fmt: skip
        yield Mistake(
            f"positions restarted at every multiple of the {where}", "position",
            _beyond(length, lambda positions, most: positions % most),
            said("positions go on to the end of a document, through chunks and windows"),
        )  # fmt: skip
    yield Mistake(
        "positions held at the end of the declared length", "position",
        _beyond(lambda part: part.model.lengths.declared, lambda positions, most: positions.clamp(max=most - 1)),
        said("tables must go on: compute them for the position that is asked for"),
    )  # fmt: skip


ORDERS: tuple[Mistake, ...] = (
    Mistake("positions one too low", "position", _moved(lambda positions: positions - 1), said(
        "the first token of a document has position 0")),
    Mistake("positions start at 1", "position", _moved(lambda positions: positions + 1), said(
        "the first token of a document has position 0")),
    *_restarts(),
    Mistake("padding counted among positions, or left out, against the model", "padding", _padding, _about_padding),
    Mistake("positions go on through packed documents", "documents", _documents, said(
        "positions begin at 0 with each document of a packed row")),
    Mistake("layer schedule inverted", "schedule", _inverted, _about_schedule),
    Mistake("layer schedule begins one layer early", "schedule", _shifted(1), _about_schedule),
    Mistake("layer schedule begins one layer late", "schedule", _shifted(-1), _about_schedule),
    Mistake("layers without positions are rotated", "rotated layers",
            _as_rotated(lambda layer: _rotation(layer) is None, lambda layer: True), _about_schedule),
    Mistake("sliding layers rotated as full ones", "rotated layers",
            _as_rotated(lambda layer: layer.kind == "sliding" and _rotation(layer) is not None,
                        lambda layer: layer.kind == "full"), _about_schedule),
    Mistake("full layers rotated as sliding ones", "rotated layers",
            _as_rotated(lambda layer: layer.kind == "full" and _rotation(layer) is not None,
                        lambda layer: layer.kind == "sliding"), _about_schedule),
    Mistake("no layer is rotated", "rotated layers", _unrotated, _about_schedule),
    Mistake("window one too wide", "window", _windows(lambda window: window + 1), lambda part: line(
        part, "sliding_window") + ": it counts the keys that a query sees, itself included"),
    Mistake("window one too narrow", "window", _windows(lambda window: window - 1), lambda part: line(
        part, "sliding_window") + ": it counts the keys that a query sees, itself included"),
    Mistake("window ignored", "window", _windows(lambda window: None), lambda part: line(part, "sliding_window")),
    Mistake("temperature missing", "temperature", _heated(lambda group: replace(group, temperature=None)),
            _about_temperature),
    Mistake("temperature from the index in the row instead of the position in the document", "temperature's positions",
            _heated(lambda group: replace(group, heat_by_index=True) if group.has_batch else None), _about_temperature),
    Mistake("temperature counts tokens from 1 more", "temperature's positions",
            _heated(lambda group: replace(group, heated=(*group.heated, lambda ids: ids + 1))), _about_temperature),
    Mistake("temperature counts tokens from 1 less", "temperature's positions",
            _heated(lambda group: replace(group, heated=(*group.heated, lambda ids: ids - 1))), _about_temperature),
    Mistake("temperature without rounding down", "temperature", _heated(lambda group: replace(
        group, temperature=group.temperature.replace(dialect="inkling")) if group.temperature and _fixed(group) else None),
        _about_temperature),
    Mistake("temperature in every layer", "temperature", _everywhere, _about_temperature),
    Mistake("first rows of the table not left out", "rows", _table(lambda call: call.replace(offset=None)), _about_table),
    Mistake("padding has the row of a position", "padding row", _of("Learned", lambda call: call.replace(
        padding_row=None)), _about_table),
    Mistake("padding has the sines of a position", "padding row", _of("Sinusoidal", lambda call: call.replace(
        padding=None)), _about_table),
    Mistake("sines and cosines in turn for all sines first, or the reverse", "layout", _of("Sinusoidal", lambda call: (
        call.replace(layout="interleaved" if call.option("layout") == "concatenated" else "concatenated"))),
        _about_table),
    Mistake("cosines first for sines first, or the reverse", "cosines", _of("Sinusoidal", lambda call: call.replace(
        cosines_first=not call.option("cosines_first", False))), _about_table),
    Mistake("the slowest wavelength reached for not reached, or the reverse", "spacing", _of(
        "Sinusoidal", lambda call: call.replace(
            spacing="exclusive" if call.option("spacing") == "inclusive" else "inclusive")), _about_table),
)  # fmt: skip

