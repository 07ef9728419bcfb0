"""The main table: every method in a row, for people (HTML) and for programs (CSV)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, Literal

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import FINDS, HOLDS, TRAINED, Point, Row
from situs.lab.probing.findings import CLAIMS, Cost, DecodeCost
from situs.plots.comparison.view import View
from situs.plots.comparison.words import percent, signed, unit
from situs.plots.style import minus

PROPERTIES = {**CLAIMS, **TRAINED}
NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """Hold what stands in a field: a text, a smaller one below, what appears on pointing, and how good it is."""

    text: str
    small: str = ""
    title: str = ""
    tone: str = ""


@dataclass(frozen=True)
class Column:
    """Hold a column of the table, and what it means."""

    group: str
    head: str
    explained: str
    cell: Callable[[Row], Cell]
    words: bool = False


def columns(view: View) -> list[Column]:
    """Choose the columns that the records have numbers for."""
    found = []
    if view.loss_task is not None:
        found += _of_loss(view, view.loss_task)
    for task in view.answer_tasks:
        found += _of_answers(view, task)
    return [*found, *_of_costs(view), *_of_properties(view), _verdict()]


def _of_loss(view: View, task: str) -> list[Column]:
    group = f"{task}: loss"
    first = f"Loss at the training length, {view.train_length:,}, in {unit(task)}. Who is bad here has less to lose."
    later = (
        f"Change of the loss at so many times that length, on the same bytes, with its 95 % interval (seeds and "
        f"windows drawn anew). Under {HOLDS} the loss counts as held."
    )

    def level(row: Row) -> Cell:
        scores = row.scores.get(task)
        point = None if scores is None else view.at(scores.levels, view.train_length)
        return Cell(NOTHING) if point is None else Cell(f"{point.mean:.2f}", _interval(point, "{:.2f}".format))

    def change(point: Point) -> Cell:
        tone = "good" if point.mean < HOLDS else "fair" if point.mean < 5 * HOLDS else "bad"
        digits = 3 if abs(point.mean) < 0.0095 else 2
        return Cell(signed(point.mean), _interval(point, f"{{:+.{digits}f}}".format), tone=tone)

    return [
        Column(group, "1×", first, level),
        *(
            Column(group, view.times(length), later, _points(view, task, "changes", length, change))
            for length in view.beyond
        ),
    ]


def _points(
    view: View, task: str, which: Literal["levels", "changes"], length: int, shown: Callable[[Point], Cell]
) -> Callable[[Row], Cell]:
    """Make the cell of a task at a length: what is shown of its point, or why there is none."""

    def cell(row: Row) -> Cell:
        scores = row.scores.get(task)
        if scores is None:
            return Cell(NOTHING)
        points = scores.levels if which == "levels" else scores.changes
        point = view.at(points, length)
        return _ended(points.get(length)) if point is None else shown(point)

    return cell


def _of_answers(view: View, task: str) -> list[Column]:
    explained = f"Share of {task} examples that are wholly right at so many times the training length."

    def answers(point: Point) -> Cell:
        tone = "good" if point.mean >= FINDS else "fair" if point.mean >= 0.6 else "bad"
        between = f"{percent(point.low)} to {percent(point.high)}"
        return Cell(percent(point.mean), title=f"95 of 100 times {between}", tone=tone)

    return [
        Column(f"{task}: right", view.times(length), explained, _points(view, task, "levels", length, answers))
        for length in view.lengths
    ]


def _of_costs(view: View) -> list[Column]:
    group = "cost"
    found = []
    if any(row.parameters is not None for row in view.rows):
        explained = "Parameters that the encodings of the model add, over all layers."
        found.append(Column(group, "parameters", explained, _parameters))
    for length in view.cost_lengths:
        run = "a training step" if length == view.train_length else "a forward pass over one text"
        for what, said, cell in (("time", "Time", _time), ("memory", "Peak memory", _memory)):
            explained = f"{said} of {run} of {length:,} tokens, attention layers only, times that without positions."
            found.append(Column(group, f"{what} {length:,}", explained, _cost(view, length, cell)))
    if any(row.cost is not None and row.cost.decode.time is not None for row in view.rows):
        explained = "Time of a token of decoding behind a cache, attention layers only, times that without positions."
        found.append(Column(group, "decode", explained, _decode))
    return found


def _parameters(row: Row) -> Cell:
    return Cell(NOTHING if row.parameters is None else f"{row.parameters:,}")


def _decode(row: Row) -> Cell:
    return Cell(NOTHING) if row.cost is None else _time(row.cost.decode)


def _cost(view: View, length: int, cell: Callable[[Cost], Cell]) -> Callable[[Row], Cell]:
    return lambda row: cell(view.cost(row, length))


def _time(cost: Cost | DecodeCost) -> Cell:
    """Show a time, or why there is none."""
    return _ended_table(cost.ends) if cost.ends is not None else Cell(_times(cost.time), title=cost.error or "")


def _memory(cost: Cost) -> Cell:
    """Show the memory, or why there is none."""
    if cost.ends is not None:
        return _ended_table(cost.ends)
    known = cost.mib is not None and cost.plain_mib is not None
    sizes = f"{cost.mib:.1f} MiB, plain {cost.plain_mib:.1f} MiB" if known else ""
    return Cell(_times(cost.memory), title=cost.error or sizes)


def _times(number: float | None) -> str:
    return NOTHING if number is None else f"{number:.2f}"


def _of_properties(view: View) -> list[Column]:
    names = list(dict.fromkeys(name for row in view.rows for name in row.properties))

    def measured(name: str) -> Callable[[Row], Cell]:
        def cell(row: Row) -> Cell:
            found = row.properties.get(name)
            holds = None if found is None else found.holds
            text = NOTHING if holds is None else "yes" if holds else "no"
            return Cell(text, title="" if found is None else found.said, tone="" if holds is None else text)

        return cell

    return [
        Column("properties", name.replace("_", " "), f"Measured: {PROPERTIES.get(name, name)}.", measured(name), True)
        for name in names
    ]


def _verdict() -> Column:
    explained = (
        f"The loss holds while it is within {HOLDS} of 1×; answers are right while {percent(FINDS)} of them are."
    )
    return Column("in words", "verdict", explained, lambda row: Cell(row.verdict, title="; ".join(row.problems)), True)


def _ended(point: Point | None) -> Cell:
    return Cell(NOTHING) if point is None or point.ends is None else _ended_table(point.ends)


def _ended_table(ends: int) -> Cell:
    return Cell("ends", title=f"The table ends at {ends:,}.")


def _interval(point: Point, form: Callable[[float], str]) -> str:
    return minus(f"{form(point.low)} to {form(point.high)}")


def table_html(view: View) -> str:
    """Write the table, with two rows of headings."""
    shown = columns(view)
    groups = [(group, len(list(each))) for group, each in groupby(shown, lambda column: column.group)]
    upper = "".join(f'<th scope="colgroup" colspan="{count}">{escape(group)}</th>' for group, count in groups)
    starts = {sum(count for _, count in groups[:index]) for index in range(len(groups))}
    lower = "".join(
        f'<th scope="col"{_attributes(_classes(column, index in starts), column.explained)}>{escape(column.head)}</th>'
        for index, column in enumerate(shown)
    )
    body = "\n".join(
        f'<tr><th scope="row">{broken(row.name)}</th>'
        + "".join(_field(column, column.cell(row), index in starts) for index, column in enumerate(shown))
        + "</tr>"
        for row in _ranked(view)
    )
    return (
        f'<table>\n<caption class="unseen">Every method at every length, with costs and properties</caption>\n'
        f'<thead>\n<tr><th scope="col" rowspan="2">method</th>{upper}</tr>\n<tr>{lower}</tr>\n</thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table>"
    )


def _classes(column: Column, starts: bool, tone: str = "") -> str:
    names = ("first" if starts else "", "words" if column.words else "", tone)
    return " ".join(name for name in names if name)


def _field(column: Column, cell: Cell, starts: bool) -> str:
    small = f"<small>{escape(cell.small)}</small>" if cell.small else ""
    return f"<td{_attributes(_classes(column, starts, cell.tone), cell.title)}>{escape(cell.text)}{small}</td>"


def _attributes(classes: str, title: str) -> str:
    given = {"class": classes, "title": title}
    return "".join(f' {name}="{escape(value)}"' for name, value in given.items() if value)


def explanations(view: View) -> list[tuple[str, str]]:
    """Explain each kind of column; columns that mean the same share a sentence."""
    found: dict[tuple[str, str], list[str]] = {}
    for column in columns(view):
        found.setdefault((column.group, column.explained), []).append(column.head)
    return [(f"{group}, {_named(heads)}", explained) for (group, explained), heads in found.items()]


def _named(heads: Sequence[str]) -> str:
    return " and ".join(heads) if len(heads) < 3 else f"{heads[0]} to {heads[-1]}"


def _ranked(view: View) -> list[Row]:
    """Rank rows: the smallest change at the longest length first, or else the most right answers; none come last."""
    task = view.loss_task or next(iter(view.answer_tasks), None)

    def rank(row: Row) -> tuple[bool, float]:
        scores = row.scores.get(task or "")
        points = {} if scores is None else scores.changes if view.loss_task else scores.levels
        point = view.at(points, view.longest)
        return point is None, 0.0 if point is None else point.mean if view.loss_task else -point.mean

    return sorted(view.rows, key=rank)


def broken(name: str) -> str:
    """Escape a method's name, so that it may go on in a new line where its parts end."""
    return re.sub(r"(\+|\(|/|:|&amp;|_)", r"\1<wbr>", escape(name))


def table_csv(records: Comparison | View) -> str:
    """Write the table for programs: full numbers, empty where there are none."""
    view = View.of(records)
    rows = [_plain(view, row) for row in view.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _plain(view: View, row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"method": row.name}
    for task in view.tasks:
        scores = row.scores.get(task)
        for length in view.lengths:
            for name, points in (("", scores.levels), ("change_", scores.changes)) if scores else ():
                point = view.at(points, length)
                where = f"{task}_{name or scores.measure + '_'}{length}" if scores else ""
                numbers = ("", "", "") if point is None else (point.mean, point.low, point.high)
                found |= dict(zip((where, f"{where}_low", f"{where}_high"), numbers, strict=True))
        found[f"{task}_seeds"] = max((len(point.seeds) for point in scores.levels.values()), default=0) if scores else 0
    found |= {"parameters": _empty(row.parameters), "training_seconds": _empty(row.seconds)}
    for length in view.cost_lengths:
        cost = view.cost(row, length)
        found[f"time_over_plain_{length}"] = _empty(cost.time)
        found[f"memory_over_plain_{length}"] = _empty(cost.memory)
    found["decode_time_over_plain"] = _empty(None if row.cost is None else row.cost.decode.time)
    for name, measured in row.properties.items():
        found[name] = _empty(measured.holds)
    return found | {"problems": " | ".join(row.problems), "verdict": row.verdict}


def _empty(value: Any) -> Any:
    return "" if value is None else value
