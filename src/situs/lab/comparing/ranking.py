"""Rankings: methods ordered by one number at one length, and which of them cannot be told from the first.

All methods are asked the same, so that two of them are compared window by window and seed by seed: the interval of
their difference is far narrower than those of the two numbers. A method ties with the first if the 95 % interval of
its difference from the first includes 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import Row, scored
from situs.lab.naming.grammar import Method
from situs.lab.scores import Key, Point, Ranking, point, ranked, worse


def rank(comparison: Comparison, rows: Sequence[Row], task: str, length: int, key: Key = "level") -> Ranking[Row]:
    """Order methods by their level or their change at a length: the lowest loss or the most right answers first."""
    return ranked(rows, task, length, lambda first, row: _behind(comparison, first, row, task, length, key), key)


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
    sign = worse(row.scores[task].measure)
    best, other = (_scores(comparison, each.method, task, length, key) for each in (first, row))
    shared = [seed for seed in best if seed in other]
    if shared:
        return point(torch.stack([sign * (other[seed] - best[seed]) for seed in shared]))
    one, two = (each.scores[task].points(key) for each in (first, row))
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
