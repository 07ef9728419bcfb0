"""Positions drawn anew, so that training at one length meets those of another: each keeps its order, not its number.
Coordinates moved and stretched, which serves the same between sizes of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from situs.arguments import require_count
from situs.functional.angles import widest
from situs.positions import require

if TYPE_CHECKING:
    from situs.positions.positions import Positions


def resampled(
    positions: Positions, high: int, count: int | None, note: str, draw: Callable[[int], Tensor]
) -> Positions:
    """Replace position n by the n-th of those that ``draw`` draws below ``high``, as many as the whole sequence has."""
    high = require_count("high", high, "positions are drawn below it", least=0)
    ids = positions.ids
    if ids.is_floating_point():
        raise TypeError(
            f"positions must be whole numbers to be drawn anew, since they are counted by; got ids of dtype "
            f"{ids.dtype}."
        )
    if count is None:
        count = _whole(positions)
    count = require_count("count", count, "that many different positions are drawn", least=0)
    if high < count:
        raise ValueError(f"high must be at least {count}, since that many different positions are drawn; got {high}.")
    require.within(ids, count)
    drawn = draw(count).to(positions.device)[ids]
    for held in (positions.valid, positions.placed):
        if held is not None:  # padding and tokens without a position have position 0
            drawn = torch.where(held if drawn.ndim == 2 else held.unsqueeze(-1), drawn, 0)
    return replace(
        positions, structure="explicit", given_ids=drawn, below=high, document_starts=None, note=note, tables={}
    )


def _whole(positions: Positions) -> int:
    """The length of the whole sequence, which all its parts must draw the same sample for."""
    length = positions.sequence_length if isinstance(positions.sequence_length, int) else positions.below
    if positions.sequence_length is None or length is None:
        raise ValueError(
            f"count must be given where nothing tells how long the whole sequence is, since all its parts must draw "
            f"the same sample; got {positions!r}."
        )
    return max(length, positions.below or 0)


def stretched(
    positions: Positions, moves: Sequence[float | int], factors: Sequence[float | int], note: str
) -> Positions:
    """Move every coordinate, then multiply it, by a number an axis; padding and tokens without a position stay at 0."""
    ids = positions.ids if positions.axes > 1 else positions.ids.unsqueeze(-1)
    numbers: Any = {"dtype": widest(positions.device), "device": positions.device}
    moved = (ids.to(**numbers) + torch.tensor(moves, **numbers)) * torch.tensor(factors, **numbers)
    for held in (positions.valid, positions.placed):
        if held is not None:
            moved = torch.where(held.unsqueeze(-1), moved, 0)
    return replace(
        positions,
        structure="explicit",
        given_ids=moved if positions.axes > 1 else moved.squeeze(-1),
        below=None,
        document_starts=None,
        note=f"{positions.note}, {note}" if positions.note else note,
        tables={},
    )
