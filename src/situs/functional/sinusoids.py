"""Sinusoids: positions as sines and cosines of many wavelengths.

    interleaved    p[2i] = sin(n w_i),  p[2i + 1] = cos(n w_i)      Vaswani et al. 2017, section 3.5
    concatenated   all sines, then all cosines                      tensor2tensor, fairseq

For a fixed offset k, ``p(n + k) = M_k p(n)`` with M_k a rotation of each (sin, cos) pair.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from situs.functional.frequencies import sinusoidal_frequencies

SinusoidLayout = Literal["interleaved", "concatenated"]
Spacing = Literal["exclusive", "inclusive"]


def frequencies_of(dim: int, base: float, layout: SinusoidLayout, spacing: Spacing) -> Float64[Tensor, "pairs"]:
    """Compute the ladder of a table ``dim`` wide. An odd width ends on a sine when interleaved, and has a column
    of zeros at its end when concatenated, as the released code has."""
    return sinusoidal_frequencies(dim if layout == "interleaved" else dim - dim % 2, base, spacing)


def sinusoids(
    cos: Float[Tensor, "*positions pairs"], sin: Float[Tensor, "*positions pairs"], dim: int, layout: SinusoidLayout
) -> Float[Tensor, "*positions dim"]:
    """Lay out encodings from the cosines and sines of every angle."""
    if layout == "interleaved":
        return torch.stack((sin, cos), -1).flatten(-2)[..., :dim]
    joined = torch.cat((sin, cos), -1)
    return torch.nn.functional.pad(joined, (0, dim - joined.shape[-1]))


def shift_matrix(
    offset: float, frequencies: Float64[Tensor, "pairs"], dim: int, layout: SinusoidLayout
) -> Float64[Tensor, "dim dim"]:
    """Make M with ``sinusoids(n + offset) = M sinusoids(n)`` for every n."""
    cos, sin = (offset * frequencies).cos(), (offset * frequencies).sin()
    pairs = torch.arange(len(frequencies), device="cpu")
    sines, cosines = (2 * pairs, 2 * pairs + 1) if layout == "interleaved" else (pairs, pairs + len(pairs))
    matrix = torch.eye(dim, dtype=torch.float64, device="cpu")
    matrix[sines, sines] = cos
    matrix[cosines, cosines] = cos
    matrix[sines, cosines] = sin
    matrix[cosines, sines] = -sin
    return matrix
