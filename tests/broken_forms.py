"""Encodings with the mistakes that people make first, written as they would write them."""

from __future__ import annotations

import sys
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


class IgnoresOffset(IgnoresHead):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: -(head + 1).to(dtype)


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


class ReturnsNoRule(situs.OffsetBias):
    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        _ = lambda offset, head: -offset.abs()  # noqa: E731


class ReturnsANumber(ReturnsNoRule):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return 3


class RuleOfOffsetAlone(ReturnsNoRule):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset: -offset.abs()


class RuleWithoutDtype(ReturnsNoRule):
    def rule(self, device: torch.device) -> Any:  # type: ignore[override]
        return lambda offset, head: -offset.abs()


class RootOfOffsets(ReturnsNoRule):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: (offset.to(dtype) + head + 0.5).sqrt()


class MasksLaterKeys(ReturnsNoRule):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: torch.where(offset > 0, -torch.inf, 0.0 * head)


class RunsOutOfNumbers(ReturnsNoRule):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda offset, head: (40 + offset.to(dtype)).log() + head


class NegativePairs(situs.PairBias):
    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__()
        self.num_heads = num_heads

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        return lambda query, key, head: (query - 2 * key + head).to(dtype).sqrt()


class DividesByPositions(Scales):
    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        given = situs.Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        return x / (given.ids - 2)[:, None, :, None].to(x.dtype)


class Exits(ReturnsNoRule):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        sys.exit(3)


class Asserts(ReturnsNoRule):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        assert dtype is torch.float64, "too narrow"


class Slopes(ReturnsNoRule):
    def __init__(self, *, num_heads: int = 2) -> None:
        super().__init__(num_heads=num_heads)
        self.a = torch.nn.Parameter(torch.ones(num_heads))

    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        a = self.a.to(dtype)
        return lambda offset, head: -a * offset.abs()


class CutsGradients(Slopes):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        a = torch.tensor([each.item() for each in self.a], dtype=dtype)
        return lambda offset, head: -a[head] * offset.abs()


class CutsWhatItLearns(CutsGradients):
    tags = frozenset({"learned"})


class EndsUnsaid(Slopes):
    def rule(self, device: torch.device, dtype: torch.dtype) -> Any:
        def bias(offset: Tensor, head: Tensor) -> Tensor:
            return -self.table(dtype)[offset.abs()] * self.a.to(dtype)[head]

        return bias

    def table(self, dtype: torch.dtype) -> Tensor:
        return torch.arange(100, dtype=dtype)


class RemembersTheLongest(Scales):
    longest = 0

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        RemembersTheLongest.longest = max(RemembersTheLongest.longest, x.shape[-2])
        return (x * self.cosines(x, positions)).to(x.dtype) / self.longest


class SharesATable(Scales):
    def __init__(self, *, head_dim: int = 16, base: float = 2.0) -> None:
        super().__init__(head_dim=head_dim)
        self.base = base

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        given = situs.Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        table: Tensor = given.ids.double()[:, None, :, None] / 7
        return (x * table.cos()).to(x.dtype)


class DrawsItsSlope(Scales):
    def __init__(self, *, head_dim: int = 16) -> None:
        super().__init__(head_dim=head_dim)
        self.slope = float(torch.rand(()))

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return (x * self.cosines(x, positions)).to(x.dtype) * self.slope


class CountsItsParameters(Scales):
    made = 0

    def __init__(self, *, head_dim: int = 16) -> None:
        super().__init__(head_dim=head_dim)
        CountsItsParameters.made += 1
        self.register_parameter(f"p{CountsItsParameters.made}", torch.nn.Parameter(torch.ones(())))


class MixesDtypes(Scales):
    def __init__(self, *, head_dim: int = 16) -> None:
        super().__init__(head_dim=head_dim)
        self.mix = torch.nn.Parameter(torch.eye(head_dim))

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        return (x * self.cosines(x, positions)).float() @ self.mix
