"""Products of keys with the vectors of their offsets, made once for all queries of a sweep.

A key meets another offset with every query, so that a tile by itself would want, of each key's products, only as many
as it has queries, and multiply with about twice as many vectors. The next tile wants the others. So keys meet the
vectors of a whole sweep at once, some keys at a time, and each tile reads its part along a slant. Backward, tiles write
the changes of these products where they read them, and a sweep ends with the products that give gradients. A sweep of
one tile needs each key's products but once, and uses the same memory for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from situs.attention.kernels.softmax import Scratch
from situs.attention.kernels.tiling import Inputs, Tile
from situs.attention.kernels.toeplitz.products import add_to, multiply_into, spread_, times, together_

KEYS = 256  # that meet vectors at once: fewer waste less, and take more calls


class Block(NamedTuple):
    """Some keys of a sweep, with the offsets that they have to its queries."""

    keys: slice
    lowest: int
    highest: int
    near: slice
    """The columns of offsets with vectors of their own; those before and behind are like the nearest of them."""
    name: str

    @property
    def shape(self) -> tuple[int, int]:
        """How many keys, and how many offsets: one for each column, descending."""
        return self.keys.stop - self.keys.start, self.highest - self.lowest + 1


class ProductsOfKeys:
    """Hold what the keys of one sweep give with the vectors of their offsets."""

    def __init__(
        self,
        vectors: Float[Tensor, "heads_or_1 offsets plain_dim"],
        highest: int,
        span: int | None,
        sweep: Sequence[Tile],
        inputs: Inputs,
        scratch: Scratch,
    ) -> None:
        """
        vectors: descending, so that a key's products go up with the queries, and are read along a slant as those of a
            query are.
        highest: the offset of the first vector.
        span: the distance from which on all vectors are alike; None where they never are.
        sweep: tiles of the same rows and heads, and of all keys from the first to the last.
        """
        self._tile, self._alone, self._scratch = sweep[0], len(sweep) == 1, scratch
        self._own, self._highest, self._span = self._tile.of_heads(vectors), highest, span
        self._lowest = highest - vectors.shape[1] + 1
        self._k = inputs.plain_key[self._tile.rows, self._tile.heads].to(scratch.dtype)
        self._blocks = list(self._cut(sweep))
        self._made: dict[str, Tensor] = {}
        self._changes: dict[str, Tensor] = {}

    def add(self, tile: Tile, term: Tensor, scale: float) -> None:
        """Add to a tile's term the products of its keys."""
        for block, keys in self._of(tile):
            slanted = _slanted(self._products(block), block, tile, keys)
            term[..., keys].add_(slanted.transpose(-2, -1), alpha=scale)

    def take(self, tile: Tile, change: Tensor, dk: Tensor, of_vectors: Tensor | None, scale: float) -> None:
        """Take the changes of a tile's scores: each is that of another product. ``dk`` is that of the tile's keys."""
        for block, keys in self._of(tile):
            if block.name not in self._changes:
                self._changes[block.name] = self._room("changes", block).zero_()
            slanted = _slanted(self._changes[block.name], block, tile, keys)
            slanted.copy_(change[..., keys].transpose(-2, -1))
            if self._alone:
                self._give(block, dk[:, :, keys], of_vectors, scale)

    def end(self, dk: Tensor, of_vectors: Tensor | None, scale: float) -> None:
        """Add to the gradients of keys and of vectors what all tiles of the sweep found."""
        own = dk[self._tile.rows, self._tile.heads]
        for block in self._blocks:
            if block.name in self._changes:
                self._give(block, own[:, :, block.keys], of_vectors, scale)

    def _give(self, block: Block, dk: Tensor, of_vectors: Tensor | None, scale: float) -> None:
        changes = together_(self._changes.pop(block.name), block.near)
        dk.add_(times(changes, self._near(block)), alpha=scale)
        if of_vectors is not None:
            found = (changes.transpose(-2, -1) @ self._k[:, :, block.keys]).mul_(scale).flip(-2)
            first = block.highest - (block.near.stop - 1) - self._lowest
            add_to(of_vectors, self._tile, found, slice(first, first + found.shape[-2]))

    def _cut(self, sweep: Sequence[Tile]) -> Iterator[Block]:
        """Cut the keys of a sweep into blocks."""
        begin, end = min(tile.first_key for tile in sweep), max(tile.first_key + tile.keys for tile in sweep)
        for number, first in enumerate(range(begin, end, KEYS)):
            some = slice(first, min(first + KEYS, end))
            met = [_offsets(tile, keys) for tile in sweep if (keys := _shared(tile, some)) is not None]
            lowest, highest = min(low for low, _ in met), max(high for _, high in met)
            yield Block(some, lowest, highest, self._columns(lowest, highest), str(number))

    def _columns(self, lowest: int, highest: int) -> slice:
        """The columns of offsets with vectors of their own, and on each side the nearest of those without."""
        low, high = nearest(lowest, highest, self._span)
        return slice(highest - high, highest - low + 1)

    def _of(self, tile: Tile) -> Iterator[tuple[Block, slice]]:
        """The blocks that a tile's keys lie in, and which of its keys those are."""
        for block in self._blocks:
            keys = _shared(tile, block.keys)
            if keys is not None:
                yield block, keys

    def _near(self, block: Block) -> Tensor:
        first = self._highest - block.highest
        return self._own[:, first + block.near.start : first + block.near.stop]

    def _room(self, name: str, block: Block) -> Tensor:
        number = "" if self._alone else block.name
        return self._scratch.take(f"{name} of keys {number}", (*self._k.shape[:2], *block.shape))

    def _products(self, block: Block) -> Tensor:
        if block.name in self._made:
            return self._made[block.name]
        products = self._room("products", block)
        multiply_into(products[..., block.near], self._k[:, :, block.keys], self._near(block))
        spread_(products, block.near)
        if not self._alone:
            self._made[block.name] = products
        return products


def nearest(lowest: int, highest: int, span: int | None) -> tuple[int, int]:
    """The first and the last of neighbouring offsets that stand for all, where from ``span`` on all are alike."""
    if span is None:
        return lowest, highest
    return min(max(lowest, -span), highest), max(min(highest, span), lowest)


def _shared(tile: Tile, keys: slice) -> slice | None:
    """Which of a tile's keys, counted from its first, lie in a range; None where none does."""
    first, past = max(keys.start - tile.first_key, 0), min(keys.stop - tile.first_key, tile.keys)
    return slice(first, past) if first < past else None


def _offsets(tile: Tile, keys: slice) -> tuple[int, int]:
    """The lowest and the highest offset that some of a tile's keys have to its queries."""
    return tile.offset + keys.start - (tile.queries - 1), tile.offset + keys.stop - 1


def _slanted(products: Tensor, block: Block, tile: Tile, keys: slice) -> Tensor:
    """Read some of a block's products by key and query of a tile: one key later, the same query is one column less."""
    offsets = products.shape[-1]
    row, column = tile.first_key + keys.start - block.keys.start, block.highest - (tile.offset + keys.start)
    return products.as_strided(
        (*products.shape[:2], keys.stop - keys.start, tile.queries),
        (*products.stride()[:2], offsets - 1, 1),
        products.storage_offset() + row * offsets + column,
    )
