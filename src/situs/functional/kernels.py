"""Kernels: biases computed from a distance, as functions that fall or sway with it.

Each takes numbers that broadcast and acts on every one alone, so that the same formula serves a matrix, a vector of
offsets and a single score inside FlexAttention. Distances are |key - query|.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Num
from torch import Tensor

from situs.functional.angles import widest


def kerple_log(
    distance: Num[Tensor, "..."], r1: Float[Tensor, "..."], r2: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Compute ``-r1 log(1 + r2 d)``, which falls ever more slowly."""
    return -r1 * torch.log1p(r2 * distance)


def kerple_power(
    distance: Num[Tensor, "..."], r1: Float[Tensor, "..."], r2: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """Compute ``-r1 d^r2``. At distance 0 it is 0, and so are its derivatives, which a power alone would leave
    undefined."""
    apart = distance != 0
    base = torch.where(apart, distance, 1).to(r1.dtype)
    return torch.where(apart, -r1 * base**r2, 0)


def sum_of_cosines(distance: Num[Tensor, "..."], frequencies: Sequence[float]) -> Float[Tensor, "..."]:
    """Sum ``cos(d w_k)`` over k: the product of two sinusoidal encodings that far apart. One term after the other,
    since all at once would need as many times the memory."""
    wide = distance.to(widest(distance.device))
    total = torch.zeros_like(wide)
    for frequency in frequencies:
        total = total + torch.cos(wide * frequency)
    return total


def log_distance(distance: Num[Tensor, "..."], rate: Float[Tensor, ""]) -> Float[Tensor, "..."]:
    """Compute ``log(1 + |c| d)``: FIRE's transform, which spreads near distances and draws far ones together."""
    return torch.log1p(rate.abs() * distance)


def signed_log(lag: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Compute ``sign(d) log(1 + |d|)``, which draws far distances together and tells both directions apart."""
    return torch.sign(lag) * torch.log1p(lag.abs())


def sum_of_hinges(
    x: Float[Tensor, "batch *positions"],
    slope: Float[Tensor, "width"],
    start: Float[Tensor, "width"],
    weight: Float[Tensor, "heads width"],
) -> Float[Tensor, "batch heads *positions"]:
    """Sum ``weight[h, u] relu(slope[u] x + start[u])`` over u: FIRE's network of one hidden layer, as it is written."""
    return (torch.relu(x.unsqueeze(-1) * slope + start) @ weight.T).movedim(-1, 1)
