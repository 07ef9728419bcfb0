"""Queries and keys, rotated: rotary with every scaling and split, and xPos; temperatures and PoPE.

    rotary    channels (a, b) of pair i at position p become m (a cos pw - b sin pw, a sin pw + b cos pw),   w = w_i
    xPos      the same, times z_i^((p - c) / B) for queries and z_i^(-(p - c) / B) for keys

Scalings (s the factor, L the original length, l the sequence's):

    Linear          w / s                                       NTK           the ladder of base s^(d / (d - 2))
    DynamicNTK      NTK by s max(l, L) / L - (s - 1)            NTKByParts    g w + (1 - g) w / s, g a ramp
    YaRN            by parts, m = 0.1 ln s + 1                  LongRoPE      w / factor_i, m = sqrt(1 + ln s / ln L)
    Llama3          by parts, g over turns                      Proportional  w / s, 0 past a fraction of the pairs
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

import situs
from tests.fuzz.oracle_tokens import Tokens
from tests.fuzz.rounding import Reader


class Ladder(NamedTuple):
    """Radians a position for each pair, the factor of cosine and sine, and the factor of the softmax scale."""

    frequencies: list[float]
    magnitude: float = 1.0
    softmax_factor: float = 1.0


def plain(dim: int, base: float) -> list[float]:
    return [base ** (-2 * pair / dim) for pair in range(dim // 2)]


def ladder(scaling: Any, dim: int, base: float, whole: int | None) -> Ladder:
    """What a scaling makes of the plain ladder, for a sequence of ``whole`` tokens."""
    frequencies = plain(dim, base)
    if scaling is None:
        return Ladder(frequencies)
    name = type(scaling).__name__.removesuffix("Scaling")
    if name in ("SelfExtend", "ReRoPE", "DualChunk"):  # other positions, the same ladder
        return Ladder(frequencies)
    factor: float = scaling.factor
    original: Any = getattr(scaling, "original_length", None)
    if name == "Linear":
        return Ladder([w / factor for w in frequencies])
    if name == "NTK":
        return Ladder(_with_larger_base(dim, base, factor))
    if name == "DynamicNTK":
        return Ladder(_with_larger_base(dim, base, factor * max(whole or 0, original) / original - (factor - 1)))
    if name == "Llama3":
        low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
        return Ladder(_by_parts(frequencies, factor, _over_turns(frequencies, original, low, high)))
    if name == "Proportional":
        rotated = int(scaling.fraction * dim // 2)
        return Ladder([w / factor if pair < rotated else 0.0 for pair, w in enumerate(frequencies)])
    if name == "LongRoPE":
        factors = scaling.long_factors if whole is not None and whole > original else scaling.short_factors
        magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
        magnitude = magnitude if scaling.attention_factor is None else scaling.attention_factor
        if scaling.short_mscale is not None:
            magnitude = scaling.long_mscale if whole is not None and whole > original else scaling.short_mscale
        return Ladder([w / each for w, each in zip(frequencies, factors, strict=True)], magnitude)
    assert name in ("NTKByParts", "YaRN"), name
    if scaling.dialect == "paper":
        ramp = _over_turns(frequencies, original, scaling.beta_slow, scaling.beta_fast)
    else:
        ramp = _over_pairs(dim, base, original, scaling.beta_slow, scaling.beta_fast, scaling.truncate)
    frequencies = _by_parts(frequencies, factor, ramp)
    return Ladder(frequencies) if name == "NTKByParts" else Ladder(frequencies, *_temperature(scaling))


def _with_larger_base(dim: int, base: float, factor: float) -> list[float]:
    return plain(dim, base * factor ** (dim / (dim - 2))) if dim > 2 else plain(dim, base)


def _by_parts(frequencies: list[float], factor: float, ramp: list[float]) -> list[float]:
    return [share * w + (1 - share) * w / factor for w, share in zip(frequencies, ramp, strict=True)]


def _over_turns(frequencies: list[float], original: int, slow: float, fast: float) -> list[float]:
    turns = [original * w / (2 * math.pi) for w in frequencies]
    return [min(1.0, max(0.0, (each - slow) / (fast - slow))) for each in turns]


def _over_pairs(dim: int, base: float, original: int, slow: float, fast: float, truncate: bool) -> list[float]:
    first, last = (dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    last = last + 0.001 if first == last else last  # as released
    return [1 - min(1.0, max(0.0, (pair - first) / (last - first))) for pair in range(dim // 2)]


def _temperature(yarn: Any) -> tuple[float, float]:
    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(yarn.factor) + 1 if yarn.factor > 1 else 1.0

    on_softmax = yarn.mscale_all_dim and yarn.mscale_dialect == "deepseek"
    softmax_factor = magnitude(yarn.mscale_all_dim) ** 2 if on_softmax else 1.0
    if yarn.attention_factor is not None:
        return yarn.attention_factor, softmax_factor
    if yarn.mscale and yarn.mscale_all_dim:
        return magnitude(yarn.mscale) / magnitude(yarn.mscale_all_dim), softmax_factor
    return magnitude(1.0), softmax_factor


def dealt(split: Any, scaling: Any, rotary_dim: int, base: float, whole: int | None) -> tuple[Ladder, list[int]]:
    """Each pair's frequency and the axis that rotates it."""
    if split is None:
        found = ladder(scaling, rotary_dim, base, whole)
        return found, [0] * len(found.frequencies)
    if isinstance(split, situs.Axial):
        if split.ladder == "own":
            count = len(split.dims or split.bases or ()) or split.axes or 2
            dims = split.dims or (rotary_dim // count,) * count
            bases = split.bases or (base,) * count
            scalings = split.scalings or (scaling,) * count
            found, *others = [ladder(scalings[axis], dims[axis], bases[axis], whole) for axis in range(count)]
            blocks = [each.frequencies for each in (found, *others)]
        else:
            found = ladder(scaling, rotary_dim, base, whole)
            count = split.axes or 2
            blocks = [found.frequencies[axis::count] for axis in range(count)]
        axes = [axis for axis, block in enumerate(blocks) for _ in block]
        return found._replace(frequencies=[w for block in blocks for w in block]), axes
    found, count = ladder(scaling, rotary_dim, base, whole), len(split.sizes)
    if split.order == "contiguous":
        return found, [axis for axis, size in enumerate(split.sizes) for _ in range(size)]
    if split.order == "time_last":
        return found, [1 + pair % (count - 1) for pair in range(sum(split.sizes[1:]))] + [0] * split.sizes[0]
    axes = [pair % count if pair // count < split.sizes[pair % count] else 0 for pair in range(sum(split.sizes))]
    return found, axes


def softmax_factor(encoding: Any) -> float:
    """What multiplies the softmax scale that an encoding is used with, where the caller gave none."""
    if not isinstance(encoding, situs.Rotary):
        return 1.0
    base = encoding.base if isinstance(encoding.base, (int, float)) else encoding.base[0]
    return dealt(encoding.split, encoding.scaling, encoding.rotary_dim, base, None)[0].softmax_factor


def rotary(encoding: Any, x: Tensor, tokens: Tokens, *, back: bool = False) -> Tensor:
    """Shapes: x (b, h, n, d) -> the same; ``back`` rotates the other way."""
    bases = [encoding.base] if isinstance(encoding.base, (int, float)) else list(encoding.base)
    by_head = []
    for base in bases:
        lengths = tokens.whole if encoding.by_length else None
        if isinstance(lengths, Tensor):  # one length a row, or a token
            by_length = {
                each: dealt(encoding.split, encoding.scaling, encoding.rotary_dim, base, each)
                for each in set(lengths.flatten().tolist())
            }
            found = next(iter(by_length.values()))
            magnitudes = [[by_length[each][0].magnitude for each in row] for row in lengths.tolist()]
            magnitude: Any = torch.tensor(magnitudes, dtype=torch.float64)[:, None, :, None]
            w = torch.tensor(
                [[by_length[each][0].frequencies for each in row] for row in lengths.tolist()], dtype=torch.float64
            )
        else:
            found = dealt(encoding.split, encoding.scaling, encoding.rotary_dim, base, lengths)
            w, magnitude = torch.tensor(found[0].frequencies, dtype=torch.float64)[None, None], found[0].magnitude
        ids = tokens.ids.double()
        coordinates = ids[..., None] if ids.ndim == 2 else ids[..., found[1]]
        by_head.append((coordinates * w, magnitude))  # angles (rows, n, pairs)
    angles = torch.stack([angle for angle, _ in by_head], 1)
    angles = -angles if back != encoding.reverse else angles
    if encoding.split is not None and getattr(encoding.split, "halves", "head") == "axis":
        return _rotate_blocks(x, angles, by_head[0][1], encoding)
    if encoding.channels == "trailing":
        still, moving = x[..., : x.shape[-1] - encoding.rotary_dim], x[..., x.shape[-1] - encoding.rotary_dim :]
        return torch.cat((still, _rotate(moving, angles, by_head[0][1], encoding.rotary_dim, encoding.pairing)), -1)
    return _rotate(x, angles, by_head[0][1], encoding.rotary_dim, encoding.pairing)


def _rotate_blocks(x: Tensor, angles: Tensor, magnitude: float, encoding: Any) -> Tensor:
    """Each axis by itself: the halves of its channels are paired."""
    split, parts = encoding.split, []
    dims = split.dims or [encoding.rotary_dim // split.axes] * split.axes
    first = 0
    for dim in dims:
        here = angles[..., first // 2 : (first + dim) // 2]
        parts.append(_rotate(x[..., first : first + dim], here, magnitude, dim, "halves"))
        first += dim
    return torch.cat((*parts, x[..., first:]), -1)


def lerope(encoding: Any, x: Tensor, tokens: Tokens, read: Reader) -> Tensor:
    """Shapes: x (b, h, n, d) -> the same."""
    found = ladder(encoding.scaling, encoding.head_dim, encoding.base, None)
    w = torch.tensor(found.frequencies, dtype=torch.float64) * torch.exp(read(encoding.alpha))
    angles = (tokens.ids.double()[..., None] * w)[:, None]
    return _rotate(x, angles, found.magnitude, encoding.head_dim, encoding.pairing)


def rope_mixed(encoding: Any, x: Tensor, tokens: Tokens, read: Reader) -> Tensor:
    """Shapes: x (b, h, n, d) -> the same."""
    down, right = tokens.ids.double().unbind(-1)  # (rows, n)
    of_rows, of_columns = read(encoding.frequencies)  # (h, pairs)
    angles = down[:, None, :, None] * of_rows[:, None] + right[:, None, :, None] * of_columns[:, None]
    return _rotate(x, angles, 1.0, encoding.head_dim, encoding.pairing)


def temperature(encoding: Any, x: Tensor, tokens: Tokens, read: Any) -> Tensor:
    """Queries times t(i). Shapes: x (b, h, n, d) -> the same."""
    i, length, a = tokens.ids.double().clamp(min=0)[:, None, :, None], encoding.original_length, encoding.factor
    if encoding.dialect == "ssmax":
        learned: Tensor = read(encoding.s)[:, None, None] * torch.log(i + 1) + read(encoding.b)[:, None, None]
        return x * learned
    factors = {
        "llama4": lambda: 1 + a * torch.log(1 + torch.floor((i + 1) / length)),
        "ministral3": lambda: 1 + a * torch.log(1 + torch.floor(i / length)),
        "inkling": lambda: 1 + a * torch.log(torch.clamp((i + 1) / length, min=1)),
        "log_n": lambda: torch.clamp(torch.log(i + 1) / math.log(length), min=1),
        "power": lambda: (1 + (i + 1) / length) ** a,
    }
    found: Tensor = x * factors[encoding.dialect]()
    return found


def pope(encoding: Any, x: Tensor, tokens: Tokens, role: str, read: Any) -> Tensor:
    """Magnitudes and phases. Shapes: x (b, h, n, d) -> (b, h, n, 2d)."""
    dim = x.shape[-1]
    w = torch.tensor([encoding.base ** (-channel / dim) for channel in range(dim)], dtype=torch.float64)
    phase = (tokens.ids.double()[..., None] * w)[:, None]
    if role == "query" and encoding.delta is not None:
        phase = phase - read(encoding.delta)[:, None]
    size = torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
    return torch.cat((size * phase.cos(), size * phase.sin()), -1)


def xpos(encoding: Any, x: Tensor, tokens: Tokens, role: str) -> Tensor:
    """Shapes: x (b, h, n, d) -> the same."""
    dim, ids = encoding.head_dim, tokens.ids.double()
    w = torch.tensor(plain(dim, encoding.base), dtype=torch.float64)
    z = torch.tensor(
        [(2 * pair / dim + encoding.gamma) / (1 + encoding.gamma) for pair in range(dim // 2)], dtype=torch.float64
    )
    centre: Any = encoding.centre
    if centre == "origin":
        centre = 0.0
    elif centre == "middle":
        centre = torch.as_tensor(tokens.whole).add(1).div(2, rounding_mode="floor")
    exponent = (ids - centre)[:, None, :, None] / encoding.scale_base
    magnitude = z ** (exponent if role == "query" else -exponent)
    return _rotate(x, (ids[..., None] * w)[:, None], magnitude, dim, encoding.pairing)


def _rotate(x: Tensor, angles: Tensor, magnitude: float | Tensor, rotary_dim: int, pairing: str) -> Tensor:
    rotated, rest = x[..., :rotary_dim], x[..., rotary_dim:]
    half = rotary_dim // 2
    if pairing == "halves":
        a, b = rotated[..., :half], rotated[..., half:]
    else:
        a, b = rotated[..., 0::2], rotated[..., 1::2]
    first = magnitude * (a * angles.cos() - b * angles.sin())
    second = magnitude * (a * angles.sin() + b * angles.cos())
    joined = torch.cat((first, second), -1) if pairing == "halves" else torch.stack((first, second), -1).flatten(-2)
    return torch.cat((joined, rest), -1)
