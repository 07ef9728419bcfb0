"""Encodings of the input, of queries and keys, and of places, straight onto torch's scaled_dot_product_attention.

Who sees whom is a causal flag where that says it all, else segments (on the CPU), else a dense mask.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from situs.attention.request import Request
from situs.attention.step import is_step, run_step
from situs.attention.toeplitz import grouped, in_segments
from situs.attention.visibility import visibility


def cannot(request: Request) -> str | None:
    """Why scaled_dot_product_attention alone does not serve; None if it does."""
    widening = [each for each in request.products if not each.adds_by_offset]
    acting = [*request.biases, *(each for each in request.contents if each not in widening), *request.values]
    return f"{type(acting[0]).__name__} acts on scores or values" if acting else None


def run(request: Request) -> Tensor:
    """Turned queries and keys, with a causal flag where that says it all, in segments, or with a dense mask."""
    if request.products and is_step(request):
        return run_step(request)
    flag = _causal_flag(request)
    if flag is None and request.query.device.type == "cpu" and request.segments_cannot is None:
        return in_segments(request)
    query, key, value = request.widened()
    mask: Tensor | None = None
    if flag is not None:
        query, key, value = grouped(query, key, value)
    else:
        places = request.query_positions, request.key_positions
        allowed = visibility(*places, causal=request.causal, window=request.window)
        mask = _both(allowed, request.mask, query.dtype)
        key, value = request.shared(key), request.shared(value)
    out = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=bool(flag), scale=request.scale, dropout_p=request.dropout
    )
    return request.narrowed(out)


def _causal_flag(request: Request) -> bool | None:
    """Whether a causal flag, or none, says who sees whom; None where it does not."""
    query, key = request.query_positions, request.key_positions
    if query.start is None or key.start is None or request.window is not None or request.mask is not None:
        return None
    apart = key.start - query.start
    if not request.causal or apart + key.length - 1 <= 0:
        return False
    return True if apart == 0 else None


def _both(allowed: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    allowed = None if allowed is None else allowed[:, None]
    if mask is None or allowed is None:
        return allowed if mask is None else mask if mask.dtype == torch.bool else mask.to(dtype)
    return allowed & mask if mask.dtype == torch.bool else mask.to(dtype).masked_fill(~allowed, -torch.inf)
