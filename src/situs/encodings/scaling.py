"""Scalings: how a trained rotary model's frequencies are changed for a longer context, one class per method.

A scaling is frozen and stateless. ``resolve`` gives three things that are easily confused: the frequencies, the factor
of cosine and sine (applied to both queries and keys) and the factor of the softmax scale. Of ``factor``,
``original_length`` and ``target_length`` any two give the third, and all three must agree; methods that do not measure
against the original length take ``factor`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from jaxtyping import Float64
from torch import Tensor

from situs.arguments import (
    require_choice,
    require_count,
    require_flag,
    require_number,
    require_several,
)
from situs.encodings.stretch import ScaledFrequencies, Scaling, Stretch, require_ladder
from situs.functional import scaling as formulas
from situs.functional.angles import widest
from situs.functional.frequencies import rotary_frequencies

__all__ = [
    "DynamicNTKScaling", "LinearScaling", "Llama3Scaling", "LongRoPE", "NTKByPartsScaling", "NTKScaling",
    "ProportionalScaling", "ScaledFrequencies", "Scaling", "YaRN",
]  # fmt: skip

_DIVIDES = "they divide the frequencies"


def _require_attention_factor(factor: float | None) -> None:
    if factor is not None:
        require_number("attention_factor", factor, "cosines and sines are multiplied by it", above=0)


@final
@dataclass(frozen=True, kw_only=True)
class LinearScaling(Stretch):
    """Interpolate positions: divide every frequency by the factor. Chen et al. 2023, arXiv:2306.15595."""

    scaling_name: ClassVar[str] = "linear"
    paper: ClassVar[str] = (
        "Chen et al. 2023, Extending Context Window of Large Language Models via Positional "
        "Interpolation, arXiv:2306.15595"
    )
    formula: ClassVar[str] = "w_i / s"

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(formulas.linear(dim, base, self._factor))


@final
@dataclass(frozen=True, kw_only=True)
class NTKScaling(Stretch):
    """Enlarge the base, so that fast pairs hardly change and the slowest is divided by the factor. bloc97 2023.

    Hunyuan's ``alpha`` is this factor: its base is ``base alpha^(d/(d-2))`` at every length, though its files say
    "dynamic".
    """

    scaling_name: ClassVar[str] = "ntk"
    paper: ClassVar[str] = "bloc97 2023, NTK-Aware Scaled RoPE (a post, no paper)"
    formula: ClassVar[str] = "(base s^(d/(d-2)))^(-2i/d)"

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(formulas.ntk(dim, base, self._factor))


@final
@dataclass(frozen=True, kw_only=True)
class DynamicNTKScaling(Stretch):
    """Enlarge the base by a factor that grows with the sequence beyond the original length. emozilla 2023.

    The factor is fixed for a whole sequence, by ``Positions.sequence_length``, so that keys cached early
    and queries made late agree.
    """

    scaling_name: ClassVar[str] = "dynamic_ntk"
    paper: ClassVar[str] = "emozilla 2023, Dynamically Scaled RoPE (a post, no paper)"
    formula: ClassVar[str] = "ntk with the factor s L / L0 - (s - 1) where L > L0, plain where not"

    by_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        length = self._original if sequence_length is None else sequence_length
        factor = formulas.dynamic_ntk_factor(self._factor, self._original, length)
        return ScaledFrequencies(formulas.ntk(dim, base, factor))


@dataclass(frozen=True, kw_only=True)
class _Parts(Stretch):
    """Keep the frequencies of pairs that make many turns, interpolate those of pairs that make few."""

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
    """Take YaRN's frequencies without its temperature. Peng et al. 2024, arXiv:2309.00071, section 3.2."""

    scaling_name: ClassVar[str] = "ntk_by_parts"
    paper: ClassVar[str] = (
        "Peng et al. 2024, YaRN: Efficient Context Window Extension of Large Language Models, "
        "arXiv:2309.00071, section 3.2"
    )
    formula: ClassVar[str] = "(1 - g_i) w_i / s + g_i w_i; g_i rises from 0 to 1 with the turns of the pair within L0"

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(self._frequencies(dim, base))


@final
@dataclass(frozen=True, kw_only=True)
class YaRN(_Parts):
    """Interpolate by parts (NTK by parts), with a temperature on the scores. Peng et al. 2024, arXiv:2309.00071.

    ``attention_factor`` is used as given, even 1.0; left out, it is ``0.1 ln(factor) + 1``. With both ``mscale`` and
    ``mscale_all_dim`` it is their ratio. What else ``mscale_all_dim`` does is told by ``mscale_dialect``: "deepseek"
    (DeepSeek, Kimi, GLM, Mistral 4 and others with MLA) multiplies the softmax scale by it, squared; "ministral3"
    (Ministral 3, and all models of transformers without MLA) does not. ``mscale`` without ``mscale_all_dim``, or beside
    ``attention_factor``, changes nothing, as in transformers; ``describe()`` then lists it as unused.
    """

    scaling_name: ClassVar[str] = "yarn"
    paper: ClassVar[str] = (
        "Peng et al. 2024, YaRN: Efficient Context Window Extension of Large Language Models, arXiv:2309.00071"
    )
    formula: ClassVar[str] = "ntk_by_parts, and cosines and sines times 0.1 ln(s) + 1"

    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    mscale_dialect: Literal["deepseek", "ministral3"] = "deepseek"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_attention_factor(self.attention_factor)
        for name in ("mscale", "mscale_all_dim"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), "it weighs a logarithm")
        require_choice(
            "mscale_dialect", self.mscale_dialect, ("deepseek", "ministral3"),
            "released models multiply the softmax scale by mscale_all_dim or not",
        )  # fmt: skip

    @property
    def unused(self) -> tuple[str, ...]:
        """``mscale``, where no ratio is formed of it, and ``mscale_all_dim`` where the softmax has no part in it
        either."""
        used = self.attention_factor is None and bool(self.mscale_all_dim)
        unused = () if self.mscale is None or used else ("mscale",)
        all_dim = self.mscale_dialect == "ministral3" and not (self.mscale and self.attention_factor is None)
        return unused if self.mscale_all_dim is None or not all_dim else (*unused, "mscale_all_dim")

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        on_softmax = self.mscale_all_dim if self.mscale_dialect == "deepseek" else None
        softmax_factor = formulas.yarn_magnitude(self._factor, on_softmax) ** 2 if on_softmax else 1.0
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
class LongRoPE(Stretch):
    """Divide by searched factors, one per pair: one list within the original length, one beyond.

    Ding et al. 2024, arXiv:2402.13753; Phi-3. The list is chosen for a whole sequence, by
    ``Positions.sequence_length``, so that a cache never mixes the two. ``short_mscale`` and ``long_mscale`` take the
    place of the one factor of cosines and sines where a model has one for each, as Phi-MoE does.
    """

    scaling_name: ClassVar[str] = "longrope"
    paper: ClassVar[str] = (
        "Ding et al. 2024, LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens, arXiv:2402.13753"
    )
    formula: ClassVar[str] = (
        "w_i / long_factors[i] where L > L0, w_i / short_factors[i] where not; cosines and sines "
        "times sqrt(1 + ln(s) / ln(L0))"
    )

    by_length: ClassVar[bool] = True

    short_factors: Sequence[float | int] = ()
    long_factors: Sequence[float | int] = ()
    attention_factor: float | None = None
    short_mscale: float | None = None
    long_mscale: float | None = None

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
                f"short_factors and long_factors must have one number per pair each, since {_DIVIDES} and were "
                f"searched for one model; got {len(self.short_factors)} and {len(self.long_factors)}. Take them from "
                f"the rope_scaling of its config.json."
            )
        mscales = {name: getattr(self, name) for name in ("short_mscale", "long_mscale")}
        for name, given in mscales.items():
            if given is not None:
                require_number(name, given, "cosines and sines are multiplied by it", above=0)
        told = [name for name, given in mscales.items() if given is not None]
        if len(told) == 1 or (told and self.attention_factor is not None):
            raise ValueError(
                f"short_mscale and long_mscale must be given together and without attention_factor, since each is the "
                f"factor of cosines and sines at some lengths; got short_mscale={self.short_mscale}, long_mscale="
                f"{self.long_mscale}, attention_factor={self.attention_factor}."
            )

    @property
    def magnitude_by_length(self) -> bool:
        """Whether each list of factors has an mscale of its own."""
        return self.short_mscale is not None

    def is_long(self, sequence_length: int) -> bool:
        """Whether a sequence of this length takes the long factors."""
        if type(sequence_length) is not int or sequence_length < 0:
            require_count("sequence_length", sequence_length, "it counts tokens", least=0)
        return sequence_length > self._original

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
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
        factor: float | Tensor | None = self.attention_factor
        if factor is None:
            factor = formulas.longrope_magnitude(self._factor, self._original)
        if isinstance(sequence_length, Tensor):
            device, dtype = sequence_length.device, widest(sequence_length.device)
            beyond = sequence_length > self._original
            frequencies = torch.where(beyond.unsqueeze(-1), long.to(device, dtype), short.to(device, dtype))
            if self.long_mscale is not None and self.short_mscale is not None:
                high, low = (
                    torch.full((), each, dtype=dtype, device=device) for each in (self.long_mscale, self.short_mscale)
                )
                factor = torch.where(beyond, high, low)
            return ScaledFrequencies(frequencies, factor)
        is_long = sequence_length is not None and self.is_long(sequence_length)
        own = self.long_mscale if is_long else self.short_mscale
        return ScaledFrequencies(long if is_long else short, factor if own is None else own)


@final
@dataclass(frozen=True, kw_only=True)
class Llama3Scaling(Stretch):
    """Divide wavelengths past ``original_length / low_frequency_factor`` by the factor, leave those below
    ``original_length / high_frequency_factor``, blend between. Llama team 2024, arXiv:2407.21783."""

    scaling_name: ClassVar[str] = "llama3"
    paper: ClassVar[str] = "Llama team 2024, The Llama 3 Herd of Models, arXiv:2407.21783"
    formula: ClassVar[str] = (
        "(1 - g_i) w_i / s + g_i w_i; g_i rises from 0 to 1 between low_frequency_factor and "
        "high_frequency_factor turns within L0"
    )

    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._original
        for name in ("low_frequency_factor", "high_frequency_factor"):
            require_number(name, getattr(self, name), "it divides the original length")
        if not 0 < self.low_frequency_factor <= self.high_frequency_factor:
            raise ValueError(
                f"low_frequency_factor and high_frequency_factor must satisfy 0 < low <= high, since the blend runs "
                f"between them; got low={self.low_frequency_factor}, high={self.high_frequency_factor}."
            )

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        low, high = self.low_frequency_factor, self.high_frequency_factor
        ramp = formulas.ramp_over_turns(dim, base, self._original, low, high)
        return ScaledFrequencies(formulas.by_parts(dim, base, self._factor, ramp))


@final
@dataclass(frozen=True, kw_only=True)
class ProportionalScaling(Scaling):
    """Rotate only a fraction of the pairs, with the frequencies they have in the whole head.

    Not the same as ``rotary_dim``, which lays the whole ladder over the fraction and pairs channels within it.
    """

    scaling_name: ClassVar[str] = "proportional"
    paper: ClassVar[str] = "Gemma team (released code, no paper)"
    formula: ClassVar[str] = "w_i / s for the first fraction of the pairs, 0 for the others"

    fraction: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        require_number("fraction", self.fraction, "it is a part of the pairs", least=0, most=1)
        require_number("factor", self.factor, "a context is stretched by it", least=1)

    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        require_ladder(dim, base, sequence_length)
        return ScaledFrequencies(formulas.proportional(dim, base, self.fraction) / self.factor)
