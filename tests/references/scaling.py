"""Context extension of rotary encodings: new frequencies, and two factors.

Papers   position interpolation, Chen et al., arXiv:2306.15595; NTK-by-parts and YaRN, Peng et al.,
         arXiv:2309.00071; LongRoPE, Ding et al., arXiv:2402.13753; p-RoPE, Barbero et al.,
         arXiv:2410.06205. NTK-aware and dynamic NTK: sections 3.1 and 3.3 of the YaRN paper.
         Llama 3.1: Meta's released code. mscale: DeepSeek-V2's released code.

With w_i = base^(-2i / dim), wavelength l_i = 2 pi / w_i, length ratio s = factor:

    linear     w_i / s
    NTK        base becomes base s^(dim / (dim - 2))
    by parts   (1 - g_i) w_i / s + g_i w_i,    r_i = L / l_i,
               paper: g_i = clip((r_i - beta_slow) / (beta_fast - beta_slow), 0, 1)
    YaRN       by parts, and cos and sin times 0.1 ln(s) + 1
    LongRoPE   w_i / lambda_i, and cos and sin times sqrt(1 + ln(s) / ln(L))

Every function returns (frequencies (dim/2,), rotation_factor on cos and sin, softmax_factor on the
scale of the scores). Departures, both those of transformers: by_parts in dialect "hf" ramps over the
pair index i, not over r_i; dynamic NTK weighs the paper's ratio l / L with a factor.
"""

import math

import numpy as np
from numpy.typing import NDArray

Scaling = tuple[NDArray[np.float64], float, float]


def ladder(dim: int, base: float) -> NDArray[np.float64]:
    """The unscaled w_i. Shape: (dim/2,)."""
    return np.array([base ** (-2 * i / dim) for i in range(dim // 2)], dtype=np.float64)


def linear(dim: int, base: float, factor: float) -> Scaling:
    """Position interpolation: positions, hence frequencies, divided by ``factor``."""
    return ladder(dim, base) / factor, 1.0, 1.0


def ntk(dim: int, base: float, factor: float) -> Scaling:
    """NTK-aware: the base is raised so that the slowest pair is slowed by exactly ``factor``."""
    return ladder(dim, base * factor ** (dim / (dim - 2))), 1.0, 1.0


def dynamic_ntk(dim: int, base: float, factor: float, original_length: int, sequence_length: int) -> Scaling:
    """NTK-aware with a ratio that grows with the sequence: l / L at factor 1, always 1 up to l = L."""
    length = max(sequence_length, original_length)
    ratio = factor * length / original_length - (factor - 1)
    return ladder(dim, base * ratio ** (dim / (dim - 2))), 1.0, 1.0


def by_parts(
    dim: int,
    base: float,
    factor: float,
    original_length: int,
    beta_fast: float = 32,
    beta_slow: float = 1,
    dialect: str = "hf",
    truncate: bool = True,
) -> Scaling:
    """NTK-by-parts: fast pairs keep their frequency, slow ones are interpolated, a ramp between.

    ``truncate`` widens the ramp of dialect "hf" to whole pair indices; "paper" knows no such thing.
    """
    plain = ladder(dim, base)
    if dialect == "paper":
        turns = original_length * plain / (2 * math.pi)  # r of section 3.2
        kept = np.clip((turns - beta_slow) / (beta_fast - beta_slow), 0.0, 1.0)
    elif dialect == "hf":
        # The real pair index i at which r_i = beta, from L base^(-2i / dim) = 2 pi beta.
        low, high = (
            dim * math.log(original_length / (2 * math.pi * beta)) / (2 * math.log(base))
            for beta in (beta_fast, beta_slow)
        )
        if truncate:
            low, high = math.floor(low), math.ceil(high)
        # The released code bounds by dim - 1, though the last pair is dim/2 - 1.
        low, high = max(low, 0), min(high, dim - 1)
        if low == high:
            high += 0.001
        kept = 1 - np.clip((np.arange(dim // 2) - low) / (high - low), 0.0, 1.0)
    else:
        raise ValueError(dialect)
    return (1 - kept) * plain / factor + kept * plain, 1.0, 1.0


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """0.1 mscale ln(s) + 1, and 1 where nothing is extended; DeepSeek's ``yarn_get_mscale``."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def yarn(
    dim: int,
    base: float,
    factor: float,
    original_length: int,
    beta_fast: float = 32,
    beta_slow: float = 1,
    dialect: str = "hf",
    truncate: bool = True,
    attention_factor: float | None = None,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
) -> Scaling:
    """YaRN: NTK-by-parts with a magnitude. As in transformers, the ratio needs both mscales nonzero."""
    scaled, _, _ = by_parts(dim, base, factor, original_length, beta_fast, beta_slow, dialect, truncate)
    if attention_factor is not None:
        rotation_factor = attention_factor
    elif mscale and mscale_all_dim:
        rotation_factor = magnitude(factor, mscale) / magnitude(factor, mscale_all_dim)
    else:
        rotation_factor = magnitude(factor)
    # Squared, since DeepSeek means it for the query and the key alike, unrotated channels included.
    softmax_factor = magnitude(factor, mscale_all_dim) ** 2 if mscale_all_dim else 1.0
    return scaled, rotation_factor, softmax_factor


def longrope(
    dim: int,
    base: float,
    short_factors: list[float],
    long_factors: list[float],
    original_length: int,
    target_length: int,
    sequence_length: int,
    attention_factor: float | None = None,
) -> Scaling:
    """LongRoPE: a searched divisor for each pair, the long set beyond ``original_length``."""
    divisors = long_factors if sequence_length > original_length else short_factors
    ratio = target_length / original_length
    if attention_factor is not None:
        rotation_factor = attention_factor
    elif ratio > 1:
        rotation_factor = math.sqrt(1 + math.log(ratio) / math.log(original_length))
    else:
        rotation_factor = 1.0
    return ladder(dim, base) / np.array(divisors, dtype=np.float64), rotation_factor, 1.0


def llama3(
    dim: int,
    base: float,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_length: int,
) -> Scaling:
    """Llama 3.1: wavelengths below L/high are kept, above L/low divided, between them blended."""
    scaled = []
    for frequency in ladder(dim, base):
        wavelength = 2 * math.pi / frequency
        if wavelength < original_length / high_freq_factor:
            scaled.append(frequency)
        elif wavelength > original_length / low_freq_factor:
            scaled.append(frequency / factor)
        else:
            smooth = original_length / wavelength - low_freq_factor
            smooth /= high_freq_factor - low_freq_factor
            scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
    return np.array(scaled, dtype=np.float64), 1.0, 1.0


def proportional(head_dim: int, base: float, fraction: float, factor: float = 1.0) -> Scaling:
    """p-RoPE: the first pairs keep the full head's ladder, the rest stand still (frequency 0)."""
    rotated = int(fraction * head_dim // 2)
    scaled = ladder(head_dim, base) / factor
    scaled[rotated:] = 0.0
    return scaled, 1.0, 1.0
