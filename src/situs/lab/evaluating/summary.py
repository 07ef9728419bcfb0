"""From records to rows: what each scaling scored at each length, and how much that is worse than the released model.

Changes are paired: a scaling's loss at a length, less the loss of the model as it was released within its trained
length, on the same tokens, text by text. So a change at the trained length is what a scaling costs short texts.
Intervals are 95 % intervals of a bootstrap that draws texts anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import Tensor

from situs.lab.evaluating.records import MEASURES, NONE, Evaluation, Task, TrialRecord
from situs.lab.scores import (
    ACCURACY,
    FINDS,
    MISSING,
    NO_RESULT,
    Entry,
    Point,
    Ranking,
    Scores,
    at,
    by_depth,
    farthest,
    point,
    ranked,
    worse,
)

NARROW = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Cost:
    """Hold what a forward pass over one text took."""

    seconds: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Row:
    """Hold all about one scaling."""

    name: str
    scores: dict[str, Scores]
    costs: dict[int, Cost]
    problems: tuple[str, ...]
    verdict: str
    refused: str | None = None
    """Why the model cannot have it."""
    nats: dict[int, Point] = field(default_factory=dict)
    """The loss on the tokens of answers at each length."""


@dataclass(frozen=True)
class Summary:
    """Hold the rows of an evaluation, and their order by the task that decides."""

    records: Evaluation
    rows: list[Row]
    ranking: Ranking[Row]
    """By the loss, or the right answers where passkey is all, at the longest length."""

    @property
    def task(self) -> str:
        """The task by which scalings are ordered."""
        return self.ranking.task

    @property
    def entries(self) -> list[Entry[Row]]:
        """Scalings that have a number at the longest length, the best first."""
        return self.ranking.entries

    @property
    def released(self) -> Entry[Row] | None:
        """The entry of the model as it was released, if it has one."""
        return self.ranking.named(NONE)

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


def summarise(records: Evaluation) -> Summary:
    """Sum up every scaling in a row, and order them by the loss, or else the right answers, at the longest length."""
    rows = [_row(name, records) for name in records.scalings]
    task: Task = "text" if "text" in records.tasks else records.tasks[0]
    return Summary(records, rows, _ranking(records, rows, task))


def _row(name: str, records: Evaluation) -> Row:
    own = [record for record in records.trials if record.trial.scaling == name]
    scores: dict[str, Scores] = {
        task: _scores(records, own, task) for task in records.tasks if name not in records.refused
    }
    costs: dict[int, Cost] = {}
    for length in records.lengths:
        timed = [record for record in own if record.trial.length == length and record.seconds]
        if timed:  # text before passkey, whose texts are as long
            costs[length] = Cost(median(timed[0].seconds), timed[0].bytes)
    problems = [f"{record.trial.label}: {record.outcome.error}" for record in own if record.outcome.error is not None]
    refused = records.refused.get(name)
    missing = sum(trial.scaling == name for trial in records.missing)
    failed = sum(record.status == "failed" for record in own)
    verdict = _verdict(records, scores, refused, {"failed": failed, MISSING: missing})
    return Row(name, scores, costs, tuple(problems), verdict, refused, _nats(own))


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
        if outcome.depths is not None:
            depths[length] = by_depth(zip(outcome.depths, outcome.scores, strict=True))
        along = outcome.along or along
    return Scores(MEASURES[task], levels, changes, along, depths)


def _nats(own: Sequence[TrialRecord]) -> dict[int, Point]:
    """Average the loss on the tokens of answers at each length."""
    found = {record.trial.length: record.nats for record in own if record.nats is not None}
    return {length: point(torch.tensor(nats, dtype=torch.float64)[None]) for length, nats in found.items()}


def _ranking(records: Evaluation, rows: Sequence[Row], task: Task) -> Ranking[Row]:
    """Order rows by their score at the longest length, and compare each with the first, text by text."""
    longest = records.lengths[-1]

    def scored(row: Row) -> Tensor:
        own = _scored([record for record in records.trials if record.trial.scaling == row.name], task, longest)
        assert own is not None
        return own

    return ranked(
        rows, task, longest, lambda first, row: point(worse(MEASURES[task]) * (scored(row) - scored(first))[None])
    )


def reach(records: Evaluation, scores: Scores) -> int:
    """Find the longest length from the trained one on up to which, without a break, the loss holds or answers are
    right; 0 where there is none."""
    return farthest(scores, [length for length in records.lengths if length >= records.base])


def _verdict(
    records: Evaluation, scores: Mapping[str, Scores], refused: str | None, unfinished: Mapping[str, int]
) -> str:
    """Say in words how far a scaling carries, and how many of its trials have no result."""
    if refused is not None:
        return "cannot be measured"
    words = [_phrase(records, task, found) for task, found in scores.items() if found.levels]
    words += [f"{count} trial{'s' * (count > 1)} {status}" for status, count in unfinished.items() if count]
    return "; ".join(words) or NO_RESULT


def _phrase(records: Evaluation, task: str, found: Scores) -> str:
    """Say how far the loss holds, or answers are right."""
    reached, base = reach(records, found), records.base
    times = records.setup.times
    after = next((length for length in records.lengths if length > reached and length >= base), None)
    beyond = None if after is None else found.levels.get(after)
    unknown = after is not None and (beyond is None or beyond.error is not None)  # failed, or not run
    if found.measure == ACCURACY:
        if not reached:
            return f"{task}: {NO_RESULT if unknown else f'under {100 * FINDS:.0f}{NARROW}% at {times(base)}'}"
        return f"{task}: right to {times(reached)}{', no result beyond' * unknown}"
    if not reached:
        change = at(found.changes, base)
        return NO_RESULT if change is None else f"costs {change.mean:.2f} at {times(base)}"
    if after is None:
        return f"loss holds to {times(reached)}"
    if unknown:
        return f"loss holds to {times(reached)}, no result beyond"
    if beyond is not None and beyond.ends is not None:
        return f"loss holds to {times(reached)} only, table ends at {beyond.ends:,}"
    return f"loss holds to {times(reached)} only" if reached > base else f"loss rises beyond {times(base)}"
