"""What a scaling is: a way to stretch a trained rotary model's context. The methods are in ``scalings``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from jaxtyping import Float64
from torch import Tensor


class ScaledFrequencies(NamedTuple):
    """What a scaling resolves to."""

    frequencies: Float64[Tensor, "*rows pairs"]
    rotation_factor: float = 1.0
    softmax_factor: float = 1.0


class Scaling(ABC):
    """A way to stretch a context."""

    by_length: ClassVar[bool] = False
    """Whether the frequencies depend on how long the sequence is."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Options that were given and that nothing follows from, as in the released code."""
        return ()

    @abstractmethod
    def resolve(self, dim: int, base: float | Tensor, sequence_length: int | Tensor | None = None) -> ScaledFrequencies:
        """Frequencies of ``dim / 2`` pairs; a tensor of bases gives one ladder a head, a tensor of lengths
        (only for methods that choose by length) one a row."""
