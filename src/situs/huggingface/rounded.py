"""Attention in bfloat16 for layers whose own code rounds scores to it: two products of matrices for some queries and
heads at a time.

torch's flash kernel for the processor computes in float32 there, and takes twice the time of products in bfloat16. Own
code has such products, of all pairs at once; here scores are those of a tile, and stay in the cache.

Queries go backwards, so that a bias over offsets is a view of one number for each offset, as in Situs' kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from situs.encodings.bias import OffsetBias
from situs.huggingface.seeing import Sight

QUERIES = 256  # of a tile
SCORES = 2**20  # of a tile, for each thread
HIDDEN = torch.finfo(torch.float32).min / 2
"""What hides a pair: twice of it, and a score, are finite, so that queries that see nothing are too."""


class Tile(NamedTuple):
    """Some queries and the keys that they may see."""

    first: int
    past: int
    keys: slice


def attend_rounded(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    mask: Sight,
    *,
    encoding: OffsetBias | None,
    row: Float[Tensor, "#batch heads 1 key"] | None,
    source: object,
    scale: float,
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attend with scores that are rounded to bfloat16, to which a bias of either kind is added in float32."""
    batch, heads, queries, _ = query.shape
    by_offset, by_key = _by_offset(mask, encoding, source, query.device), _by_key(mask, row, source)
    if by_offset is not None:
        by_offset = by_offset.expand(heads, -1)
    if by_key is not None:
        by_key = by_key.expand(batch, heads, -1, -1)
    backwards, out = query.flip(2), query.new_empty(batch, heads, queries, value.shape[3])
    for tile in _tiles(mask):
        count, length = tile.past - tile.first, tile.keys.stop - tile.keys.start
        size = max(1, SCORES * torch.get_num_threads() // (count * length))  # heads of a tile, of several short texts
        for texts in _runs(batch, size // heads):
            for own in _runs(heads, size):
                some = backwards[texts, own, queries - tile.past : queries - tile.first]
                scores = (some @ key[texts, own, tile.keys].transpose(2, 3)).float().mul_(scale)
                if by_offset is not None:
                    lowest = tile.keys.start - (tile.past - 1) + queries - 1
                    vector = by_offset[own, lowest : lowest + count + length - 1]
                    scores.add_(vector.unfold(1, length, 1))
                if by_key is not None:
                    scores.add_(by_key[texts, own, :, tile.keys])
                found = scores.softmax(-1).to(value.dtype) @ value[texts, own, tile.keys]
                out[texts, own, tile.first : tile.past] = found.flip(2)
    return out


def _runs(count: int, size: int) -> Iterator[slice]:
    """Parts of so many, each of a size, or of 1."""
    size = max(1, size)
    return (slice(first, first + size) for first in range(0, count, size))


def _tiles(mask: Sight) -> Iterator[Tile]:
    """Blocks of queries with the keys that rules let them see."""
    ahead = mask.first_query - mask.first_key  # of the first query, counted in keys
    for first in range(0, mask.queries, QUERIES):
        past = min(first + QUERIES, mask.queries)
        begin, end = 0, mask.keys
        if mask.rules.causal:
            end = min(end, ahead + past)
        if mask.rules.window is not None:
            begin = max(begin, ahead + first - mask.rules.window + 1)
            end = min(end, ahead + past - 1 + mask.rules.window)
        # queries without any key see all of them, and all are hidden
        yield Tile(first, past, slice(begin, end) if begin < end else slice(0, mask.keys))


def _by_offset(
    mask: Sight, encoding: OffsetBias | None, source: object, device: torch.device
) -> Float[Tensor, "#heads offsets"] | None:
    """What is added for each offset, from that of the first key to the last query on."""
    rules = mask.rules
    if encoding is None and not rules.causal and rules.window is None:
        return None

    def make() -> Tensor:
        first = mask.first_key - mask.first_query
        offsets = torch.arange(first - mask.queries + 1, first + mask.keys, device=device)
        added = torch.zeros(1, len(offsets), device=device)
        if encoding is not None:
            added = encoding.by_offset(offsets, dtype=torch.float32)
        hidden = torch.zeros_like(offsets, dtype=torch.bool)
        if rules.causal:
            hidden |= offsets > 0
        if rules.window is not None:
            hidden |= offsets.abs() >= rules.window
        return added.masked_fill(hidden, HIDDEN)

    return mask.shared("by offset", encoding if source is None else source, make)


def _by_key(mask: Sight, row: Tensor | None, source: object) -> Float[Tensor, "#batch #heads 1 key"] | None:
    """What is added for each key."""
    real = mask.row
    if real is None:
        return None if row is None else row.float()

    def make() -> Tensor:
        added = torch.zeros((), device=real.device) if row is None else row.float()
        return added.where(real, HIDDEN)

    return mask.shared("by key", row if source is None else source, make)
