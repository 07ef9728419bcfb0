"""Tails of a tile: keys so far from its queries that positions no longer tell them apart.

    score[i, j] = scale (q_i . k_j + q_i . a + k_j . b) + n,    and every value is v_j + w

What belongs to the query alone is the same for all of these keys: softmax does not see it, and it moves nothing but the
log-sum-exp by which parts are merged. What belongs to the key alone is one row that all queries share. So nothing is
formed for a pair, and a tail costs what attention without positions does.

Cumulated numbers are a number per token too: a score gets c_i - c_j, and c falls from token to token. Keys before a
tile's first query, at f, are a tail with ``c_i - c_f`` for the query and ``c_f - c_j`` for the key. Neither is above 0,
so that float32 loses digits only where the weight vanishes; between neighbours the difference is taken in float64.

Backward, both are channels of their own: queries get ``q_i . a`` where keys have a 1, and keys ``k_j . b`` where
queries have one. The kernel's gradients of those channels are the sums over keys and over queries that are wanted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from situs.attention.kernels.softmax import Scratch, partial, partial_backward
from situs.attention.kernels.tiling import Inputs, Tile

CHANNELS = 16  # two are used; kernels take sixteen at a time, compiled loops among them


class Tail(NamedTuple):
    """What positions add for such keys: vectors that meet the query and the key, a number, and a part of values."""

    for_query: Float[Tensor, "heads_or_1 plain_dim"] | None = None
    for_key: Float[Tensor, "heads_or_1 plain_dim"] | None = None
    bias: Float[Tensor, "heads_or_1"] | None = None
    for_value: Float[Tensor, "heads_or_1 value_dim"] | None = None


class Tails(ABC):
    """Which keys of a tile are tails, and what positions add for them."""

    @abstractmethod
    def split(self, tile: Tile, inputs: Inputs) -> list[Tile]:
        """Cut tails off a tile."""

    @abstractmethod
    def tail(self, side: int) -> Tail:
        """What the keys of a tail get, for all heads."""

    @abstractmethod
    def tail_vjp(self, side: int, gradient: Tail) -> None:
        """Take the gradient of a tail."""


def split_tails(tile: Tile, before: int, behind: int, *, causal: bool, least: int = 1) -> list[Tile]:
    """Cut off a tile's keys with an index below ``before``, and from ``behind`` on, as tails, as far as all queries see
    them and there are at least ``least`` of them."""
    if causal:
        before, behind = min(before, 1 - tile.slot_offset), tile.keys
    before = min(before, tile.keys) if before >= least else 0
    behind = max(behind, before) if tile.keys - behind >= least else tile.keys
    ends = (0, before, -1), (before, behind, 0), (behind, tile.keys, 1)
    return [
        tile.part(0, tile.queries, first, last - first)._replace(tail=side)
        for first, last, side in ends
        if last > first
    ]


def attend_tail(
    inputs: Inputs, tail: Tail, scale: float, dtype: torch.dtype
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]]:
    """Attend to the keys of a tail; give output and log-sum-exp."""
    of_queries, of_keys = _channels(inputs, tail, scale, dtype)
    mask = None if of_keys is None else scale * of_keys.transpose(-2, -1)
    out, logsumexp = partial(inputs.query, inputs.key, inputs.value, mask, scale)
    if of_queries is not None:
        logsumexp = logsumexp + scale * of_queries.squeeze(-1)
    return out if tail.for_value is None else out + tail.for_value.unsqueeze(-2).to(out.dtype), logsumexp


def tail_backward(
    gradient: Float[Tensor, "batch heads query value_dim"],
    inputs: Inputs,
    tail: Tail,
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    scale: float,
) -> tuple[Inputs, Tail]:
    """Gradients of all that the tail met, and of the tail itself; ``out`` and ``logsumexp`` are those over all keys."""
    dtype, width = logsumexp.dtype, inputs.query.shape[-1]
    query, key, value, plain_query, plain_key = (tensor.to(dtype) for tensor in inputs[:5])
    own, row = _channels(inputs, tail, scale, dtype)
    q, k = pad(query, (0, CHANNELS)), pad(key, (0, CHANNELS))
    if own is not None:
        q[..., width : width + 1], k[..., width] = own, 1
    if row is not None:
        q[..., width + 1], k[..., width + 1 : width + 2] = 1, row
    value = value if tail.for_value is None else value + tail.for_value.unsqueeze(-2)
    g, v, o = (pad(tensor.to(dtype), (0, CHANNELS)) for tensor in (gradient, value, out))
    dq, dk, dv = partial_backward(g, q, k, v, None, o, logsumexp, scale)
    dq, d_own = dq[..., :width], dq[..., width : width + 1]
    dk, d_row, dv = dk[..., :width], dk[..., width + 1 : width + 2], dv[..., :width]
    d_plain_query, d_plain_key = torch.zeros_like(plain_query), torch.zeros_like(plain_key)
    for_query = for_key = bias = for_value = None
    if tail.for_query is not None:
        d_plain_query = d_own * tail.for_query.unsqueeze(-2)
        for_query = (d_own * plain_query).sum((0, 2)).sum_to_size(tail.for_query.shape)
    if tail.for_key is not None:
        d_plain_key = d_row * tail.for_key.unsqueeze(-2)
        for_key = (d_row * plain_key).sum((0, 2)).sum_to_size(tail.for_key.shape)
    if tail.bias is not None:
        bias = (d_own / scale).sum((0, 2, 3)).sum_to_size(tail.bias.shape)
    if tail.for_value is not None:
        for_value = dv.sum((0, 2)).sum_to_size(tail.for_value.shape)
    sums = (None, None) if inputs.query_sums is None else (d_own.squeeze(-1) / scale, d_row.squeeze(-1) / -scale)
    return Inputs(dq, dk, dv, d_plain_query, d_plain_key, *sums), Tail(for_query, for_key, bias, for_value)


def differences(inputs: Inputs, scratch: Scratch) -> Float[Tensor, "batch heads query key"]:
    """What cumulated numbers add to each pair of neighbours, in ``scratch``."""
    assert inputs.query_sums is not None
    assert inputs.key_sums is not None
    first = inputs.query_sums[..., :1]
    sums = (inputs.query_sums - first).unsqueeze(-1), (inputs.key_sums - first).unsqueeze(-2)
    apart = scratch.take("sums", (*first.shape[:2], sums[0].shape[2], sums[1].shape[3]))
    high = [each.to(apart.dtype) for each in sums]
    torch.sub(*high, out=apart)
    if apart.dtype != first.dtype:  # a difference of rounded numbers, and that of what was rounded off
        low = [(each - rounded).to(apart.dtype) for each, rounded in zip(sums, high, strict=True)]
        apart.add_(low[0]).sub_(low[1])
    return apart


def _channels(inputs: Inputs, tail: Tail, scale: float, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """``q_i . a + n / scale`` and ``k_j . b``, where there are such, with what cumulated numbers add."""
    own = None if tail.for_query is None else inputs.plain_query.to(dtype) @ tail.for_query.unsqueeze(-1)
    if tail.bias is not None:
        bias = tail.bias[:, None, None] / scale
        own = bias.expand(*inputs.query.shape[:3], 1) if own is None else own + bias
    row = None if tail.for_key is None else inputs.plain_key.to(dtype) @ tail.for_key.unsqueeze(-1)
    if inputs.query_sums is not None and inputs.key_sums is not None:
        first = inputs.query_sums[..., :1]
        fallen, left = (
            (each / scale).to(dtype).unsqueeze(-1) for each in (inputs.query_sums - first, first - inputs.key_sums)
        )
        own, row = fallen if own is None else own + fallen, left if row is None else row + left
    return own, row
