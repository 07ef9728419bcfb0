"""Slots of a cache: which ones new tokens take, and whether the positions that they were given agree.

Real tokens of a row take slots one after another; padding takes none, whichever side it stands on.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from situs.encodings.base import Encoding
from situs.positions import Positions, PositionsLike, is_deferred


def agree(given: Tensor, slots: Tensor, valid: Tensor | None) -> bool:
    """Whether real tokens have these slots, as far as can be told without a wait."""
    if is_deferred(given) or is_deferred(slots):
        return True
    same = given == slots
    return bool((same if valid is None else same | ~valid).all())


def counts_tokens(given: PositionsLike, admitted: Positions) -> bool:
    """Whether positions are the slots that they were admitted to. Of ids that only a device knows it is taken for
    granted where they were given with slots or as padded rows."""
    if admitted.start is not None:
        return True
    ids, slots, valid = admitted.ids, admitted.given_slots, admitted.valid
    assert slots is not None
    if is_deferred(ids):
        return isinstance(given, Positions) and (given.structure == "padded" or given.given_slots is not None)
    if admitted.axes > 1:
        slots, valid = slots.unsqueeze(-1), None if valid is None else valid.unsqueeze(-1)
    return agree(ids, slots, valid)


def require_counted(positions: Positions, encodings: Sequence[Encoding]) -> None:
    """Raise unless new tokens have the positions that encodings of the scores read off a key's slot in the cache."""
    if not encodings or positions.start is not None:
        return
    assert positions.given_slots is not None
    if (
        positions.axes > 1
        or positions.placed is not None
        or not agree(positions.ids, positions.given_slots, positions.valid)
    ):
        raise ValueError(
            f"positions must count the tokens in the cache, since {type(encodings[0]).__name__} reads a key's position "
            f"off its slot; got {positions!r}."
        )


def is_ahead_of_tokens(valid: Tensor) -> bool:
    """Whether padding stands before real tokens, or may where only a device knows."""
    return is_deferred(valid) or bool((valid[:, 1:] & ~valid[:, :-1]).any())


def slots_without_padding(slots: Tensor, valid: Tensor, next_slots: Tensor | None) -> Tensor:
    """Slots as a cache gives them, where padding takes none. ``next_slots`` are those behind tokens that came before:
    how much padding stood among these is told by nobody, so that rows may lie farther along by it."""
    counted = slots - (~valid).cumsum(-1)
    if next_slots is None:
        return counted
    ahead = (counted - next_slots).masked_fill(~valid, torch.iinfo(torch.int64).max).amin(-1, keepdim=True)
    return counted - ahead.clamp(min=0)
