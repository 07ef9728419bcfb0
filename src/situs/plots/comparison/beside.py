"""Whether these records agree with published results.

Losses per word and per byte cannot be compared, so numbers stand side by side and only orders are compared: for each
pair of methods, which is ahead. Too close to call are pairs whose seeds overlap, or for which the 95 % interval of the
difference includes 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from situs.lab.comparing.ranking import difference
from situs.lab.comparing.summary import Row
from situs.lab.naming.grammar import Method
from situs.lab.naming.scalings import RANDOM
from situs.lab.scores import Key, Point, Scores
from situs.plots.comparison.literature import PUBLISHED, Published
from situs.plots.comparison.view import View
from situs.plots.comparison.words import alike, called, listed, percent, signed, unit


@dataclass(frozen=True)
class Measured:
    """Hold the number that is compared, less being better, how it is said, and the tasks and lengths it is of."""

    point: Point
    said: str
    at: list[tuple[str, int]]


@dataclass(frozen=True)
class Beside:
    """Hold a published claim and what was measured: for each method both numbers, and in words whether they agree."""

    published: Published
    rows: list[tuple[str, str, str, str]]
    """Method, what the paper says, what else it says, and what was measured."""
    same: int
    level: int
    differ: list[str]
    note: str = ""

    @property
    def compared(self) -> bool:
        """Whether any pair of methods was measured."""
        return bool(self.same or self.level or self.differ)

    @property
    def verdict(self) -> str:
        """Whether the orders agree, in a word or two."""
        pairs = self.same + self.level + len(self.differ)
        if not pairs:
            return "not measured"
        return "differs" if self.differ else "same order" if not self.level else "no contradiction"

    @property
    def said(self) -> str:
        """Whether the orders agree, in sentences."""
        pairs = self.same + self.level + len(self.differ)
        if not pairs:
            return "Too few of these methods were measured here."
        one = pairs == 1
        agree = "It is the same here." if one else f"{self.same} of {pairs} pairs are in the same order here."
        close = (
            "Too close to call here."
            if one
            else f"{self.level} {'is' if self.level == 1 else 'are'} too close to call."
        )
        parts = [agree] if self.same or not one else []
        parts += [close] if self.level else []
        return " ".join([*parts, *self.differ, *([self.note] if self.note else [])])


def beside(view: View) -> list[Beside]:
    """Put every claim beside these records; claims about additions, once for each method that was added to."""
    found = []
    for published in PUBLISHED:
        bases = [method.without_last.name for method in view.methods if method.added[-1:] == (RANDOM,)]
        for base in bases if published.compared == "gain" else [""]:
            rows = {name: _row(view, base + name) for name in published.numbers}
            found.append(_beside(view, published, {name: row for name, row in rows.items() if row is not None}))
    return found


def _row(view: View, name: str) -> Row | None:
    """Find the method of that name, or else the first that is this encoding with options."""
    same = (row for row in view.rows if row.name == name)
    return next(same, None) or next((row for row in view.rows if _bare_name(row.method) == name), None)


def _bare_name(method: Method) -> str:
    """Name a method of one encoding, with nothing added to it, without its options."""
    return method.parts[0].name if len(method.parts) == 1 and not method.added else method.name


def _beside(view: View, published: Published, measured: Mapping[str, Row]) -> Beside:
    found = {name: at for name, row in measured.items() if (at := _measured(view, published, name, row))}
    names = {name: row.name for name, row in measured.items()}
    rows = [(names[name], published.said(name), published.others(name), found[name].said) for name in found]
    same, level, differ = 0, 0, []
    for pair in itertools.combinations(found, 2):
        ahead, behind = sorted(pair, key=published.badness)
        first, second = found[ahead].point, found[behind].point
        methods = measured[ahead].method, measured[behind].method
        if alike(first, second) or _uncertain(view, published, methods, (found[ahead], found[behind])):
            level += 1
        elif first.mean < second.mean:
            same += 1
        else:
            differ.append(
                f"In the paper {called(names[ahead])} is ahead of {called(names[behind])}; here it is behind, "
                f"{_short(published, first)} against {_short(published, second)}."
            )
    note = _spread(view, published, {name: each.point for name, each in found.items()})
    return Beside(published, rows, same, level, differ, note)


def _uncertain(
    view: View, published: Published, methods: tuple[Method, Method], found: tuple[Measured, Measured]
) -> bool:
    """Tell whether the 95 % interval of the difference between two methods includes 0."""
    shared = [each for each in found[0].at if each in found[1].at]
    key: Key = "change" if published.compared == "change" else "level"
    apart = difference(view.records, *methods, shared, key)
    return apart is not None and apart.low <= 0.0 <= apart.high


def _short(published: Published, point: Point) -> str:
    """Write a number that was compared; shares of answers are stored with their sign changed."""
    if published.compared in ("answers", "gain"):
        return percent(-point.mean)
    return signed(point.mean) if published.compared == "change" else f"{point.mean:.2f}"


def _spread(view: View, published: Published, found: Mapping[str, Point]) -> str:
    """Say how far the best and the worst are apart, in the paper and here."""
    if published.compared != "loss" or published.above or len(found) < 2:
        return ""
    theirs = [published.badness(name) for name in found]
    ours = [point.mean for point in found.values()]
    return (
        f"The best and the worst are {max(theirs) - min(theirs):.2f} nats per token apart in the paper, "
        f"{max(ours) - min(ours):.2f} {unit(view.loss_task)} here."
    )


def _measured(view: View, published: Published, name: str, row: Row) -> Measured | None:
    """Give the number to compare, if there is one."""
    if published.compared in ("answers", "gain"):
        return _answered(view, {task: row.scores[task] for task in view.answer_tasks if task in row.scores})
    task = view.loss_task or ""
    scores = row.scores.get(task)
    if scores is None:
        return None
    length = _nearest(view, published.at[name] / published.train_length)
    points = scores.changes if published.compared == "change" else scores.levels
    point = None if length is None else view.at(points, length)
    if length is None or point is None:
        return None
    if published.compared == "loss":
        return Measured(point, f"{point.mean:.2f} at {view.times(length)}", [(task, length)])
    start = scores.levels[view.train_length].mean
    return Measured(point, f"{signed(point.mean)} at {view.times(length)}, from {start:.2f}", [(task, length)])


def _nearest(view: View, multiple: float) -> int | None:
    """Find the tested length that is nearest to a multiple; beyond the training length if that is."""
    lengths = [view.train_length] if multiple <= 1 else view.beyond
    return min(lengths, key=lambda length: abs(math.log(length / view.train_length / multiple)), default=None)


def _answered(view: View, scores: Mapping[str, Scores]) -> Measured | None:
    """Count wrong answers beyond the training length, over all tasks."""
    found = {
        (task, length): point
        for task, each in scores.items()
        for length in view.beyond
        if (point := view.at(each.levels, length))
    }
    if not found:
        return None
    points = list(found.values())
    seeds = min(len(point.seeds) for point in points)
    wrong = [-sum(point.seeds[seed] for point in points) / len(points) for seed in range(seeds)]
    mean = sum(point.mean for point in points) / len(points)
    return Measured(Point(-mean, -mean, -mean, tuple(wrong)), f"{percent(mean)} beyond 1×", list(found))


def differences(found: list[Beside]) -> str:
    """Say in one sentence which papers these records agree with, and which not."""
    by_verdict: dict[str, list[str]] = {}
    for each in found:
        names = by_verdict.setdefault(each.verdict, [])
        if each.published.paper not in names:
            names.append(each.published.paper)
    parts = {
        "same order": "the order agrees with {}",
        "no contradiction": "nothing contradicts {}",
        "differs": "the order differs from {}",
    }
    said = [form.format(listed(by_verdict[verdict])) for verdict, form in parts.items() if verdict in by_verdict]
    return f"In these records {'; '.join(said)}." if said else ""
