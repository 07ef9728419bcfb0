"""Encodings that know positions by the offset alone, in O(length) memory: biases as strided views, vectors as products
read along a slant, far keys as tails, and any whole positions by look-up.

    strided   biases alone, between neighbouring positions
    halving   numbers that tokens add up to, alone
    terms     vectors that meet queries, keys or values; masks; other positions
    op        the operator that torch differentiates, maps and traces
"""

from __future__ import annotations

import torch
from torch import Tensor

from situs.attention.kernels.inputs import cannot_widen, cumulated, widened
from situs.attention.kernels.toeplitz.given import Given, Settings
from situs.attention.kernels.toeplitz.op import attend_by_offset
from situs.attention.offsets import bias_over_offsets, value_vectors_over_offsets, vectors_over_offsets
from situs.attention.request import Request
from situs.attention.visibility import tokens_of
from situs.encodings.base import computing_dtype
from situs.encodings.bias import OffsetBias, PositionProduct
from situs.encodings.score import OffsetScore

__all__ = ["cannot", "run"]


def cannot(request: Request) -> str | None:
    """Why offsets do not say it all; None if they do."""
    if request.is_empty:
        return "there are no queries, no keys or no channels"
    for bias in request.biases:
        if not isinstance(bias, (OffsetBias, PositionProduct)) or bias.axes > 1:
            return f"{type(bias).__name__} is no function of one offset"
    for content in request.contents:
        if not isinstance(content, OffsetScore):
            return f"{type(content).__name__} is no function of offsets and their vectors"
    if request.adds_by_offset and (
        request.query_positions.placed is not None or request.key_positions.placed is not None
    ):
        return "tokens without a position have no offset"
    why = cannot_widen(request)
    if why is not None:
        return why
    if not request.scale and any(each.features for each in request.contents):
        return "a scale of 0 hides products of features"
    if request.dropout:
        return "dropout needs every weight"
    if request.adds_mask_to_capped:
        return "a float mask is added behind the cap, and tiles add it before"
    if request.adds_by_offset and request.offset_bounds is None:
        return "these positions have no whole offsets, or lie too far apart for a number per offset"
    return None


def run(request: Request) -> Tensor:
    """Everything that is added, as tensors over offsets."""
    given, settings = by_offset(request)
    return attend_by_offset(given, settings)[..., : request.value.shape[-1]]


def by_offset(request: Request) -> tuple[Given, Settings]:
    query, key, value = widened(request)
    sums = cumulated(request) if request.cumulated else (None, None)
    rules = request.scale, request.causal, request.window, request.softcap
    if not request.adds_by_offset:
        starts = request.query_positions.first_slot, request.key_positions.first_slot
        tokens = _tokens(request, by_slot=True) if None in starts else (None, None)
        given = Given(
            query, key, value, None, None, None, None, None, None, request.mask, *sums,
            request.sinks, *tokens,
        )  # fmt: skip
        return given, Settings(starts[0] or 0, starts[1] or 0, 0, request.span, *rules)
    assert request.offset_bounds is not None
    lowest, highest = request.offset_bounds
    dtype, device = computing_dtype(query.dtype), query.device
    where = lowest, highest, dtype, device
    biases = [each for each in request.biases if isinstance(each, (OffsetBias, PositionProduct))]
    bias = bias_over_offsets(biases, *where, request.offsets) if biases else None
    of_queries: Tensor | None = None
    of_keys: Tensor | None = None
    of_values: Tensor | None = None
    of_features: list[tuple[Tensor, Tensor]] = []
    for each in request.contents:
        assert isinstance(each, OffsetScore)
        vectors = vectors_over_offsets(each, *where, request.offsets)
        if each.meets is None:
            of_queries = _sum(of_queries, vectors.for_query)
        else:
            vectors = vectors.map(lambda each: each / request.scale)  # what it adds is not scaled
            if vectors.for_query is not None:
                of_features.append((request.features[each.meets], vectors.for_query))
        of_keys = _sum(of_keys, vectors.for_key)
        if vectors.alone is not None:
            bias = _sum(bias, request.scale * vectors.alone)
        if vectors.for_every_key is not None:
            every = vectors.for_every_key.unsqueeze(-2)
            if request.rotations:
                of_keys = every.expand(-1, highest - lowest + 1, -1) if of_keys is None else of_keys + every
            else:  # u . k_j is what a query that is longer by u meets
                query = query + _wide(every, query.shape[-1]).to(query.dtype)
    for value_encoding in request.values:
        of_values = _sum(of_values, value_vectors_over_offsets(value_encoding, *where, request.offsets))
    tokens = (None, None) if request.are_ranges else _tokens(request, by_slot=False)
    plain_query = request.query if of_queries is not None and query is not request.query else None
    if of_features:
        plain_query, of_queries = _channels(request.query, of_queries, of_features)
    plain_key = request.key if of_keys is not None and key is not request.key else None
    given = Given(
        query, key, value, plain_query, plain_key, bias, of_queries, of_keys,
        None if of_values is None else _wide(of_values, value.shape[-1]), request.mask, *sums,
        request.sinks, *tokens,
    )  # fmt: skip
    starts = request.query_positions.start or 0, request.key_positions.start or 0
    return given, Settings(starts[0], starts[1], lowest, None if request.biases else request.span, *rules)


def _tokens(request: Request, *, by_slot: bool) -> tuple[Tensor, Tensor]:
    return tokens_of(request.query_positions, request.key_positions, by_slot=by_slot)


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Encodings that meet the same thing meet it with the sum of theirs."""
    return other if one is None else one if other is None else one + other


def _channels(
    query: Tensor, of_queries: Tensor | None, of_features: list[tuple[Tensor, Tensor]]
) -> tuple[Tensor, Tensor]:
    """Queries, where vectors meet them, with features as more channels; and the vectors of offsets that meet both."""
    met = of_features if of_queries is None else [(query, of_queries), *of_features]
    if len(met) == 1:
        return met[0]
    heads = max(len(vectors) for _, vectors in met)
    return torch.cat([each for each, _ in met], -1), torch.cat(
        [vectors.expand(heads, -1, -1) for _, vectors in met], -1
    )


def _wide(vectors: Tensor, width: int) -> Tensor:
    """Vectors with as many channels as queries and values have that were widened."""
    missing = width - vectors.shape[-1]
    return torch.nn.functional.pad(vectors, (0, missing)) if missing else vectors
