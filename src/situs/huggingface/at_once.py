"""Attention of short texts and of single queries, at once: layers are so fast there that even a look at what may be
hidden, or at which kernel serves, would be felt.

Biases of all pairs are small then, or one row, and all layers of a forward pass share them.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from situs.compiled import attending
from situs.compiled.watching import is_transformed
from situs.encodings.base import Encoding, computing_dtype, is_autocast, without_autocast
from situs.encodings.bias import OffsetBias
from situs.huggingface.rounded import attend_rounded
from situs.huggingface.seeing import Sight
from situs.huggingface.short import is_short

FEW_PAIRS = 65_536
"""Pairs of tokens up to which a bias of all of them, once for all layers, is faster than one by offsets in each."""
HALVES = (torch.bfloat16, torch.float16)
FEW_IN_HALVES, FEW_SHARED = 512, 4096
"""Pairs of one query and keys, of all heads, up to which torch's kernel is faster: in half precision, and in float32
where heads share keys."""
CONVERTED = 2**19
"""Numbers of keys that are converted to float32 at a time, which stay in the cache of a processor."""


def at_once(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
    mask: Sight,
    *,
    encoding: Encoding | None,
    row: Float[Tensor, "#batch heads #query key"] | None,
    source: object,
    scale: float | None,
    dropout: float,
    rounded: bool,
) -> Float[Tensor, "batch heads query value_dim"] | None:
    """Attend by torch's own functions; None where kernels of Situs serve better.

    encoding, row: what is added to scores; one of them, or nothing.
    source: what layers that add the same have it from, if not from the encoding or the row itself.
    rounded: whether scores may be rounded to the dtype of queries, as the layer's own code does.
    """
    single, shared = query.shape[2] == 1, query.shape[1] != key.shape[1]
    added, plain = None, not (dropout or torch.is_grad_enabled() or torch.compiler.is_compiling())
    if rounded and plain and not (single or shared) and _is_bfloat16(query, key, value):
        by_offset = encoding if isinstance(encoding, OffsetBias) and encoding.axes == 1 else None
        if by_offset is encoding and mask.rules.documents is None:
            return attend_rounded(
                query, key, value, mask, encoding=by_offset, row=row, source=source, scale=_scale(query, scale)
            )
    if encoding is not None or row is not None or (single and not mask.is_open):
        if not plain or is_autocast(query.device.type):
            return None
        if not single and (shared or not is_short(mask.pairs, FEW_PAIRS)):
            return None
        if query.dtype in HALVES and query.device.type != "cpu":
            return None  # where torch's kernels refuse a mask of float32 beside these, or misread it
        added = _added(query, mask, encoding, row, source)
        if added is None:
            return None
    elif not single and (dropout or shared or query.shape[3] != value.shape[3]):
        return None  # for which torch would form all weights
    elif not single and attending.serves(query, key, value):
        return None  # which compiled loops are faster for
    alike = query.dtype == key.dtype == value.dtype  # under autocast they may differ, which torch's function mends
    if single and not dropout and alike and query.device.type == "cpu" and _gains_by_products(query, key, added):
        out = _of_one_query(query, key, value, added, scale, rounded=rounded)
    else:
        causal = added is None and not mask.is_open
        if causal and not mask.is_causal_square:
            return None
        out = scaled_dot_product_attention(
            query, key, value, added, dropout_p=dropout, is_causal=causal, scale=scale, enable_gqa=shared
        )
    blind = _blind(mask, added) if encoding is None and row is None and added is not None else None
    return out if blind is None else out.masked_fill(blind, 0.0)


def _gains_by_products(query: Tensor, key: Tensor, added: Tensor | None) -> bool:
    """Whether products of matrices are faster for one query than torch's kernel, which nothing can be mapped over."""
    if added is not None and is_transformed(added):
        return True
    pairs = query.shape[0] * query.shape[1] * key.shape[2]
    if query.dtype in HALVES:
        return pairs > FEW_IN_HALVES
    return query.shape[1] != key.shape[1] and pairs > FEW_SHARED


def _blind(mask: Sight, added: Tensor) -> Bool[Tensor, "batch 1 1 1"] | None:
    """Which queries see nothing; None where all are known to see something. Models that add nothing give them 0, which
    a convolution behind attention may read; those that add a bias, the mean of all values."""

    def make() -> tuple[Tensor | None]:
        blind = (added == torch.finfo(added.dtype).min).all(-1, keepdim=True)
        return (blind if blind.device.type != "cpu" or bool(blind.any()) else None,)

    (found,) = mask.shared("blind", None, make)
    return found


def _is_bfloat16(*tensors: Tensor) -> bool:
    """Whether products of these are formed in bfloat16, by a processor."""
    alike = all(each.dtype == torch.bfloat16 and each.device.type == "cpu" for each in tensors)
    return alike and not is_autocast("cpu")


def _scale(query: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _added(
    query: Tensor, mask: Sight, encoding: Encoding | None, row: Tensor | None, source: object
) -> Float[Tensor, "#batch #heads query key"] | None:
    """What is added to the scores of all pairs, with what is hidden in it; None where that is not known so."""
    dtype, device = computing_dtype(query.dtype), query.device
    name = "bias", dtype, device
    if encoding is not None:
        if not isinstance(encoding, OffsetBias) or encoding.axes > 1:
            return None

        def by_encoding() -> Tensor:
            told = mask.arguments(every_query=True, by_row=True)
            both = (told[each].to(device) for each in ("positions", "key_positions"))
            return mask.added_to(encoding(*both, dtype=dtype))

        return mask.shared(name, encoding if source is None else source, by_encoding)
    if row is None:  # what hides is of the mask alone, which would live on if it held itself
        return mask.shared(name, None, lambda: mask.added_to(query.new_zeros(1, 1, 1, mask.keys, dtype=dtype)))
    if row.shape[-2] != 1:  # a bias of pairs, which each layer has its own of
        return mask.added_to(row.to(dtype)) if row.shape[-2] == mask.queries else None
    return mask.shared(name, row if source is None else source, lambda: mask.added_to(row.to(dtype)))


@without_autocast
def _of_one_query(
    query: Tensor, key: Tensor, value: Tensor, added: Tensor | None, scale: float | None, *, rounded: bool
) -> Tensor:
    """Attend by products of matrices: torch's kernel for the processor repeats keys that heads share, and takes several
    times as long for one query in half precision."""
    (batch, heads, _, width), (kv_heads, keys) = query.shape, key.shape[1:3]
    of_heads = query.reshape(batch * kv_heads, heads // kv_heads, width)
    scores = _products(of_heads, key.flatten(0, 1), rounded=rounded)
    scores.mul_(_scale(query, scale))
    if added is not None:
        # (batch or 1, heads or 1, 1, key) -> (batch, heads, key), as scores lie
        scores = (scores.view(batch, heads, keys) + added.squeeze(2)).view(scores.shape)
    return (scores.softmax(-1).to(value.dtype) @ value.flatten(0, 1)).view(batch, heads, 1, value.shape[3])


def _products(
    query: Float[Tensor, "rows group head_dim"], key: Float[Tensor, "rows key head_dim"], *, rounded: bool
) -> Float[Tensor, "rows group key"]:
    """Products of queries and keys, in float32 or wider."""
    wide = computing_dtype(query.dtype)
    if query.dtype == wide:
        return query @ key.transpose(1, 2)
    if rounded:  # with keys that lie apart, as in a cache with room to grow, torch takes ten times as long
        return (query @ key.contiguous().transpose(1, 2)).to(wide)
    size = max(1, CONVERTED // max(1, key.shape[1] * key.shape[2]))
    parts = zip(torch.split(query, size), torch.split(key, size), strict=True)
    return torch.cat([one.to(wide) @ other.to(wide).transpose(1, 2) for one, other in parts])
