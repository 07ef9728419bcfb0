"""How blocks of queries are cut into tiles: tails, rows and heads that fit the cache, and sweeps.

Tiles of a sweep follow one another along a diagonal, with the same rows and heads, so that what one makes of its keys
serves the next too:

               keys                     a sweep of three blocks with all their keys: each key meets nearly the same
           +-----------+                offsets with the second block as with the first, moved by a block's size
    block 1|           |
    block 2|           |
    block 3|           |
           +-----------+
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import torch

from situs.attention.kernels.softmax import Scratch
from situs.attention.kernels.tiling import Inputs, Tile, meets_each_query_once

SCORES = 1 << 18  # of a tile, for each thread: a megabyte in float32
SWEEP = 1 << 22  # products of a sweep's keys, for each thread: sixteen megabytes


class Sweeps(ABC):
    """What tiles of several blocks share of their keys."""

    @abstractmethod
    def begin(self, sweep: Sequence[Tile], inputs: Inputs, scratch: Scratch) -> None:
        """Begin a sweep."""

    @abstractmethod
    def end(self, totals: Inputs | None) -> None:
        """End a sweep. Backward, which has totals, add to the gradients what its tiles found together."""


def cut(
    blocks: Sequence[Tile],
    inputs: Inputs,
    *,
    split: Callable[[Tile, Inputs], list[Tile]] | None,
    heads_apart: bool,
    sweeps: bool,
) -> list[Tile]:
    """Cut blocks of queries into tiles.

    split: cuts tails off a block, where there may be some.
    heads_apart: whether heads can be worked on one after another.
    sweeps: whether tiles share what is made of their keys.
    """
    apart, parts = meets_each_query_once(blocks), []
    for block in blocks:
        own = [block] if split is None else sorted(split(block, inputs), key=_is_tail)
        parts += [part._replace(later=number > 0 or not apart) for number, part in enumerate(own)]
    if sweeps:
        return [*_in_sweeps([part for part in parts if not part.tail], inputs), *filter(_is_tail, parts)]
    return [tile for part in parts for tile in (_by_heads(part, inputs) if heads_apart else [part])]


def _is_tail(tile: Tile) -> bool:
    return tile.tail != 0


def _by_heads(tile: Tile, inputs: Inputs) -> list[Tile]:
    """Cut a tile into groups of heads; a tail, of which nothing is formed, stays whole."""
    if tile.tail:
        return [tile]
    batch, heads = inputs.query.shape[:2]
    rows = len(range(*tile.rows.indices(batch)))
    most = SCORES * torch.get_num_threads() // max(1, rows * tile.queries * tile.keys)
    return [tile._replace(heads=some) for some in _groups(heads, most)]


def _in_sweeps(parts: Sequence[Tile], inputs: Inputs) -> Iterator[Tile]:
    """Cut parts into tiles of some rows and heads, in sweeps. One head's tiles stand together, so that what is made of
    keys is that of few heads."""
    batch, heads = inputs.query.shape[:2]
    numbers = itertools.count(1)
    for _, run in itertools.groupby(parts, key=_diagonal):
        tiles = list(run)
        most = at_once(max(tile.queries * tile.keys for tile in tiles), SCORES)
        for group in by_rows_and_heads(tiles[0], batch, heads, most):
            matrices = (group.rows.stop - group.rows.start) * (group.heads.stop - group.heads.start)
            for stretch in _stretches(tiles, SWEEP * torch.get_num_threads() // matrices):
                number = next(numbers)
                for tile in stretch:
                    yield tile._replace(rows=group.rows, heads=group.heads, sweep=number)


def at_once(scores: int, room: int) -> int:
    """How many matrices of so many scores are worked on at once: those that find room in each thread's share of the
    cache, and two for each of several threads, which wait for one another less often then."""
    threads = torch.get_num_threads()
    return max(1 if threads == 1 else 2 * threads, room * threads // max(1, scores))


def by_rows_and_heads(tile: Tile, batch: int, heads: int, most: int) -> Iterator[Tile]:
    """Cut a tile into groups of rows and heads, of at most ``most`` matrices of scores each."""
    first, past, _ = tile.rows.indices(batch)
    for rows in _groups(past - first, most):
        own = slice(first + rows.start, first + rows.stop)
        for some in _groups(heads, most // (rows.stop - rows.start)):
            yield tile._replace(rows=own, heads=some)


def _diagonal(tile: Tile) -> tuple[int | None, int | None, int]:
    """What tiles have in common between which the offset goes on as it does within each."""
    return tile.rows.start, tile.rows.stop, tile.offset - tile.first_key + tile.first_query


def _groups(count: int, most: int) -> list[slice]:
    """Cut ``count`` into groups of at most ``most``, and at least one."""
    size = max(1, min(count, most))
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]


def _stretches(tiles: Sequence[Tile], room: int) -> Iterator[list[Tile]]:
    """Cut tiles of one diagonal into sweeps, in each of which the products of keys with all offsets find room. A tile
    that has less than half of its keys from those before begins another, since the rest would meet their offsets in
    vain, as with a narrow window, or gain nothing, as in packed documents. So no sweep has keys that none of its tiles
    has, such as padding: they may hold NaN, and 0 times NaN is NaN."""
    stretch: list[Tile] = []
    for tile in tiles:
        longer = [*stretch, tile]
        first, past = longer[0].first_key, max(each.first_key + each.keys for each in longer)
        met = min(sum(each.queries for each in longer), max(each.keys for each in longer))  # by each key
        shared = max((each.first_key + each.keys - tile.first_key for each in stretch), default=0)
        apart = tile.first_key < first or 2 * shared < tile.keys
        if stretch and (apart or (past - first) * (met + tile.queries) > room):
            yield stretch
            longer = [tile]
        stretch = longer
    if stretch:
        yield stretch
