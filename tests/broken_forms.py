"""Encodings with the mistakes that people make first, written as they would write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import situs


class IgnoresHead(situs.OffsetBias):
    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: -offset.abs().to(dtype)


class ExponentialInHalf(situs.OffsetBias):
    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: torch.exp(-offset.abs().to(torch.bfloat16) / 100) * (head + 1)


class HasNoHeads(situs.OffsetBias):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: (head + 1) * -offset.abs().to(dtype)


class KeepsAnotherName(situs.OffsetBias):
    def __init__(self, *, num_heads: int = 2, slope: float = 0.5) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.m = slope

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: (head + 1) * -self.m * offset.abs().to(dtype)


class ForgetsItsHeadDim(situs.QueryKeyEncoding):
    def __init__(self, *, head_dim: int = 16) -> None:
        super().__init__()

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return x


class Scales(situs.QueryKeyEncoding):
    """Multiplies vectors by a cosine of their position; subclasses break one thing."""

    def __init__(self, *, head_dim: int = 16) -> None:
        super().__init__()
        self.head_dim = head_dim

    def cosines(self, x: Tensor, positions: Any) -> Tensor:
        given = situs.Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        return given.ids.double().cos()[:, None, :, None]

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return (x * self.cosines(x, positions)).to(x.dtype)


class ForgetsRole(Scales):
    def forward(self, x: Tensor, positions: Any = None) -> Tensor:  # type: ignore[override]
        return (x * self.cosines(x, positions)).to(x.dtype)


class ForgetsPositions(situs.InputEncoding):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


class ExponentialOfRoundedPositions(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        given = situs.Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        decay = torch.exp(-given.ids.to(x.dtype) / 100)[:, None, :, None]
        return x * (decay if role == "query" else 1 / decay)


class ReturnsAnotherDtype(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return (x * self.cosines(x, positions)).float()


class ReturnsAnotherShape(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return (x * self.cosines(x, positions)).to(x.dtype)[..., :8]


class ChangesItsInput(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        x *= self.cosines(x, positions).to(x.dtype)
        return x


class KeepsState(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        self.table = self.cosines(x, positions)
        return (x * self.table).to(x.dtype)


class CountsFromZero(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return x * torch.arange(x.shape[-2], device=x.device).double().cos()[:, None].to(x.dtype)


class AddsPositions(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return torch.add(x, positions)


class ClaimsToBeRelative(Scales):
    tags = frozenset({"relative"})


class HoldsALambda(Scales):
    def __init__(self, *, head_dim: int = 16) -> None:
        super().__init__(head_dim=head_dim)
        self.turned = lambda x: x.flip(-1)

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        scaled: Tensor = self.turned(x) * self.cosines(x, positions)
        return scaled.to(x.dtype)
