"""From records to rows: what each method scored at each length, how much that changed, and how sure one can be.

Changes are paired: the same answers at every length, window by window and seed by seed, so that what is hard for all
cancels. Intervals are 95 % of a bootstrap that draws seeds and windows anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

DRAWS = 1000
HOLDS = 0.05  # nats a byte
FINDS = 0.9  # of the answers
LOSS, ACCURACY = "loss", "accuracy"
TRAINED = {"extrapolating": "the loss holds up to the longest text that was tested"}
"""Properties that only training shows, beside those that are probed, and what each claims."""


@dataclass(frozen=True)
class Point:
    """A mean with its interval, and the mean of each seed; or where a table ended before it came to this."""

    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]
    ends: int | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a number."""
        return self.ends is None


@dataclass(frozen=True)
class Scores:
    """One method on one task."""

    measure: str
    levels: dict[int, Point]
    """The score at each length."""
    changes: dict[int, Point]
    """The same, less the score at the training length."""
    along: list[float] | None = None
    """The loss along the longest text, in even stretches."""
    depths: dict[int, dict[float, float]] = field(default_factory=dict)
    """For each length and depth, the share of answers that were right."""
    ramps: list[list[float]] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """All about one method."""

    method: str
    scores: dict[str, Scores]
    parameters: int | None
    seconds: float | None
    """A training on the first task took that long, on average."""
    cost: Mapping[str, Any]
    properties: Mapping[str, Any]
    problems: tuple[str, ...]
    verdict: str


def summarise(records: Mapping[str, Any]) -> list[Row]:
    """A row for each method, in the order of the comparison."""
    return [_row(method, records) for method in records["methods"]]


def _row(method: str, records: Mapping[str, Any]) -> Row:
    trials = [trial for trial in records["trials"] if method in trial["trial"]["tested"]]
    done = [trial for trial in trials if trial["status"] == "done"]
    lengths = lengths_of(records)
    scores = {}
    for task in records["tasks"]:
        own = [trial for trial in done if trial["trial"]["task"] == task]
        if own:
            scores[task] = _scores(method, own, lengths)
    problems = tuple(
        f"{trial['trial']['task']}, seed {trial['trial']['seed']}: {trial.get('error') or trial['status']}"
        for trial in trials
        if trial["status"] != "done"
    )
    first = [trial["seconds"]["training"] for trial in done if trial["trial"]["task"] == next(iter(records["tasks"]))]
    return Row(
        method=method,
        scores=scores,
        parameters=done[0]["parameters"]["encodings"] if done else None,
        seconds=sum(first) / len(first) if first else None,
        cost=records.get("costs", {}).get(method, {}),
        properties={**records.get("properties", {}).get(method, {}), **_extrapolating(scores, lengths)},
        problems=problems,
        verdict=verdict(scores, lengths[0], problems),
    )


def _extrapolating(scores: Mapping[str, Scores], lengths: Sequence[int]) -> dict[str, Any]:
    """Whether the loss holds to the longest text, as a property beside those that are probed."""
    found = next((each for each in scores.values() if each.measure == LOSS), None)
    if found is None or len(lengths) < 2:
        return {}
    change, times = found.changes.get(lengths[-1]), lengths[-1] // lengths[0]
    if change is None or not change.exists:
        said = f"Its table ends before {lengths[-1]} tokens."
        return {"extrapolating": {"holds": False, "number": None, "unit": "nats", "said": said}}
    said = f"At {times} times the training length the loss changes by {change.mean:+.3f} nats; it holds below {HOLDS}."
    holds = farthest(found) == lengths[-1]
    return {"extrapolating": {"holds": holds, "number": change.mean, "unit": "nats", "said": said}}


def lengths_of(records: Mapping[str, Any]) -> list[int]:
    """All lengths that were tested at."""
    settings = records["settings"]
    return [multiple * settings["train_length"] for multiple in settings["multiples"]]


def _scores(method: str, trials: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> Scores:
    measure = trials[0]["measure"]
    found: dict[int, Tensor] = {}
    ends: dict[int, int] = {}
    for length in lengths:
        each = [trial["methods"][method]["lengths"][str(length)] for trial in trials]
        if "ends" in each[0]:
            ends[length] = each[0]["ends"]
        else:
            found[length] = torch.tensor([one["scores"] for one in each], dtype=torch.float64)
    base = found.get(lengths[0])
    nothing = {length: Point(float("nan"), float("nan"), float("nan"), (), end) for length, end in ends.items()}
    changes = {} if base is None else {length: point(scores - base) for length, scores in found.items()}
    longest = trials[0]["methods"][method]["lengths"][str(lengths[-1])]
    along = None
    if "along" in longest:
        stretches = [trial["methods"][method]["lengths"][str(lengths[-1])]["along"] for trial in trials]
        along = torch.tensor(stretches, dtype=torch.float64).mean(0).tolist()
    return Scores(
        measure=measure,
        levels={**{length: point(scores) for length, scores in found.items()}, **nothing},
        changes={**changes, **nothing},
        along=along,
        depths=_depths(method, trials, lengths),
        ramps=[trial["methods"][method]["ramp"] for trial in trials if trial["methods"][method].get("ramp")],
    )


def _depths(method: str, trials: Sequence[Mapping[str, Any]], lengths: Sequence[int]) -> dict[int, dict[float, float]]:
    found: dict[int, dict[float, float]] = {}
    for length in lengths:
        pairs: dict[float, list[float]] = {}
        for trial in trials:
            at = trial["methods"][method]["lengths"][str(length)]
            for depth, score in zip(at["depths"], at["scores"], strict=True) if "depths" in at else ():
                pairs.setdefault(round(depth, 3), []).append(score)
        if pairs:
            found[length] = {depth: sum(scores) / len(scores) for depth, scores in sorted(pairs.items())}
    return found


def point(scores: Tensor) -> Point:
    """The mean of (seeds, windows), with an interval by drawing both anew."""
    seeds, windows = scores.shape
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(seeds, (DRAWS, seeds, 1), generator=generator)
    columns = torch.randint(windows, (DRAWS, 1, windows), generator=generator)
    means = scores[rows, columns].mean((1, 2))
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype)).tolist()
    return Point(float(scores.mean()), low, high, tuple(scores.mean(1).tolist()))


def farthest(scores: Scores) -> int:
    """The longest length up to which, without a break, the loss holds or the answers are found; 0 if at none."""
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


def verdict(scores: Mapping[str, Scores], train_length: int, problems: Sequence[str]) -> str:
    """In words: how far the loss holds, and how far answers are found."""
    words = []
    for task, found in scores.items():
        reached = farthest(found)
        times = f"{reached // train_length}×" if reached else ""
        ended = next((point.ends for point in found.levels.values() if not point.exists), None)
        longest = reached == max(found.levels)
        if found.measure == LOSS:
            phrase = f"loss holds to {times}" + ("" if longest else " only") if reached else "no loss at 1×"
            if ended is not None and reached == train_length:
                phrase = f"table ends at {ended}"
            elif reached == train_length:
                phrase = "tested at 1× only" if longest else "loss breaks beyond 1×"
        else:
            phrase = f"{task}: right to {times}" if reached else f"{task}: not learnt"
        words.append(phrase)
    if problems:
        words.append(f"{len(problems)} trial{'s' * (len(problems) > 1)} failed")
    return "; ".join(words) or "no result"
