"""What all scalings of rotary have: a name, a formula, and a factor that follows from two lengths.

The scalings themselves, one class per method, are in ``encodings.scaling``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jaxtyping import Float64
from torch import Tensor

from situs.arguments import require_count, require_number, require_whole_numbers
from situs.functional.frequencies import require_frequencies

MEANINGS = {
    "factor": "how many times longer texts become; target_length / original_length if left out.",
    "original_length": "tokens of the longest text that the model was trained on.",
    "target_length": "tokens of the longest text it shall read; original_length times factor if left out.",
    "beta_fast": "pairs that make more turns than this within original_length keep their frequencies.",
    "beta_slow": "pairs that make fewer turns than this have theirs divided by the factor.",
    "dialect": '"hf", with the ramp of released models over pairs, or "paper", with its ramp over turns.',
    "truncate": "round the ends of the ramp to whole pairs, as most released models do.",
    "attention_factor": "factor of cosines and sines; by the formula if left out.",
    "mscale": "with mscale_all_dim, weight of the logarithm in the factor of cosines and sines, as DeepSeek has it.",
    "mscale_all_dim": "weight of the logarithm in the factor of the softmax scale, as DeepSeek has it.",
    "mscale_dialect": '"deepseek", whose mscale_all_dim goes to the softmax scale too, or "ministral3", where both '
    "mscales touch cosines and sines alone.",
    "short_mscale": "factor of cosines and sines in texts within original_length, as Phi-MoE has it.",
    "long_mscale": "factor of cosines and sines in longer texts, as Phi-MoE has it.",
    "short_factors": "what frequencies are divided by in texts within original_length, one number per pair.",
    "long_factors": "what frequencies are divided by in longer texts, one number per pair.",
    "low_frequency_factor": "pairs that make fewer turns than this within original_length are divided by the factor.",
    "high_frequency_factor": "pairs that make more turns than this keep their frequencies.",
    "fraction": "share of the pairs that is rotated, from the fastest.",
    "window": "pairs at distances below it stay as trained.",
    "group": "tokens beyond the window that share a position.",
    "leak": "what each token beyond the window adds to the distance: 0 for ReRoPE, more for Leaky ReRoPE.",
    "chunk_size": "the largest distance that a pair is given.",
    "local_size": "tokens of the chunk before at true distances; chunks have chunk_size - local_size tokens.",
}
"""What each option of a scaling means, wherever it has it."""


class ScaledFrequencies(NamedTuple):
    """Hold what a scaling resolves to."""

    frequencies: Float64[Tensor, "*rows pairs"]
    rotation_factor: float | Float64[Tensor, "*rows"] = 1.0
    """Of cosines and sines; one a row where lengths differ and it goes by them."""
    softmax_factor: float = 1.0


class Scaling(ABC):
    """Stretch the context of a trained rotary model."""

    scaling_name: ClassVar[str] = ""
    """What follows the plus in ``rotary+yarn``."""
    paper: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    """The frequency of pair i, where w_i is the plain one, s the factor, L0 the original length and L that of the
    sequence."""

    by_length: ClassVar[bool] = False
    """Whether the frequencies depend on how long the sequence is."""

    @property
    def magnitude_by_length(self) -> bool:
        """Whether the factor of cosines and sines depends on it too."""
        return False

    @property
    def unused(self) -> tuple[str, ...]:
        """Options that were given and that nothing follows from, as in the released code."""
        return ()

    @abstractmethod
    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        """Compute the frequencies of ``dim / 2`` pairs; a tensor of bases gives one ladder per head, a tensor of
        lengths (only for methods that choose by length) one per row."""


@dataclass(frozen=True, kw_only=True)
class Stretch(Scaling):
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


def require_ladder(dim: object, base: object, sequence_length: object) -> None:
    """Raise unless a scaling can be resolved for these."""
    require_frequencies(dim, base)
    if isinstance(sequence_length, Tensor):
        require_whole_numbers("sequence_length", sequence_length, "it counts tokens")
    elif sequence_length is not None:
        require_count("sequence_length", sequence_length, "it counts tokens", least=0)
