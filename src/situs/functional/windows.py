"""Windows: two-dimensional offsets inside the windows of vision transformers.

Offsets are key minus query. The released tables are written by query minus key, which ``window_rows`` minds.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float64, Int
from torch import Tensor


def window_rows(down: Int[Tensor, "..."], right: Int[Tensor, "..."], window: tuple[int, int]) -> Int[Tensor, "..."]:
    """Find the row of a table of ``(2 height - 1)(2 width - 1)`` rows that each offset takes."""
    height, width = window
    return (height - 1 - down) * (2 * width - 1) + width - 1 - right


def distance_rows(down: Int[Tensor, "..."], right: Int[Tensor, "..."], window: tuple[int, int]) -> Int[Tensor, "..."]:
    """Find the row of a table of ``height width`` rows that each offset takes by its distances alone, as in LeViT."""
    return down.abs() * window[1] + right.abs()


def window_offsets(window: tuple[int, int]) -> Int[Tensor, "rows 2"]:
    """List the offset of each row, key minus query: the inverse of ``window_rows``."""
    height, width = window
    return torch.cartesian_prod(
        torch.arange(height - 1, -height, -1, device="cpu"), torch.arange(width - 1, -width, -1, device="cpu")
    )


def log_coordinates(window: tuple[int, int], trained_window: tuple[int, int]) -> Float64[Tensor, "rows 2"]:
    """Compute what Swin v2's network sees for each row, query minus key: offsets of up to 8 windows' shares, on a
    logarithmic scale where the trained window's edge is about 1."""
    edges = torch.tensor([max(size - 1, 1) for size in trained_window], dtype=torch.float64, device="cpu")
    shares = -window_offsets(window).double() * 8 / edges
    return shares.sign() * torch.log2(shares.abs() + 1) / math.log2(8)
