"""Whatever is added to the scores regardless of content, as one dense mask of torch's own attention.

For a single query, as in decoding, that mask is one row, and this is the fastest way. For many it takes as much memory
as all scores do: it serves where every weight is needed (dropout), and inside graphs, where no encoding can be asked
tile by tile.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from situs.attention.kernels.inputs import cumulated, real_tokens, rotated
from situs.attention.kernels.tiling import Tiling, tiles_between_ranges
from situs.attention.offsets import bias_over_offsets, key_vectors
from situs.attention.request import Request
from situs.attention.visibility import visibility, visible_with_mask
from situs.compiled.watching import is_differentiated
from situs.encodings.base import computing_dtype
from situs.encodings.bias import OffsetBias, PositionProduct
from situs.functional.heads import share_heads


def cannot(request: Request) -> str | None:
    """Why a dense mask does not serve; None if it does."""
    by_content = (*request.contents, *request.values)
    if by_content:
        return f"{type(by_content[0]).__name__} depends on the content"
    if request.sinks is not None or request.softcap is not None:
        return "torch's own attention knows neither sinks nor caps"
    if (request.biases or request.cumulated) and is_differentiated(requires_grad=False):
        return "under torch.func torch's own attention has no gradient of its mask"
    return None


def run(request: Request) -> Tensor:
    """Rotated queries and keys, with all biases and all that hides keys in one mask."""
    query, key = rotated(request)
    query = real_tokens(query, request.query_positions)
    key, value = (real_tokens(each, request.key_positions) for each in (key, request.value))
    mask = _row(request) if request.is_decode_step and not request.is_empty else _matrix(request)
    heads = query.shape[1]
    if mask is not None:
        mask = mask.expand(len(query), heads, -1, -1)
        if mask.dtype not in (torch.bool, query.dtype) and query.device.type != "cpu":
            # where torch's kernels refuse a mask of float32 beside half precision, or misread it
            query, key, value = (each.to(mask.dtype) for each in (query, key, value))
    out = scaled_dot_product_attention(
        query, share_heads(key, heads), share_heads(value, heads),
        attn_mask=mask, scale=request.scale, dropout_p=request.dropout,
    ).to(request.query.dtype)  # fmt: skip
    return real_tokens(out, request.query_positions)


def _row(request: Request) -> Tensor | None:
    """The one query's biases, -inf for keys that it does not see; those over offsets may be cached."""
    start, key_start = request.query_positions.start, request.key_positions.start
    assert start is not None
    assert key_start is not None
    apart, keys = key_start - start, request.key_positions.length
    tiling = Tiling(tiles_between_ranges(start, 1, key_start, keys), request.causal, request.window)
    if not request.biases and not request.cumulated and not (tiling.tiles and tiling.hides(tiling.tiles[0])):
        return None
    dtype, device = computing_dtype(request.query.dtype), request.query.device
    biases = [each for each in request.biases if isinstance(each, (OffsetBias, PositionProduct))]
    vector = bias_over_offsets(biases, apart, apart + keys - 1, dtype, device, request.offsets)
    row = tiling.masked(vector, apart)(tiling.tiles[0])[None, :, None]  # (1, heads, 1, key)
    for each in request.products:
        of_key = key_vectors(each, request.key_positions, dtype, request.offsets)
        row = row + each.query_vectors(request.query_positions, dtype) @ of_key.transpose(-2, -1)
    fallen = _cumulated(request, dtype)
    return row if fallen is None else row + fallen


def _cumulated(request: Request, dtype: torch.dtype) -> Tensor | None:
    """What tokens between each key and each query add up to."""
    of_queries, of_keys = cumulated(request)
    if of_queries is None or of_keys is None:
        return None
    return (of_queries.unsqueeze(-1) - of_keys.unsqueeze(-2)).clamp(max=0).to(dtype)


def _matrix(request: Request) -> Tensor | None:
    """Every pair's bias, -inf where a query does not see a key; a bool mask where there is no bias."""
    positions, mask = (request.query_positions, request.key_positions), request.mask
    dtype = computing_dtype(request.query.dtype)
    total: Tensor | None = None if mask is None or mask.dtype == torch.bool else mask.to(dtype)
    for each in request.biases:
        added = each(*positions, dtype=dtype)
        total = added if total is None else total + added
    fallen = _cumulated(request, dtype)
    if fallen is not None:
        total = fallen if total is None else total + fallen
    allowed = visibility(*positions, causal=request.causal, window=request.window)
    seen = visible_with_mask(allowed, mask, request.key_positions.length)
    if total is None or seen is None:
        return seen if total is None else total
    return total.masked_fill(~seen, -torch.inf)
