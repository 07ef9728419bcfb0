"""The reference attention: plain, slow, and the definition of what is right.

    score[i, j]  = scale q'_i . k'_j + g(q_i, k_j, i, j) + b(i, j)
                 of bands of distance, q' and k' are those of the band that the pair is in
    capped       = softcap tanh(score / softcap), where there is a cap
    out[i]       = sum over the keys that i may see of softmax(capped + mask)[i, j] (v'_j + r(i, j))

A sink is one more score in each row of the softmax, whose value is 0. Encodings of queries and keys make q' and k' of q
and k, and maps of values v' of v; what such a map does to the output comes last.

It forms the whole matrix of scores, one formula a line, in float32 or wider. Every other kernel must match it,
gradients included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.attention.request import Request, make_request
from situs.attention.value_maps import mapped_output, with_mapped_values
from situs.attention.visibility import visibility, visible_with_mask
from situs.encodings.bands import Band
from situs.encodings.base import (
    Encoding,
    Encodings,
    InputEncoding,
    QueryKeyEncoding,
    autocast_off,
    computing_dtype,
)
from situs.encodings.bias import BiasEncoding
from situs.encodings.nope import NoPE
from situs.encodings.rotary import Rotary
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import ScoreEncoding, ValueEncoding
from situs.encodings.value_map import ValueMap
from situs.functional.heads import share_heads
from situs.positions import Positions, PositionsLike


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
    chunk: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Float[Tensor, "heads"] | None = None,
    features: Mapping[str, Float[Tensor, "batch heads sequence width"]] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attention with any encodings, every score formed. Takes what ``attend`` takes.

    >>> import torch, situs
    >>> q = k = v = torch.randn(1, 2, 5, 8)
    >>> situs.attention.reference(q, k, v, encoding=situs.ALiBi(num_heads=2), causal=True).shape
    torch.Size([1, 2, 5, 8])
    """
    request = make_request(
        query,
        key,
        value,
        encoding=encoding,
        causal=causal,
        positions=positions,
        key_positions=key_positions,
        mask=mask,
        window=window,
        chunk=chunk,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        features=features,
        dropout=dropout,
    )
    with autocast_off(query.device.type):
        return mapped_output(request, run(with_mapped_values(request)))


def cannot(request: Request) -> str | None:
    """Why the reference does not serve: never."""
    return None


def run(request: Request) -> Float[Tensor, "batch heads query value_dim"]:
    """Serve a request, one formula a line."""
    of_queries, of_keys, mask = request.query_positions, request.key_positions, request.mask
    dtype, heads, keys = computing_dtype(request.query.dtype), request.query.shape[1], request.key.shape[2]
    q = _real(request.query.to(dtype), of_queries)
    k, v = (_real(each.to(dtype), of_keys) for each in (request.key, request.value))

    allowed = visibility(of_queries, of_keys, causal=request.causal, window=request.window)
    seen = visible_with_mask(allowed, mask, keys)
    scores = scores_of(
        q, k, request.encodings, of_queries, of_keys, scale=request.scale, visible=seen, features=request.features
    )
    if request.softcap is not None:
        capped = request.softcap * torch.tanh(scores / request.softcap)
        scores = torch.where(scores == -math.inf, scores, capped)  # what an encoding hides stays hidden
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask.to(dtype)
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    weights = _softmax(scores, request.sinks) if keys else scores
    if request.dropout:
        weights = torch.dropout(weights, request.dropout, train=True)
    out = weights @ share_heads(v, heads)
    for each in request.values:
        out = out + each.gathered(weights, of_queries, of_keys)
    return _real(out, of_queries).to(request.query.dtype)


def _softmax(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """Weights that add up to 1, or to less by what a sink takes; all 0 where a query sees nothing."""
    highest = scores.detach().amax(-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)  # finite in any row
    if sinks is not None:
        sinks = sinks[:, None, None].to(scores.dtype)
        highest = torch.maximum(highest, sinks.detach())
    weights = (scores - highest).exp()
    total = weights.sum(-1, keepdim=True)
    total = total if sinks is None else total + (sinks - highest).exp()
    return weights / total.masked_fill(total == 0, 1)


def _real(tensor: Tensor, positions: Positions) -> Tensor:
    """Zeros for padding, which may hold anything."""
    return tensor if positions.valid is None else tensor.masked_fill(~positions.valid[:, None, :, None], 0)


def scores_of(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    encodings: Sequence[Encoding],
    query_positions: Positions,
    key_positions: Positions,
    *,
    scale: float,
    visible: Bool[Tensor, "#batch #heads #query key"] | None,
    features: Mapping[str, Tensor] | None = None,
) -> Float[Tensor, "batch heads query key"]:
    """Every score, those of keys that a query may not see as well: ``visible`` is for terms that count keys."""
    # content terms meet queries and keys as they come: rotated, they would tie these to absolute positions
    rotations = [each for each in encodings if isinstance(each, QueryKeyEncoding)]
    bands = next((each.bands for each in rotations if isinstance(each, Rotary) and each.bands is not None), None)
    if bands is None:
        scores = scale * _products(query, key, rotations, query_positions, key_positions)
    else:
        scores = torch.zeros((), dtype=query.dtype, device=query.device)
        lags = bands.lags(query_positions.ids[:, None, :, None], key_positions.ids[:, None, None])
        for band in bands.bands(causal=False):
            of_band = _products(query, key, rotations, query_positions, key_positions, band)
            scores = torch.where(band.holds(lags), scale * of_band, scores)
    for each in encodings:
        if isinstance(each, ScoreEncoding):
            if each.acts_on_scores:
                own = {"features": features} if each.features else {}
                term = each(query, key, query_positions, key_positions, scale=scale, visible=visible, **own)
                scores = scores + term
        elif isinstance(each, BiasEncoding):
            scores = scores + each(query_positions, key_positions, dtype=query.dtype)
        elif not isinstance(each, (QueryKeyEncoding, InputEncoding, ValueEncoding, ValueMap, NoPE)):
            raise TypeError(
                f"encoding must act on input, queries and keys, scores or values; got {type(each).__name__}."
            )
    return scores


def _products(
    query: Tensor,
    key: Tensor,
    rotations: Sequence[QueryKeyEncoding],
    query_positions: Positions,
    key_positions: Positions,
    band: Band | None = None,
) -> Float[Tensor, "batch heads query key"]:
    """Products of rotated queries and keys; where rotary has bands, as if all pairs were in one of them."""
    q, k = query, key
    for each in rotations:
        of_queries, of_keys = query_positions, key_positions
        if band is not None and isinstance(each, Rotary) and each.bands is not None:
            each, of_queries, of_keys = each.without_bands, band.of_queries(of_queries), band.of_keys(of_keys)
        if isinstance(each, RotationEncoding):
            each.require_agreement(of_queries, of_keys)
        q, k = each(q, of_queries), each(k, of_keys, role="key")
    return q @ share_heads(k, q.shape[1]).transpose(-2, -1)
