"""Rankings: methods ordered by one number at one length, and which of them cannot be told from the first.

All methods are asked the same, so that two of them are compared window by window and seed by seed: the interval of
their difference is far narrower than those of the two numbers. A method ties with the first if the 95 % interval of
its difference from the first includes 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import ACCURACY, Point, Row, point, scored
from situs.lab.naming.grammar import Method

Key = Literal["level", "change"]


@dataclass(frozen=True)
class Entry:
    """Hold a method's entry in a ranking: the number it is ranked by, and how far that is behind the first's."""

    row: Row
    point: Point
    behind: Point
    """The paired difference from the first, positive where this method is worse; 0 for the first itself."""

    @property
    def ties(self) -> bool:
        """Whether the method cannot be told from the first."""
        return self.behind.low <= 0.0 <= self.behind.high


@dataclass(frozen=True)
class Ranking:
    """Hold methods in the order of one number at one length, the best first, and those that have no such number."""

    task: str
    length: int
    key: Key
    entries: list[Entry]
    rest: list[Row]

    @property
    def rows(self) -> list[Row]:
        """All methods: the ranked ones, then those without a number."""
        return [*(entry.row for entry in self.entries), *self.rest]

    @property
    def first(self) -> list[Entry]:
        """The first, and all that tie with it."""
        return [entry for entry in self.entries if entry.ties]

    def entry(self, row: Row) -> Entry | None:
        """Look up the entry of a method, if it has one."""
        return next((entry for entry in self.entries if entry.row.name == row.name), None)


def rank(comparison: Comparison, rows: Sequence[Row], task: str, length: int, key: Key = "level") -> Ranking:
    """Order methods by their level or their change at a length: the lowest loss or the most right answers first."""
    known: list[tuple[float, Row, Point]] = []
    for row in rows:
        scores = row.scores.get(task)
        points = {} if scores is None else scores.levels if key == "level" else scores.changes
        found = points.get(length)
        if scores is not None and found is not None and found.exists and math.isfinite(found.mean):
            known.append((-found.mean if scores.measure == ACCURACY else found.mean, row, found))
    known.sort(key=lambda each: each[0])
    entries = [Entry(row, found, _behind(comparison, known[0][1], row, task, length, key)) for _, row, found in known]
    named = {entry.row.name for entry in entries}
    return Ranking(task, length, key, entries, [row for row in rows if row.name not in named])


def difference(
    comparison: Comparison, one: Method, other: Method, at: Sequence[tuple[str, int]], key: Key = "level"
) -> Point | None:
    """Compare two methods over tasks and lengths, window by window and seed by seed: the mean of the other's scores
    less the one's, with its 95 % interval. None where they share no seed."""
    pairs = [(_scores(comparison, one, *each, key), _scores(comparison, other, *each, key)) for each in at]
    seeds = [seed for seed in (pairs[0][0] if pairs else ()) if all(seed in a and seed in b for a, b in pairs)]
    if not seeds:
        return None
    apart = [torch.stack([b[seed] - a[seed] for a, b in pairs]).mean(0) for seed in seeds]
    return point(torch.stack(apart))


def _behind(comparison: Comparison, first: Row, row: Row, task: str, length: int, key: Key) -> Point:
    """Compare a method with the first, window by window and seed by seed where they share seeds."""
    sign = -1.0 if row.scores[task].measure == ACCURACY else 1.0
    best, other = (_scores(comparison, each.method, task, length, key) for each in (first, row))
    shared = [seed for seed in best if seed in other]
    if shared:
        return point(torch.stack([sign * (other[seed] - best[seed]) for seed in shared]))
    one, two = ((each.scores[task].levels if key == "level" else each.scores[task].changes) for each in (first, row))
    low, high = sorted((sign * (two[length].low - one[length].high), sign * (two[length].high - one[length].low)))
    return Point(sign * (two[length].mean - one[length].mean), low, high, ())


def _scores(comparison: Comparison, method: Method, task: str, length: int, key: Key) -> dict[int, torch.Tensor]:
    """Find the scores of all windows for each seed; those of changes are less the scores at the training length."""
    found = {}
    for record in comparison.trials:
        results = record.methods.get(method.name)
        if record.trial.task != task or results is None:
            continue
        level, base = scored(results, length), scored(results, comparison.settings.train_length)
        if level is not None and key == "level":
            found[record.trial.seed] = level
        elif level is not None and base is not None:
            found[record.trial.seed] = level - base
    return found
