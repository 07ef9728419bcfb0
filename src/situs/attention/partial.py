"""Attention of some queries over some keys: the output, and the logarithm of the sum that it was divided by.

Two such parts over different keys make the whole: their outputs are weighted by their sums. On the CPU this is
torch's flash kernel, which adds a mask of any strides and so reads a bias out of a view; elsewhere it is written out.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from situs.encodings.base import computing_dtype

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def partial(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    mask: Float[Tensor, "#batch #heads #query key"] | None,
    scale: float,
    *,
    causal: bool = False,
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]]:
    """Output and log-sum-exp, both 0 for a query that sees no key. ``causal`` hides keys past the query's own index."""
    if serves_flash(query, key, value):
        mask = None if mask is None else _for_flash(mask, query, key)
        out, logsumexp = _FLASH(query, key, value, 0.0, causal, attn_mask=mask, scale=scale)
        return out, logsumexp
    wide = computing_dtype(query.dtype)
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * scale
    if mask is not None:
        scores = scores + mask
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    logsumexp = scores.logsumexp(-1)
    logsumexp = logsumexp.masked_fill(logsumexp == -math.inf, 0)  # queries that see nothing give zeros
    weights = (scores - logsumexp.unsqueeze(-1)).exp()
    return weights.to(value.dtype) @ value, logsumexp


def partial_backward(
    gradient: Float[Tensor, "batch heads query value_dim"],
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    mask: Float[Tensor, "#batch #heads #query key"] | None,
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values where flash serves; ``out`` and ``logsumexp`` are those of the whole, over
    all keys, and what is found is the share of these."""
    mask = None if mask is None else _for_flash(mask, query, key)
    dq, dk, dv = _FLASH_BACKWARD(
        gradient, query, key, value, out, logsumexp, 0.0, False, attn_mask=mask, scale=scale
    )  # fmt: skip
    return dq, dk, dv


def _for_flash(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask as the kernel takes it: it reads other shapes and dtypes as they lie."""
    return mask.to(computing_dtype(query.dtype)).expand(*query.shape[:3], key.shape[2])


def serves_flash(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether torch's CPU kernel can take these."""
    return (
        query.device.type == "cpu"
        and query.shape[-1] == value.shape[-1]
        and query.dtype == key.dtype == value.dtype
        and all(tensor.stride(-1) == 1 for tensor in (query, key, value))
    )


def merge(
    out: Float[Tensor, "batch heads query value_dim"],
    logsumexp: Float[Tensor, "batch heads query"],
    new_out: Float[Tensor, "batch heads query value_dim"],
    new_logsumexp: Float[Tensor, "batch heads query"],
) -> tuple[Float[Tensor, "batch heads query value_dim"], Float[Tensor, "batch heads query"]]:
    """The attention over both parts' keys. The first may have seen none yet, with a sum of -inf."""
    total = torch.logaddexp(logsumexp, new_logsumexp)
    old_share, new_share = (logsumexp - total).exp().unsqueeze(-1), (new_logsumexp - total).exp().unsqueeze(-1)
    return out * old_share + new_out * new_share, total
