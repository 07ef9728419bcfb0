"""The columns of the tables: which there are, what each means, and what stands in its cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from situs.lab.comparing.summary import TRAINED, Row
from situs.lab.probing.findings import CLAIMS, Cost, DecodeCost
from situs.lab.scores import FINDS, HOLDS, Point
from situs.plots.comparison.view import View
from situs.plots.comparison.words import (
    FAIR_ANSWERS,
    FAIR_CHANGE,
    change_interval,
    interval,
    percent,
    signed,
    unit,
)
from situs.plots.page import Cell
from situs.plots.style import minus

PROPERTIES = {**CLAIMS, **TRAINED}
NOTHING = "–"


@dataclass(frozen=True)
class Column:
    """Hold a column of a table, and what it means.

    words: whether its cells hold words, which are aligned left.
    wide: whether phones leave it out, unless the reader asks for all columns.
    """

    head: str
    explained: str
    cell: Callable[[Row], Cell]
    words: bool = False
    wide: bool = False


def overview(view: View) -> list[Column]:
    """Choose the columns of the first table: what methods are ranked by, and one column for everything else."""
    found = [] if view.ranking is None else _of_ranking(view)
    ranked_by = view.ranking.task if view.ranking is not None else None
    found += [right_at(view, task, view.longest) for task in view.answer_tasks if task != ranked_by]
    if view.cost_lengths:
        found.append(_time_at(view, view.cost_lengths[-1]))
    explained = (
        f"The loss holds while it is within {HOLDS} of its value at 1×; answers count as right while at least "
        f"{percent(FINDS)} of them are. Trials without a result are counted by what became of them."
    )
    verdict = Column("in words", explained, lambda row: Cell(row.verdict, title="; ".join(row.problems)), True, True)
    return [*found, verdict]


def _of_ranking(view: View) -> list[Column]:
    """Make the columns of the number that ranks the table, of its difference from the best, and of the change."""
    ranking = view.ranking
    assert ranking is not None
    task, length = ranking.task, ranking.length
    times = view.times(length)
    loss = view.loss_task is not None

    def behind(row: Row) -> Cell:
        entry = ranking.entry(row)
        if entry is None:
            return Cell(NOTHING)
        if entry is ranking.entries[0]:
            return Cell("first", tone="good")
        between = change_interval(entry.behind) if loss else interval(entry.behind, _points_of_percent)
        said = signed(entry.behind.mean) if loss else _points_of_percent(entry.behind.mean)
        return Cell(said, f"tie: {between}" if entry.ties else between, tone="good" if entry.ties else "")

    compared = Column(
        "behind the first",
        f"Difference from the first, on the same {'bytes' if task == 'text' else 'examples'} and with the same seeds, "
        f"with its 95 % interval. An interval that includes 0 is a tie.",
        behind,
        wide=True,
    )
    if not loss:
        return [right_at(view, task, length), compared]
    level = Column(
        f"loss at {times}",
        f"Loss at {length:,}, in {unit(task)}: the number that orders the table, lowest first.",
        points(view, task, "levels", length, lambda point: Cell(f"{point.mean:.2f}", _seeds(view, point))),
    )
    if length == view.train_length:
        return [level, compared]
    return [
        level,
        compared,
        loss_at_first(view, task, intervals=False),
        change_at(view, task, length, f"change at {times}"),
    ]


def _seeds(view: View, point: Point) -> str:
    """Say how many seeds have a number, where some have none."""
    return (
        f"{len(point.seeds)} of {len(view.records.seeds)} seeds" if len(point.seeds) < len(view.records.seeds) else ""
    )


def loss_at_first(view: View, task: str, *, intervals: bool = True) -> Column:
    """Make the column of the loss at the training length."""
    explained = (
        f"Loss at the training length, {view.train_length:,}, in {unit(task)}. A high loss here has less room to grow: "
        f"judge changes together with it."
    )

    def level(point: Point) -> Cell:
        return Cell(f"{point.mean:.2f}", interval(point, "{:.2f}".format) if intervals else "")

    cell = points(view, task, "levels", view.train_length, level)
    return Column("loss at 1×", explained, cell, wide=not intervals)


def change_at(view: View, task: str, length: int, head: str) -> Column:
    """Make the column of the loss's change at a length."""
    explained = (
        f"Loss at that multiple of the training length, less the loss at 1×: the same bytes are scored with more text "
        f"before them. With its 95 % interval (bootstrap over seeds and windows). Below {HOLDS} the loss holds."
    )

    def change(point: Point) -> Cell:
        tone = "good" if point.mean < HOLDS else "fair" if point.mean < FAIR_CHANGE else "bad"
        return Cell(signed(point.mean), change_interval(point), tone=tone)

    return Column(head, explained, points(view, task, "changes", length, change))


def right_at(view: View, task: str, length: int, head: str = "") -> Column:
    """Make the column of right answers on a task at a length."""
    explained = (
        f"Share of {task} examples whose whole answer is right, at that multiple of the training length, with its 95 % "
        f"interval."
    )

    def right(point: Point) -> Cell:
        tone = "good" if point.mean >= FINDS else "fair" if point.mean >= FAIR_ANSWERS else "bad"
        between = f"{100 * point.low:.0f} to {percent(point.high)}"
        return Cell(percent(point.mean), between, tone=tone)

    return Column(head or f"{task} at {view.times(length)}", explained, points(view, task, "levels", length, right))


def _points_of_percent(difference: float) -> str:
    """Write a difference of shares of wrong answers in percentage points."""
    return signed(difference) if abs(100 * difference) < 0.5 else minus(f"{100 * difference:+.0f} points")


def points(
    view: View, task: str, which: Literal["levels", "changes"], length: int, shown: Callable[[Point], Cell]
) -> Callable[[Row], Cell]:
    """Make the cell of a task at a length: what is shown of its point, or why there is none."""

    def cell(row: Row) -> Cell:
        scores = row.scores.get(task)
        if scores is None:
            statuses = dict.fromkeys(row.unfinished.get(task, ()))
            return Cell(", ".join(statuses) or NOTHING, title="; ".join(row.problems))
        found = scores.levels if which == "levels" else scores.changes
        point = view.at(found, length)
        return missing(found.get(length)) if point is None else shown(point)

    return cell


def missing(point: Point | None) -> Cell:
    """Say why there is no number."""
    if point is not None and point.ends is not None:
        return _ended(point.ends)
    return Cell("no result", title=point.error) if point is not None and point.error else Cell(NOTHING)


def _ended(ends: int) -> Cell:
    return Cell("ends", title=f"The table of positions ends at {ends:,}.")


def of_losses(view: View, task: str) -> list[Column]:
    """Choose the columns of losses: at the training length, and the change at every longer one."""
    longer = [change_at(view, task, length, f"change at {view.times(length)}") for length in view.beyond]
    return [loss_at_first(view, task), *longer]


def of_answers(view: View, task: str) -> list[Column]:
    """Choose the columns of a task's right answers, one per length."""
    return [right_at(view, task, length, view.times(length)) for length in view.lengths]


def of_costs(view: View) -> list[Column]:
    """Choose the columns of costs that were measured."""
    found = []
    if any(row.parameters is not None for row in view.rows):
        explained = "Parameters that the encodings add to the model, over all layers."
        found.append(Column("parameters", explained, _parameters, wide=True))
    for number, length in enumerate(view.cost_lengths):
        found += [_time_at(view, length), _memory_at(view, length, wide=number == 0)]
    if any(row.cost is not None and row.cost.decode.time is not None for row in view.rows):
        explained = (
            "Time per token of decoding behind a cache, attention layers only, divided by the time without positions."
        )
        found.append(Column("decoding", explained, _decode))
    return found


def _run(view: View, length: int) -> str:
    batch = view.records.settings.batch
    return f"a training step of {batch} texts" if length == view.train_length else "a forward pass over one text"


def _time_at(view: View, length: int) -> Column:
    explained = (
        f"Time of {_run(view, length)} of {length:,} tokens, attention layers only, divided by the time without "
        f"positions, with its 95 % interval (bootstrap over rounds)."
    )
    return Column(f"time at {length:,}", explained, lambda row: _time(view.cost(row, length)))


def _memory_at(view: View, length: int, *, wide: bool) -> Column:
    explained = (
        f"Peak memory of {_run(view, length)} of {length:,} tokens, attention layers only, divided by that without "
        f"positions. It is counted exactly, so that it has no interval."
    )
    return Column(f"memory at {length:,}", explained, lambda row: _memory(view.cost(row, length)), wide=wide)


def _parameters(row: Row) -> Cell:
    return Cell(NOTHING if row.parameters is None else f"{row.parameters:,}")


def _decode(row: Row) -> Cell:
    return Cell(NOTHING) if row.cost is None else _time(row.cost.decode)


def _time(cost: Cost | DecodeCost) -> Cell:
    """Show a time with its interval, or why there is none."""
    if cost.ends is not None:
        return _ended(cost.ends)
    if cost.error is not None:
        return Cell("failed", title=cost.error)
    known = cost.time_low is not None and cost.time_high is not None
    between = f"{cost.time_low:.2f} to {cost.time_high:.2f}" if known else ""
    return Cell(times(cost.time), between)


def _memory(cost: Cost) -> Cell:
    """Show the memory, or why there is none."""
    if cost.ends is not None:
        return _ended(cost.ends)
    if cost.error is not None:
        return Cell("failed", title=cost.error)
    known = cost.mib is not None and cost.plain_mib is not None
    return Cell(times(cost.memory), title=f"{cost.mib:.1f} MiB, plain {cost.plain_mib:.1f} MiB" if known else "")


def times(number: float | None) -> str:
    """Write a ratio."""
    return NOTHING if number is None else f"{number:.2f}×"


def of_properties(view: View) -> list[Column]:
    """Choose the columns of properties that were measured."""
    names = list(dict.fromkeys(name for row in view.rows for name in row.properties))

    def measured(name: str) -> Callable[[Row], Cell]:
        def cell(row: Row) -> Cell:
            found = row.properties.get(name)
            holds = None if found is None else found.holds
            text = NOTHING if holds is None else "yes" if holds else "no"
            return Cell(text, title="" if found is None else found.said, tone="" if holds is None else text)

        return cell

    explained = {name: f"Measured: {PROPERTIES.get(name, name)}." for name in names}
    return [Column(name.replace("_", " "), explained[name], measured(name), words=True) for name in names]
