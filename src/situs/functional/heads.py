"""Heads: several query heads may share one key head (grouped and multi-query attention)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def share_heads(
    tensor: Float[Tensor, "batch kv_heads sequence dim"], heads: int
) -> Float[Tensor, "batch heads sequence dim"]:
    """Repeat keys or values for the query heads that share them."""
    kv_heads = tensor.shape[1]
    if heads == kv_heads:
        return tensor
    require_shared(heads, kv_heads)
    return tensor.repeat_interleave(heads // kv_heads, 1)


def grouped(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch kv_heads key head_dim"],
    value: Float[Tensor, "batch kv_heads key value_dim"],
) -> tuple[
    Float[Tensor, "rows group query head_dim"],
    Float[Tensor, "rows group key head_dim"],
    Float[Tensor, "rows group key value_dim"],
]:
    """Give the query heads that share a key head a row of their own, so that keys are shared without a copy."""
    (batch, heads), kv_heads = query.shape[:2], key.shape[1]
    if heads == kv_heads:
        return query, key, value
    group = heads // kv_heads
    query = query.reshape(batch * kv_heads, group, *query.shape[2:])
    key, value = (each.reshape(batch * kv_heads, 1, *each.shape[2:]).expand(-1, group, -1, -1) for each in (key, value))
    return query, key, value


def require_shared(heads: int, kv_heads: int) -> None:
    """Raise unless every key head serves as many query heads."""
    if not kv_heads or heads % kv_heads:
        raise ValueError(
            f"query heads must be a multiple of key heads, since each key head serves as many; got {heads} and "
            f"{kv_heads}."
        )
