"""Sinusoids: positions as sines and cosines of many wavelengths.

    interleaved    p[2i] = sin(n w_i),  p[2i + 1] = cos(n w_i)      Vaswani et al. 2017, section 3.5
    concatenated   all sines, then all cosines                      tensor2tensor, fairseq

With ``cosines_first``, sines and cosines change places.

For a fixed offset k, ``p(n + k) = M_k p(n)`` with M_k a rotation of each (sin, cos) pair.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from situs.arguments import (
    refuse,
    require_axes_of,
    require_choice,
    require_count,
    require_flag,
    require_floating,
    require_number,
    require_same_shape,
)
from situs.functional.frequencies import Spacing, sinusoidal_frequencies

SinusoidLayout = Literal["interleaved", "concatenated"]
LAYOUTS = ("interleaved", "concatenated")


def frequencies_of(dim: int, base: float, layout: SinusoidLayout, spacing: Spacing) -> Float64[Tensor, "pairs"]:
    """Compute the ladder of a table ``dim`` wide. An odd width ends on a sine when interleaved, and has a column
    of zeros at its end when concatenated, as the released code has."""
    return sinusoidal_frequencies(dim if layout == "interleaved" else dim - dim % 2, base, spacing)


def sinusoids(
    cos: Float[Tensor, "*positions pairs"],
    sin: Float[Tensor, "*positions pairs"],
    dim: int,
    layout: SinusoidLayout,
    *,
    cosines_first: bool = False,
) -> Float[Tensor, "*positions dim"]:
    """Lay out encodings from the cosines and sines of every angle."""
    for name, given in (("cos", cos), ("sin", sin)):
        require_floating(name, given, "it is laid out as channels")
    require_axes_of("cos", cos, ("pairs",), "each pair has an angle", more=True)
    require_same_shape("sin", sin, "cos", cos, "each angle has both")
    dim = require_count("dim", dim, "it counts channels", least=1)
    _require_layout(layout, cosines_first)
    _require_pairs(dim, cos.shape[-1], layout)
    ordered = (cos, sin) if cosines_first else (sin, cos)
    if layout == "interleaved":
        return torch.stack(ordered, -1).flatten(-2)[..., :dim]
    joined = torch.cat(ordered, -1)
    return torch.nn.functional.pad(joined, (0, dim - joined.shape[-1]))


def shift_matrix(
    offset: float,
    frequencies: Float64[Tensor, "pairs"],
    dim: int,
    layout: SinusoidLayout,
    *,
    cosines_first: bool = False,
) -> Float64[Tensor, "dim dim"]:
    """Make M with ``sinusoids(n + offset) = M sinusoids(n)`` for every n."""
    offset = require_number("offset", offset, "it is a distance between positions")
    require_floating("frequencies", frequencies, "angles are their multiples")
    require_axes_of("frequencies", frequencies, ("pairs",), "each pair has one")
    dim = require_count("dim", dim, "it counts channels", least=1)
    _require_layout(layout, cosines_first)
    if 2 * len(frequencies) > dim:
        least, got = 2 * len(frequencies), f"{dim} for {len(frequencies)} frequencies"
        refuse(ValueError, "dim", f"be at least {least}", "each frequency has a sine and a cosine", got)
    cos, sin = (offset * frequencies).cos(), (offset * frequencies).sin()
    pairs = torch.arange(len(frequencies), device="cpu")
    sines, cosines = (2 * pairs, 2 * pairs + 1) if layout == "interleaved" else (pairs, pairs + len(pairs))
    if cosines_first:
        sines, cosines = cosines, sines
    matrix = torch.eye(dim, dtype=torch.float64, device="cpu")
    matrix[sines, sines] = cos
    matrix[cosines, cosines] = cos
    matrix[sines, cosines] = sin
    matrix[cosines, sines] = -sin
    return matrix


def _require_layout(layout: object, cosines_first: object) -> None:
    require_choice("layout", layout, LAYOUTS, "sines alternate with cosines or precede them")
    require_flag("cosines_first", cosines_first, "cosines precede sines or follow them")


def _require_pairs(dim: int, pairs: int, layout: SinusoidLayout) -> None:
    """Raise unless so many sines and cosines fill so many channels."""
    fits = pairs == (dim + 1) // 2 if layout == "interleaved" else pairs == dim // 2
    if not fits:
        got = f"dim={dim} for {pairs} pairs"
        refuse(ValueError, "dim", f"be {2 * pairs}, or one off", "each pair fills two channels", got)
