"""Encodings that remember what they should not: tables shared by too many, and state written in forward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.broken_encodings import HEAD_DIM, Broken, checked, rotate

TABLES: dict[int, Tensor] = {}


class CacheWithoutBase(Broken):
    """A table shared by all of one length, whatever their base."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        angles = TABLES.setdefault(x.shape[-2], self.ids(x, positions).double() * self.ladder())
        return rotate(x, angles)


class WithTheta(Broken):
    """A plain rotary whose base goes by another name."""

    def __init__(self, *, theta: float = 10000.0) -> None:
        super().__init__(base=theta)
        self.theta = theta


ANGLES: dict[tuple[float, ...], Tensor] = {}


class AnglesWithoutTheta(WithTheta):
    """Angles cached by their positions, whatever theta is."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        ids = self.ids(x, positions).double()
        angles = ANGLES.setdefault(tuple(ids.flatten().tolist()), ids * self.ladder()).view(*ids.shape[:-1], -1)
        return rotate(x, angles)


LADDERS: dict[int, Tensor] = {}


class LadderWithoutTheta(WithTheta):
    """Frequencies cached by their number alone."""

    def ladder(self) -> Tensor:
        return LADDERS.setdefault(HEAD_DIM, super().ladder())


LONGEST: list[Tensor] = [torch.zeros(0, HEAD_DIM // 2, dtype=torch.float64)]


class GrowsWithoutTheta(WithTheta):
    """One table for all, made anew when a farther position comes."""

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        ids = checked(x, positions).ids
        if int(ids.max()) >= len(LONGEST[0]):
            LONGEST[0] = torch.arange(int(ids.max()) + 1)[:, None] * self.ladder()
        angles = LONGEST[0][ids][:, None]
        return rotate(x, angles)


BY_BASE: dict[float, Tensor] = {}


class LadderWithoutFactor(Broken):
    """Frequencies cached by their base, whatever they are divided by."""

    def __init__(self, *, base: float = 10000.0, factor: float = 2.0) -> None:
        super().__init__(base=base)
        self.factor = factor

    def ladder(self) -> Tensor:
        return BY_BASE.setdefault(self.base, super().ladder() / self.factor)


class TableWithoutDirection(Broken):
    """Angles left with the positions under a name that says nothing of which way they rotate."""

    def __init__(self, *, base: float = 10000.0, backwards: bool = False) -> None:
        super().__init__(base=base)
        self.backwards = backwards

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        given = checked(x, positions)
        way = -1 if self.backwards and role == "key" else 1
        angles = given.tables.setdefault(
            ("angles", self.base, role), given.ids[:, None, :, None].double() * self.ladder() * way
        )
        return rotate(x, angles)


class RemembersLongest(Broken):
    """Remembers the longest sequence it saw, and scales by it."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.longest = 0

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        self.longest = max(self.longest, x.shape[-2])
        angles = self.ids(x, positions).double() * self.ladder() / self.longest
        return rotate(x, angles)


class CountsInTraining(Broken):
    """Counts its calls, in training only."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.calls = 0

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        self.calls += self.training
        return super().forward(x, positions, role=role)


class OverwritesInTraining(Broken):
    """Writes over a list that it holds, in training only."""

    def __init__(self, *, base: float = 10000.0) -> None:
        super().__init__(base=base)
        self.last = [0]

    def forward(self, x: Tensor, positions: Any = None, *, role: str = "query") -> Tensor:
        if self.training:
            self.last[0] = x.shape[-2]
        return super().forward(x, positions, role=role)


# each is caught by the check named for its mistake
CAUGHT_BY: dict[type, str] = {
    CacheWithoutBase: "configurations_apart",
    AnglesWithoutTheta: "configurations_apart",
    LadderWithoutTheta: "configurations_apart",
    GrowsWithoutTheta: "configurations_apart",
    LadderWithoutFactor: "configurations_apart",
    TableWithoutDirection: "configurations_apart",
    RemembersLongest: "remembers_nothing",
    CountsInTraining: "remembers_nothing",
    OverwritesInTraining: "remembers_nothing",
}
