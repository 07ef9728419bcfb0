"""Contextual positions: counting the keys that a query takes for steps.

    p_ij = sum of g_il over the visible keys l at or after j,    g_il in 0 .. 1

A count is a real number, so a table of positions is read between its rows.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def gate_counts(
    gates: Float[Tensor, "batch heads query key"], key_slots: Int[Tensor, "#batch key"] | None = None
) -> Float[Tensor, "batch heads query key"]:
    """Sum the gates from each key to the last; ``key_slots`` tells the keys' order where it is not that of memory."""
    if key_slots is None:
        return gates.flip(-1).cumsum(-1).flip(-1)
    at_or_after = key_slots[:, None, :, None] >= key_slots[:, None, None, :]
    return gates @ at_or_after.to(gates.dtype)


def between_rows(
    products: Float[Tensor, "batch heads query rows"], counts: Float[Tensor, "batch heads query key"]
) -> Float[Tensor, "batch heads query key"]:
    """Interpolate products with a table's rows at real-valued rows; the last stands for all beyond."""
    counts = counts.clamp(max=products.shape[-1] - 1)
    below = counts.long()  # counts are never negative
    following = torch.cat((products[..., 1:], products[..., -1:]), -1)
    return torch.lerp(products.gather(-1, below), following.gather(-1, below), counts - below)
