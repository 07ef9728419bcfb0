"""Points on the unit circle: the one way from positions and frequencies to cosines and sines."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from situs.functional.angles import RANGE_SPLIT_LENGTH, range_unit_circle, unit_circle, widest
from situs.positions import Positions


def points(
    positions: Positions,
    coordinates: Callable[[Positions], Tensor],
    frequencies: Float[Tensor, "*rows_or_1 sequence_or_1 pairs"],
    dtype: torch.dtype,
) -> tuple[Float[Tensor, "*rows sequence pairs"], Float[Tensor, "*rows sequence pairs"]]:
    """Compute cosine and sine of every coordinate times its frequency; ``coordinates`` shapes those of ``positions`` to
    broadcast. A range whose pairs all share is never written out: one position is a product with a number, and many
    are split, which is ten times faster than the cosines of each and as exact."""
    if torch.compiler.is_compiling():  # asked first, lest a graph be bound to one side of the lengths below
        return unit_circle(coordinates(positions), frequencies, dtype)
    start, length, device = positions.start, positions.length, positions.device
    if (
        start is not None
        and frequencies.shape[-2] == 1
        and frequencies.shape[0] == 1
        and widest(device) == torch.float64
    ):
        if length == 1:
            angles = (frequencies if device.type == "cpu" else frequencies.to(device)) * start
            return angles.cos().to(dtype), angles.sin().to(dtype)
        if length >= RANGE_SPLIT_LENGTH:
            return range_unit_circle(start, length, frequencies.squeeze(-2), dtype, device)
    return unit_circle(coordinates(positions), frequencies, dtype)
