"""Tails: keys so far from a block's queries that positions no longer tell them apart.

    score[i, j] = scale (q_i . k_j + q_i . a + k_j . b) + n,    and every value is v_j + w

What belongs to the query alone is the same for all of these keys: softmax does not see it, and it moves nothing but the
log-sum-exp by which stretches of keys are merged. What belongs to the key alone is one row that all queries share. So
nothing is formed for a pair, and a tail costs what attention without positions does.

Backward, both are channels of their own: queries get ``q_i . a`` where keys have a 1, and keys ``k_j . b`` where
queries have one. The kernel's gradients of those channels are the sums over keys and over queries that are wanted.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from situs.attention.partial import partial, partial_backward

CHANNELS = 8  # two are used; the kernel's tiles are multiples of eight


class Stretch(NamedTuple):
    """Queries, keys and values of attention, and queries and keys as positions meet them, before any rotation."""

    query: Float[Tensor, "batch heads query head_dim"]
    key: Float[Tensor, "batch heads key head_dim"]
    value: Float[Tensor, "batch heads key value_dim"]
    plain_query: Float[Tensor, "batch heads query head_dim"]
    plain_key: Float[Tensor, "batch heads key head_dim"]


class Tail(NamedTuple):
    """What positions add for such keys: vectors that meet the query and the key, a number, and a part of values."""

    for_query: Float[Tensor, "heads_or_1 head_dim"] | None = None
    for_key: Float[Tensor, "heads_or_1 head_dim"] | None = None
    number: Float[Tensor, "heads_or_1"] | None = None
    for_value: Float[Tensor, "heads_or_1 value_dim"] | None = None


def attend_tail(
    stretch: Stretch, tail: Tail, scale: float, dtype: torch.dtype
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]]:
    """Output and log-sum-exp."""
    of_queries, of_keys = _channels(stretch, tail, scale, dtype)
    mask = None if of_keys is None else scale * of_keys.transpose(-2, -1)
    out, logsumexp = partial(stretch.query, stretch.key, stretch.value, mask, scale)
    if of_queries is not None:
        logsumexp = logsumexp + scale * of_queries.squeeze(-1)
    return out if tail.for_value is None else out + tail.for_value.unsqueeze(-2).to(out.dtype), logsumexp


def tail_backward(
    gradient: Float[Tensor, "batch heads query value_dim"],
    stretch: Stretch,
    tail: Tail,
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    scale: float,
) -> tuple[Stretch, Tail]:
    """Gradients of all that the tail met, and of what it is; ``out`` and ``logsumexp`` are those over all keys."""
    dtype, width = logsumexp.dtype, stretch.query.shape[-1]
    query, key, value, plain_query, plain_key = (tensor.to(dtype) for tensor in stretch)
    own, row = _channels(stretch, tail, scale, dtype)
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
    for_query = for_key = number = for_value = None
    if tail.for_query is not None:
        d_plain_query = d_own * tail.for_query.unsqueeze(-2)
        for_query = (d_own * plain_query).sum((0, 2)).sum_to_size(tail.for_query.shape)
    if tail.for_key is not None:
        d_plain_key = d_row * tail.for_key.unsqueeze(-2)
        for_key = (d_row * plain_key).sum((0, 2)).sum_to_size(tail.for_key.shape)
    if tail.number is not None:
        number = (d_own / scale).sum((0, 2, 3)).sum_to_size(tail.number.shape)
    if tail.for_value is not None:
        for_value = dv.sum((0, 2)).sum_to_size(tail.for_value.shape)
    return Stretch(dq, dk, dv, d_plain_query, d_plain_key), Tail(for_query, for_key, number, for_value)


def _channels(stretch: Stretch, tail: Tail, scale: float, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """``q_i . a + n / scale`` and ``k_j . b``, where there are such."""
    own = None if tail.for_query is None else stretch.plain_query.to(dtype) @ tail.for_query.unsqueeze(-1)
    if tail.number is not None:
        number = tail.number[:, None, None] / scale
        own = number.expand(*stretch.query.shape[:3], 1) if own is None else own + number
    return own, None if tail.for_key is None else stretch.plain_key.to(dtype) @ tail.for_key.unsqueeze(-1)
