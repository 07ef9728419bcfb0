"""Positions drawn anew, so that training at one length meets those of another: each keeps its order, not its number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from situs.arguments import require_count
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
