"""From records to rows: what each method scored at each length, how much that changed, and how sure one can be.

Changes are paired: the same answers at every length, window by window and seed by seed, so that what is hard for all
cancels. Intervals are 95 % of a bootstrap that draws seeds and windows anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from situs.lab.comparing.records import Comparison, Measure, Outcome, Results, Status, TrialRecord
from situs.lab.naming.grammar import Method
from situs.lab.probing.findings import Costs, Finding

DRAWS = 1000
HOLDS = 0.05  # nats a byte
FINDS = 0.9  # of the answers
LOSS: Measure = "loss"
ACCURACY: Measure = "accuracy"
TRAINED = {"extrapolating": "the loss holds up to the longest text that was tested"}
"""Properties that only training shows, beside those that are probed, and what each claims."""


@dataclass(frozen=True)
class Point:
    """Hold a mean with its interval, and the mean of each seed; or where a table ended before it came to this, or why
    there is none."""

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]
    ends: int | None = None
    error: str | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a number."""
        return self.ends is None and self.error is None

    @staticmethod
    def nothing(*, ends: int | None = None, error: str | None = None) -> Point:
        """Make a point without a number, for one of these reasons."""
        return Point(math.nan, math.nan, math.nan, (), ends, error)


@dataclass(frozen=True)
class Scores:
    """Hold what one method scored on one task."""

    measure: Measure
    levels: dict[int, Point]
    """The score at each length."""
    changes: dict[int, Point]
    """Scores less the score at the training length."""
    along: list[float] | None = None
    """The loss along the longest text, in even stretches."""
    depths: dict[int, dict[float, float]] = field(default_factory=dict)
    """For each length and depth, the share of answers that were right."""
    ramps: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """Hold all about one method."""

    method: Method
    scores: dict[str, Scores]
    parameters: int | None
    seconds: float | None
    """A training on the first task took that long, on average."""
    cost: Costs | None
    properties: Mapping[str, Finding]
    problems: tuple[str, ...]
    verdict: str

    @property
    def name(self) -> str:
        """The method as it was written."""
        return self.method.name


def summarise(comparison: Comparison) -> list[Row]:
    """Sum up every method in a row, in the order of the comparison."""
    return [_row(method, comparison) for method in comparison.methods]


def _row(method: Method, comparison: Comparison) -> Row:
    records = [record for record in comparison.trials if method in record.trial.tested]
    done = [record for record in records if method.name in record.methods]  # or at least in part
    lengths = comparison.settings.lengths
    scores = {}
    for task in comparison.tasks:
        own = [record for record in done if record.trial.task == task]
        if own:
            scores[task] = _scores(method, own, lengths)
    problems = tuple(
        f"{record.trial.task}, seed {record.trial.seed}: {ending(record)}"
        for record in records
        if record.status != "done"
    ) + tuple(comparison.problems.get(method.name, ()))
    endings: Counter[Status] = Counter(record.status for record in records if record.status != "done")
    first = [record.seconds.training for record in done if record.trial.task == next(iter(comparison.tasks))]
    return Row(
        method=method,
        scores=scores,
        parameters=done[0].parameters.encodings if done else None,
        seconds=sum(first) / len(first) if first else None,
        cost=comparison.costs.get(method.name),
        properties={**comparison.properties.get(method.name, {}), **_extrapolating(scores, lengths)},
        problems=problems,
        verdict=verdict(scores, lengths[0], endings),
    )


def ending(record: TrialRecord) -> str:
    """Say why a trial did not come to a result."""
    return record.error or record.status


def _extrapolating(scores: Mapping[str, Scores], lengths: Sequence[int]) -> dict[str, Finding]:
    """Tell whether the loss holds to the longest text, as a property beside those that are probed."""
    found = next((each for each in scores.values() if each.measure == LOSS), None)
    if found is None or len(lengths) < 2:
        return {}
    change, times = found.changes.get(lengths[-1]), lengths[-1] // lengths[0]
    if change is None or change.error is not None:
        return {}
    if not change.exists:
        said = f"Its table ends before {lengths[-1]} tokens."
        return {"extrapolating": Finding(False, None, "nats", said)}
    said = f"At {times} times the training length the loss changes by {change.mean:+.3f} nats; it holds below {HOLDS}."
    return {"extrapolating": Finding(farthest(found) == lengths[-1], change.mean, "nats", said)}


def _scores(method: Method, records: Sequence[TrialRecord], lengths: Sequence[int]) -> Scores:
    """Sum up what a method scored on one task; ``records`` are of trials with results, a seed each."""
    tested = [record.methods[method.name] for record in records]
    levels: dict[int, Point] = {}
    changes: dict[int, Point] = {}
    for length in lengths:
        outcomes = [one.lengths.get(length, Outcome(error="not tested")) for one in tested]
        pairs = [(each.scores, _base(one, lengths[0])) for one, each in zip(tested, outcomes, strict=True)]
        found = [scores for scores, _ in pairs if scores is not None]
        paired = [(scores, base) for scores, base in pairs if scores is not None and base is not None]
        levels[length] = (
            point(_matrix(found)) if found else Point.nothing(ends=outcomes[0].ends, error=outcomes[0].error)
        )
        if paired:
            scores, bases = zip(*paired, strict=True)
            changes[length] = point(_matrix(scores) - _matrix(bases))
        elif not levels[length].exists:
            changes[length] = levels[length]
    stretches = [at.along for one in tested if (at := one.lengths.get(lengths[-1])) is not None and at.along]
    along = torch.tensor(stretches, dtype=torch.float64).mean(0).tolist() if stretches else None
    return Scores(
        measure=records[0].measure or LOSS,
        levels=levels,
        changes=changes,
        along=along,
        depths=_depths(tested, lengths),
        ramps=[one.ramp for one in tested if one.ramp],
    )


def _base(results: Results, length: int) -> list[float] | None:
    return results.lengths[length].scores if length in results.lengths else None


def _matrix(scores: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(scores, dtype=torch.float64)


def _depths(tested: Sequence[Results], lengths: Sequence[int]) -> dict[int, dict[float, float]]:
    """Average the scores of each length and depth, where answers lie at depths."""
    found: dict[int, dict[float, float]] = {}
    for length in lengths:
        pairs: dict[float, list[float]] = {}
        for at in (one.lengths[length] for one in tested if length in one.lengths):
            for depth, score in zip(at.depths or (), at.scores or (), strict=True) if at.depths else ():
                pairs.setdefault(round(depth, 3), []).append(score)
        if pairs:
            found[length] = {depth: sum(scores) / len(scores) for depth, scores in sorted(pairs.items())}
    return found


def point(scores: Tensor) -> Point:
    """Average scores of (seeds, windows), with an interval by drawing both anew."""
    seeds, windows = scores.shape
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(seeds, (DRAWS, seeds, 1), generator=generator)
    columns = torch.randint(windows, (DRAWS, 1, windows), generator=generator)
    means = scores[rows, columns].mean((1, 2))
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()
    return Point(float(scores.mean()), low, high, tuple(scores.mean(1).tolist()))


def farthest(scores: Scores) -> int:
    """Find the longest length up to which, without a break, the loss holds or answers are found; 0 if at none."""
    reached = 0
    for length in sorted(scores.levels):
        level, change = scores.levels[length], scores.changes.get(length)
        good = level.exists and (
            level.mean >= FINDS if scores.measure == ACCURACY else change is not None and change.mean < HOLDS
        )
        if not good:
            break
        reached = length
    return reached


def verdict(scores: Mapping[str, Scores], train_length: int, endings: Mapping[Status, int]) -> str:
    """Say in words how far the loss holds, how far answers are found, and how many trials failed or diverged."""
    words = []
    for task, found in scores.items():
        reached = farthest(found)
        times = f"{reached // train_length}×" if reached else ""
        ended = next((point.ends for point in found.levels.values() if point.ends is not None), None)
        longest = reached == max(found.levels)
        if found.measure == LOSS:
            phrase = f"loss holds to {times}" + ("" if longest else " only") if reached else "no loss at 1×"
            if any(point.error is not None for point in found.levels.values()) and not longest:
                phrase = f"no result beyond {times}" if reached else "no result"
            elif ended is not None and reached == train_length:
                phrase = f"table ends at {ended}"
            elif reached == train_length:
                phrase = "tested at 1× only" if longest else "loss breaks beyond 1×"
        else:
            phrase = f"{task}: right to {times}" if reached else f"{task}: not learnt"
        words.append(phrase)
    ends: tuple[Status, ...] = ("failed", "diverged")
    for status in ends:
        if count := endings.get(status, 0):
            words.append(f"{count} trial{'s' * (count > 1)} {status}")
    return "; ".join(words) or "no result"
