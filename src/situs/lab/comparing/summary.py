"""From records to rows: what each method scored at each length, how much that changed, and how sure one can be.

Changes are paired: the same answers at every length, window by window and seed by seed, so that what is hard for all
cancels. Intervals are 95 % intervals of a bootstrap that draws seeds and windows anew. A length may have no number: its
point then holds where a table of positions ended, or what went wrong. A seed without a number there is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from situs.lab.comparing.records import Comparison, Results, TrialRecord
from situs.lab.naming.grammar import Method
from situs.lab.probing.findings import Costs, Finding
from situs.lab.records import Outcome
from situs.lab.scores import (
    ACCURACY,
    FINDS,
    HOLDS,
    LOSS,
    MISSING,
    NO_RESULT,
    Point,
    Scores,
    by_depth,
    farthest,
    point,
)

TRAINED = {"extrapolating": "the loss holds up to the longest text that was tested"}
"""Properties that only training shows, beside those that are probed, and what each claims."""


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
    """What went wrong, a sentence for each trial and length."""
    verdict: str
    unfinished: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each task the statuses of trials that were not done: diverged, failed, or missing."""
    ramps: tuple[tuple[float, float], ...] = ()
    """Those that were chosen for its scaling, where that has one."""

    @property
    def name(self) -> str:
        """The method as it was written."""
        return self.method.name


def summarise(comparison: Comparison) -> list[Row]:
    """Sum up every method in a row, in the order of the comparison."""
    return [_row(method, comparison) for method in comparison.methods]


def _row(method: Method, comparison: Comparison) -> Row:
    records = [record for record in comparison.trials if method in record.trial.tested]
    tested = [record for record in records if method.name in record.methods]
    lengths = comparison.settings.lengths
    scores, unfinished = {}, {}
    for task in comparison.tasks:
        own = [record for record in tested if record.trial.task == task]
        if own:
            scores[task] = _scores(method, own, lengths)
        without: list[str] = [
            record.status for record in records if record.trial.task == task and record.status != "done"
        ]
        without += [MISSING for trial in comparison.missing if trial.task == task and method in trial.tested]
        if without:
            unfinished[task] = tuple(without)
    trained = [record for record in records if record.status == "done"]
    first = [record.seconds.training for record in trained if record.trial.task == next(iter(comparison.tasks))]
    return Row(
        method=method,
        scores=scores,
        parameters=_parameters(records, comparison.costs.get(method.name)),
        seconds=sum(first) / len(first) if first else None,
        cost=comparison.costs.get(method.name),
        properties={**comparison.properties.get(method.name, {}), **_extrapolating(scores, lengths)},
        problems=(
            *(problem for record in records for problem in _problems(method, record, lengths)),
            *comparison.problems.get(method.name, ()),
        ),
        verdict=verdict(scores, lengths[0], [status for each in unfinished.values() for status in each]),
        unfinished=unfinished,
        ramps=tuple(ramp for record in tested if (ramp := record.methods[method.name].ramp)),
    )


def _parameters(records: Sequence[TrialRecord], cost: Costs | None) -> int | None:
    """Count the parameters of a method's encodings, as a training or the measurement of costs did; None if none did."""
    counts = [record.parameters.encodings for record in records]
    return next((count for count in counts if count is not None), None if cost is None else cost.parameters)


def _problems(method: Method, record: TrialRecord, lengths: Sequence[int]) -> list[str]:
    """Say what went wrong in a trial: as a whole, or at single lengths."""
    trial = f"{record.trial.task}, seed {record.trial.seed}"
    said = []
    if record.status != "done":
        said = [f"{trial}: {ending(record)}"]
    if method.name in record.methods:
        found = {length: _reason(record.methods[method.name], length) for length in lengths}
        known = (None, *((record.error, NO_RESULT) if said else ()))  # said of the whole trial
        said += [f"{trial}, at {length}: {reason}" for length, reason in found.items() if reason not in known]
    return said


def ending(record: TrialRecord) -> str:
    """Say how a trial ended: by its status, and the error where that says more."""
    if record.error is None or record.status == "failed":
        return record.error or record.status
    return record.error if record.error.startswith(record.status) else f"{record.status}: {record.error}"


def _extrapolating(scores: Mapping[str, Scores], lengths: Sequence[int]) -> dict[str, Finding]:
    """Tell whether the loss holds to the longest text, as a property beside those that are probed."""
    found = next((each for each in scores.values() if each.measure == LOSS), None)
    if found is None or len(lengths) < 2:
        return {}
    change, times = found.changes.get(lengths[-1]), lengths[-1] // lengths[0]
    if change is None or change.error is not None:
        said = f"It has no result at {lengths[-1]} tokens: {'' if change is None else change.error}."
        return {"extrapolating": Finding(None, None, "nats", said)}
    if not change.exists:
        said = f"Its table of positions ends before {lengths[-1]} tokens."
        return {"extrapolating": Finding(False, None, "nats", said)}
    said = f"At {times} times the training length the loss changes by {change.mean:+.3f} nats; it holds below {HOLDS}."
    return {"extrapolating": Finding(farthest(found) == lengths[-1], change.mean, "nats", said)}


def _scores(method: Method, records: Sequence[TrialRecord], lengths: Sequence[int]) -> Scores:
    """Sum up what a method scored on one task; ``records`` have results of it, one record per seed."""
    tested = [record.methods[method.name] for record in records]
    base = [scored(one, lengths[0]) for one in tested]
    levels: dict[int, Point] = {}
    changes: dict[int, Point] = {}
    for length in lengths:
        found = [scored(one, length) for one in tested]
        known = [each for each in found if each is not None]
        pairs = [
            each - first for each, first in zip(found, base, strict=True) if each is not None and first is not None
        ]
        levels[length] = point(torch.stack(known)) if known else _missing(tested, length)
        changes[length] = point(torch.stack(pairs)) if pairs else _missing(tested, length if not known else lengths[0])
    stretches = [one.lengths[lengths[-1]].along for one in tested if lengths[-1] in one.lengths]
    along = [each for each in stretches if each is not None]
    return Scores(
        measure=records[0].measure or LOSS,
        levels=levels,
        changes=changes,
        along=torch.tensor(along, dtype=torch.float64).mean(0).tolist() if along else None,
        depths=_depths(tested, lengths),
    )


def scored(results: Results, length: int) -> Tensor | None:
    """Give the scores of all windows at a length, if there are any."""
    outcome = results.lengths.get(length, Outcome())
    return None if outcome.scores is None else torch.tensor(outcome.scores, dtype=torch.float64)


def _missing(tested: Sequence[Results], length: int) -> Point:
    """Say why no seed has a number at a length."""
    ends = next((one.lengths[length].ends for one in tested if length in one.lengths), None)
    if ends is not None:
        return Point.nothing(ends=ends)
    return Point.nothing(error=next((reason for one in tested if (reason := _reason(one, length))), NO_RESULT))


def _reason(results: Results, length: int) -> str | None:
    """Say what went wrong at a length, if anything did."""
    outcome = results.lengths.get(length)
    if outcome is not None and (outcome.scores is not None or outcome.ends is not None):
        return None
    return (None if outcome is None else outcome.error) or NO_RESULT


def _depths(tested: Sequence[Results], lengths: Sequence[int]) -> dict[int, dict[float, float]]:
    """Average the scores of each length and depth, where answers lie at depths."""
    found: dict[int, dict[float, float]] = {}
    for length in lengths:
        outcomes = [one.lengths[length] for one in tested if length in one.lengths]
        pairs = [pair for each in outcomes if each.depths for pair in zip(each.depths, each.scores or (), strict=True)]
        if pairs:
            found[length] = by_depth(pairs)
    return found


def verdict(scores: Mapping[str, Scores], train_length: int, unfinished: Sequence[str]) -> str:
    """Say in words how far the loss holds, how far answers are found, and how many trials were not done."""
    words = [_phrase(task, found, train_length) for task, found in scores.items()]
    counts = Counter(unfinished)
    words += [f"{count} trial{'s' * (count > 1)} {status}" for status, count in counts.items()]
    return "; ".join(words) or NO_RESULT


def _phrase(task: str, found: Scores, train_length: int) -> str:
    """Say how far the loss of one task holds, or its answers are right."""
    reached = farthest(found)
    times = f"{reached // train_length}×"
    next_one = next((found.levels[length] for length in sorted(found.levels) if length > reached), None)
    error = next_one is not None and next_one.error is not None
    if found.measure == ACCURACY:
        if not reached:
            return f"{task}: {NO_RESULT}" if error else f"{task}: under {100 * FINDS:.0f}\N{NO-BREAK SPACE}%"
        return f"{task}: right to {times}" + (", no result beyond" if error else "")
    if not reached:
        return "no loss at 1×"
    if next_one is None:
        return f"loss holds to {times}" if reached > train_length else "tested at 1× only"
    if next_one.ends is not None and reached == train_length:
        return f"table ends at {next_one.ends}"
    if next_one.ends is not None or error:
        beyond = "no result" if error else f"table ends at {next_one.ends}"
        return f"loss holds to {times}, {beyond}" + (" beyond" if error else "")
    return f"loss holds to {times} only" if reached > train_length else "loss rises beyond 1×"
