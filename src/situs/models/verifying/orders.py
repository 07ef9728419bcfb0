"""Mistakes in which position a token has: off by one, restarted, through padding and documents; rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from torch import Tensor

from situs.models.calls import Call
from situs.models.oracle.parts import Part, Table
from situs.models.verifying.mistake import Mistake, said, scaling_of

Length = Callable[[Part], int | None]
FIRST = "the first token of a document has position 0"


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


def _restarted() -> Iterator[Mistake]:
    lengths = {"original length": _original, "declared length": _declared, "chunk": _chunk, "window": _window}
    for where, length in lengths.items():
        yield Mistake(
            f"positions restarted at every multiple of the {where}",
            "position",
            _beyond(length, lambda positions, most: positions % most),
            said("positions go on to the end of a document, through chunks and windows"),
        )


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


def _table(cls: str, change: Callable[[Call], Call]) -> Callable[[Part], Part | None]:
    """Change the options of tables of a class; of any where it is empty."""

    def of_table(table: Table) -> Table | None:
        if cls and table.call.cls != cls:
            return None
        found = change(table.call)
        return None if found == table.call else replace(table, call=found)

    def of_part(part: Part) -> Part | None:
        changed = [of_table(table) for table in part.tables]
        if not any(changed):
            return None
        return replace(part, tables=tuple(new or old for new, old in zip(changed, part.tables, strict=True)))

    return of_part


def _other_layout(call: Call) -> Call:
    return call.replace(layout="interleaved" if call.option("layout") == "concatenated" else "concatenated")


def _other_spacing(call: Call) -> Call:
    return call.replace(spacing="exclusive" if call.option("spacing") == "inclusive" else "inclusive")


def _about_table(part: Part) -> str:
    return f"the input is {', '.join(repr(table.call) for table in part.tables)}"


ORDERS: tuple[Mistake, ...] = (
    Mistake("positions one too low", "position", _moved(lambda positions: positions - 1), said(FIRST)),
    Mistake("positions start at 1", "position", _moved(lambda positions: positions + 1), said(FIRST)),
    *_restarted(),
    Mistake(
        "positions held at the end of the declared length",
        "position",
        _beyond(lambda part: part.model.lengths.declared, lambda positions, most: positions.clamp(max=most - 1)),
        said("tables must go on: compute them for the position that is asked for"),
    ),
    Mistake("padding counted among positions, or left out, against the model", "padding", _padding, _about_padding),
    Mistake(
        "positions go on through packed documents",
        "documents",
        _documents,
        said("positions begin at 0 with each document of a packed row"),
    ),
    Mistake(
        "first rows of the table not left out", "rows", _table("", lambda call: call.replace(offset=None)), _about_table
    ),
    Mistake(
        "padding has the row of a position",
        "padding row",
        _table("Learned", lambda call: call.replace(padding_row=None)),
        _about_table,
    ),
    Mistake(
        "padding has the sines of a position",
        "padding row",
        _table("Sinusoidal", lambda call: call.replace(padding=None)),
        _about_table,
    ),
    Mistake(
        "sines and cosines in turn for all sines first, or the reverse",
        "layout",
        _table("Sinusoidal", _other_layout),
        _about_table,
    ),
    Mistake(
        "cosines first for sines first, or the reverse",
        "cosines",
        _table("Sinusoidal", lambda call: call.replace(cosines_first=not call.option("cosines_first", False))),
        _about_table,
    ),
    Mistake(
        "the slowest wavelength reached for not reached, or the reverse",
        "spacing",
        _table("Sinusoidal", _other_spacing),
        _about_table,
    ),
)
