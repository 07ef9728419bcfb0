"""Heads: several query heads may share one key head (grouped and multi-query attention)."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def share_heads(
    tensor: Float[Tensor, "batch kv_heads sequence dim"], heads: int
) -> Float[Tensor, "batch heads sequence dim"]:
    """Repeat keys or values for the query heads that share them."""
    kv_heads = tensor.shape[1]
    require_shared(heads, kv_heads)
    return tensor if heads == kv_heads else tensor.repeat_interleave(heads // kv_heads, 1)


def require_shared(heads: int, kv_heads: int) -> None:
    """Raise unless every key head serves as many query heads."""
    if heads % kv_heads:
        raise ValueError(
            f"query heads must be a multiple of key heads, since each key head serves as many; got {heads} and "
            f"{kv_heads}."
        )
