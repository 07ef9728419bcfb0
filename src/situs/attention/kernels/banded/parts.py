"""Which queries and keys of a band see each other: tiles with a mask, or none where nothing in them is hidden.

Of bands by distance, a tile is cut along its diagonals, and what lies beyond them is -inf in a vector over offsets. Of
bands by chunk, it is cut where chunks begin, and nothing is hidden but by the causal rule:

    distance, window 2        chunks of 2
    n . . . . .               n . . . . .        n  near, or the chunk itself
    n n . . . .               n n . . . .        s  the chunk before
    f n n . . .               s s n . . .        f  far
    f f n n . .               s s n n . .
    f f f n n .               f f s s n .
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.kernels.softmax import sees_any
from situs.attention.kernels.tiling import EVERY, Tile, Tiling, tiles_between_ranges, tiles_between_tokens

ENDLESS = 1 << 62
"""A lag that no pair has."""

# Queries of a tile: few waste less beyond the diagonals of a narrow band, many let the kernel work in larger tiles.
FEWEST_QUERIES, QUERIES, MANY_QUERIES, LONG = 64, 256, 768, 6144
FEW_QUERIES = 64  # of a tile where pairs are looked up


class Part(NamedTuple):
    """A tile of one band, and what is hidden in it."""

    band: int
    tile: Tile
    mask: Float[Tensor, "#rows 1 query key"] | None
    """With the queries in reverse order; None where nothing is hidden."""
    sees: Bool[Tensor, "#rows 1 query"] | None
    """Whether each query sees any key; None where all do."""


class Rules(NamedTuple):
    """Which pairs are in each band, and which of them see each other."""

    size: int
    ends: list[int]
    """The lowest and the highest lag of the first band, of the second, ..."""
    causal: bool
    window: int | None


def parts_of_ranges(
    query_start: int, queries: int, key_start: int, keys: int, rules: Rules, like: Tensor
) -> Iterator[Part]:
    """List the parts of two ranges of positions; masks are such as ``like`` can be added to."""
    tiles = tiles_between_ranges(query_start, queries, key_start, keys)
    yield from _parts(tiles, [query_start] * len(tiles), rules, like)


def parts_of_tokens(query_tokens: Tensor, key_tokens: Tensor, rules: Rules, like: Tensor) -> Iterator[Part] | None:
    """List the parts of any tokens; None where there would be too many of them, or where a device would be waited
    for."""
    tiles = tiles_between_tokens(query_tokens, key_tokens)
    if tiles is None:
        return None
    rows = len(query_tokens)
    starts = [
        int(query_tokens[(tile.rows.start or 0) if rows > 1 else 0, 0, tile.first_query]) if rules.size > 1 else 0
        for tile in tiles
    ]
    return _parts(tiles, starts, rules, like)


def _parts(tiles: list[Tile], starts: list[int], rules: Rules, like: Tensor) -> Iterator[Part]:
    for band, (lowest, highest) in enumerate(zip(rules.ends[::2], rules.ends[1::2], strict=True)):
        if rules.size > 1:
            own = [
                part
                for tile, start in zip(tiles, starts, strict=True)
                for part in _in_chunks(tile, start, rules.size, lowest, highest)
            ]
            tiling = Tiling(own, rules.causal, rules.window)
        else:
            tiling = Tiling(tiles, rules.causal, rules.window, (-highest, -lowest))
        yield from _cut(band, tiling, highest - lowest + 1, like)


def _cut(band: int, tiling: Tiling, width: int, like: Tensor) -> Iterator[Part]:
    """Cut a band into blocks of queries."""
    if not tiling.tiles:
        return
    most = QUERIES if tiling.longest < LONG else MANY_QUERIES
    lowest = tiling.lowest
    zeros = like.new_zeros(1, 1, tiling.highest - lowest + 1)
    bias_of = tiling.masked(zeros, lowest)
    for tile in tiling.cut(max(FEWEST_QUERIES, min(most, width))):
        if not tiling.hides(tile):
            yield Part(band, tile, None, None)
            continue
        bias = bias_of(tile)
        yield Part(band, tile, bias.unfold(-1, tile.keys, 1), sees_any(bias, tile.keys))


def _in_chunks(tile: Tile, start: int, size: int, lowest: int, highest: int) -> Iterator[Tile]:
    """Cut out the pairs whose chunks are so far apart; ``start`` is the first query's position."""
    key_start = start + tile.offset
    for number in range(start // size, (start + tile.queries - 1) // size + 1):
        query, past = max(0, number * size - start), min(tile.queries, (number + 1) * size - start)
        key = max(0, (number - highest) * size - key_start)
        past_key = min(tile.keys, (number - lowest + 1) * size - key_start)
        if past_key > key:
            yield tile.part(query, past - query, key, past_key - key)


def parts_by_look_up(query_tokens: Tensor, key_tokens: Tensor, rules: Rules, like: Tensor) -> Iterator[Part]:
    """List blocks of queries with all keys, where every pair is looked at."""
    keys = key_tokens.shape[-1]
    for first in range(0, query_tokens.shape[-1], FEW_QUERIES):
        own = query_tokens[..., first : first + FEW_QUERIES].flip(-1)
        positions, slots, documents, valid = (own[:, field, :, None] for field in range(4))
        key_positions, key_slots, key_documents, key_valid = (key_tokens[:, field, None] for field in range(4))
        seen = (documents == key_documents) & (valid != 0) & (key_valid != 0)
        ahead = slots - key_slots
        seen = seen & (ahead >= 0) if rules.causal else seen
        seen = seen if rules.window is None else seen & (ahead.abs() < rules.window)
        lags = positions.div(rules.size, rounding_mode="floor") - key_positions.div(rules.size, rounding_mode="floor")
        tile = Tile(EVERY, first, own.shape[-1], 0, keys, 0, 0)
        for band, (lowest, highest) in enumerate(zip(rules.ends[::2], rules.ends[1::2], strict=True)):
            inside = (seen & (lags >= lowest) & (lags <= highest))[:, None]  # (rows, 1, queries, keys)
            mask = like.new_zeros(()).masked_fill(~inside, -math.inf)
            yield Part(band, tile, mask, inside.any(-1).flip(-1))
