"""What kernels share of their inputs: queries and keys with their positions in them, channels, and padding."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from situs.attention.offsets import key_vectors
from situs.attention.request import Request
from situs.encodings.base import QueryKeyEncoding, computing_dtype
from situs.encodings.rotation import RotationEncoding
from situs.functional.heads import share_heads
from situs.positions import Positions

CHANNELS = 8  # that kernels take at a time


def rotated(request: Request) -> tuple[Tensor, Tensor]:
    """Queries and keys with the encodings that act on them applied; keys keep their number of heads."""
    query, key = request.query, request.key
    if [each for each in request.encodings if isinstance(each, QueryKeyEncoding) and [*each.parameters()]]:
        # what learns from queries and keys must not learn from padding
        query, key = real_tokens(query, request.query_positions), real_tokens(key, request.key_positions)
    for each in request.encodings:
        if isinstance(each, RotationEncoding):
            query, key = each.both(query, key, request.query_positions, request.key_positions)
        elif isinstance(each, QueryKeyEncoding):
            query, key = each(query, request.query_positions), each(key, request.key_positions, role="key")
    return query, key


def widened(request: Request, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with the vectors of positions as more channels, where biases are products of them, and
    values as wide, as kernels want it. Positions have vectors for every query head, so that keys are no longer
    shared."""
    if not request.products:
        return query, key, request.value
    heads, dtype = query.shape[1], computing_dtype(query.dtype)
    queries, keys, value = [query], [share_heads(key, heads)], share_heads(request.value, heads)
    for each in request.products:
        of_query = each.query_vectors(request.query_positions, dtype) / request.scale
        of_key = key_vectors(each, request.key_positions, dtype, request.offsets)
        for parts, added in ((queries, of_query), (keys, of_key)):
            parts.append(added.expand(query.shape[0], -1, -1, -1).to(query.dtype))
    most = max(sum(part.shape[-1] for part in queries), value.shape[-1])
    width = -(-most // CHANNELS) * CHANNELS
    return _padded(torch.cat(queries, -1), width), _padded(torch.cat(keys, -1), width), _padded(value, width)


def _padded(tensor: Tensor, width: int) -> Tensor:
    return pad(tensor, (0, width - tensor.shape[-1]))


def real_tokens(
    tensor: Float[Tensor, "batch heads sequence dim"], positions: Positions
) -> Float[Tensor, "batch heads sequence dim"]:
    """Put zeros for padding, which may hold anything: where a kernel reads it, even a weight of 0 would let NaN
    through. Gradients of padding are 0 as well."""
    return tensor if positions.valid is None else tensor.masked_fill(~positions.valid[:, None, :, None], 0)


def grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query heads that share a key head as heads of a row of their own, so that keys are shared without a copy."""
    batch, heads = query.shape[:2]
    kv_heads = key.shape[1]
    if heads == kv_heads:
        return query, key, value
    group = heads // kv_heads
    query = query.reshape(batch * kv_heads, group, *query.shape[2:])
    key, value = (each.reshape(batch * kv_heads, 1, *each.shape[2:]).expand(-1, group, -1, -1) for each in (key, value))
    return query, key, value
