"""The operator ``situs::attend_by_offset``: how its output and its gradients are computed.

It takes tensors and plain numbers only. Positions are two numbers where they are ranges, else four whole numbers per
token: position, slot, document, and 1 for a real token or 0 for padding. How they fall into tiles is worked out when
it runs, so that a graph that was traced for one length, padding or packing serves others.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
from torch import Tensor

from situs.attention.kernels.loop import Attended, attend_tiles, attend_tiles_backward, tiles_of_term
from situs.attention.kernels.operators import Operator, of_key_heads, without_padding
from situs.attention.kernels.softmax import partial, partial_backward, serves_flash
from situs.attention.kernels.tiling import (
    EVERY,
    Inputs,
    Tile,
    Tiling,
    meets_each_query_once,
    tiles_between_ranges,
    tiles_between_tokens,
)
from situs.attention.kernels.toeplitz import halving, strided
from situs.attention.kernels.toeplitz.given import Given, Settings, as_given, over_offsets
from situs.attention.kernels.toeplitz.terms import ByOffset, LookedUpTerm, OffsetTerm, SkewedTerm
from situs.encodings.base import computing_dtype
from situs.functional.heads import grouped, share_heads

FEW_QUERIES = 64  # of a tile where pairs are looked up, which takes several tensors of its size
CHANNELS = 16  # of keys, over all heads, that meet a pair's vector in the time that a number takes to look up


def forward(given: Given, settings: Settings) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp without sinks."""
    if _is_plain_attention(given, settings):
        query, key, value = grouped(given.query, given.key, given.value)
        out, logsumexp = partial(query, key, value, _row(given, query), settings.scale, causal=settings.causal)
        return out.reshape(*given.query.shape[:3], value.shape[-1]), logsumexp.reshape(given.query.shape[:3])
    unbiased = given.bias is None
    given, settings, tiling = _resolved(given, settings)
    if tiling is not None and _is_bias_alone(given, settings):
        query, key, value, bias, by_key_head = _grouped(given, tiling)
        out, logsumexp = strided.forward(query, key, value, bias, settings.lowest, settings.scale, by_key_head)
        return out.reshape(*given.query.shape[:3], value.shape[-1]), logsumexp.reshape(given.query.shape[:3])
    if tiling is not None and unbiased and _is_sums_alone(given, settings, tiling):
        return halving.forward(_inputs(given, tiling), tiling.tiles, settings.scale)
    term, blocks = _term(given, settings, tiling, unbiased)
    out, logsumexp, *_ = attend_tiles(_inputs(given, tiling), blocks, term, settings.scale, settings.softcap)
    return out, logsumexp


def _is_plain_attention(given: Given, settings: Settings) -> bool:
    """Whether nothing is added or hidden but by a row that all queries share, and by the causal rule between ranges
    that begin alike."""
    for each in (*given[3:9], *given[10:12], given.query_tokens):  # all but the mask and sinks
        if each is not None:
            return False
    if given.mask is not None and given.mask.shape[2] != 1:
        return False
    if settings.window is not None or settings.softcap is not None or not serves_flash(*given[:3]):
        return False
    return not settings.causal or (settings.query_start == settings.key_start and settings.scale > 0)


def _row(given: Given, query: Tensor) -> Tensor | None:
    """A mask of one row as numbers to add, with a row for each key head as ``query`` has."""
    mask = given.mask
    if mask is None:
        return None
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=computing_dtype(query.dtype)).masked_fill_(~mask, -math.inf)
    mask = mask.expand(*mask.shape[:3], given.key.shape[2])
    if query is given.query or mask.shape[:2] == (1, 1):
        return mask
    return mask.expand(*given.query.shape[:2], 1, -1).reshape(*query.shape[:2], 1, -1)


def backward(
    gradient: Tensor, out: Tensor, logsumexp: Tensor, given: Given, settings: Settings, wanted: Collection[str]
) -> dict[str, Tensor | None]:
    """The gradients of all tensors but sinks, which ``out`` and ``logsumexp`` have in them."""
    if _is_plain_attention(given, settings) and "mask" not in wanted:
        return _plain_backward(gradient, out, logsumexp, given, settings)
    unbiased = given.bias is None
    given, settings, tiling = _resolved(given, settings)
    if tiling is not None and _is_bias_alone(given, settings):
        return _strided_backward(gradient, out, logsumexp, given, settings, wanted, tiling)
    term, blocks = _term(given, settings, tiling, unbiased)
    term.want([name in wanted for name in ByOffset._fields])
    inputs = _inputs(given, tiling)
    if tiling is None:
        gradient = without_padding(gradient, given.query_tokens)
    attended = Attended(out, logsumexp, tiles_of_term(term, blocks, inputs), {})
    found = attend_tiles_backward(gradient, inputs, attended, term, settings.scale, settings.softcap)
    dq = found.query if given.plain_query is not None else found.query + found.plain_query
    dk = found.key if given.plain_key is not None else found.key + found.plain_key
    sums = found.query_sums, found.key_sums
    gradients = (dq, dk, found.value, found.plain_query, found.plain_key, *term.gradients, *sums)
    return {
        name: as_given(each, source)
        for name, each, source in zip(Given._fields, gradients, given, strict=False)
        if name in wanted and source is not None and each is not None
    }


def _plain_backward(
    gradient: Tensor, out: Tensor, logsumexp: Tensor, given: Given, settings: Settings
) -> dict[str, Tensor | None]:
    query, key, value = grouped(given.query, given.key, given.value)
    shape = query.shape[:3]
    gradient, out, logsumexp = gradient.reshape(*shape, -1), out.reshape(*shape, -1), logsumexp.reshape(shape)
    dq, dk, dv = partial_backward(
        gradient, query, key, value, _row(given, query), out, logsumexp, settings.scale, causal=settings.causal
    )
    return _of_inputs(dq, dk, dv, None, given)


def _strided_backward(
    gradient: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    given: Given,
    settings: Settings,
    wanted: Collection[str],
    tiling: Tiling,
) -> dict[str, Tensor | None]:
    query, key, value, bias, by_key_head = _grouped(given, tiling)
    shape, where = query.shape[:3], (settings.lowest, settings.scale, by_key_head)
    gradient, out, logsumexp = gradient.reshape(*shape, -1), out.reshape(*shape, -1), logsumexp.reshape(shape)
    dbias, of_bias = None, "bias" in wanted
    found = strided.compiled_backward(gradient, query, key, value, bias, out, logsumexp, *where, of_bias=of_bias)
    if found is not None:
        dq, dk, dv, dbias = found
    elif of_bias or not serves_flash(query, key, value):
        dq, dk, dv, dbias = strided.backward(gradient, query, key, value, bias, out, logsumexp, *where)
    else:
        dq, dk, dv = strided.flash_backward(gradient, query, key, value, bias, out, logsumexp, *where)
    if dbias is not None and len(dbias) > 1:  # heads that share a key head stand in rows of their own
        batch, kv_heads = given.key.shape[:2]
        dbias = dbias.view(batch, kv_heads * dbias.shape[1], -1).sum(0)
    return _of_inputs(dq, dk, dv, dbias, given)


def _of_inputs(dq: Tensor, dk: Tensor, dv: Tensor, dbias: Tensor | None, given: Given) -> dict[str, Tensor | None]:
    """Gradients in the shapes of queries, keys, values and bias, from those of a row per key head."""
    return {
        "query": dq.reshape(given.query.shape),
        "key": of_key_heads(dk.reshape(*given.query.shape[:2], *dk.shape[2:]), given.key),
        "value": of_key_heads(dv.reshape(*given.query.shape[:2], *dv.shape[2:]), given.value),
        "bias": dbias if dbias is None or given.bias is None else dbias.reshape(given.bias.shape),
    }


def _resolved(given: Given, settings: Settings) -> tuple[Given, Settings, Tiling | None]:
    """The tiles, None where positions are no few runs of neighbours; and a bias of zeros where none was given, to hold
    what is hidden."""
    if given.query_tokens is None:
        starts = settings.query_start, given.query.shape[2], settings.key_start, given.key.shape[2]
        tiling: Tiling | None = Tiling(tiles_between_ranges(*starts), settings.causal, settings.window)
    else:
        tiling = _tiling_of_tokens(given, settings)
    if given.bias is None:
        vectors = over_offsets(given)
        lowest, offsets = (0, 1) if tiling is None else (tiling.lowest, tiling.highest - tiling.lowest + 1)
        if vectors is not None:
            lowest, offsets = settings.lowest, vectors.shape[1]
        zeros = torch.zeros(1, offsets, dtype=computing_dtype(given.query.dtype), device=given.query.device)
        given, settings = given._replace(bias=zeros), settings._replace(lowest=lowest)
    return given, settings, tiling


def _tiling_of_tokens(given: Given, settings: Settings) -> Tiling | None:
    """The tiles of tokens that are no ranges; None where there would be too many."""
    assert given.query_tokens is not None
    assert given.key_tokens is not None
    channels = 0 if given.for_key is None else given.query.shape[1] * given.for_key.shape[-1]
    tiles = tiles_between_tokens(given.query_tokens, given.key_tokens, dear=1 + channels / CHANNELS)
    if tiles is None:
        return None
    tiling = Tiling(tiles, settings.causal, settings.window)
    known = over_offsets(given)
    if known is None or not tiles:
        return tiling
    highest = settings.lowest + known.shape[1] - 1
    # far offsets that are all alike may be left out: then each pair looks up the nearest that is there
    return tiling if settings.lowest <= tiling.lowest and tiling.highest <= highest else None


def _is_bias_alone(given: Given, settings: Settings) -> bool:
    return given.query_sums is None and _has_no_vectors(given, settings)


def _is_sums_alone(given: Given, settings: Settings, tiling: Tiling) -> bool:
    """Whether cumulated numbers are added and no bias or vectors, in causal squares that meet each query once."""
    return (
        given.query_sums is not None
        and _has_no_vectors(given, settings)
        and settings.scale > 0
        and serves_flash(given.query, given.key, given.value)
        and all(map(tiling.is_causal_square, tiling.tiles))
        and meets_each_query_once(tiling.tiles)
    )


def _has_no_vectors(given: Given, settings: Settings) -> bool:
    return settings.softcap is None and all(each is None for each in given[6:10])


def _grouped(given: Given, tiling: Tiling) -> tuple[Tensor, Tensor, Tensor, Tensor, Tiling]:
    """Queries, keys, values, bias and tiles, with a row for each key head."""
    query, key, value = grouped(given.query, given.key, given.value)
    bias, (batch, kv_heads) = given.bias, given.key.shape[:2]
    assert bias is not None
    if query is given.query:
        return query, key, value, bias.unsqueeze(0), tiling
    own = bias.view(kv_heads, query.shape[1], -1).repeat(batch, 1, 1) if len(bias) > 1 else bias.unsqueeze(0)
    tiles = [tile.by_key_head(kv_heads) for tile in tiling.tiles]
    return query, key, value, own, Tiling(tiles, tiling.causal, tiling.window)


def _inputs(given: Given, tiling: Tiling | None) -> Inputs:
    """All tensors with as many heads; without tiles, which leave padding out, with zeros for padding."""
    heads = given.query.shape[1]
    query, key, value, plain_query, plain_key = given[:5]
    if tiling is None:
        query, plain_query = (without_padding(each, given.query_tokens) for each in (query, plain_query))
        key, value, plain_key = (without_padding(each, given.key_tokens) for each in (key, value, plain_key))
    key = share_heads(key, heads)
    return Inputs(
        query,
        key,
        share_heads(value, heads),
        query if plain_query is None else plain_query,
        key if plain_key is None else share_heads(plain_key, heads),
        given.query_sums,
        given.key_sums,
    )


def _term(given: Given, settings: Settings, tiling: Tiling | None, unbiased: bool) -> tuple[OffsetTerm, list[Tile]]:
    """The term, and the blocks of queries that it is formed for; ``unbiased`` where its bias is 0 everywhere."""
    assert given.bias is not None
    added = ByOffset(given.bias, *given[6:10])
    if tiling is not None:
        # without the flash kernel tails are not faster, and a window has none
        tailed = settings.window is None and settings.scale != 0 and given.mask is None
        tailed = tailed and settings.softcap is None and serves_flash(given.query, given.query, given.value)
        term = SkewedTerm(
            added, settings.lowest, settings.scale, tiling, settings.span, tailed=tailed, unbiased=unbiased
        )
        return term, tiling.cut(term.queries)
    assert given.query_tokens is not None
    assert given.key_tokens is not None
    queries, keys = given.query.shape[2], given.key.shape[2]
    whole = Tiling([Tile(EVERY, 0, queries, 0, keys, 0, 0)] if queries and keys else [])
    rules = Tiling((), settings.causal, settings.window)
    tokens = given.query_tokens, given.key_tokens
    return LookedUpTerm(added, settings.lowest, settings.scale, tokens, rules), whole.cut(FEW_QUERIES)


attend_by_offset = Operator("attend_by_offset", Given, Settings, forward, backward)
