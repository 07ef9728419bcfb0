"""Scalings: how a rotary model's frequencies are changed for a longer context, one object a method.

A scaling is frozen and stateless. ``resolve`` gives three things that others mix up: the frequencies, the
factor of cosine and sine (both queries and keys carry it) and the factor of the softmax scale. Of ``factor``,
``original_length`` and ``target_length`` any two give the third, and all three must agree; methods that do not
measure against the original length take ``factor`` alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float64
from torch import Tensor

from situs.encodings.base import require_choice, require_finite, require_number
from situs.encodings.scaling import ScaledFrequencies, Scaling
from situs.functional import scaling
from situs.functional.angles import widest
from situs.functional.frequencies import rotary_frequencies

_DIVIDES = "they divide the frequencies"


@dataclass(frozen=True, kw_only=True)
class _Stretch(Scaling):
    """The three numbers that say how far."""

    factor: float | None = None
    original_length: int | None = None
    target_length: int | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        factor, original, target = self.factor, self.original_length, self.target_length
        for label, length in (("original_length", original), ("target_length", target)):
            if length is not None and require_finite(label, length, "it counts tokens") < 1:
                raise ValueError(f"{label} must be 1 or more, since it counts tokens; got {length}.")
        if factor is None:
            if original is None or target is None:
                raise ValueError(
                    f"{name} needs factor, or original_length and target_length, since factor = target / original; "
                    f"got factor={factor}, original_length={original}, target_length={target}."
                )
            factor = target / original
        factor = require_finite("factor", factor, "a context is stretched by it")
        if original is not None and target is not None and not _agree(factor, original, target):
            raise ValueError(
                f"factor, original_length and target_length must agree, since factor = target / original; "
                f"got factor={factor}, but {target} / {original} = {target / original:g}. Leave one of them out."
            )
        if factor < 1:
            raise ValueError(f"factor must be 1 or more, since a context is stretched by it; got {factor}.")
        if original is None and target is not None:
            original = round(target / factor)
            if original < 1:
                raise ValueError(
                    f"original_length must be 1 or more, since it counts tokens; got {original}. "
                    f"It is target_length / factor, {target} / {factor}."
                )
            if not _agree(factor, original, target):
                raise ValueError(
                    f"original_length must be a whole number, since it counts tokens; got {target / factor:g}. "
                    f"It is target_length / factor, {target} / {factor}."
                )
        elif target is None and original is not None:
            target = round(original * factor)
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "original_length", original)
        object.__setattr__(self, "target_length", target)

    @property
    def _factor(self) -> float:
        assert self.factor is not None
        return self.factor

    @property
    def _original(self) -> int:
        if self.original_length is None:
            raise ValueError(
                f"original_length must be given, since {type(self).__name__} measures wavelengths against it; got None."
            )
        return self.original_length


def _agree(factor: float, original: int, target: int) -> bool:
    """Whether the target is the original length, stretched, but for a token and the digits that a factor is written
    with."""
    return abs(original * factor - target) <= max(1, 1e-6 * target)


def _require_attention_factor(factor: float | None) -> None:
    reason = "cosines and sines are multiplied by it"
    if factor is not None and require_finite("attention_factor", factor, reason) <= 0:
        raise ValueError(f"attention_factor must be more than 0, since {reason}; got {factor}.")


@final
@dataclass(frozen=True, kw_only=True)
class Linear(_Stretch):
    """Position interpolation: every frequency divided by the factor. Chen et al. 2023, arXiv:2306.15595."""

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        return ScaledFrequencies(scaling.linear(dim, base, self._factor))


@final
@dataclass(frozen=True, kw_only=True)
class NTK(_Stretch):
    """A larger base, so that fast pairs hardly change and the slowest is divided by the factor. bloc97 2023."""

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        return ScaledFrequencies(scaling.ntk(dim, base, self._factor))


@final
@dataclass(frozen=True, kw_only=True)
class DynamicNTK(_Stretch):
    """NTK with a factor that grows with the sequence beyond the original length. emozilla 2023.

    The factor is fixed for a whole sequence, by ``Positions.sequence_length``, so that keys cached early
    and queries made late agree.
    """

    by_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        length = self._original if sequence_length is None else sequence_length
        factor = scaling.dynamic_ntk_factor(self._factor, self._original, length)
        return ScaledFrequencies(scaling.ntk(dim, base, factor))


@dataclass(frozen=True, kw_only=True)
class _Parts(_Stretch):
    """Pairs that turn often are kept, those that turn seldom interpolated."""

    beta_fast: float = 32.0
    beta_slow: float = 1.0
    dialect: Literal["hf", "paper"] = "hf"
    truncate: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original
        require_choice(
            "dialect", self.dialect, ("hf", "paper"), "released models ramp over pairs, the paper over turns"
        )
        for name in ("beta_slow", "beta_fast"):
            require_finite(name, getattr(self, name), "it counts turns")
        if not 0 < self.beta_slow < self.beta_fast:
            raise ValueError(
                f"beta_slow and beta_fast must satisfy 0 < slow < fast, since the ramp runs between them; "
                f"got beta_slow={self.beta_slow}, beta_fast={self.beta_fast}."
            )
        if self.dialect == "paper" and not self.truncate:
            raise ValueError(
                f"truncate must be left out with dialect='paper', since the paper's ramp runs over turns and rounds no "
                f"bounds to whole pairs; got truncate={self.truncate}."
            )

    def _frequencies(self, dim: int, base: float | Tensor) -> Float64[Tensor, "*heads pairs"]:
        if self.dialect == "paper":
            ramp = scaling.ramp_over_turns(dim, base, self._original, self.beta_slow, self.beta_fast)
        else:
            bases = base.reshape(-1).tolist() if isinstance(base, Tensor) else [base]
            ramps = [
                scaling.ramp_over_pairs(dim, each, self._original, self.beta_slow, self.beta_fast, self.truncate)
                for each in bases
            ]
            ramp = torch.stack(ramps) if isinstance(base, Tensor) and base.ndim else ramps[0]
        return scaling.by_parts(dim, base, self._factor, ramp)


@final
@dataclass(frozen=True, kw_only=True)
class NTKByParts(_Parts):
    """YaRN's frequencies without its temperature. Peng et al. 2023, arXiv:2309.00071, section 3.2."""

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        return ScaledFrequencies(self._frequencies(dim, base))


@final
@dataclass(frozen=True, kw_only=True)
class YaRN(_Parts):
    """NTK by parts, and a temperature on the scores. Peng et al. 2023, arXiv:2309.00071.

    ``attention_factor`` is used as given, even 1.0; left out, it is ``0.1 ln(factor) + 1``. With both
    ``mscale`` and ``mscale_all_dim`` it is their ratio, and ``mscale_all_dim`` goes, squared, to the softmax,
    as DeepSeek's models have it. ``mscale`` without ``mscale_all_dim``, or beside ``attention_factor``, changes
    nothing, as in transformers; ``describe()`` then lists it as unused.
    """

    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_attention_factor(self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                require_finite(name, getattr(self, name), "it weighs a logarithm")

    @property
    def unused(self) -> tuple[str, ...]:
        """``mscale``, where no ratio is formed of it."""
        used = self.attention_factor is None and bool(self.mscale_all_dim)
        return () if self.mscale is None or used else ("mscale",)

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        softmax_factor = scaling.yarn_magnitude(self._factor, self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0
        return ScaledFrequencies(self._frequencies(dim, base), self._rotation_factor(), softmax_factor)

    def _rotation_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            all_dim = scaling.yarn_magnitude(self._factor, self.mscale_all_dim)
            return scaling.yarn_magnitude(self._factor, self.mscale) / all_dim
        return scaling.yarn_magnitude(self._factor)


@final
@dataclass(frozen=True, kw_only=True)
class LongRoPE(_Stretch):
    """Searched factors, one a pair: one list within the original length, one beyond.

    Ding et al. 2024, arXiv:2402.13753; Phi-3. The list is chosen for a whole sequence, by
    ``Positions.sequence_length``, so that a cache never mixes the two.
    """

    by_length: ClassVar[bool] = True

    short_factors: Sequence[float | int] = ()
    long_factors: Sequence[float | int] = ()
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original
        if self._original < 2:
            raise ValueError(
                f"original_length must be 2 or more, since LongRoPE divides by its logarithm; got {self._original}."
            )
        _require_attention_factor(self.attention_factor)
        for name in ("short_factors", "long_factors"):
            factors = tuple(float(require_number(name, each, _DIVIDES)) for each in getattr(self, name))
            if not all(0 < each < math.inf for each in factors):
                raise ValueError(f"{name} must be positive and finite, since {_DIVIDES}; got {factors}.")
            object.__setattr__(self, name, factors)
        if not self.short_factors or len(self.short_factors) != len(self.long_factors):
            raise ValueError(
                f"short_factors and long_factors must have one number a pair each, since {_DIVIDES}; "
                f"got {len(self.short_factors)} and {len(self.long_factors)}."
            )

    def is_long(self, sequence_length: int) -> bool:
        """Whether a sequence of this length takes the long factors."""
        return sequence_length > self._original

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        plain = rotary_frequencies(dim, base)
        if len(self.short_factors) != plain.shape[-1]:
            raise ValueError(
                f"short_factors must have {plain.shape[-1]} numbers, one for each pair of {dim} channels; "
                f"got {len(self.short_factors)}."
            )
        short, long = (
            plain / torch.tensor(factors, dtype=torch.float64, device="cpu")
            for factors in (self.short_factors, self.long_factors)
        )
        if isinstance(sequence_length, Tensor):
            device, dtype = sequence_length.device, widest(sequence_length.device)
            beyond = (sequence_length > self._original).unsqueeze(-1)
            frequencies = torch.where(beyond, long.to(device, dtype), short.to(device, dtype))
        else:
            frequencies = long if sequence_length is not None and self.is_long(sequence_length) else short
        factor = self.attention_factor
        return ScaledFrequencies(
            frequencies,
            scaling.longrope_magnitude(self._factor, self._original) if factor is None else factor,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Llama3(_Stretch):
    """Wavelengths past ``original_length / low_frequency_factor`` divided by the factor, those below
    ``original_length / high_frequency_factor`` kept, blended between. Llama team 2024, arXiv:2407.21783."""

    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original
        for name in ("low_frequency_factor", "high_frequency_factor"):
            require_finite(name, getattr(self, name), "it divides the original length")
        if not 0 < self.low_frequency_factor < self.high_frequency_factor:
            raise ValueError(
                f"the frequency factors must satisfy 0 < low < high, since the blend runs between them; "
                f"got low={self.low_frequency_factor}, high={self.high_frequency_factor}."
            )

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        low, high = self.low_frequency_factor, self.high_frequency_factor
        ramp = scaling.ramp_over_turns(dim, base, self._original, low, high)
        return ScaledFrequencies(scaling.by_parts(dim, base, self._factor, ramp))


@final
@dataclass(frozen=True, kw_only=True)
class Proportional(Scaling):
    """Only a fraction of the pairs turn, with the frequencies they have in the whole head.

    Not the same as ``rotary_dim``, which lays the whole ladder over the fraction and pairs channels within it.
    """

    fraction: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise ValueError(f"fraction must lie in 0 .. 1, since it is a part of the pairs; got {self.fraction}.")
        if require_finite("factor", self.factor, "a context is stretched by it") < 1:
            raise ValueError(f"factor must be 1 or more, since a context is stretched by it; got {self.factor}.")

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        return ScaledFrequencies(scaling.proportional(dim, base, self.fraction) / self.factor)
