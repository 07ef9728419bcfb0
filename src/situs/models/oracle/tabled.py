"""Numbers of the input and of the whole stack: rows of tables, sinusoids, positions of a batch, the schedule."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from situs.encodings.sinusoidal import Sinusoidal
from situs.functional.sinusoids import sinusoids
from situs.models.oracle.parts import ROTATIONS, Part, Table
from situs.models.oracle.places import Batch
from situs.models.oracle.rotated import OF_TABLES, TURN, Numbers, of_powers
from situs.models.oracle.rules import as_written
from situs.positions import Positions

KINDS = ("full", "sliding", "chunked", "linear", "none")
"""Kinds of layers; schedule.kind holds their places in this list."""


class Tabled:
    """Compute the arrays of one encoding of the input."""

    def __init__(self, name: str, table: Table, batch: Batch | None) -> None:
        self.name = name
        self.table = table
        self.batch = batch

    def rows(self) -> Numbers:
        """The row of the table for each position."""
        return Numbers(self._rows(as_written(self.table.coordinates), None))

    def encoded(self) -> Numbers:
        """The sinusoids that are added to each token, (tokens, dim)."""
        return self._encoded(as_written(self.table.coordinates)[:, 0], None)

    def batch_rows(self) -> Numbers:
        """The row of the table for each token of a batch, padding too where it has one of its own."""
        ids, valid = self._batch()
        return Numbers(self._rows(ids.flatten()[:, None], valid.flatten()).reshape(ids.shape))

    def batch_encoded(self) -> Numbers:
        """The sinusoids of each token of a batch, (rows, tokens, dim)."""
        ids, valid = self._batch()
        found = self._encoded(ids.flatten(), valid.flatten())
        shape = (*ids.shape, found.value.shape[-1])
        assert isinstance(found.angle, Tensor)
        assert isinstance(found.wide, Tensor)
        angle, wide = (each.reshape(shape) for each in (found.angle, found.wide))
        return Numbers(found.value.reshape(shape), found.rounding, angle, wide)

    def _batch(self) -> tuple[Tensor, Tensor]:
        assert self.batch is not None
        return torch.tensor(self.batch.ids()), torch.tensor(self.batch.valid)

    def _rows(self, where: Tensor, valid: Tensor | None) -> Tensor:
        call = self.table.call
        for move in self.table.moves:
            where = move(where.double()).long()
        rows: Tensor
        if call.cls == "LearnedGrid":
            rows = call.option("prefix", 0) + where[:, 0] * call.option("size")[1] + where[:, 1]
            return rows
        rows = where[:, 0] + call.option("offset", 0)
        padding = call.option("padding_row")
        return rows if valid is None or padding is None else torch.where(valid, rows, padding)

    @cached_property
    def _sinusoidal(self) -> Sinusoidal:
        made: Sinusoidal = self.table.call.build()
        return made

    def _encoded(self, ids: Tensor, valid: Tensor | None) -> Numbers:
        made = self._sinusoidal
        for move in self.table.moves:
            ids = move(ids.double())
        positions = Positions.explicit(ids, valid=None if valid is None else valid[None])
        value = made.encode(positions, torch.float64)[0]
        frequencies = made.frequencies()
        powers = of_powers(frequencies)
        off = (ids.double() + made.offset).abs()[:, None] * (frequencies * powers)
        near = torch.minimum(off, TURN * powers)
        of_angles, of_near = (sinusoids(each, each, made.dim, made.layout) for each in (off, near))
        return Numbers(value, OF_TABLES, of_angles, of_near)


def batch_ids(part: Part) -> Numbers:
    """The position of each token of a batch; 0 for padding."""
    assert part.batch is not None
    ids = torch.tensor(part.batch.ids(), dtype=torch.float64)
    for move in part.moves:
        ids = move(ids)
    return Numbers(ids.long())


def schedule(part: Part, name: str) -> Numbers:
    """One column of the schedule, a number for each layer."""
    listed: list[Any] = [_COLUMNS[name](layer) for layer in part.layers]
    if name == "scale":
        value = torch.tensor(listed, dtype=torch.float64)
        return Numbers(value, rounding=4 * value.abs())
    return Numbers(torch.tensor(listed, dtype=torch.int64))


_COLUMNS: dict[str, Any] = {
    "kind": lambda layer: KINDS.index(layer.kind),
    "window": lambda layer: layer.window or 0,
    "chunk": lambda layer: layer.chunk or 0,
    "causal": lambda layer: int(layer.causal),
    "rotates": lambda layer: int(any(call.cls in ROTATIONS for call in layer.calls)),
    "tempered": lambda layer: int(any(call.cls == "Temperature" for call in layer.calls)),
    "sinks": lambda layer: int(layer.sinks),
    "scale": lambda layer: (
        0.0 if layer.heads is None else layer.heads.dim**-0.5 if layer.scale is None else layer.scale
    ),
}
COLUMNS = tuple(_COLUMNS)
"""What the schedule says of each layer; 0 for no window, no chunk and no attention."""
