"""Inkling: each token mixes a bank of profiles of distance into the bias of its own query."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from situs.encodings.projected import ProjectedBias
from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import borrowing
from situs.huggingface.interface import PlacedBias
from situs.huggingface.short import is_short

MIXED = "relative"
"""The feature by which tokens mix profiles."""


class MixedBias(PlacedBias):
    """The bias of profiles that tokens mix. Layers multiply it by a temperature, which multiplies what mixes."""

    @property
    def dtype(self) -> torch.dtype:
        """That of what tokens mix by."""
        return self.mixing.dtype

    @property
    def mixing(self) -> Tensor:
        """The numbers by which tokens mix, (batch, heads, query, rank)."""
        assert self.features is not None
        return self.features[MIXED]

    def float(self) -> MixedBias:
        """Mix by float32."""
        return self.to(torch.float32)

    def to(self, dtype: torch.dtype) -> MixedBias:
        """Mix by another dtype."""
        return self._replace(features={MIXED: self.mixing.to(dtype)})

    def __mul__(self, factors: Tensor) -> MixedBias:  # type: ignore[override]
        """Multiply by a factor for each query."""
        return self._replace(features={MIXED: self.mixing * factors})


class Inkling(Family):
    """The profiles of a layer, which its attention asks for a bias of all pairs and hands to the interface."""

    expects: ClassVar[Expects] = {"forward": ("self", "relative_states", "query_positions", "key_positions")}

    def forward(
        self: Any, relative_states: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> MixedBias | Tensor:
        """Give the encoding of the profiles, and what tokens mix them by, (batch, query, heads, rank); the bias itself
        of a single query, which is one row."""
        if len(query_positions) == 1 and is_short(1, 1):
            row: Tensor = super().forward(relative_states, query_positions, key_positions)
            return row
        rank, distances = self.proj.shape
        sizes = {"num_heads": relative_states.shape[2], "distances": distances, "rank": rank}
        encoding = borrowing(self, lambda: ProjectedBias(**sizes), {"profiles": self.proj})
        first = query_positions[0] - key_positions[0]
        return MixedBias(encoding, first, {MIXED: relative_states.transpose(1, 2)})
