"""The tables of an evaluation: an overview, losses and answers by length, and what a forward pass takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from situs.lab.evaluating.summary import Cost, Row, Summary
from situs.lab.scores import FINDS, HOLDS, Point, at
from situs.plots.comparison.table_csv import as_csv
from situs.plots.comparison.words import FAIR_ANSWERS, FAIR_CHANGE, change_interval, interval, percent, signed
from situs.plots.evaluation.figures import unit
from situs.plots.page import Cell, Grid, Head

NOTHING = "–"
MIB = 1 << 20


def grids(summary: Summary) -> list[Grid]:
    """Make the tables that the records have numbers for. The first is the overview."""
    found = [_overview(summary)]
    if "text" in summary.records.tasks:
        found.append(_losses(summary))
    if "passkey" in summary.records.tasks:
        found.append(_answers(summary))
    if any(row.costs for row in summary.rows):
        found.append(_costs(summary))
    return found


def _overview(summary: Summary) -> Grid:
    text = summary.task == "text"
    far, near = summary.times(summary.longest), summary.times(summary.base)
    heads = [
        Head(
            f"loss at {far}" if text else f"passkey at {far}",
            f"{'Loss' if text else 'Share of right answers'} at {summary.longest:,} tokens: the number that orders the "
            f"table.",
        ),
        Head(
            "behind the first",
            "Difference from the first on the same texts, with its 95 % interval. An interval that includes 0 is a "
            "tie.",
            wide=True,
        ),
        Head(
            "in words",
            f"The loss holds while it is within {HOLDS} of that of the released model at {near}; answers count as "
            f"right while at least {percent(FINDS)} of them are.",
            words=True,
        ),
    ]
    rows = []
    for row in summary.ranking.rows:
        entry = summary.ranking.entry(row)
        if entry is None:
            cells = [Cell(NOTHING), Cell(NOTHING)]
        else:
            level = f"{entry.point.mean:.2f}" if text else percent(entry.point.mean)
            behind = Cell("first", tone="good")
            if entry is not summary.entries[0]:
                between = change_interval(entry.behind) if text else interval(entry.behind, lambda x: f"{100 * x:.0f}")
                said = signed(entry.behind.mean) if text else f"{100 * entry.behind.mean:.0f} points"
                behind = Cell(said, f"tie: {between}" if entry.ties else between, tone="good" if entry.ties else "")
            cells = [Cell(level), behind]
        verdict = row.verdict if row.refused is None else f"{row.verdict}: {row.refused}"
        rows.append((row.name, [*cells, Cell(verdict)]))
    by = "loss" if text else "share of right answers"
    about = f"Ordered by the {by} at {far}. Every scaling is set once, for {far} or as written."
    return Grid("overview", "Overview", about, "scaling", heads, rows)


def _by_length(
    summary: Summary, name: str, title: str, about: str, explained: str, cell: Callable[[Row, int], Cell]
) -> Grid:
    """Make a table with a column for each length, whose cells mean the same."""
    heads = [Head(f"at {summary.times(length)}, {length:,}", explained) for length in summary.lengths]
    rows = [(row.name, [cell(row, length) for length in summary.lengths]) for row in summary.ranking.rows]
    return Grid(name, title, about, "scaling", heads, rows)


def _losses(summary: Summary) -> Grid:
    near = f"{summary.times(summary.base)}"
    explained = (
        f"Loss in {unit(summary)} on the same tokens at every length; below it the change from the released model at "
        f"{near}, with its 95 % interval. Below {HOLDS} the loss holds."
    )
    about = (
        f"Loss in {unit(summary)}, and its change from the released model at {near}. Green: holds, below {HOLDS}; "
        f"yellow: below {FAIR_CHANGE}; red: more."
    )
    return _by_length(summary, "losses", "Loss by length", about, explained, _loss)


def _loss(row: Row, length: int) -> Cell:
    scores = row.scores.get("text")
    level = None if scores is None else at(scores.levels, length)
    if scores is None or level is None:
        return _missing(row, "text", length)
    change = at(scores.changes, length)
    if change is None:
        return Cell(f"{level.mean:.2f}")
    tone = "good" if change.mean < HOLDS else "fair" if change.mean < FAIR_CHANGE else "bad"
    return Cell(f"{level.mean:.2f}", f"{signed(change.mean)} ({change_interval(change)})", tone=tone)


def _missing(row: Row, task: str, length: int) -> Cell:
    """Write why there is no number, where that is known."""
    point: Point | None = row.scores[task].levels.get(length) if task in row.scores else None
    if point is not None and point.ends is not None:
        return Cell("ends", title=f"The table of positions ends at {point.ends:,}.")
    return Cell("no result", title=point.error) if point is not None and point.error else Cell(NOTHING)


def _answers(summary: Summary) -> Grid:
    explained = (
        "Share of texts whose number was given right, each token of it the likeliest; below it the mean loss on those "
        "tokens, which tells scalings apart where all or none are right."
    )
    about = (
        f"Share of texts whose number was found. Green: at least {percent(FINDS)}; yellow: at least "
        f"{percent(FAIR_ANSWERS)}; red: fewer."
    )
    return _by_length(summary, "answers", "Passkey by length", about, explained, _share)


def _share(row: Row, length: int) -> Cell:
    scores = row.scores.get("passkey")
    level = None if scores is None else at(scores.levels, length)
    if level is None:
        return _missing(row, "passkey", length)
    tone = "good" if level.mean >= FINDS else "fair" if level.mean >= FAIR_ANSWERS else "bad"
    nats = at(row.nats, length)
    between = f"{100 * level.low:.0f} to {percent(level.high)}"
    return Cell(percent(level.mean), between + ("" if nats is None else f"; {nats.mean:.2f} nats"), tone=tone)


def _costs(summary: Summary) -> Grid:
    heads: list[Head] = []
    for length in summary.lengths:
        heads += [
            Head(f"time at {length:,}", "Seconds of a forward pass over one text, the median of those measured."),
            Head(
                f"memory at {length:,}",
                "Memory of a forward pass over one text at its worst moment, beside the weights and the result.",
                wide=True,
            ),
        ]
    rows = []
    for row in summary.ranking.rows:
        found = [row.costs.get(length, Cost()) for length in summary.lengths]
        rows.append((row.name, [cell for cost in found for cell in (Cell(time_of(cost)), Cell(memory_of(cost)))]))
    about = (
        "Measured on this machine, with whatever else ran on it. Scalings by bands run on situs.attend, others on the "
        "model's own attention."
    )
    return Grid("costs", "Time and memory", about, "scaling", heads, rows)


def time_of(cost: Cost) -> str:
    """Write the time of a forward pass."""
    if cost.seconds is None:
        return NOTHING
    return f"{cost.seconds:.2f} s" if cost.seconds >= 0.1 else f"{1000 * cost.seconds:.1f} ms"


def memory_of(cost: Cost) -> str:
    """Write the memory of a forward pass."""
    return NOTHING if cost.bytes is None else f"{cost.bytes / MIB:,.1f} MiB"


def table_csv(summary: Summary) -> str:
    """Write the table for programs: every scaling in a row, with full numbers; fields without a number are empty."""
    return as_csv([_plain(summary, row) for row in summary.rows])


def _plain(summary: Summary, row: Row) -> dict[str, Any]:
    ranks = {entry.row.name: 1 if entry.ties else number for number, entry in enumerate(summary.entries, 1)}
    found: dict[str, Any] = {"scaling": row.name, "rank": ranks.get(row.name, "")}
    for task, scores in row.scores.items():
        nats = row.nats if task == "passkey" else {}
        for length in summary.lengths:
            for name, points in ((scores.measure, scores.levels), ("change", scores.changes), ("nats", nats)):
                point = at(points, length)
                if point is not None:
                    where = f"{task}_{name}_{length}"
                    found |= {where: point.mean, f"{where}_low": point.low, f"{where}_high": point.high}
    for length, cost in row.costs.items():
        found |= {f"seconds_{length}": cost.seconds, f"bytes_{length}": cost.bytes}
    return found | {"verdict": row.verdict, "refused": row.refused or "", "problems": " | ".join(row.problems)}
