"""Runs: slots that follow one another, known on the host as (first, past the last)."""

from __future__ import annotations

import operator
from typing import SupportsIndex, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from situs.arguments import require_choice, require_count

Runs: TypeAlias = tuple[tuple[int, int], ...]


def as_tensor(runs: Runs, device: torch.device) -> Int[Tensor, "sequence"]:
    """List every slot of the runs, in order."""
    pieces = [torch.arange(first, last, device=device) for first, last in runs]
    return pieces[0] if len(pieces) == 1 else torch.cat([torch.zeros(0, dtype=torch.int64, device=device), *pieces])


def cut(runs: Runs, first: int, last: int) -> Runs:
    """Cut slots ``first .. last`` out of the runs."""
    taken = []
    for begin, end in runs:
        size = end - begin
        low, high = _clamp(first, size), _clamp(last, size)
        if high > low or len(runs) == 1:
            taken.append((begin + low, begin + high if high > low else begin + low))
        first, last = first - size, last - size
    return tuple(taken)


def slice_bounds(key: slice, length: int) -> tuple[int, int]:
    """Tell where a slice begins and ends, as ``key.indices(length)`` does; symbols of a graph stay symbols."""
    first, last = (_bound(given, other, length) for given, other in ((key.start, 0), (key.stop, length)))
    return first, last if last > first else first


def _bound(given: SupportsIndex | None, default: int, length: int) -> int:
    if given is None:
        return default
    number: int = given if isinstance(given, (int, torch.SymInt)) else operator.index(given)  # type: ignore[assignment]
    return _clamp(number if number >= 0 else number + length, length)


def _clamp(number: int, most: int) -> int:
    """The nearest number in ``0 .. most``; comparisons guard a graph, where min() would be one more symbol in it."""
    if number < 0:
        return 0
    return number if number <= most else most


def shard_pieces(length: int, world_size: int, layout: str) -> list[list[tuple[int, int]]]:
    """Deal a sequence to context-parallel ranks: one piece each, or in zigzag an early and a late one."""
    require_choice("layout", layout, ("contiguous", "zigzag"), "ranks hold one piece each or two")
    world_size = require_count("world_size", world_size, "it counts ranks", least=1)
    pieces = world_size if layout == "contiguous" else 2 * world_size
    if length % pieces:
        raise ValueError(
            f"length must be a multiple of {pieces}, since {layout} sharding over world_size={world_size} ranks cuts "
            f"the sequence into {pieces} equal pieces; got {length}. "
            f"Pad it to {-(-length // pieces) * pieces}."
        )
    size = length // pieces
    whole = [(piece * size, (piece + 1) * size) for piece in range(pieces)]
    return [[whole[rank]] if layout == "contiguous" else [whole[rank], whole[-1 - rank]] for rank in range(world_size)]
