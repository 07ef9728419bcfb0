"""Tiles: a block of queries with the keys it sees, whose positions both go up by one.

Inside a tile the offset of a pair, key position minus query position, is its place in memory plus a constant, so that
whatever depends on the offset is read along diagonals and nothing has to be looked up:

                 keys                      offset of query i and key j of a tile
             0   1   2   3
           +---+---+---+---+               offset + j - i
    query 0| o |o+1|o+2|o+3|
          1|o-1| o |o+1|o+2|               o: the tile's ``offset``
          2|o-2|o-1| o |o+1|
           +---+---+---+---+

A range is one tile, a padded row one, a packed row one per document; a zigzag shard has two key tiles for each of its
query runs. Pairs in no tile never see each other. Kernels cut tiles smaller, into blocks of some queries and heads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Up to FEW tiles of a row are always taken. More are taken while the pairs in them, and PAIRS for the calls that each
# costs, are fewer than all pairs, or several times as many where these are dear: else looking offsets up costs less.
FEW, PAIRS = 64, 8192

EVERY = slice(None)


class Tile(NamedTuple):
    """Some queries and some keys, in some rows and heads of the batch."""

    rows: slice
    first_query: int
    queries: int
    first_key: int
    keys: int
    offset: int
    """The first key's position minus the first query's."""
    slot_offset: int
    """The first key's slot minus the first query's; slots tell which key is later."""
    heads: slice = EVERY
    tail: int = 0
    """-1 or 1 where these keys are so far before or behind the queries that positions no longer tell them apart."""
    later: bool = False
    """Whether its queries may have met other keys in a tile before it."""
    sweep: int = 0
    """Tiles of one number above 0, which follow one another, share what is made of their keys."""

    def part(self, query: int, queries: int, key: int, keys: int) -> Tile:
        """Cut out some queries and keys, counted from the tile's first."""
        moved = key - query
        return self._replace(
            first_query=self.first_query + query,
            queries=queries,
            first_key=self.first_key + key,
            keys=keys,
            offset=self.offset + moved,
            slot_offset=self.slot_offset + moved,
        )

    def by_key_head(self, kv_heads: int) -> Tile:
        """Take the rows of a batch in which every key head has a row of its own."""
        if self.rows == EVERY:
            return self
        return self._replace(rows=slice(self.rows.start * kv_heads, self.rows.stop * kv_heads))

    def of_queries(self, tensor: Tensor) -> Tensor:
        """Take the tile's part of queries, or of anything that has one entry for each query."""
        return tensor[self.rows, self.heads, self.first_query : self.first_query + self.queries]

    def of_keys(self, tensor: Tensor) -> Tensor:
        """Take the tile's part of keys or values."""
        return tensor[self.rows, self.heads, self.first_key : self.first_key + self.keys]

    def of_heads(self, tensor: Tensor) -> Tensor:
        """Take the tile's heads of a tensor that has heads first, or one entry for all of them."""
        return tensor if self.heads == EVERY or tensor.shape[0] == 1 else tensor[self.heads]


class Inputs(NamedTuple):
    """Queries, keys and values; queries and keys as content terms meet them, before any rotation; cumulated numbers."""

    query: Float[Tensor, "batch heads query head_dim"]
    key: Float[Tensor, "batch heads key head_dim"]
    value: Float[Tensor, "batch heads key value_dim"]
    plain_query: Float[Tensor, "batch heads query plain_dim"]
    plain_key: Float[Tensor, "batch heads key plain_dim"]
    query_sums: Float[Tensor, "batch heads query"] | None = None
    """c_i and c_j in float64, of which scores get the difference; None where they do not."""
    key_sums: Float[Tensor, "batch heads key"] | None = None

    def of(self, tile: Tile) -> Inputs:
        """Take a tile's part of all of them."""
        query, key, value, plain_query, plain_key, query_sums, key_sums = self
        own_query, own_key = tile.of_queries(query), tile.of_keys(key)
        return Inputs(
            own_query,
            own_key,
            tile.of_keys(value),
            own_query if plain_query is query else tile.of_queries(plain_query),
            own_key if plain_key is key else tile.of_keys(plain_key),
            None if query_sums is None else tile.of_queries(query_sums),
            None if key_sums is None else tile.of_keys(key_sums),
        )


@dataclass(frozen=True)
class Tiling:
    """The tiles of one attention, and which keys of them are hidden."""

    tiles: Sequence[Tile]
    causal: bool = False
    window: int | None = None
    between: tuple[int | None, int | None] = (None, None)
    """The lowest and the highest offset, of positions, that are seen; None where there is no end."""

    @property
    def longest(self) -> int:
        """The most queries that a tile has."""
        return max([1, *[tile.queries for tile in self.tiles]])

    @property
    def lowest(self) -> int:
        """The lowest offset of all tiles."""
        return min([tile.offset - (tile.queries - 1) for tile in self.tiles], default=0)

    @property
    def highest(self) -> int:
        """The highest offset of all tiles."""
        return max([tile.offset + tile.keys - 1 for tile in self.tiles], default=0)

    def cut(self, size: int) -> list[Tile]:
        """Cut every tile into blocks of at most ``size`` queries, each with the keys that some of them see; queries
        that see none are left out."""
        blocks = []
        for tile in self.tiles:
            first, last = self.steps(tile)
            begin, end = max(0, -last), min(tile.queries, tile.keys - first)
            for query in range(begin, end, size):
                queries = min(size, end - query)
                key = max(0, query + first)
                past = min(tile.keys, query + queries + last)
                if past > key:
                    blocks.append(tile.part(query, queries, key, past - key))
        return blocks

    def steps(self, tile: Tile) -> tuple[int, int]:
        """Give the lowest and the highest index of a key minus that of a query, in the tile, where they see each other;
        as far apart as can be where nothing is hidden."""
        first, last, ahead = 1 - tile.queries, tile.keys - 1, tile.slot_offset
        if self.causal:
            last = min(last, -ahead)
        if self.window is not None:
            first, last = max(first, 1 - self.window - ahead), min(last, self.window - 1 - ahead)
        lowest, highest = self.between
        first = first if lowest is None else max(first, lowest - tile.offset)
        return first, last if highest is None else min(last, highest - tile.offset)

    def hides(self, tile: Tile) -> bool:
        """Whether the causal rule, the window or the offset hides any pair of the tile."""
        return self.steps(tile) != (1 - tile.queries, tile.keys - 1)

    def visible(self, tile: Tile, device: torch.device) -> Bool[Tensor, "offsets"]:
        """Tell for each offset of the tile, ascending, whether its pairs see each other."""
        steps = torch.arange(1 - tile.queries, tile.keys, device=device)
        first, last = self.steps(tile)
        return (steps >= first) & (steps <= last)

    def seen_offsets(self, tile: Tile) -> slice:
        """Tell which of the tile's offsets, ascending from the first, have pairs that see each other; they are
        neighbours."""
        first, last = self.steps(tile)
        end = max(0, last + tile.queries)
        return slice(min(first + tile.queries - 1, end), end)

    def is_causal_square(self, tile: Tile) -> bool:
        """Whether the causal rule alone hides pairs of the tile, as a kernel's causal flag does."""
        return self.causal and self.window is None and tile.slot_offset == 0 and tile.queries == tile.keys

    def masked(self, bias: Float[Tensor, "*rows offsets"], lowest: int) -> Callable[[Tile], Tensor]:
        """Give, for a tile, the bias of its offsets with -inf for those that are hidden. The first of ``bias`` is that
        of offset ``lowest``; what is hidden is worked out once for tiles whose slots differ alike from positions."""
        made: dict[int, Tensor] = {}

        def bias_of(tile: Tile) -> Tensor:
            apart = tile.slot_offset - tile.offset
            if apart not in made:
                made[apart] = self._hidden(bias, lowest, apart)
            return made[apart][..., offsets_of(tile, lowest)]

        return bias_of

    def _hidden(self, bias: Tensor, lowest: int, apart: int) -> Tensor:
        hides_later = self.causal and lowest + apart + bias.shape[-1] - 1 > 0
        if not hides_later and self.window is None and self.between == (None, None):
            return bias  # as in decoding, where no key is later
        offsets = torch.arange(lowest, lowest + bias.shape[-1], device=bias.device)
        slots = offsets + apart
        hidden = slots > 0 if self.causal else torch.zeros_like(slots, dtype=torch.bool)
        if self.window is not None:
            hidden = hidden | (slots.abs() >= self.window)
        first, last = self.between
        hidden = hidden if first is None else hidden | (offsets < first)
        hidden = hidden if last is None else hidden | (offsets > last)
        return bias.masked_fill(hidden, -math.inf)


def offsets_of(tile: Tile, lowest: int) -> slice:
    """Where a tile's offsets lie, ascending, among those that begin with ``lowest``."""
    first = tile.offset - (tile.queries - 1) - lowest
    return slice(first, first + tile.queries + tile.keys - 1)


def meets_each_query_once(tiles: Sequence[Tile]) -> bool:
    """Whether no query has its keys in several tiles."""
    if len(tiles) < 2:
        return True
    blocks = sorted((tile.rows.start or 0, tile.first_query, tile.queries) for tile in tiles)
    return all(one[0] != other[0] or one[1] + one[2] <= other[1] for one, other in itertools.pairwise(blocks))


def tiles_between_ranges(query_start: int, queries: int, key_start: int, keys: int) -> list[Tile]:
    """The one tile of two ranges."""
    apart = key_start - query_start
    return [Tile(EVERY, 0, queries, 0, keys, apart, apart)] if queries and keys else []


class Run(NamedTuple):
    """Neighbouring tokens of one row whose positions and slots both go up by one."""

    first: int
    tokens: int
    position: int
    slot: int
    document: int


def tiles_between_tokens(
    query_tokens: Int[Tensor, "query_rows 4 query"], key_tokens: Int[Tensor, "key_rows 4 key"], *, dear: float = 1.0
) -> list[Tile] | None:
    """The tiles of any tokens; None where there would be too many of them, or where a device would be waited for.
    ``dear`` is how many times as long as a number it takes to look up what a pair gets."""
    if query_tokens.device.type != "cpu":
        return None
    of_queries, of_keys = runs_of(query_tokens), runs_of(key_tokens)
    if of_queries is None or of_keys is None:
        return None
    rows, found = max(len(of_queries), len(of_keys)), []
    all_pairs = query_tokens.shape[-1] * key_tokens.shape[-1]
    for row in range(rows):
        by_document: dict[int, list[Run]] = {}
        for run in of_keys[row if len(of_keys) > 1 else 0]:
            by_document.setdefault(run.document, []).append(run)
        pairs = [
            (query, key)
            for query in of_queries[row if len(of_queries) > 1 else 0]
            for key in by_document.get(query.document, ())
        ]
        if len(pairs) > FEW and sum(query.tokens * key.tokens + PAIRS for query, key in pairs) > dear * all_pairs:
            return None
        where = slice(row, row + 1) if rows > 1 else EVERY
        for query, key in pairs:
            offset, slot_offset = key.position - query.position, key.slot - query.slot
            found.append(Tile(where, query.first, query.tokens, key.first, key.tokens, offset, slot_offset))
    return found


def runs_of(tokens: Int[Tensor, "rows 4 sequence"]) -> list[list[Run]] | None:
    """The runs of every row, padding left out; None where they are too many and too short to gain by them."""
    rows, _, length = tokens.shape
    if not length:
        return [[] for _ in range(rows)]
    step = torch.tensor([1, 1, 0, 0])[:, None]  # positions and slots go up by one; document and validity stay
    valid = tokens[:, 3] != 0
    breaks = (tokens.diff(dim=-1) != step).any(1) & (valid[:, 1:] | valid[:, :-1])  # whatever padding holds
    if int(breaks.sum(-1).max()) > max(2 * FEW, length // 8):
        return None
    firsts: list[list[int]] = [[0] for _ in range(rows)]
    for row, before in breaks.nonzero().tolist():
        firsts[row].append(before + 1)
    facts = [tokens[row][:, each].T.tolist() for row, each in enumerate(firsts)]
    return [
        [
            Run(first, past - first, position, slot, document)
            for (first, past), (position, slot, document, valid) in zip(
                itertools.pairwise([*each, length]), facts[row], strict=True
            )
            if valid
        ]
        for row, each in enumerate(firsts)
    ]
