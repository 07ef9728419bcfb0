"""The tables that ``situs compare`` prints when it is done, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from situs.cli.text_table import Column, fits, render
from situs.lab.comparing.summary import Row
from situs.lab.probing.findings import Cost, DecodeCost
from situs.lab.scores import LOSS, Point
from situs.plots.comparison.failures import failures
from situs.plots.comparison.findings import headline
from situs.plots.comparison.view import View
from situs.plots.comparison.words import percent, signed, unit

NOTHING = "–"
NARROW = "\N{NO-BREAK SPACE}"


def print_tables(view: View, folder: Path | None, console: Console) -> None:
    """Print the headline, a table for each task, costs and properties, what went wrong, and where the report is."""
    console.print(headline(view) + ".", style="bold", markup=False, highlight=False)
    for task in view.tasks:
        _print(console, _title(view, task), view.ranked, partial(_of_task, view, task))
    if view.cost_lengths:
        title = "costs, as multiples of attention without positions, and properties that were measured"
        _print(console, title, view.ranked, partial(_of_costs, view))
    for line in _remarks(view):
        console.print(line, markup=False, highlight=False)
    if folder is not None:
        console.print(f"Report: {folder / 'report.html'}", soft_wrap=True, markup=False)


def _print(console: Console, title: str, rows: Sequence[Row], columns: Callable[[bool], list[Column]]) -> None:
    """Print a table with intervals if all of its columns then fit beside each other, else without."""
    names = [row.name for row in rows]
    whole = columns(True)
    exact = fits(names, whole, console.width)
    marked = exact and any("±" in cell for column in whole for cell in column.cells)
    said = f"{title}; ±: half of the 95 % interval" if marked else title
    console.print(f"\n{said}", style="italic", markup=False, highlight=False)
    for line in render(names, whole if exact else columns(False), console.width):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _title(view: View, task: str) -> str:
    """Say what a table shows, and what it is ordered by."""
    seeds = len(view.records.seeds)
    repeated = f"{seeds} seed{'s' * (seeds > 1)}"
    if view.records.tasks[task].measure == LOSS:
        said = f"{task}: loss in {unit(task)}, and its change from 1×; {repeated}"
    else:
        said = f"{task}: share of examples whose whole answer is right; {repeated}"
    ranking = view.ranking
    if ranking is None or ranking.task != task:
        return said
    by, best = ("the loss", "lowest") if view.loss_task is not None else ("right answers", "most")
    return f"{said}; ordered by {by} at {view.times(ranking.length)}, {best} first"


def _of_task(view: View, task: str, exact: bool) -> list[Column]:
    """Make the columns of a task: for losses the first, every change, and the last loss; for answers each length."""
    first, rows = view.train_length, view.ranked

    def level(length: int) -> list[str]:
        return [_cell(view, row, task, length, lambda point: f"{point.mean:.2f}") for row in rows]

    def change(length: int) -> list[str]:
        return [_cell(view, row, task, length, lambda point: _signed(point, exact), changes=True) for row in rows]

    def right(length: int) -> list[str]:
        return [_cell(view, row, task, length, lambda point: _share(point, exact)) for row in rows]

    def headed(what: str, length: int) -> str:
        return f"{what}\n{view.times(length)}\n{length}"

    if view.records.tasks[task].measure == LOSS:
        columns = [Column(headed("loss", first), level(first))]
        columns += [Column(headed("change", length), change(length)) for length in view.beyond]
        if view.beyond:
            columns.append(Column(headed("loss", view.longest), level(view.longest)))
    else:
        columns = [Column(f"{view.times(length)}\n{length}", right(length)) for length in view.lengths]
    if task == view.tasks[0]:
        columns.append(Column("in words", [row.verdict for row in rows], words=True))
    return columns


def _cell(view: View, row: Row, task: str, length: int, form: Callable[[Point], str], *, changes: bool = False) -> str:
    """Write a number, or in a word why there is none."""
    scores = row.scores.get(task)
    if scores is None:
        return ", ".join(dict.fromkeys(row.unfinished.get(task, ()))) or NOTHING
    points = scores.changes if changes else scores.levels
    point = view.at(points, length)
    if point is not None:
        return form(point)
    found = points.get(length)
    if found is None or found.exists:
        return NOTHING
    return "ends" if found.ends is not None else "no result"


def _signed(change: Point, exact: bool) -> str:
    half = f" ±{(change.high - change.low) / 2:.3f}" if exact else ""
    return f"{signed(change.mean, 3)}{half}"


def _share(share: Point, exact: bool) -> str:
    half = f" ±{50 * (share.high - share.low):.0f}" if exact else ""
    return f"{percent(share.mean).replace(NARROW, '')}{half}"


def _of_costs(view: View, exact: bool) -> list[Column]:
    """Make the columns of costs, and one that lists the properties that hold."""
    rows, lengths = view.ranked, view.cost_lengths
    columns = [Column("parameters", [NOTHING if row.parameters is None else f"{row.parameters:,}" for row in rows])]
    for length in lengths:
        cells = [_time(view.cost(row, length), exact) for row in rows]
        columns.append(Column(f"time\nat {length}", cells))
    longest = lengths[-1]
    columns.append(Column(f"memory\nat {longest}", [_memory(view.cost(row, longest)) for row in rows]))
    decode = [DecodeCost() if row.cost is None else row.cost.decode for row in rows]
    columns.append(Column("decoding", [_time(each, exact) for each in decode]))
    held = [[name.replace("_", "-") for name, found in row.properties.items() if found.holds] for row in rows]
    return [*columns, Column("properties", [", ".join(each) for each in held], words=True)]


def _time(cost: Cost | DecodeCost, exact: bool) -> str:
    half = ""
    if exact and cost.time_low is not None and cost.time_high is not None:
        half = f" ±{(cost.time_high - cost.time_low) / 2:.2f}"
    return _reason(cost) or (NOTHING if cost.time is None else f"{cost.time:.2f}×{half}")


def _memory(cost: Cost) -> str:
    return _reason(cost) or (NOTHING if cost.memory is None else f"{cost.memory:.2f}×")


def _reason(cost: Cost | DecodeCost) -> str:
    return "ends" if cost.ends is not None else "failed" if cost.error is not None else ""


def _remarks(view: View) -> list[str]:
    """Say what went wrong, and what the words in the tables mean."""
    ended = {
        row.name: point.ends
        for row in view.rows
        for scores in row.scores.values()
        for point in scores.levels.values()
        if point.ends is not None
    }
    said = [f"{name} ends at {end}: its table of positions has no more entries." for name, end in ended.items()]
    said += failures(view)
    return ["", *said] if said else [""]
