"""Encodings that do unusual things and are right all the same, to prove that the contract accuses nobody wrongly."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.broken_encodings import HEAD_DIM, Broken, rotate_by

LADDERS: dict[tuple[float, float], Tensor] = {}


class CachedForAll(Broken):
    """Frequencies cached for the whole process, under everything that they follow from."""

    def __init__(self, *, base: float = 10000.0, factor: float = 2.0) -> None:
        super().__init__(base=base)
        self.factor = factor

    def ladder(self) -> Tensor:
        return LADDERS.setdefault((self.base, self.factor), super().ladder() / self.factor)


class CountsInSteps(Broken):
    """An option that is rounded up to a number of pairs, so that the least bit more is another pair."""

    def __init__(self, *, base: float = 10000.0, fraction: float = 0.5) -> None:
        super().__init__(base=base)
        self.fraction = fraction

    def ladder(self) -> Tensor:
        pairs = HEAD_DIM // 2
        return super().ladder() * (torch.arange(pairs) < math.ceil(self.fraction * pairs))


class IgnoredTheta(Broken):
    """One pair rotates whatever theta is, until there are more."""

    def __init__(self, *, head_dim: int = 2, theta: float = 10000.0) -> None:
        super().__init__(base=theta)
        self.head_dim = head_dim
        self.theta = theta

    def ladder(self) -> Tensor:
        return self.base ** -(torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)


class OwnKernel(Broken):
    """Exact far out, by a kernel that takes no table but a float32 one."""

    tags = frozenset({"relative", "far"})

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = self.ids(x, positions).double() * self.ladder()
        table = angles.cos().float(), angles.sin().float()
        if table[0].dtype != torch.float32:
            raise TypeError(f"the table must be float32; got {table[0].dtype}")
        return rotate_by(x, *(each.to(x.dtype) for each in table))


class OtherHeads(Broken):
    """A ladder for each head, which it says."""

    num_heads: int

    def __init__(self, *, num_heads: int = 3, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.num_heads = num_heads

    def ladder(self) -> Tensor:
        return super().ladder() / torch.arange(1, 1 + self.num_heads)[:, None, None]


SOUND: tuple[type[Broken], ...] = (CachedForAll, CountsInSteps, IgnoredTheta, OwnKernel, OtherHeads)
