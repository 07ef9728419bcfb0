"""The operator ``situs::attend_in_bands``: how its output and its gradients are computed.

Queries and keys come rotated, once for each band; values are the same in all. A query's attention over the keys of one
band is a part of the whole, and parts are merged by their log-sum-exp. Backward, each part is differentiated with the
output and the log-sum-exp of the whole, so that nothing but these is stored.

It takes tensors and plain numbers only, and works out tiles when it runs, as ``situs::attend_by_offset`` does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from situs.attention.kernels.banded.parts import Part, Rules, parts_by_look_up, parts_of_ranges, parts_of_tokens
from situs.attention.kernels.operators import Operator, of_key_heads, without_padding
from situs.attention.kernels.softmax import finite, merge_, partial, partial_backward
from situs.attention.kernels.tiling import EVERY
from situs.encodings.base import computing_dtype
from situs.functional.heads import grouped


class Given(NamedTuple):
    """The tensors that the operator takes."""

    query: Tensor
    """(bands, batch, heads, query, head_dim)"""
    key: Tensor
    """(bands, batch, kv_heads, key, head_dim)"""
    value: Tensor
    sinks: Tensor | None
    query_tokens: Tensor | None
    """(rows, 4, sequence); None where queries and keys are ranges."""
    key_tokens: Tensor | None


class Settings(NamedTuple):
    """The plain numbers that the operator takes."""

    query_start: int
    """The first position, where queries and keys are ranges."""
    key_start: int
    size: int
    """Positions of a chunk, or 1."""
    ends: list[int]
    """The lowest and the highest lag of the first band, of the second, ..."""
    scale: float
    causal: bool
    window: int | None


def forward(given: Given, settings: Settings) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp without sinks."""
    shape, wide = given.query.shape[1:4], computing_dtype(given.query.dtype)
    given, parts = _parts(given, settings)
    rows = [grouped(query, key, given.value) for query, key in zip(given.query, given.key, strict=True)]
    value = rows[0][2]
    out = value.new_zeros(*rows[0][0].shape[:3], value.shape[-1], dtype=wide)
    logsumexp = torch.full(out.shape[:3], -math.inf, dtype=wide, device=out.device)
    for band, tile, mask, sees in parts:
        query, key, _ = rows[band]
        own = tile.of_queries(query), tile.of_keys(key), tile.of_keys(value)
        if mask is None:
            found = partial(*own, None, settings.scale)
        else:
            found = partial(own[0].flip(2), own[1], own[2], mask, settings.scale)
            found = found[0].flip(2), found[1].flip(2)
        if sees is not None:
            found = found[0], found[1].masked_fill(~sees, -math.inf)
        merge_(tile.of_queries(out), tile.of_queries(logsumexp), *found)
    return out.to(value.dtype).reshape(*shape, -1), finite(logsumexp).reshape(shape)


def backward(
    gradient: Tensor, out: Tensor, logsumexp: Tensor, given: Given, settings: Settings, wanted: Collection[str]
) -> dict[str, Tensor]:
    """The gradients of queries, keys and values."""
    wide = logsumexp.dtype
    given, parts = _parts(given, settings)
    rows = [grouped(query, key, given.value) for query, key in zip(given.query, given.key, strict=True)]
    shape, value = rows[0][0].shape[:3], rows[0][2]
    gradient, out, logsumexp = gradient.reshape(*shape, -1), out.reshape(*shape, -1), logsumexp.reshape(shape)
    dq, dk = ([torch.zeros_like(each[number], dtype=wide) for each in rows] for number in range(2))
    dv = torch.zeros_like(value, dtype=wide)
    for band, tile, mask, _ in parts:
        query, key, _ = rows[band]
        own = [tile.of_queries(each) for each in (gradient, query, out, logsumexp)]
        g, q, o, total = own if mask is None else [each.flip(2) for each in own]
        found = partial_backward(g, q, tile.of_keys(key), tile.of_keys(value), mask, o, total, settings.scale)
        tile.of_queries(dq[band]).add_(found[0] if mask is None else found[0].flip(2))
        tile.of_keys(dk[band]).add_(found[1])
        tile.of_keys(dv).add_(found[2])
    heads = given.query.shape[1:3]
    of_keys = [of_key_heads(each.reshape(*heads, *each.shape[2:]), given.value) for each in (*dk, dv)]
    of_queries = torch.stack(dq).reshape(given.query.shape)
    gradients = {"query": of_queries, "key": torch.stack(of_keys[:-1]), "value": of_keys[-1]}
    return {name: each.to(given.query.dtype) for name, each in gradients.items() if name in wanted}


def _parts(given: Given, settings: Settings) -> tuple[Given, Iterator[Part]]:
    """The parts, with a row for each key head; and the tensors, with zeros for padding where parts do not leave it
    out."""
    rules = Rules(settings.size, settings.ends, settings.causal, settings.window)
    like = given.value.new_empty(0, dtype=computing_dtype(given.value.dtype))
    query_tokens, key_tokens = given.query_tokens, given.key_tokens
    if query_tokens is None or key_tokens is None:
        starts = settings.query_start, given.query.shape[3], settings.key_start, given.key.shape[3]
        return given, parts_of_ranges(*starts, rules, like)
    found = parts_of_tokens(query_tokens, key_tokens, rules, like)
    if found is None:
        key, value = (without_padding(each, key_tokens) for each in (given.key, given.value))
        given = given._replace(query=without_padding(given.query, query_tokens), key=key, value=value)
        found = parts_by_look_up(query_tokens, key_tokens, rules, like)
    return given, _for_key_heads(found, given.value.shape[1] if given.query.shape[2] != given.key.shape[2] else 1)


def _for_key_heads(parts: Iterator[Part], heads: int) -> Iterator[Part]:
    """Give every key head a row of its own, where query heads share them."""
    for part in parts:
        if heads > 1 and part.tile.rows != EVERY:
            part = part._replace(tile=part.tile.by_key_head(heads))
        elif heads > 1 and part.mask is not None and len(part.mask) > 1 and part.sees is not None:
            mask, sees = (each.repeat_interleave(heads, 0) for each in (part.mask, part.sees))
            part = part._replace(mask=mask, sees=sees)
        yield part


attend_in_bands = Operator("attend_in_bands", Given, Settings, forward, backward)
