"""Scaling: how the frequencies of a trained model change when its context grows.

Each function takes the plain ladder's ``dim`` and ``base`` and returns scaled frequencies in float64.

    linear        w_i / s                                                  Chen et al. 2023, arXiv:2306.15595
    ntk           (base s^(d/(d-2)))^(-2i/d)                               bloc97 2023
    by parts      (1 - g_i) w_i / s + g_i w_i,  g_i a ramp over turns      Peng et al. 2024, arXiv:2309.00071
    longrope      w_i / factor_i                                           Ding et al. 2024, arXiv:2402.13753
    llama3        by parts, the ramp in turns between two bounds           Llama team 2024, arXiv:2407.21783
    proportional  w_i over the whole head, 0 past a fraction of the pairs  Gemma team
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from situs.functional.angles import widest
from situs.functional.frequencies import rotary_frequencies


def linear(dim: int, base: float | Tensor, factor: float) -> Float64[Tensor, "*heads pairs"]:
    """Divide every frequency by ``factor``."""
    return rotary_frequencies(dim, base) / factor


def ntk(dim: int, base: float | Tensor, factor: float | Tensor) -> Float[Tensor, "*rows pairs"]:
    """Enlarge the base: the fastest pair stays as it is, the slowest is divided by ``factor``.

    ``factor`` may be a tensor, one value a row; its shape then leads the result's, and its device has to do without
    float64 if it has none.
    """
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / max(dim - 2, 1)
    plain = rotary_frequencies(dim, base)
    if not isinstance(factor, Tensor):
        return plain * factor**-exponents
    device, dtype = factor.device, widest(factor.device)
    return plain.to(device, dtype) * factor.to(dtype).unsqueeze(-1) ** -exponents.to(device, dtype)


def dynamic_ntk_factor(
    factor: float, original_length: int, sequence_length: int | Tensor
) -> float | Float[Tensor, "*rows"]:
    """Compute the ntk factor for a sequence: ``s L / L0 - (s - 1)`` beyond the original length L0, 1 within."""
    if isinstance(sequence_length, Tensor):
        lengths = sequence_length.to(widest(sequence_length.device))
        return factor * lengths.clamp(min=original_length) / original_length - (factor - 1)
    return factor * max(sequence_length, original_length) / original_length - (factor - 1)


def by_parts(
    dim: int,
    base: float | Tensor,
    factor: float,
    ramp: Float64[Tensor, "*heads pairs"],
) -> Float64[Tensor, "*heads pairs"]:
    """Leave frequencies where ``ramp`` is 1, divide them by ``factor`` where it is 0, blend between."""
    plain = rotary_frequencies(dim, base)
    return ramp * plain + (1 - ramp) * plain / factor


def ramp_over_turns(
    dim: int, base: float | Tensor, original_length: int, slow: float, fast: float
) -> Float64[Tensor, "*heads pairs"]:
    """Ramp linearly over the turns a pair makes within the original length: 0 below ``slow``, 1 above ``fast``.

    The YaRN paper's ramp (eq. 18), and Llama 3's with its own two bounds; a step where both bounds are one, as in
    Llama 4 Scout.
    """
    turns = original_length * rotary_frequencies(dim, base) / (2 * math.pi)
    if slow == fast:
        return (turns >= slow).to(turns.dtype)
    return ((turns - slow) / (fast - slow)).clamp(0.0, 1.0)


def ramp_over_pairs(
    dim: int, base: float, original_length: int, slow: float, fast: float, truncate: bool
) -> Float64[Tensor, "pairs"]:
    """Ramp linearly over the pair's index between those that turn ``fast`` and ``slow`` times.

    What the released YaRN models were trained with, not what the paper writes.
    """

    def pair_that_turns(times: float) -> float:
        return dim * math.log(original_length / (times * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair_that_turns(fast), pair_that_turns(slow)
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    if first == last:
        last += 0.001  # as released: a step instead of a division by zero
    pairs = torch.arange(dim // 2, dtype=torch.float64, device="cpu")
    return 1 - ((pairs - first) / (last - first)).clamp(0.0, 1.0)


def proportional(dim: int, base: float | Tensor, fraction: float) -> Float64[Tensor, "*heads pairs"]:
    """Compute the ladder of the whole head, with the pairs beyond ``fraction`` of it standing still."""
    frequencies = rotary_frequencies(dim, base)
    rotated = torch.arange(dim // 2, device="cpu") < int(fraction * dim // 2)
    return torch.where(rotated, frequencies, 0.0)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """Compute YaRN's ``0.1 weight ln(s) + 1`` (eq. 22), 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def longrope_magnitude(factor: float, original_length: int) -> float:
    """Compute LongRoPE's ``sqrt(1 + ln(s) / ln(L0))``, 1 where nothing is stretched."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original_length))
