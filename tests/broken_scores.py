"""Encodings of the scores with the field's classic mistakes, one each."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from situs import BiasEncoding, OffsetBias, PairBias
from situs.encodings.bias import Rule, ScoreMod


class LinearBias(OffsetBias):
    """A plain linear bias, right in itself; subclasses break one thing."""

    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.slopes = nn.Parameter(1 / torch.arange(3.0, 3.0 + num_heads))

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        slopes = self.slopes.to(dtype)
        return lambda offset, head: -slopes[head] * offset.abs()


class HalfSlopes(LinearBias):
    """The slope of a cast module times the distance, both in half precision."""

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        slopes = self.slopes
        return lambda offset, head: (-slopes[head] * offset.abs().to(slopes.dtype)).to(dtype)


class FarInHalf(LinearBias):
    """Distances in float16 where the module was cast to it, which near by is exact."""

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        slopes, own = self.slopes.to(dtype), self.slopes.dtype
        narrow = own if own == torch.float16 else dtype
        return lambda offset, head: -slopes[head] * offset.abs().to(narrow).to(dtype)


class NetworkUnderAutocast(BiasEncoding):
    """A matrix product inside, which autocast rounds."""

    num_heads = 2

    def forward(self, query_positions: Any, key_positions: Any = None, *, dtype: torch.dtype | None = None) -> Tensor:
        key_positions = query_positions if key_positions is None else key_positions
        apart = (query_positions.ids[:, :, None] - key_positions.ids[:, None]).abs().float()
        bias: Tensor = (apart.unsqueeze(-1) @ torch.tensor([[-0.3, -0.1]])).movedim(-1, 1)
        return bias

    def score_mod(self, query_positions: Any, key_positions: Any = None) -> ScoreMod:
        bias = self(query_positions, key_positions)[0]
        return lambda score, batch, head, query, key: score + bias[head, query, key]


class BoundlessBias(LinearBias):
    """Claims to be bounded, and falls for ever."""

    tags = frozenset({"bounded"})


class RisingBias(LinearBias):
    """Claims to decay, and rises."""

    tags = frozenset({"fading"})

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        fall = super().rule(device, dtype)
        return lambda offset, head: -fall(offset, head)


class WrongScoreMod(PairBias):
    """A matrix that minds who is ahead, and a score_mod that does not."""

    num_heads = 2

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        def apart(query: Tensor, key: Tensor, head: Tensor) -> Tensor:
            distance = (query - key).abs() if head.ndim == 0 else query - key
            return (distance / (head + 1)).to(dtype)

        return apart


# each is caught by the check named for its mistake
CAUGHT_BY: dict[type, str] = {
    HalfSlopes: "half_equals_plain",
    FarInHalf: "half_equals_plain",
    NetworkUnderAutocast: "autocast_equals_plain",
    BoundlessBias: "is_bounded",
    RisingBias: "fades",
    WrongScoreMod: "forms_agree",
}
