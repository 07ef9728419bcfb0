"""Lengths of whole sequences, for rotations that are chosen by them: known, and one for queries and keys."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from situs.positions import Positions, is_deferred


def require_length(positions: Positions, method: str) -> int | Tensor:
    """The length of the whole sequence; raise where it is unknown and ``method`` chooses by it."""
    if positions.sequence_length is None:
        raise ValueError(
            f"positions must tell how long the whole sequence is, since {method} chooses by it and keys cached "
            f"earlier must agree; got {positions!r}. Slice the positions of the whole sequence, or use "
            f"positions.with_sequence_length(n)."
        )
    return positions.sequence_length


def have_lengths_apart(
    query: Positions, key: Positions, apart: Callable[[int | Tensor, int | Tensor], bool | Tensor]
) -> bool:
    """Whether queries and keys of one sequence were made for lengths that are ``apart``, which tells it of numbers, or
    of each place. Lengths that are not on the host are taken to agree, since reading them would make it wait."""
    ours, theirs = query.sequence_length, key.sequence_length
    if ours is None or theirs is None or torch.compiler.is_compiling():
        return False
    if isinstance(ours, int) and isinstance(theirs, int):
        return ours != theirs and bool(apart(ours, theirs))
    if any(isinstance(each, Tensor) and is_deferred(each) for each in (ours, theirs)):
        return False
    asked = _are_compared(query, key)
    return asked is not None and bool((torch.as_tensor(apart(ours, theirs)) & asked).any())


def _are_compared(query: Positions, key: Positions) -> Tensor | None:
    """Which places are real and of one document, as far as one side's can be laid over the other's; None where they
    cannot."""
    sides = [(places, torch.as_tensor(places.sequence_length)) for places in (query, key)]
    widths = {length.shape[-1] if length.ndim else 1 for _, length in sides} - {1}
    if len(widths) > 1 or (query.documents is None) != (key.documents is None):
        return None
    asked = torch.ones((), dtype=torch.bool)
    for places, length in sides:
        if places.valid is not None:
            by_place = length.ndim and length.shape[-1] > 1
            asked = asked & (places.valid if by_place else places.valid.any(-1, keepdim=True))
    if query.documents is not None and key.documents is not None:
        if 1 not in (query.length, key.length) and query.length != key.length:
            return None
        asked = asked & (query.documents == key.documents)
    return asked


def require_same_length(query: Positions, key: Positions, method: str, differs: bool) -> None:
    """Raise if queries and keys were made for sequences that ``method`` treats differently."""
    if differs:
        raise ValueError(
            f"queries and keys must be made for one sequence length, since {method} chooses by it and a mixed cache "
            f"gives wrong scores; got lengths {_told(query)} and {_told(key)}. Plan both with "
            f"positions.with_sequence_length(n), or move cached keys with rerotate()."
        )


def _told(positions: Positions) -> str:
    length = positions.sequence_length
    return " or ".join(map(str, sorted(set(length.flatten().tolist())))) if isinstance(length, Tensor) else str(length)
