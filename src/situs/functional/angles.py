"""Angles: position times frequency, exact far beyond any training length.

A float32 product is off by 0.06 rad at position one million, since float32 keeps 24 bits and the angle
spends most of them on whole turns. Here the product is formed in float64; where a device has none, the
position is cut into 12-bit digits and each digit's turns are reduced before they are added.

At position p the angle is off by at most ``|p| 2^-52`` radians (frequency and product are both rounded to float64):
2e-9 at ten million, less than float32 can tell up to 2^28, about 268 million, and 2e-4 at 10^12.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64, Num
from torch import Tensor

from situs.arguments import (
    require_axes_of,
    require_count,
    require_device,
    require_dtype,
    require_floating,
    require_real,
)

DIGIT_BITS = 12
DIGITS = 4  # positions up to 2^48
WITHOUT_FLOAT64 = frozenset({"mps"})

# Below this many rows two short tables and their product cost more than the direct cosines.
RANGE_SPLIT_LENGTH = 128


def widest(device: torch.device) -> torch.dtype:
    """The widest real dtype a device has."""
    return torch.float32 if device.type in WITHOUT_FLOAT64 else torch.float64


def unit_circle(
    positions: Num[Tensor, "..."], frequencies: Float[Tensor, "..."], dtype: torch.dtype
) -> tuple[Float[Tensor, "*positions pairs"], Float[Tensor, "*positions pairs"]]:
    """Compute ``cos`` and ``sin`` of ``positions * frequencies``, rounded once to ``dtype``; shapes broadcast."""
    _require_angles(positions, frequencies)
    require_dtype(dtype, "cosines are fractions")
    if positions.device.type in WITHOUT_FLOAT64:
        angles = reduced_angles(positions, frequencies)
    else:
        angles = positions.double() * frequencies.to(positions.device)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def range_unit_circle(
    start: int,
    length: int,
    frequencies: Float64[Tensor, "*heads pairs"],
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Float[Tensor, "*heads length pairs"], Float[Tensor, "*heads length pairs"]]:
    """Compute ``unit_circle`` of ``start, start + 1, ...`` by the addition theorem on two short tables.

    With ``p = start + block * m + r`` the point is ``exp(i w (start + block m)) exp(i w r)``: about
    ``2 sqrt(length)`` cosines instead of ``length``, each product rounded in float64.
    """
    start = require_count("start", start, "it is a position")
    length = require_count("length", length, "it counts positions", least=0)
    require_floating("frequencies", frequencies, "angles are their multiples")
    require_axes_of("frequencies", frequencies, ("pairs",), "each pair has one", more=True)
    require_dtype(dtype, "cosines are fractions")
    device = require_device(device)
    frequencies = frequencies.to(device).unsqueeze(-2)
    block = 1 << (math.isqrt(length) - 1).bit_length()
    coarse = start + block * torch.arange(-(-length // block), dtype=torch.float64, device=device)
    fine = torch.arange(block, dtype=torch.float64, device=device)
    one = torch.ones((), dtype=torch.float64, device=device)
    coarse_points = torch.polar(one, coarse.unsqueeze(-1) * frequencies)
    fine_points = torch.polar(one, fine.unsqueeze(-1) * frequencies)
    points = (coarse_points.unsqueeze(-2) * fine_points.unsqueeze(-3)).flatten(-3, -2)[..., :length, :]
    return points.real.to(dtype).contiguous(), points.imag.to(dtype).contiguous()


def reduced_angles(
    positions: Num[Tensor, "..."], frequencies: Float[Tensor, "..."]
) -> Float[Tensor, "*positions pairs"]:
    """Compute ``positions * frequencies`` less whole turns, with float32 arithmetic only.

    A position is ``sum_k digit_k 4096^k + fraction``. For every k the turns of ``4096^k`` positions are
    known on the host to 48 bits and held as two 12-bit halves and a rest, so that digit times half is
    exact in float32 and its whole turns can be dropped without loss. Frequencies that only the device knows are as
    exact as its float32 and stay there, since reading them would make the host wait.
    """
    _require_angles(positions, frequencies)
    turns_per_position = frequencies / (2 * math.pi)
    whole = positions.floor() if positions.is_floating_point() else positions
    fraction = (positions - whole).float() if positions.is_floating_point() else None
    sign = torch.where(whole < 0, -1.0, 1.0)
    rest = whole.abs().long()
    turns = torch.zeros((), device=positions.device)
    for k in range(DIGITS):
        digit = (rest % (1 << DIGIT_BITS)).float() * sign
        rest = rest >> DIGIT_BITS
        for part in _exact_parts((turns_per_position * float(1 << (DIGIT_BITS * k))) % 1.0):
            product = digit * part.to(positions.device)
            turns = turns + (product - product.round())
            turns = turns - turns.round()
    if fraction is not None:
        turns = turns + fraction * turns_per_position.float().to(positions.device)
    return (turns - turns.round()) * (2 * math.pi)


def _require_angles(positions: object, frequencies: object) -> None:
    """Raise unless positions and frequencies are real numbers."""
    require_real("positions", positions, "angles are their multiples")
    require_floating("frequencies", frequencies, "angles are their multiples")


def _exact_parts(values: Float[Tensor, "*shape"]) -> list[Float[Tensor, "*shape"]]:
    """Split ``values`` in [0, 1) into the sum of two 12-bit numbers and a float32 rest."""
    high = (values * 2**DIGIT_BITS).floor() / 2**DIGIT_BITS
    middle = ((values - high) * 4**DIGIT_BITS).floor() / 4**DIGIT_BITS
    return [high.float(), middle.float(), (values - high - middle).float()]
