"""Attention with a bias over offsets alone, at the cost of attention without.

``b(j - i)`` is a Toeplitz matrix, known by one number per offset. With the queries in reverse order it becomes a Hankel
matrix, ``b[i' + j]``, and that is a *view* of those numbers with both strides 1:

    offsets in memory   b0 b1 b2 b3 b4 b5 ...
    last query             b0 b1 b2 b3             keys 0 .. 3
    the one before            b1 b2 b3 b4
    the one before that          b2 b3 b4 b5

The kernel reads it as a mask: no matrix of biases exists anywhere. Causal and window masks are -inf in that vector.

Backward, the gradient of an offset is the sum along a diagonal of the scores' gradient. Written into rows that are one
number longer than they are read, diagonals become columns. Memory is O(length x tile).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from situs.attention.kernels.cutting import at_once, by_rows_and_heads
from situs.attention.kernels.softmax import Scratch, finite, merge_, partial, partial_backward, sees_any
from situs.attention.kernels.tiling import EVERY, Tile, Tiling, meets_each_query_once, offsets_of
from situs.compiled import attending

# Queries of a tile: few waste less above the diagonal, many let the kernel work in larger tiles of its own.
QUERIES, MANY_QUERIES, LONG = 256, 768, 6144
GRADIENT_QUERIES = 128
GRADIENT_SCORES = 1 << 19  # of a tile, for each thread
BY_CHANNEL = 256  # queries, from which on sums over them are formed channel by channel


def forward(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    bias: Float[Tensor, "batch_or_1 heads_or_1 offsets"],
    lowest: int,
    scale: float,
    tiling: Tiling,
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]]:
    """Output and log-sum-exp. Queries are reversed a tile at a time, here and below, which stays in the cache."""
    looped = attending.serves(query, key, value)  # which leaves out what is hidden, and cuts tiles by itself
    tiles, bias_of = tiling.tiles if looped else _tiles(tiling), tiling.masked(bias, lowest)

    def attend_tile(tile: Tile) -> tuple[Tensor, Tensor]:
        own = tile.of_queries(query), tile.of_keys(key), tile.of_keys(value)
        found = attending.attend(*own, scale, _added(bias, tile, lowest), _band(tiling, tile)) if looped else None
        if found is not None:
            return found[0], finite(found[1])
        mask = _of_rows(bias_of(tile), tile).unfold(-1, tile.keys, 1)
        backwards = partial(own[0].flip(2), *own[1:], mask, scale)
        return backwards[0].flip(2), backwards[1].flip(2)

    if len(tiles) == 1 and tiles[0].rows == EVERY and tiles[0].queries == query.shape[2]:
        return attend_tile(tiles[0])
    out = query.new_zeros(*query.shape[:3], value.shape[-1])
    logsumexp = torch.full(query.shape[:3], -math.inf, dtype=bias.dtype, device=query.device)
    once = len(tiling.tiles) == 1 or meets_each_query_once(tiles)
    for tile in tiles:
        found = attend_tile(tile)
        if not once:
            seen = sees_any(_of_rows(bias_of(tile), tile), tile.keys)
            hidden = found[1].masked_fill(~seen, -math.inf)
            merge_(tile.of_queries(out), tile.of_queries(logsumexp), found[0], hidden)
            continue
        tile.of_queries(out).copy_(found[0])
        tile.of_queries(logsumexp).copy_(found[1])
    return out, finite(logsumexp)


def compiled_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    lowest: int,
    scale: float,
    tiling: Tiling,
    *,
    of_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None] | None:
    """Gradients by a compiled loop, the bias' too where it is wanted; None where there is none."""
    if not attending.serves(query, key, value):
        return None
    wide = bias.dtype
    delta = (gradient.to(wide) * out.to(wide)).sum(-1)
    dq, dk, dv = (torch.zeros_like(each, dtype=wide) for each in (query, key, value))
    dbias = bias.new_zeros(*query.shape[:2], bias.shape[-1]) if of_bias else None  # heads are worked on side by side
    for tile in tiling.tiles:
        wanted = None if dbias is None else _added(dbias, tile, lowest)
        into = attending.Gradients(tile.of_queries(dq), tile.of_keys(dk), tile.of_keys(dv), wanted)
        given = tile.of_queries(gradient), tile.of_queries(query), tile.of_keys(key), tile.of_keys(value)
        sums = tile.of_queries(logsumexp), tile.of_queries(delta)
        added, band = _added(bias, tile, lowest), _band(tiling, tile)
        if not attending.attend_backward(*given, *sums, scale, into, added, band):
            return None
    dbias = None if dbias is None else dbias.sum_to_size(bias.shape)
    return dq.to(query.dtype), dk.to(key.dtype), dv.to(value.dtype), dbias


def _added(bias: Tensor, tile: Tile, lowest: int) -> attending.Added:
    return attending.Added(_of_rows(bias, tile)[..., offsets_of(tile, lowest)], by_offset=True)


def _band(tiling: Tiling, tile: Tile) -> attending.Band:
    return attending.Band(*tiling.steps(tile))


def flash_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    lowest: int,
    scale: float,
    tiling: Tiling,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values by torch's kernel, which reads the same view."""
    bias_of = tiling.masked(bias, lowest)
    dq, dk, dv = (torch.zeros_like(tensor) for tensor in (query, key, value))
    for tile in _tiles(tiling):
        mask = _of_rows(bias_of(tile), tile).unfold(-1, tile.keys, 1)
        g, q, o, total = (tile.of_queries(tensor).flip(2) for tensor in (gradient, query, out, logsumexp))
        found = partial_backward(g, q, tile.of_keys(key), tile.of_keys(value), mask, o, total, scale)
        tile.of_queries(dq).add_(found[0].flip(2))
        tile.of_keys(dk).add_(found[1])
        tile.of_keys(dv).add_(found[2])
    return dq, dk, dv


def backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    lowest: int,
    scale: float,
    tiling: Tiling,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All gradients, the bias' too, with the scores of one tile formed again at a time.

    A column of ones beside keys and values, and -logsumexp and -delta beside queries and gradients, let one matrix
    product subtract what would be another pass over the scores.
    """
    wide = bias.dtype
    delta = (gradient.to(wide) * out.to(wide)).sum(-1, keepdim=True)
    ones = torch.ones((), dtype=wide, device=key.device).expand(*key.shape[:3], 1)
    q = torch.cat((query.to(wide) * scale, -logsumexp.unsqueeze(-1)), -1)
    g = torch.cat((gradient.to(wide), -delta), -1)
    k, v = torch.cat((key.to(wide), ones), -1), torch.cat((value.to(wide), ones), -1)
    by_channel = tiling.longest >= BY_CHANNEL
    dq = torch.zeros_like(query, dtype=wide)
    dk, dv = (_by_channel(each, wide) if by_channel else torch.zeros_like(each, dtype=wide) for each in (key, value))
    dbias = torch.zeros_like(bias, memory_format=torch.contiguous_format)
    bias_of, scratch = tiling.masked(bias, lowest), Scratch(wide, query.device)
    for tile in _gradient_tiles(tiling, *query.shape[:2]):
        q_tile, g_tile = tile.of_queries(q).flip(2), tile.of_queries(g).flip(2)
        k_tile, v_tile = tile.of_keys(k), tile.of_keys(v)
        shape = (*q_tile.shape[:3], tile.keys)
        weights, change = scratch.take("weights", shape), scratch.take("change", shape)
        torch.matmul(q_tile, k_tile.transpose(-2, -1), out=weights)
        weights.add_(_of_matrices(bias_of(tile), tile).unfold(-1, tile.keys, 1)).exp_()
        torch.matmul(g_tile, v_tile.transpose(-2, -1), out=change)
        tile.of_keys(dv).add_(_over_queries(weights, g_tile[..., :-1], by_channel))
        # rows one longer than needed, read as if one shorter: pairs of one offset stand below each other
        length = tile.queries + tile.keys
        slanted = scratch.take("slanted", (*shape[:3], length))
        slanted[..., tile.keys :] = 0
        change = torch.mul(weights, change, out=slanted[..., : tile.keys])
        tile.of_queries(dq).add_((change @ k_tile[..., :-1]).flip(2))
        tile.of_keys(dk).add_(_over_queries(change, q_tile[..., :-1], by_channel))
        diagonals = slanted.flatten(2)[..., : tile.queries * (length - 1)].view(*shape[:3], length - 1).sum(2)
        total = _of_matrices(dbias, tile)[..., offsets_of(tile, lowest)]
        total += diagonals.sum_to_size(total.shape)
    return dq.mul_(scale).to(query.dtype), dk.to(key.dtype), dv.to(value.dtype), dbias


def _tiles(tiling: Tiling) -> list[Tile]:
    """Whole tiles, unless queries see different keys."""
    longest = tiling.longest
    if not tiling.causal and tiling.window is None:
        return tiling.cut(longest)
    return tiling.cut(QUERIES if longest < LONG else MANY_QUERIES)


def _over_queries(
    weights: Float[Tensor, "*rows query key"], x: Float[Tensor, "*rows query dim"], by_channel: bool
) -> Tensor:
    """Sum up over queries: ``weights^T x``, (..., key, dim). Formed channel by channel, sums over many queries take up
    to a quarter less time than where weights are read by columns, and those over few up to twice as long, since what
    lies by channel is laid out by key in the end."""
    if not by_channel:
        return weights.transpose(-2, -1) @ x
    return (x.transpose(-2, -1) @ weights).transpose(-2, -1)


def _by_channel(like: Float[Tensor, "*rows key dim"], dtype: torch.dtype) -> Tensor:
    """A sum of such results to begin: zeros that lie in memory as they do."""
    channels = like.transpose(-2, -1)
    return torch.zeros_like(channels, dtype=dtype, memory_format=torch.contiguous_format).transpose(-2, -1)


def _gradient_tiles(tiling: Tiling, batch: int, heads: int) -> Iterator[Tile]:
    """Tiles of as many heads as find room in the cache."""
    for tile in tiling.cut(GRADIENT_QUERIES):
        yield from by_rows_and_heads(tile, batch, heads, at_once(tile.queries * tile.keys, GRADIENT_SCORES))


def _of_matrices(tensor: Tensor, tile: Tile) -> Tensor:
    """A tile's rows and heads of a tensor that has one entry for each of them, or one for all."""
    rows = _of_rows(tensor, tile)
    return rows if rows.shape[1] == 1 else rows[:, tile.heads]


def _of_rows(tensor: Tensor, tile: Tile) -> Tensor:
    """A tile's rows of a tensor that has one for each row of the batch, or one for all."""
    return tensor if tensor.shape[0] == 1 else tensor[tile.rows]
