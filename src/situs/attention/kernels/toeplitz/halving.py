"""Causal attention with cumulated numbers and nothing else, in few kernel calls.

A score gets c_i - c_j. Keys before all of some queries are a tail (``tails``), whose pairs need no term; only between
neighbours the difference must be formed. So a causal square is halved, and its halves again: what the later half sees
of the earlier one is a tail, and the squares that are left in the end are small.

    a
    b a                   a        squares on the diagonal, with a term for each pair
    c c a                 b, c, d  tails; all parts of a size are one call, as heads of a batch
    c c b a
    d d d d a
    d d d d b a
    d d d d c c a
    d d d d c c b a

Backward, blocks of queries are taken one after another, as with any other term.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from situs.attention.kernels.cutting import SCORES
from situs.attention.kernels.softmax import Scratch, finite, merge_, partial
from situs.attention.kernels.tails import Tail, attend_tail, differences
from situs.attention.kernels.tiling import EVERY, Inputs, Tile
from situs.encodings.base import computing_dtype

SQUARE = 64  # queries of a square on the diagonal


def forward(inputs: Inputs, tiles: Sequence[Tile], scale: float) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of tiles that are causal squares; 0 for queries in none of them."""
    query, wide = inputs.query, computing_dtype(inputs.query.dtype)
    whole = len(tiles) == 1 and tiles[0].rows == EVERY and tiles[0].queries == query.shape[2]
    made = query.new_empty if whole else query.new_zeros
    out = made(*query.shape[:3], inputs.value.shape[-1], dtype=wide)
    logsumexp = made(query.shape[:3], dtype=wide)
    for tile in tiles:
        rows = Inputs(*(None if each is None else each.flatten(0, 1) for each in inputs.of(tile)))  # type: ignore[arg-type]
        _attend_square(rows, scale, tile.of_queries(out).flatten(0, 1), tile.of_queries(logsumexp).flatten(0, 1))
    return out.to(query.dtype), finite(logsumexp)


def _attend_square(
    inputs: Inputs, scale: float, out: Float[Tensor, "rows query value_dim"], logsumexp: Float[Tensor, "rows query"]
) -> None:
    """Attend from each token to itself and those before it; every head of the batch is a row. Results go into views."""
    rows, tokens = out.shape[:2]
    scratch = Scratch(out.dtype, out.device)
    for queries in _squares(tokens, rows):
        own = _taken(inputs, queries, queries)
        found = partial(*own[:3], differences(own, scratch), scale, causal=True)
        queries.of(out).copy_(found[0])
        queries.of(logsumexp).copy_(found[1])
    size = SQUARE
    while size < tokens:
        for queries, keys in _halves(tokens, size):
            found = attend_tail(_taken(inputs, queries, keys), Tail(), scale, out.dtype)
            merge_(queries.of(out), queries.of(logsumexp), *found)
        size *= 2


class Comb(NamedTuple):
    """Parts of as many tokens each, in equal steps."""

    first: int
    parts: int
    step: int
    size: int

    def of(self, tensor: Shaped[Tensor, "rows tokens *rest"]) -> Shaped[Tensor, "rows parts size *rest"]:
        """View the parts of a tensor."""
        within = tensor.narrow(1, self.first, (self.parts - 1) * self.step + self.size)
        return within.unfold(1, self.size, self.step).movedim(-1, 2)


def _squares(tokens: int, rows: int) -> Iterator[Comb]:
    """The squares on the diagonal, as many at once as terms fit the cache; the last may be smaller."""
    whole, left = divmod(tokens, SQUARE)
    most = max(1, SCORES * torch.get_num_threads() // (rows * SQUARE**2))
    for number in range(0, whole, most):
        yield Comb(number * SQUARE, min(most, whole - number), SQUARE, SQUARE)
    if left:
        yield Comb(whole * SQUARE, 1, left, left)


def _halves(tokens: int, size: int) -> Iterator[tuple[Comb, Comb]]:
    """Later and earlier halves of all pairs of parts; the last of the later ones may be smaller."""
    whole, left = divmod(tokens, 2 * size)
    if whole:
        yield Comb(size, whole, 2 * size, size), Comb(0, whole, 2 * size, size)
    if left > size:
        first = 2 * size * whole
        yield Comb(first + size, 1, size, left - size), Comb(first, 1, size, size)


def _taken(inputs: Inputs, queries: Comb, keys: Comb) -> Inputs:
    """The parts of all tensors, as heads of their rows."""
    query, key, value, *_, query_sums, key_sums = inputs
    assert query_sums is not None
    assert key_sums is not None
    q, k = queries.of(query), keys.of(key)
    return Inputs(q, k, keys.of(value), q, k, queries.of(query_sums), keys.of(key_sums))
