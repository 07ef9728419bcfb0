"""What can be added to a method with a plus: scalings of rotary, random positions, and an axial split for images."""

from __future__ import annotations

from collections.abc import Callable

from situs.encodings.rotary import Rotary
from situs.encodings.scaling import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    NTKByPartsScaling,
    NTKScaling,
    Scaling,
    YaRN,
)

RANDOM, AXIAL = "random", "axial"

Ramp = tuple[float, float]
SCALINGS: dict[str, Callable[[float, int, Ramp], Scaling]] = {
    "linear": lambda factor, length, ramp: LinearScaling(factor=factor),
    "ntk": lambda factor, length, ramp: NTKScaling(factor=factor),
    "dynamic_ntk": lambda factor, length, ramp: DynamicNTKScaling(factor=factor, original_length=length),
    "ntk_by_parts": lambda factor, length, ramp: NTKByPartsScaling(
        factor=factor, original_length=length, beta_fast=ramp[0], beta_slow=ramp[1]
    ),
    "yarn": lambda factor, length, ramp: YaRN(
        factor=factor, original_length=length, beta_fast=ramp[0], beta_slow=ramp[1]
    ),
    "llama3": lambda factor, length, ramp: Llama3Scaling(factor=factor, original_length=length),
}
RAMPED = ("ntk_by_parts", "yarn")
PAPER: Ramp = (32.0, 1.0)
"""The turns between which YaRN's ramp lies in its paper."""
RAMPS: tuple[Ramp, ...] = ((2.0, 0.25), (4.0, 0.5), (8.0, 1.0), PAPER)
"""From how many turns within the training length on a pair has its own frequency, and below how many it is stretched.
The paper's suit thousands of tokens: at 64, the fastest pair turns ten times. Which suits is tried on held-out text
that is not scored."""


def scaled(rotary: Rotary, scaling: str | None, *, factor: float, train_length: int, ramp: Ramp = PAPER) -> Rotary:
    """Scale the frequencies of a rotary encoding to texts ``factor`` times as long as those of training; None takes a
    scaling away."""
    made = None if scaling is None else SCALINGS[scaling](factor, train_length, ramp)
    return Rotary(**{**rotary.config, "scaling": made})
