"""Temperature: what a query is multiplied by at its position, so that long texts do not blur attention.

    llama4       1 + a log(1 + floor((i + 1) / L))      Llama 4
    ministral3   1 + a log(1 + floor(i / L))            Ministral 3, Mistral 4
    inkling      1 + a log(max((i + 1) / L, 1))         Inkling
    log_n        max(log(i + 1) / log(L), 1)            Su 2021, Qwen
    power        (1 + (i + 1) / L)^a                    beam

The first four are 1 up to the length L. Positions below 0 count as 0.
"""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Float
from torch import Tensor

Fixed = Literal["llama4", "ministral3", "inkling", "log_n", "power"]


def temperature(
    positions: Float[Tensor, "*any"], dialect: Fixed, original_length: int, factor: float | int
) -> Float[Tensor, "*any"]:
    """Compute the factor of queries at each of these positions, in their dtype."""
    i = positions.clamp(min=0)
    if dialect == "llama4":
        return 1 + factor * ((i + 1) / original_length).floor().log1p()
    if dialect == "ministral3":
        return 1 + factor * (i / original_length).floor().log1p()
    if dialect == "inkling":
        return 1 + factor * ((i + 1) / original_length).clamp(min=1).log()
    if dialect == "log_n":
        return ((i + 1).log() / math.log(original_length)).clamp(min=1)
    return (1 + (i + 1) / original_length) ** factor


def temperature_at(position: float | int, dialect: Fixed, original_length: int, factor: float | int) -> float:
    """Compute the factor of queries at one position that the host knows, as in a decode step."""
    i = max(position, 0)
    if dialect == "llama4":
        return 1.0 + factor * math.log1p((i + 1) // original_length)
    if dialect == "ministral3":
        return 1.0 + factor * math.log1p(i // original_length)
    if dialect == "inkling":
        return 1.0 + factor * math.log(max((i + 1) / original_length, 1))
    if dialect == "log_n":
        return max(math.log(i + 1) / math.log(original_length), 1.0)
    return float((1 + (i + 1) / original_length) ** factor)
