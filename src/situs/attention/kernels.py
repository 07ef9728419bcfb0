"""The kernels that ``attend`` chooses among: for each, what it cannot serve, and how it serves the rest.

flash       input and rotary encodings, straight onto scaled_dot_product_attention
toeplitz    biases over offsets, as strided views
blockwise   anything, a block of queries at a time
flex        biases as score_mods of FlexAttention, compiled
reference   anything, every score formed
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from situs.attention import flex
from situs.attention.any_term import AnyTerm, any_task
from situs.attention.blockwise import Work, attend_blockwise
from situs.attention.contextual_term import ContextualTerm
from situs.attention.contextual_term import serves as contextual_serves
from situs.attention.offset_term import offset_term
from situs.attention.reference import reference
from situs.attention.request import Request
from situs.attention.toeplitz import attend_toeplitz
from situs.attention.visibility import visibility
from situs.encodings.bias import OffsetBias
from situs.encodings.score import PlaceScore

SDPA = torch.nn.functional.scaled_dot_product_attention


def flash_cannot(request: Request) -> str | None:
    """Why scaled_dot_product_attention alone does not serve; None if it does."""
    widening = [each for each in request.products if not each.adds_by_offset]
    acting = [*request.biases, *(each for each in request.contents if each not in widening), *request.values]
    return f"{type(acting[0]).__name__} acts on scores or values" if acting else None


def run_flash(request: Request) -> Tensor:
    """Turned queries and keys, with a causal flag where that says it all, in segments, or with a dense mask."""
    if request.products and _is_step(request):
        return _step(request)
    flag = _causal_flag(request)
    if flag is None and request.query.device.type == "cpu" and _segments_cannot(request) is None:
        return _in_segments(request)
    query, key, value = request.widened()
    if flag is not None:
        q, k, v = _grouped(query, key, value)
        out = SDPA(q, k, v, is_causal=flag, scale=request.scale, dropout_p=request.dropout)
        return _narrowed(out, request)
    allowed = visibility(request.query_positions, request.key_positions, causal=request.causal, window=request.window)
    mask = _both(allowed, request.mask, query.dtype)
    key, value = request.shared(key), request.shared(value)
    return _narrowed(SDPA(query, key, value, attn_mask=mask, scale=request.scale, dropout_p=request.dropout), request)


def toeplitz_cannot(request: Request) -> str | None:
    """Why strided views do not serve; None if they do."""
    others = [each for each in request.contents if not isinstance(each, PlaceScore)]
    if others or request.values:
        return f"{type((*others, *request.values)[0]).__name__} depends on the content"
    for bias in request.biases:
        if not isinstance(bias, OffsetBias) or bias.axes > 1:
            return f"{type(bias).__name__} is no function of one offset"
    return _segments_cannot(request)


def run_toeplitz(request: Request) -> Tensor:
    """All biases as one vector over offsets."""
    return _step(request) if _is_step(request) else _in_segments(request)


def _in_segments(request: Request) -> Tensor:
    """Attention segment by segment."""
    task = request.task
    query, key, value = request.widened()
    vector = request.numbers(task.lowest, task.highest)
    q, k, v = _grouped(query, key, value)
    batch, kv_heads = key.shape[:2]
    if q.shape[:2] != query.shape[:2] and len(vector) > 1:
        vector = vector.view(kv_heads, -1, vector.shape[-1]).repeat(batch, 1, 1)
    else:
        vector = vector.unsqueeze(0)
    rows = 1 if kv_heads == query.shape[1] else kv_heads
    return _narrowed(attend_toeplitz(q, k, v, vector, replace(task, rows_each=rows)), request)


def _is_step(request: Request) -> bool:
    """Whether a single query meets a range of keys, as in decoding."""
    if request.query.shape[2] != 1 or request.mask is not None or request.dropout:
        return False
    return request.query_positions.start is not None and request.key_positions.start is not None


def _step(request: Request) -> Tensor:
    """Decoding: the query's row of biases and of products of places, in its own order."""
    task = request.task
    query, key = request.turned()
    row = task.masked(request.numbers(task.lowest, task.highest))(task.segments[0])[None, :, None]
    for each in request.products:
        own = each.of_query(request.query_positions, request.scale, row.dtype)
        row = row + request.scale * (own @ request.of_key_places(each).transpose(-2, -1))
    mask = row.to(query.dtype).expand(len(query), query.shape[1], -1, -1)
    return SDPA(query, request.shared(key), request.shared(request.value), attn_mask=mask, scale=request.scale)


def _narrowed(out: Tensor, request: Request) -> Tensor:
    """Without the grouping of heads, and without channels that were added."""
    return out.reshape(*request.query.shape[:3], -1)[..., : request.value.shape[-1]]


def blockwise_cannot(request: Request) -> str | None:
    """Why blocks do not serve; None if they do."""
    return "dropout needs every weight" if request.dropout else None


def run_blockwise(request: Request) -> Tensor:
    """Terms by offset where that can be, else encodings asked block by block."""
    query, key = request.turned()
    key, value = request.shared(key), request.shared(request.value)
    plain_key = key if request.key is key else request.shared(request.key)
    in_segments = _segments_cannot(request) is None
    if in_segments and request.by_offset:
        by_offset, tensors, content_bias = offset_term(request, request.task)
        work = Work(request.task, by_offset)
        query = query if content_bias is None else query + content_bias.to(query.dtype).unsqueeze(-2)
    else:
        anything = ContextualTerm(request) if contextual_serves(request) else AnyTerm(request)
        work, tensors = Work(any_task(request), anything), anything.parameters
    return attend_blockwise(query, key, value, request.query, plain_key, work, tensors)


def reference_cannot(request: Request) -> str | None:
    """Why the reference does not serve: never."""
    return None


def run_reference(request: Request) -> Tensor:
    """The definition of what is right."""
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


KERNELS = {
    "flash": (flash_cannot, run_flash),
    "toeplitz": (toeplitz_cannot, run_toeplitz),
    "flex": (flex.cannot, flex.run),
    "blockwise": (blockwise_cannot, run_blockwise),
    "reference": (reference_cannot, run_reference),
}


def _causal_flag(request: Request) -> bool | None:
    """Whether a causal flag, or none, says who sees whom; None where it does not."""
    query, key = request.query_positions, request.key_positions
    if query.start is None or key.start is None or request.window is not None or request.mask is not None:
        return None
    apart = key.start - query.start
    if not request.causal or apart + key.length - 1 <= 0:
        return False
    return True if apart == 0 else None


def _segments_cannot(request: Request) -> str | None:
    if request.mask is not None:
        return "a mask of the caller's own has no offsets"
    if request.dropout:
        return "dropout needs every weight"
    if request.segments is None:
        return f"{request.query_positions!r} are no stretches of neighbours that the host knows of"
    return None


def _grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query heads that share a key head as heads of their own row, so that keys are shared without a copy."""
    batch, heads = query.shape[:2]
    kv_heads = key.shape[1]
    if heads == kv_heads:
        return query, key, value
    group = heads // kv_heads
    query = query.reshape(batch * kv_heads, group, *query.shape[2:])
    key, value = (each.reshape(batch * kv_heads, 1, *each.shape[2:]).expand(-1, group, -1, -1) for each in (key, value))
    return query, key, value


def _both(allowed: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    allowed = None if allowed is None else allowed[:, None]
    if mask is None or allowed is None:
        return allowed if mask is None else mask if mask.dtype == torch.bool else mask.to(dtype)
    return allowed & mask if mask.dtype == torch.bool else mask.to(dtype).masked_fill(~allowed, -torch.inf)
