"""What kernels share of their inputs: queries and keys with their positions in them, channels, and padding."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from situs.attention.offsets import key_vectors
from situs.attention.request import Request
from situs.encodings.base import QueryKeyEncoding, computing_dtype
from situs.encodings.cumulated import cumulated as sums_of
from situs.encodings.rotation import RotationEncoding
from situs.functional.heads import share_heads
from situs.positions import Positions

CHANNELS = 16  # that kernels take at a time, compiled loops among them
ROOM = 64.0  # for numbers of positions, divided by the scale, below what a dtype holds


def rotated(request: Request) -> tuple[Tensor, Tensor]:
    """Queries and keys with the encodings that act on them applied; keys keep their number of heads."""
    query, key, of_queries, of_keys = request.query, request.key, request.query_positions, request.key_positions
    for each in request.rotations:
        query, key = rotated_by(each, query, key, of_queries, of_keys)
    return query, key


def rotated_by(
    encoding: QueryKeyEncoding, query: Tensor, key: Tensor, of_queries: Positions, of_keys: Positions
) -> tuple[Tensor, Tensor]:
    """Queries and keys with one encoding applied, in one pass where it rotates."""
    if next(encoding.parameters(), None) is not None:  # what learns must not learn from padding
        query, key = real_tokens(query, of_queries), real_tokens(key, of_keys)
    if isinstance(encoding, RotationEncoding):
        return encoding.both(query, key, of_queries, of_keys)
    return encoding(query, of_queries), encoding(key, of_keys, role="key")


def cannot_widen(request: Request) -> str | None:
    """Why more channels cannot hold the vectors of positions, which are divided by the scale; None if they can."""
    if not request.products:
        return None
    if not request.scale:
        return "a scale of 0 hides products of positions"
    if abs(request.scale) * torch.finfo(request.query.dtype).max < ROOM:
        return f"{request.query.dtype} does not hold vectors of positions that are divided by so small a scale"
    return None


def widened(request: Request) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries and keys, and values, with the vectors of positions as more channels where biases are products of
    them, and values as wide, as kernels want it. Positions have vectors for every query head, so that keys are no
    longer shared."""
    query, key = rotated(request) if request.rotations else (request.query, request.key)
    if not request.products:
        value, widths = request.value, (query.shape[-1], request.value.shape[-1])
        if widths[0] == widths[1] or query.shape[2] == 1 or query.device.type != "cpu":
            return query, key, value
        # torch's CPU kernel wants one width; its other way, which forms all scores, takes two to three times as long
        most = max(widths)
        return _padded(query, most), _padded(key, most), _padded(value, most)
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
    missing = width - tensor.shape[-1]
    if not missing:
        return tensor
    return torch.cat((tensor, tensor.new_zeros(*tensor.shape[:-1], missing)), -1)  # whose gradient is a view


def cumulated(
    request: Request,
) -> tuple[Float[Tensor, "batch heads query"] | None, Float[Tensor, "batch heads key"] | None]:
    """What tokens add up to, c_i of the queries and c_j of the keys: encodings add c_i - c_j to scores. None for both
    where no encoding does."""
    of_queries: Tensor | None = None
    of_keys: Tensor | None = None
    for each in request.cumulated:
        (name,) = each.features
        sums = sums_of(each, request.features[name], request.query_positions, request.key_positions)
        of_queries = sums[0] if of_queries is None else of_queries + sums[0]
        of_keys = sums[1] if of_keys is None else of_keys + sums[1]
    return of_queries, of_keys


def real_tokens(
    tensor: Float[Tensor, "batch heads sequence dim"], positions: Positions
) -> Float[Tensor, "batch heads sequence dim"]:
    """Put zeros for padding, which may hold anything: where a kernel reads it, even a weight of 0 would let NaN
    through. Gradients of padding are 0 as well."""
    return tensor if positions.valid is None else tensor.masked_fill(~positions.valid[:, None, :, None], 0)
