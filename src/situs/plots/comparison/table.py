"""The tables of the page: an overview that ranks methods, then losses, answers, costs and properties.

Each table fits a page of 1,088 CSS pixels: no table has more columns than ``MOST``, and what has more lengths goes on
in another table. Phones leave out intervals and some columns, unless a box is ticked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from situs.lab.comparing.summary import TRAINED
from situs.lab.scores import FINDS, HOLDS
from situs.plots.comparison.columns import (
    Column,
    of_answers,
    of_costs,
    of_losses,
    of_properties,
    overview,
)
from situs.plots.comparison.view import View
from situs.plots.comparison.words import FAIR_ANSWERS, FAIR_CHANGE, percent, unit
from situs.plots.page import Grid, Head, grid_html, named_together

MOST = 8  # columns beside the names
LARGE = 64  # channels of a head in models that are used


@dataclass(frozen=True)
class Table:
    """Hold a table: its name in addresses, its title, what to know before reading it, and its columns."""

    name: str
    title: str
    about: str
    columns: list[Column]


def tables(view: View) -> list[Table]:
    """Make the tables that the records have numbers for. The first is the overview."""
    found = [Table("overview", "Overview", _about(view), overview(view))]
    if view.loss_task is not None and view.beyond:
        about = (
            f"Change of the loss from 1× on, in {unit(view.loss_task)}. Green: holds, below {HOLDS}; yellow: below "
            f"{FAIR_CHANGE}; red: more."
        )
        found += _split("losses", "Loss by length", about, of_losses(view, view.loss_task))
    for number, task in enumerate(view.answer_tasks):
        about = (
            f"Share of examples whose whole answer is right. Green: at least {percent(FINDS)}; yellow: at least "
            f"{percent(FAIR_ANSWERS)}; red: fewer."
        )
        found += _split(f"answers-{number}", f"Right answers on {task} by length", about, of_answers(view, task))
    if view.cost_lengths:
        found += _split("costs", "Costs", about_costs(view), of_costs(view))
    properties = of_properties(view)
    if properties:
        trained = any(name in TRAINED for row in view.rows for name in row.properties)
        also = "; extrapolating, on the trained models" if trained else ""
        about = f"Measured on encodings of this size with random parameters{also}."
        found += _split("properties", "Properties", about, properties)
    return found


def _split(name: str, title: str, about: str, columns: Sequence[Column]) -> list[Table]:
    """Make as many tables as it takes for none to have more than ``MOST`` columns."""
    parts = [list(columns[first : first + MOST]) for first in range(0, len(columns), MOST)]
    first, *rest = parts
    later = [Table(f"{name}-{number}", f"{title}, continued", "", part) for number, part in enumerate(rest, 2)]
    return [Table(name, title, about, first), *later]


def _about(view: View) -> str:
    """Say what the overview is ranked by, and which methods come first."""
    ranking = view.ranking
    if ranking is None:
        return "No method has a result."
    times = view.times(ranking.length)
    if view.loss_task is None:
        return f"Ordered by the right answers on {ranking.task} at {times}, most first."
    return (
        f"Ordered by the loss at {times}, lowest first. The change from 1× alone would mislead: a method with a high "
        f"loss at 1× has less to lose."
    )


def about_costs(view: View) -> str:
    """Say what costs are measured on, and why other sizes give other ratios."""
    size = view.records.settings.size
    channels = size.dim // size.heads
    measured = (
        f"Measured on the CPU with one thread: the attention layers of this model ({size.heads} heads of {channels} "
        f"channels), with their projections, each divided by the same layers without positions."
    )
    small = (
        "With heads this small, plain attention is cheap, so that what an encoding computes for each pair of positions "
        "weighs more than in larger models."
    )
    return f"{measured} {small}" if channels < LARGE else measured


def tables_html(view: View) -> str:
    """Write all tables with their titles."""
    return "\n".join(grid_html(_grid(view, table)) for table in tables(view))


def _grid(view: View, table: Table) -> Grid:
    heads = [Head(column.head, column.explained, column.words, column.wide) for column in table.columns]
    rows = [(row.name, [column.cell(row) for column in table.columns]) for row in view.ranked]
    return Grid(table.name, table.title, table.about, "method", heads, rows)


def explanations(view: View) -> list[tuple[str, str]]:
    """Explain each kind of column; columns that mean the same share a sentence."""
    first, *details = tables(view)
    found: dict[str, list[str]] = {column.explained: [] for table in (first, *details) for column in table.columns}
    for table in (*details, first):  # which have the columns of all lengths, in their order
        for column in table.columns:
            heads = found[column.explained]
            if column.head not in heads:
                heads.append(column.head)
    return [(named_together(heads), explained) for explained, heads in found.items()]
