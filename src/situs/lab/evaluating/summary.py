"""From records to rows: what each scaling scored at each length, and how much that is worse than the released model.

Changes are paired: a scaling's loss at a length, less the loss of the model as it was released within its trained
length, on the same tokens, text by text. So a change at the trained length is what a scaling costs short texts.
Intervals are 95 % intervals of a bootstrap that draws texts anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from situs.lab.comparing.records import Measure
from situs.lab.comparing.summary import FINDS, HOLDS, NO_RESULT, Point, point
from situs.lab.evaluating.records import MEASURES, Evaluation, Task, TrialRecord
from situs.lab.evaluating.scalings import NONE


@dataclass(frozen=True)
class Cost:
    """Hold what a forward pass over one text took."""

    seconds: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Scores:
    """Hold what one scaling scored on one task."""

    measure: Measure
    levels: dict[int, Point]
    """The score at each length."""
    changes: dict[int, Point]
    """Scores less that of the released model within its trained length."""
    along: list[float] | None = None
    """The loss along the longest text, in even stretches."""
    depths: dict[int, dict[float, float]] = field(default_factory=dict)
    """For each length and depth, the share of answers that were right."""
    nats: dict[int, Point] = field(default_factory=dict)
    """The loss on the tokens of answers at each length."""


@dataclass(frozen=True)
class Row:
    """Hold all about one scaling."""

    name: str
    scores: dict[Task, Scores]
    costs: dict[int, Cost]
    problems: tuple[str, ...]
    verdict: str
    refused: str | None = None
    """Why the model cannot have it."""


@dataclass(frozen=True)
class Entry:
    """Hold a scaling's place in the order at the longest length."""

    row: Row
    point: Point
    behind: Point
    """The paired difference from the first, positive where this scaling is worse."""

    @property
    def ties(self) -> bool:
        """Whether the scaling cannot be told from the first."""
        return self.behind.low <= 0.0 <= self.behind.high


@dataclass(frozen=True)
class Summary:
    """Hold the rows of an evaluation, and their order by the task that decides."""

    records: Evaluation
    rows: list[Row]
    task: Task
    """By which scalings are ordered: text, or passkey where that is all."""
    entries: list[Entry]

    @property
    def ordered(self) -> list[Row]:
        """All rows, the best first, those without a number last."""
        names = [entry.row.name for entry in self.entries]
        return [*(entry.row for entry in self.entries), *(row for row in self.rows if row.name not in names)]

    def entry(self, row: Row) -> Entry | None:
        """Look up the place of a row, if it has one."""
        return next((entry for entry in self.entries if entry.row.name == row.name), None)

    @property
    def base(self) -> int:
        """The length that changes are counted from."""
        return self.records.base

    @property
    def lengths(self) -> list[int]:
        """All lengths, from short to long."""
        return self.records.lengths

    @property
    def longest(self) -> int:
        """The longest length."""
        return self.lengths[-1]

    def times(self, length: int) -> str:
        """Write a length as a multiple of the trained length."""
        return self.records.setup.times(length)


def at(points: Mapping[int, Point], length: int) -> Point | None:
    """Look up the point at a length, if there is a number."""
    found = points.get(length)
    return found if found is not None and found.exists and math.isfinite(found.mean) else None


def summarise(records: Evaluation) -> Summary:
    """Sum up every scaling in a row, and order them by the loss, or else the right answers, at the longest length."""
    rows = [_row(name, records) for name in records.scalings]
    task: Task = "text" if "text" in records.tasks else records.tasks[0]
    return Summary(records, rows, task, _entries(records, rows, task))


def _row(name: str, records: Evaluation) -> Row:
    own = [record for record in records.trials if record.trial.scaling == name]
    scores = {task: _scores(records, own, task) for task in records.tasks if name not in records.refused}
    costs: dict[int, Cost] = {}
    for length in records.lengths:
        timed = [record for record in own if record.trial.length == length and record.seconds]
        if timed:  # text before passkey, whose texts are as long
            costs[length] = Cost(median(timed[0].seconds), timed[0].bytes)
    problems = [f"{record.trial.label}: {record.outcome.error}" for record in own if record.outcome.error is not None]
    refused = records.refused.get(name)
    return Row(name, scores, costs, tuple(problems), _verdict(records, scores, refused), refused)


def _scored(records: Sequence[TrialRecord], task: Task, length: int) -> Tensor | None:
    """Give the scores of all texts at a length, if there are any."""
    for record in records:
        if (record.trial.task, record.trial.length) == (task, length) and record.outcome.scores is not None:
            return torch.tensor(record.outcome.scores, dtype=torch.float64)
    return None


def _scores(records: Evaluation, own: Sequence[TrialRecord], task: Task) -> Scores:
    released = [record for record in records.trials if record.trial.scaling == NONE]
    first = _scored(released, task, records.base)
    levels: dict[int, Point] = {}
    changes: dict[int, Point] = {}
    nats: dict[int, Point] = {}
    depths: dict[int, dict[float, float]] = {}
    along: list[float] | None = None
    for record in own:
        if record.trial.task != task:
            continue
        length, outcome = record.trial.length, record.outcome
        if outcome.scores is None:
            levels[length] = changes[length] = Point.nothing(ends=outcome.ends, error=outcome.error)
            continue
        found = torch.tensor(outcome.scores, dtype=torch.float64)
        levels[length] = point(found[None])
        if first is not None:
            changes[length] = point((found - first)[None])
        if record.nats is not None:
            nats[length] = point(torch.tensor(record.nats, dtype=torch.float64)[None])
        if outcome.depths is not None:
            depths[length] = _by_depth(outcome.depths, outcome.scores)
        along = outcome.along or along
    return Scores(MEASURES[task], levels, changes, along, depths, nats)


def _by_depth(depths: Sequence[float], scores: Sequence[float]) -> dict[float, float]:
    found: dict[float, list[float]] = {}
    for depth, score in zip(depths, scores, strict=True):
        found.setdefault(round(depth, 3), []).append(score)
    return {depth: sum(each) / len(each) for depth, each in sorted(found.items())}


def _entries(records: Evaluation, rows: Sequence[Row], task: Task) -> list[Entry]:
    """Order rows by their score at the longest length, and compare each with the first, text by text."""
    longest, sign = records.lengths[-1], 1.0 if MEASURES[task] == "loss" else -1.0
    known = [(found, row) for row in rows if task in row.scores and (found := at(row.scores[task].levels, longest))]
    known.sort(key=lambda each: sign * each[0].mean)
    scored = {row.name: _scored([each for each in records.trials if each.trial.scaling == row.name], task, longest)
              for _, row in known}  # fmt: skip
    entries = []
    for found, row in known:
        own, best = scored[row.name], scored[known[0][1].name]
        assert own is not None
        assert best is not None
        entries.append(Entry(row, found, point(sign * (own - best)[None])))
    return entries


def reach(records: Evaluation, scores: Scores) -> int:
    """Find the longest length beyond the trained one up to which, without a break, the loss holds or answers are right;
    0 where there is none."""
    reached = 0
    for length in records.lengths:
        if length < records.base:
            continue
        level, change = at(scores.levels, length), at(scores.changes, length)
        good = level is not None and (
            level.mean >= FINDS if scores.measure == "accuracy" else change is not None and change.mean < HOLDS
        )
        if not good:
            break
        reached = length
    return reached


def _verdict(records: Evaluation, scores: Mapping[Task, Scores], refused: str | None) -> str:
    if refused is not None:
        return "cannot be measured"
    words = [_phrase(records, task, found) for task, found in scores.items()]
    return "; ".join(words) or NO_RESULT


def _phrase(records: Evaluation, task: Task, found: Scores) -> str:
    """Say how far the loss holds, or answers are right."""
    reached, base = reach(records, found), records.base
    times = records.setup.times
    if found.measure == "accuracy":
        if not reached:
            return f"{task}: under {100 * FINDS:.0f}\N{NO-BREAK SPACE}% at {times(base)}"
        return f"{task}: right to {times(reached)}"
    if not reached:
        change = at(found.changes, base)
        return NO_RESULT if change is None else f"costs {change.mean:.2f} at {times(base)}"
    if reached == records.lengths[-1]:
        return f"loss holds to {times(reached)}"
    ends = next((each.ends for each in found.levels.values() if each.ends is not None), None)
    beyond = "" if ends is None else f", table ends at {ends:,}"
    if reached > base or ends is not None:
        return f"loss holds to {times(reached)} only{beyond}"
    return f"loss rises beyond {times(base)}"
