"""The reference attention: plain, slow, and the definition of what is right.

    score[i, j]  = scale q'_i . k'_j + g(q_i, k_j, i, j) + b(i, j)
    out[i]       = sum over the keys that i may see of softmax(score)[i, j] (v_j + r(i, j))

It forms the whole matrix of scores, one formula a line, in float32 or wider. Every other kernel must match it,
gradients included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.require import require_mask, require_rows, require_shapes
from situs.attention.visibility import shown, visibility
from situs.encodings.base import (
    Encoding,
    Encodings,
    InputEncoding,
    QueryKeyEncoding,
    as_encodings,
    computing_dtype,
    without_autocast,
)
from situs.encodings.bias import BiasEncoding
from situs.encodings.nope import NoPE
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import ScoreEncoding, ValueEncoding
from situs.functional.heads import share_heads
from situs.positions import Positions, PositionsLike, align

if TYPE_CHECKING:
    from situs.attention.request import Request


def cannot(request: Request) -> str | None:
    """Why the reference does not serve: never."""
    return None


def run(request: Request) -> Tensor:
    """The definition of what is right, of a request."""
    return reference(
        request.query,
        request.key,
        request.value,
        encoding=request.encodings,
        causal=request.causal,
        positions=request.query_positions,
        key_positions=request.key_positions,
        mask=request.mask,
        window=request.window,
        scale=request.given_scale,
        dropout=request.dropout,
    )


@without_autocast
def reference(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    *,
    encoding: Encodings = None,
    causal: bool = False,
    positions: PositionsLike = None,
    key_positions: PositionsLike = None,
    mask: Bool[Tensor, "..."] | Float[Tensor, "..."] | None = None,
    window: int | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attention with any encodings. Queries that may see nothing, as padding, give zeros.

    Encodings of the input have acted already, before the projections, and change nothing here. ``mask`` is true
    where a query may see a key, or a float to add to the scores, and broadcasts to (batch, heads, query, key). Fewer
    key heads than query heads are shared.
    """
    require_shapes(query, key, value)
    encodings = as_encodings(encoding)
    heads = query.shape[1]
    of_queries, of_keys = align(positions, key_positions, query.shape[-2], key.shape[-2], query.device)
    require_rows(of_queries, of_keys, query.shape[0])
    dtype = computing_dtype(query.dtype)
    q, k, v = query.to(dtype), key.to(dtype), value.to(dtype)

    allowed = visibility(of_queries, of_keys, causal=causal, window=window)
    allowed = None if allowed is None else allowed[:, None]
    if mask is not None:
        require_mask(mask, (*query.shape[:3], key.shape[-2]))
        mask = mask[(None,) * (4 - mask.ndim)]
        allowed = shown(allowed, mask, key.shape[-2])
    factor = softmax_scale(encodings, query.shape[-1], scale)
    scores = scores_of(q, k, encodings, of_queries, of_keys, scale=factor, visible=allowed)
    if not key.shape[2]:
        return value.new_zeros(*query.shape[:3], value.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    highest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(dtype).min)  # finite where all is -inf
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    weights = weights / total.masked_fill(total == 0, 1)
    weights = torch.dropout(weights, dropout, train=dropout > 0)
    out = weights @ share_heads(v, heads)
    for each in encodings:
        if isinstance(each, ValueEncoding) and each.acts_on_values:
            out = out + each.gathered(weights, of_queries, of_keys)
    return out.to(query.dtype)


def scores_of(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    encodings: Sequence[Encoding],
    of_queries: Positions,
    of_keys: Positions,
    *,
    scale: float,
    visible: Bool[Tensor, "#batch #heads #query key"] | None,
) -> Float[Tensor, "batch heads query key"]:
    """Every score, those of keys that a query may not see as well: ``visible`` is for terms that count keys."""
    q, k = query, key  # as they come for terms by content: turned, they would tie these to absolute positions
    for each in encodings:
        if isinstance(each, QueryKeyEncoding):
            if isinstance(each, RotationEncoding):
                each.require_agreement(of_queries, of_keys)
            q, k = each(q, of_queries), each(k, of_keys, role="key")
    scores = scale * (q @ share_heads(k, q.shape[1]).transpose(-2, -1))
    for each in encodings:
        if isinstance(each, ScoreEncoding):
            scores = scores + each(query, key, of_queries, of_keys, scale=scale, visible=visible)
        elif isinstance(each, BiasEncoding):
            scores = scores + each(of_queries, of_keys, dtype=query.dtype)
        elif not isinstance(each, (QueryKeyEncoding, InputEncoding, ValueEncoding, NoPE)):
            raise TypeError(
                f"encoding must act on input, queries and keys, scores or values; got {type(each).__name__}."
            )
    return scores


def softmax_scale(encodings: Sequence[Encoding], head_dim: int, scale: float | None) -> float:
    """The factor of q . k: the caller's, else the encodings' own, else ``1 / sqrt(head_dim)``; times their factors."""
    if scale is None:
        declared = [each.softmax_scale for each in encodings if each.softmax_scale is not None]
        if any(each != declared[0] for each in declared):
            raise ValueError(f"scale must be given, since these encodings declare different ones; got {declared}.")
        scale = declared[0] if declared else 1 / math.sqrt(head_dim)
    for each in encodings:
        scale *= each.softmax_factor
    return scale
