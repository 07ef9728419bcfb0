"""Scores: means with their 95 % intervals at each length, and the order of what was measured by one of them.

What comparisons find of methods and evaluations of scalings is of this form. All are asked the same, so that two of
them are compared text by text: the interval of their difference is far narrower than those of the two numbers. One
ties with the first if the 95 % interval of its difference from the first includes 0. Intervals come from a bootstrap
that draws seeds and texts anew.

A length may have no number: its point then holds where a table of positions ended, or what went wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from situs.lab.records import Measure

DRAWS = 1000
HOLDS = 0.05  # nats per token
FINDS = 0.9  # of the answers
LEVEL = 0.01  # nats; differences of losses below it do not matter
LOSS: Measure = "loss"
ACCURACY: Measure = "accuracy"
NO_RESULT = "no result"
MISSING = "missing"
"""The status of a trial that was planned when a run was stopped, and is not finished."""
Key = Literal["level", "change"]


@dataclass(frozen=True)
class Point:
    """Hold a mean with its 95 % interval, and the mean of each seed; or why there is no number.

    ends: the length of the table of positions, where that is shorter.
    error: what went wrong, where that is why.
    """

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]
    ends: int | None = None
    error: str | None = None

    @staticmethod
    def nothing(*, ends: int | None = None, error: str | None = None) -> Point:
        """Make a point without a number, with the reason."""
        return Point(math.nan, math.nan, math.nan, (), ends, error)

    @property
    def exists(self) -> bool:
        """Whether there is a number."""
        return self.ends is None and self.error is None


@dataclass(frozen=True)
class Scores:
    """Hold what one method or scaling scored on one task."""

    measure: Measure
    levels: dict[int, Point]
    """The score at each length."""
    changes: dict[int, Point]
    """Scores less the one that changes are counted from."""
    along: list[float] | None = None
    """The loss along the longest text, in even stretches."""
    depths: dict[int, dict[float, float]] = field(default_factory=dict)
    """For each length and depth, the share of answers that were right."""

    def points(self, key: Key) -> dict[int, Point]:
        """Give the levels or the changes."""
        return self.levels if key == "level" else self.changes


@runtime_checkable
class Scored(Protocol):
    """Be a row of a table: a name and its scores by task."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def scores(self) -> Mapping[str, Scores]:
        """What it scored on each task."""


R = TypeVar("R", bound=Scored)


@dataclass(frozen=True)
class Entry(Generic[R]):
    """Hold the entry of a row in an order: the number it is ordered by, and how far that is behind the first's."""

    row: R
    point: Point
    behind: Point
    """The paired difference from the first, positive where this row is worse; 0 for the first itself."""

    @property
    def ties(self) -> bool:
        """Whether the row cannot be told from the first."""
        return self.behind.low <= 0.0 <= self.behind.high


@dataclass(frozen=True)
class Ranking(Generic[R]):
    """Hold rows in the order of one number at one length, the best first, and those that have no such number."""

    task: str
    length: int
    key: Key
    entries: list[Entry[R]]
    rest: list[R]

    @property
    def rows(self) -> list[R]:
        """All rows: the ranked ones, then those without a number."""
        return [*(entry.row for entry in self.entries), *self.rest]

    @property
    def first(self) -> list[Entry[R]]:
        """The first, and all that tie with it."""
        return [entry for entry in self.entries if entry.ties]

    def entry(self, row: R) -> Entry[R] | None:
        """Look up the entry of a row, if it has one."""
        return self.named(row.name)

    def named(self, name: str) -> Entry[R] | None:
        """Look up the entry of the row of a name, if it has one."""
        return next((entry for entry in self.entries if entry.row.name == name), None)


def ranked(
    rows: Sequence[R], task: str, length: int, behind: Callable[[R, R], Point], key: Key = "level"
) -> Ranking[R]:
    """Order rows by their number at a length: the lowest loss or the most right answers first.

    behind: called with the first and another row, for their paired difference, positive where the other is worse.
    """
    known: list[tuple[float, R, Point]] = []
    for row in rows:
        scores = row.scores.get(task)
        found = None if scores is None else at(scores.points(key), length)
        if scores is not None and found is not None:
            known.append((worse(scores.measure) * found.mean, row, found))
    known.sort(key=lambda each: each[0])
    entries = [Entry(row, found, behind(known[0][1], row)) for _, row, found in known]
    named = {entry.row.name for entry in entries}
    return Ranking(task, length, key, entries, [row for row in rows if row.name not in named])


def worse(measure: Measure) -> float:
    """Give the sign of a difference that is worse: losses are worse where they are higher, answers where fewer."""
    return -1.0 if measure == ACCURACY else 1.0


def at(points: Mapping[int, Point], length: int) -> Point | None:
    """Look up the point at a length, if there is a number."""
    found = points.get(length)
    return found if found is not None and found.exists and math.isfinite(found.mean) else None


def point(scores: Tensor) -> Point:
    """Average scores of (seeds, windows), with an interval by drawing both anew."""
    seeds, windows = scores.shape
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(seeds, (DRAWS, seeds, 1), generator=generator)
    columns = torch.randint(windows, (DRAWS, 1, windows), generator=generator)
    means = scores[rows, columns].mean((1, 2))
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()
    return Point(float(scores.mean()), low, high, tuple(scores.mean(1).tolist()))


def by_depth(answers: Iterable[tuple[float, float]]) -> dict[float, float]:
    """Average the scores of answers at each depth, from pairs of both."""
    found: dict[float, list[float]] = {}
    for depth, score in answers:
        found.setdefault(round(depth, 3), []).append(score)
    return {depth: sum(scores) / len(scores) for depth, scores in sorted(found.items())}


def farthest(scores: Scores, lengths: Sequence[int] | None = None) -> int:
    """Find the longest length up to which, without a break, the loss holds or answers are found; 0 if at none.

    lengths: which are looked at, from short to long; all that have a point by default.
    """
    reached = 0
    for length in sorted(scores.levels) if lengths is None else lengths:
        level, change = at(scores.levels, length), at(scores.changes, length)
        good = level is not None and (
            level.mean >= FINDS if scores.measure == ACCURACY else change is not None and change.mean < HOLDS
        )
        if not good:
            break
        reached = length
    return reached
