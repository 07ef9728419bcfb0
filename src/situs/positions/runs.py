"""Runs: slots that follow one another, known on the host as (first, past the last)."""

from __future__ import annotations

from typing import TypeAlias

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
        low, high = min(max(first, 0), size), min(max(last, 0), size)
        if high > low or len(runs) == 1:
            taken.append((begin + low, begin + max(high, low)))
        first, last = first - size, last - size
    return tuple(taken)


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
