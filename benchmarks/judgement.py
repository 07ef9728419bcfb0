"""A requirement, what was measured for it, and the verdict: by the worst case, whatever the others are."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

ONLY_FULL = "comes with FULL=1 only"


@dataclass(frozen=True)
class Target:
    """A figure that was required, and what became of it."""

    figure: str
    variant: str
    required: str
    aim: str
    worst: str
    median: str
    met: bool | None
    """None where this mode does not measure it: neither met nor missed."""
    passed: str
    """How many cases meet what is required."""
    reached: str
    """How many cases reach the aim."""
    where: str

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if self.met is None:
            return "not measured in this mode"
        return "met" if self.met else "**missed**"


@dataclass(frozen=True)
class Bound:
    """What is required of every case, and what is aimed at."""

    limit: float
    aim: float | None = None
    at_most: bool = True
    unit: str = "×"
    digits: int = 2

    def judge(self, figure: str, variant: str, cases: Mapping[str, float], unmeasured: str = ONLY_FULL) -> Target:
        """The verdict on cases, named; ``unmeasured`` is what to say where there are none."""
        required, aim = self._bound(self.limit), "" if self.aim is None else self._bound(self.aim)
        if not cases:
            return Target(figure, variant, required, aim, "–", "–", None, "", "", unmeasured)
        where = (max if self.at_most else min)(cases, key=cases.__getitem__)
        reached = "" if self.aim is None else self._count(cases, self.aim)
        return Target(
            figure, variant, required, aim, self._worded(cases[where]), self._worded(statistics.median(cases.values())),
            self._holds(cases[where], self.limit), self._count(cases, self.limit), reached, where,
        )  # fmt: skip

    def _holds(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound

    def _count(self, cases: Mapping[str, float], bound: float) -> str:
        return f"{sum(self._holds(value, bound) for value in cases.values())} of {len(cases)}"

    def _bound(self, bound: float) -> str:
        return f"{'≤' if self.at_most else '≥'} {bound:g}{self.unit}"

    def _worded(self, value: float) -> str:
        return f"{value:.{self.digits}f}{self.unit}"
