"""What a split is: a way to share a head's channel pairs among several coordinates. The methods are in ``splits``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from jaxtyping import Float64, Int64
from torch import Tensor


class Split(ABC):
    """A way to share a head's pairs among coordinates."""

    axes: int
    """Coordinates a position has."""

    text_has_one: ClassVar[bool] = False
    """Whether a single position may stand for all coordinates, as text's does among images."""

    @abstractmethod
    def ladder_dim(self, rotary_dim: int) -> int:
        """Channels that one ladder of frequencies covers; raises where the sizes do not fit."""

    @abstractmethod
    def deal(
        self, ladder: Float64[Tensor, "*heads ladder"]
    ) -> tuple[Float64[Tensor, "*heads pairs"], Int64[Tensor, "pairs"]]:
        """Each pair's frequency and axis."""
