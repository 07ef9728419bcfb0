"""Cells of grids: image patches and video frames, counted from a corner, from the centre, by time, or in [-1, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from situs.arguments import refuse, require_choice, require_count, require_device, require_flag, require_number, told
from situs.functional import grids
from situs.functional.angles import widest

if TYPE_CHECKING:
    from situs.positions.positions import Positions

Normalised = Literal["each", "longest", "shortest"]


def grid(
    sizes: tuple[int, ...],
    first: float | int | Sequence[float | int],
    step: float | int | Sequence[float | int],
    centred: bool | Sequence[bool],
    normalised: Normalised | None,
    device: torch.device | str,
) -> dict[str, Any]:
    """Give the cells of a grid their coordinates, row by row."""
    sizes = tuple([require_count("sizes", size, "they count cells") for size in sizes])
    if not sizes or any(size < 1 for size in sizes):
        raise ValueError(
            f"sizes must be one or more numbers of 1 or more, since a grid has an axis for each; got {sizes}."
        )
    firsts = one_an_axis("first", first, len(sizes), "it is the coordinate of the first cell")
    steps = one_an_axis("step", step, len(sizes), "cells lie so far apart", above=0)
    centres = _flags(centred, len(sizes))
    device = require_device(device)
    note = " x ".join(map(str, sizes))
    cells: Tensor
    if normalised is None:
        begins = [one - (size - size // 2) * each if centre else one
                  for one, each, size, centre in zip(firsts, steps, sizes, centres, strict=True)]  # fmt: skip
        cells = _spread(grids.grid_coordinates(*sizes), begins, steps, device)
    else:
        choices = ("each", "longest", "shortest")
        require_choice("normalised", normalised, choices, "coordinates are divided by a side of the grid")
        for name, given, plain in (("first", first, 0), ("step", step, 1), ("centred", centred, False)):
            if given != plain or type(given) is not type(plain):
                refuse(ValueError, name, "be left out of a normalised grid", "its sizes tell where cells lie",
                       told(given))  # fmt: skip
        cells, note = grids.normalised_coordinates(*sizes, by=normalised).to(widest(device)), f"{note} in -1 .. 1"
    ids = (cells if len(sizes) > 1 else cells.squeeze(-1)).unsqueeze(0).to(device)
    whole = ((0, ids.shape[1]),)
    return {
        "structure": "grid",
        "length": ids.shape[1],
        "device": ids.device,
        "runs": whole,
        "given_ids": ids,
        "sequence_length": ids.shape[1],
        "note": note,
    }


def _spread(cells: Tensor, begins: Sequence[float | int], steps: Sequence[float | int], device: torch.device) -> Tensor:
    """Move and space whole coordinates; those that stay whole numbers stay integers."""
    if all(isinstance(each, int) for each in (*begins, *steps)):
        return cells * torch.tensor(steps, device="cpu") + torch.tensor(begins, device="cpu")
    exact: Any = {"dtype": torch.float64, "device": "cpu"}
    return (cells * torch.tensor(steps, **exact) + torch.tensor(begins, **exact)).to(widest(device))


def prefixed(positions: Positions, count: int, name: str = "count") -> Positions:
    """Put tokens without a position before the others."""
    count = require_count(name, count, "it counts tokens before the cells", least=0)
    if not count:
        return positions
    whole = positions.runs in (None, ((0, positions.length),)) and positions.given_slots is None
    if not whole or positions.documents is not None or positions.valid is not None:
        reason = "tokens are put before the first of each row"
        cure = "Put them before each row, then join rows with Positions.batch or pack."
        refuse(ValueError, "positions", "be whole rows without padding", reason, repr(positions), cure)
    ids, length = positions.ids, positions.length + count
    placed = torch.ones_like(ids[..., 0] if ids.ndim == 3 else ids, dtype=torch.bool)
    placed = placed if positions.placed is None else positions.placed
    note = f"{count} without a position" + f", {positions.note}" * bool(positions.note)
    known = positions.sequence_length
    return replace(
        positions,
        structure="grid" if positions.structure == "grid" else "explicit",
        length=length,
        runs=None if positions.runs is None else ((0, length),),
        given_ids=torch.cat((ids.new_zeros(ids.shape[0], count, *ids.shape[2:]), ids), 1),
        placed=torch.cat((placed.new_zeros(placed.shape[0], count), placed), 1),
        sequence_length=None if known is None else known + count,
        document_lengths=None,
        document_starts=None,
        below=None,
        note=note,
        tables={},
    )


def one_an_axis(
    name: str,
    given: object,
    axes: int,
    reason: str,
    *,
    above: float | int | None = None,
    least: float | int | None = None,
) -> list[float | int]:
    """A number for each axis, or one for all."""
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        if len(given) != axes:
            refuse(ValueError, name, f"be a number, or {axes}, one for each axis", reason, told(given))
        return [require_number(name, each, reason, above=above, least=least) for each in given]
    return [require_number(name, given, reason, above=above, least=least)] * axes


def _flags(given: object, axes: int) -> list[bool]:
    """True or False for each axis, or one for all."""
    reason = "an axis is counted from its centre or from its first cell"
    if isinstance(given, Sequence) and not isinstance(given, (str, bytes)):
        if len(given) != axes:
            refuse(ValueError, "centred", f"be one flag, or {axes}, one for each axis", reason, told(given))
        return [require_flag("centred", each, reason) for each in given]
    return [require_flag("centred", given, reason)] * axes
