"""Comparisons that checks are made of: two results must be close, or equal to the bit."""

from __future__ import annotations

import torch
from torch import Tensor


def require_close(actual: Tensor, expected: Tensor, situation: str, tolerance: float = 2e-5, *, cure: str = "") -> None:
    """Raise with the size of the difference, where it is largest, and what to change."""
    cure = f". {cure}" if cure else ""
    if actual.shape != expected.shape:
        raise AssertionError(
            f"{situation}: the shape is {tuple(actual.shape)} instead of {tuple(expected.shape)}{cure}"
        )
    actual, expected = actual.detach(), expected.detach()
    difference = (actual.double() - expected.double()).abs()
    worst = float(difference.max()) if difference.numel() else 0.0
    if not worst <= tolerance * max(1.0, float(expected.abs().max()) if expected.numel() else 1.0):
        index = tuple(
            int(index) for index in torch.unravel_index(difference.nan_to_num(torch.inf).argmax(), difference.shape)
        )
        raise AssertionError(f"{situation}: outputs differ by {worst:.3g}, most at {index}{cure}")


def require_equal(actual: Tensor, expected: Tensor, situation: str, *, cure: str = "") -> None:
    """Raise unless every bit is the same."""
    require_close(actual, expected, situation, tolerance=0.0, cure=cure)
