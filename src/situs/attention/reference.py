"""The reference attention: plain, slow, and the definition of what is right.

    score[i, j]  = scale (q'_i . k'_j + g(q_i, k_j, i, j)) + b(i, j)
    out[i]       = sum over the keys that i may see of softmax(score)[i, j] v_j

It forms the whole matrix of scores, one formula a line, in float32 or wider. Every other kernel must match it,
gradients included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.visibility import visibility
from situs.encodings.base import (
    BiasEncoding,
    Encoding,
    InputEncoding,
    QueryKeyEncoding,
    ScoreEncoding,
    computing_dtype,
)
from situs.encodings.nope import NoPE
from situs.encodings.rotation import RotationEncoding
from situs.positions import PositionsLike, align


def reference(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    *,
    encoding: Encoding | Sequence[Encoding] | None = None,
    causal: bool = False,
    positions: PositionsLike = None,
    key_positions: PositionsLike = None,
    mask: Bool[Tensor, "#batch #heads #query key"] | Float[Tensor, "#batch #heads #query key"] | None = None,
    window: int | None = None,
    scale: float | None = None,
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attention with any encodings. Rows that may see nothing give zeros.

    Encodings of the input have acted already, before the projections, and change nothing here. ``mask`` is true
    where a query may see a key, or a float to add to the scores. Fewer key heads than query heads are shared.
    """
    encodings = [encoding] if isinstance(encoding, Encoding) else list(encoding or ())
    of_queries, of_keys = align(positions, key_positions, query.shape[-2], key.shape[-2], query.device)
    dtype = computing_dtype(query.dtype)
    q, k, v = query.to(dtype), key.to(dtype), value.to(dtype)

    terms = []
    for each in encodings:
        if isinstance(each, QueryKeyEncoding):
            if isinstance(each, RotationEncoding):
                each.require_agreement(of_queries, of_keys)
            q, k = each(q, of_queries), each(k, of_keys, role="key")
        elif isinstance(each, ScoreEncoding):
            terms.append(each(q, k, of_queries, of_keys))
        elif not isinstance(each, (BiasEncoding, InputEncoding, NoPE)):
            raise TypeError(f"encoding must act on input, queries and keys, or scores; got {type(each).__name__}.")
    scores = q @ _shared(k, q).transpose(-2, -1)
    for term in terms:
        scores = scores + term
    scores = scores * softmax_scale(encodings, query.shape[-1], scale)
    for each in encodings:
        if isinstance(each, BiasEncoding):
            scores = scores + each(of_queries, of_keys).to(dtype)

    allowed = visibility(of_queries, of_keys, causal=causal, window=window)
    if allowed is not None:
        scores = scores.masked_fill(~allowed[:, None], -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    highest = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(dtype).min)  # finite where all is -inf
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    weights = weights / total.masked_fill(total == 0, 1)
    return (weights @ _shared(v, q)).to(query.dtype)


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


def _shared(tensor: Tensor, query: Tensor) -> Tensor:
    """Keys or values repeated for the query heads that share them."""
    heads, kv_heads = query.shape[1], tensor.shape[1]
    if heads % kv_heads:
        raise ValueError(
            f"query heads must be a multiple of key heads, since each key head serves as many; got {heads} and "
            f"{kv_heads}."
        )
    return tensor.repeat_interleave(heads // kv_heads, 1)
