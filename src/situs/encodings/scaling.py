"""Scalings: how a trained rotary model's frequencies are changed for a longer context, one object a method.

A scaling is frozen and stateless. ``resolve`` gives three things that others mix up: the frequencies, the
factor of cosine and sine (both queries and keys carry it) and the factor of the softmax scale. Of ``factor``,
``original_length`` and ``target_length`` any two give the third, and all three must agree; methods that do not
measure against the original length take ``factor`` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, final

import torch
from jaxtyping import Float64
from torch import Tensor

from situs.arguments import (
    require_choice,
    require_count,
    require_flag,
    require_number,
    require_several,
    require_whole_numbers,
)
from situs.functional import scaling as formulas
from situs.functional.angles import widest
from situs.functional.frequencies import require_frequencies, rotary_frequencies

_DIVIDES = "they divide the frequencies"


class ScaledFrequencies(NamedTuple):
    """Hold what a scaling resolves to."""

    frequencies: Float64[Tensor, "*rows pairs"]
    rotation_factor: float = 1.0
    softmax_factor: float = 1.0


class Scaling(ABC):
    """Stretch the context of a trained rotary model."""

    by_length: ClassVar[bool] = False
    """Whether the frequencies depend on how long the sequence is."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Options that were given and that nothing follows from, as in the released code."""
        return ()

    @abstractmethod
    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        """Compute the frequencies of ``dim / 2`` pairs; a tensor of bases gives one ladder a head, a tensor of lengths
        (only for methods that choose by length) one a row."""


@dataclass(frozen=True, kw_only=True)
class _Stretch(Scaling):
    """Stretch by a factor, or from one length to another."""

    factor: float | None = None
    original_length: int | None = None
    target_length: int | None = None

    def __post_init__(self) -> None:
        factor, original, target = self.factor, self.original_length, self.target_length
        if original is not None:
            original = require_count("original_length", original, "it counts tokens", least=1)
        if target is not None:
            target = require_count("target_length", target, "it counts tokens", least=1)
        if factor is None:
            if original is None or target is None:
                raise ValueError(
                    f"factor must be given, or original_length and target_length, since factor = target / original; "
                    f"got factor={factor}, original_length={original}, target_length={target}."
                )
            factor = target / original
        factor = require_number("factor", factor, "a context is stretched by it")
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


def _require_ladder(dim: object, base: object, sequence_length: object) -> None:
    """Raise unless a scaling can be resolved for these."""
    require_frequencies(dim, base)
    if isinstance(sequence_length, Tensor):
        require_whole_numbers("sequence_length", sequence_length, "it counts tokens")
    elif sequence_length is not None:
        require_count("sequence_length", sequence_length, "it counts tokens", least=0)


def _require_attention_factor(factor: float | None) -> None:
    if factor is not None:
        require_number("attention_factor", factor, "cosines and sines are multiplied by it", above=0)


@final
@dataclass(frozen=True, kw_only=True)
class LinearScaling(_Stretch):
    """Interpolate positions: divide every frequency by the factor. Chen et al. 2023, arXiv:2306.15595."""

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(formulas.linear(dim, base, self._factor))


@final
@dataclass(frozen=True, kw_only=True)
class NTKScaling(_Stretch):
    """Enlarge the base, so that fast pairs hardly change and the slowest is divided by the factor. bloc97 2023."""

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(formulas.ntk(dim, base, self._factor))


@final
@dataclass(frozen=True, kw_only=True)
class DynamicNTKScaling(_Stretch):
    """Enlarge the base by a factor that grows with the sequence beyond the original length. emozilla 2023.

    The factor is fixed for a whole sequence, by ``Positions.sequence_length``, so that keys cached early
    and queries made late agree.
    """

    by_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
        length = self._original if sequence_length is None else sequence_length
        factor = formulas.dynamic_ntk_factor(self._factor, self._original, length)
        return ScaledFrequencies(formulas.ntk(dim, base, factor))


@dataclass(frozen=True, kw_only=True)
class _Parts(_Stretch):
    """Leave pairs that turn often, interpolate those that turn seldom."""

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
        require_flag("truncate", self.truncate, "the ramp's ends are rounded to whole pairs or not")
        for name in ("beta_slow", "beta_fast"):
            require_number(name, getattr(self, name), "it counts turns")
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
            ramp = formulas.ramp_over_turns(dim, base, self._original, self.beta_slow, self.beta_fast)
        else:
            bases = base.reshape(-1).tolist() if isinstance(base, Tensor) else [base]
            ramps = [
                formulas.ramp_over_pairs(dim, each, self._original, self.beta_slow, self.beta_fast, self.truncate)
                for each in bases
            ]
            ramp = torch.stack(ramps) if isinstance(base, Tensor) and base.ndim else ramps[0]
        return formulas.by_parts(dim, base, self._factor, ramp)


@final
@dataclass(frozen=True, kw_only=True)
class NTKByPartsScaling(_Parts):
    """Take YaRN's frequencies without its temperature. Peng et al. 2023, arXiv:2309.00071, section 3.2."""

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(self._frequencies(dim, base))


@final
@dataclass(frozen=True, kw_only=True)
class YaRN(_Parts):
    """Interpolate by parts (NTK by parts), with a temperature on the scores. Peng et al. 2023, arXiv:2309.00071.

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
                require_number(name, getattr(self, name), "it weighs a logarithm")

    @property
    def unused(self) -> tuple[str, ...]:
        """``mscale``, where no ratio is formed of it."""
        used = self.attention_factor is None and bool(self.mscale_all_dim)
        return () if self.mscale is None or used else ("mscale",)

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
        softmax_factor = formulas.yarn_magnitude(self._factor, self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0
        return ScaledFrequencies(self._frequencies(dim, base), self._rotation_factor(), softmax_factor)

    def _rotation_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.mscale and self.mscale_all_dim:
            all_dim = formulas.yarn_magnitude(self._factor, self.mscale_all_dim)
            return formulas.yarn_magnitude(self._factor, self.mscale) / all_dim
        return formulas.yarn_magnitude(self._factor)


@final
@dataclass(frozen=True, kw_only=True)
class LongRoPE(_Stretch):
    """Divide by searched factors, one a pair: one list within the original length, one beyond.

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
            given = require_several(name, getattr(self, name), _DIVIDES)
            factors = tuple(float(require_number(name, each, _DIVIDES, above=0)) for each in given)
            object.__setattr__(self, name, factors)
        if not self.short_factors or len(self.short_factors) != len(self.long_factors):
            raise ValueError(
                f"short_factors and long_factors must have one number a pair each, since {_DIVIDES}; "
                f"got {len(self.short_factors)} and {len(self.long_factors)}."
            )

    def is_long(self, sequence_length: int) -> bool:
        """Whether a sequence of this length takes the long factors."""
        if type(sequence_length) is not int or sequence_length < 0:
            require_count("sequence_length", sequence_length, "it counts tokens", least=0)
        return sequence_length > self._original

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
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
            formulas.longrope_magnitude(self._factor, self._original) if factor is None else factor,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Llama3Scaling(_Stretch):
    """Divide wavelengths past ``original_length / low_frequency_factor`` by the factor, leave those below
    ``original_length / high_frequency_factor``, blend between. Llama team 2024, arXiv:2407.21783."""

    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original
        for name in ("low_frequency_factor", "high_frequency_factor"):
            require_number(name, getattr(self, name), "it divides the original length")
        if not 0 < self.low_frequency_factor < self.high_frequency_factor:
            raise ValueError(
                f"low_frequency_factor and high_frequency_factor must satisfy 0 < low < high, since the blend runs "
                f"between them; got low={self.low_frequency_factor}, high={self.high_frequency_factor}."
            )

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        ramp = formulas.ramp_over_turns(dim, base, self._original, low, high)
        return ScaledFrequencies(formulas.by_parts(dim, base, self._factor, ramp))


@final
@dataclass(frozen=True, kw_only=True)
class ProportionalScaling(Scaling):
    """Rotate only a fraction of the pairs, with the frequencies they have in the whole head.

    Not the same as ``rotary_dim``, which lays the whole ladder over the fraction and pairs channels within it.
    """

    fraction: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        require_number("fraction", self.fraction, "it is a part of the pairs", least=0, most=1)
        require_number("factor", self.factor, "a context is stretched by it", least=1)

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        _require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(formulas.proportional(dim, base, self.fraction) / self.factor)
