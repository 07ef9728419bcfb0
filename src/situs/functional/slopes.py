"""Slopes: how steeply each head's scores fall with distance, in ALiBi.

    m_h = 2^(-B h / H),  h = 1 .. H,  B = 8          H a power of two

For other H the authors' code takes the slopes of the power of two below, then every other one of the next. That is
not the formula with H put in: for 12 heads the two differ in every head.
"""

from __future__ import annotations

import torch
from jaxtyping import Float64
from torch import Tensor


def alibi_slopes(num_heads: int, bias_max: float = 8.0) -> Float64[Tensor, "heads"]:
    """Compute the slopes of any number of heads, steepest first among the power of two below."""
    below = 1 << (num_heads.bit_length() - 1)
    slopes = _of_power_of_two(below, bias_max)
    return torch.cat((slopes, _of_power_of_two(2 * below, bias_max)[0::2][: num_heads - below]))


def _of_power_of_two(count: int, bias_max: float) -> Float64[Tensor, "heads"]:
    return 2.0 ** (-bias_max / count * torch.arange(1, count + 1, dtype=torch.float64, device="cpu"))
