"""The figures of a comparison. Each is drawn from the records alone, and is None where they have nothing for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import Row
from situs.lab.scores import FINDS, HOLDS, Point, Scores
from situs.plots import style
from situs.plots.comparison import words
from situs.plots.comparison.findings import answers
from situs.plots.comparison.lines import Chart, Line, lengths_axis, limits
from situs.plots.comparison.search import retrieval
from situs.plots.comparison.tradeoff import cost_and_loss
from situs.plots.comparison.view import View

Records = Comparison | View

__all__ = ["accuracy_by_length", "cost_and_loss", "figures", "loss_by_length", "loss_by_position", "retrieval"]


def figures(records: Records, *, dark: bool = False, narrow: bool = False) -> dict[str, Figure]:
    """Draw all figures that the records have numbers for, by the names of their files."""
    view = View.of(records)
    found = {
        "loss-by-length": loss_by_length(view, dark=dark, narrow=narrow),
        "loss-by-position": loss_by_position(view, dark=dark, narrow=narrow),
    }
    for task in view.answer_tasks:
        if view.searched(task):
            found[f"{task}-by-depth"] = retrieval(view, task, dark=dark, narrow=narrow)
        else:
            found[f"{task}-by-length"] = accuracy_by_length(view, task, dark=dark, narrow=narrow)
    found["cost-and-loss"] = cost_and_loss(view, dark=dark, narrow=narrow)
    return {name: figure for name, figure in found.items() if figure is not None}


def loss_by_length(records: Records, *, dark: bool = False, narrow: bool = False) -> Figure | None:
    """Draw how the loss on the same bytes changes as the text before them grows beyond the training length."""
    view = View.of(records)
    scored = view.scored(view.loss_task)
    lines = _lines(view, [(row, scores.changes, _level(view, scores, "{:.2f}")) for row, scores in scored])
    if not view.beyond or not lines:
        return None
    theme = style.DARK if dark else style.LIGHT
    chart = Chart(lines, view.looks(theme), "loss at 1×")
    with style.figure(
        "Loss beyond the training length",
        f"change in {words.unit(view.loss_task)} from 1×, on the same bytes{_bands(view)}",
        _holding(view, scored),
        height=chart.height,
        dark=dark,
        narrow=narrow,
    ) as sheet:
        axes = chart.draw(sheet, limits(_all(lines), low=0.0, high=4 * HOLDS))
        lengths_axis(axes, view.lengths, view.train_length, narrow=narrow)
        axes.axhspan(axes.get_ylim()[0], HOLDS, color=theme.shade, linewidth=0, zorder=0)
    return sheet.figure


def accuracy_by_length(
    records: Records, task: str | None = None, *, dark: bool = False, narrow: bool = False
) -> Figure | None:
    """Draw the share of right answers of a task at each length."""
    view = View.of(records)
    task = task or next(iter(view.answer_tasks), "")
    scored = view.scored(task)
    lines = _lines(view, [(row, scores.levels, _level(view, scores, "{:.0%}")) for row, scores in scored])
    if not lines:
        return None
    theme = style.DARK if dark else style.LIGHT
    chart = Chart(lines, view.looks(theme), "at 1×")
    with style.figure(
        f"{task.capitalize()}: right answers by length",
        f"share of examples whose whole answer is right{_bands(view)}",
        answers(view, task) or "Only the training length was tested.",
        height=chart.height,
        dark=dark,
        narrow=narrow,
    ) as sheet:
        axes = chart.draw(sheet, (-0.04, 1.04))
        lengths_axis(axes, view.lengths, view.train_length, narrow=narrow)
        axes.axhspan(FINDS, 1.04, color=theme.shade, linewidth=0, zorder=0)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    return sheet.figure


def loss_by_position(records: Records, *, dark: bool = False, narrow: bool = False) -> Figure | None:
    """Draw the loss along the longest text: within the training length, and beyond."""
    view = View.of(records)
    lines = []
    for row, scores in view.scored(view.loss_task):
        if scores.along and all(map(math.isfinite, scores.along)):
            middles = stretches(len(scores.along), view.longest)
            lines.append(Line(row.name, f"{scores.along[-1]:.2f}", middles, scores.along, scores.along, scores.along))
    if not lines or not view.beyond:
        return None
    theme = style.DARK if dark else style.LIGHT
    chart = Chart(lines, view.looks(theme), "at the end", markers=False, under=0.45)
    ends = sorted((line.y[-1], _name(line.method)) for line in lines)
    with style.figure(
        f"Loss along a text of {view.longest:,}",
        f"{words.unit(view.loss_task)}, mean over each of {len(lines[0].y)} equal parts of the text",
        _at_the_end(ends),
        height=chart.height,
        dark=dark,
        narrow=narrow,
    ) as sheet:
        axes = chart.draw(sheet, limits(_all(lines)))
        axes.set_xlim(lines[0].x[0] / 1.12, view.longest * 1.03)
        ticks = [view.train_length * 2.0**power for power in range(-6, 20, 2 if narrow else 1)]
        ticks = [tick for tick in ticks if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{tick:,.0f}" for tick in ticks])
        axes.set_xlabel("position in the text", labelpad=3, loc="left")
        axes.axvline(view.train_length, color=theme.ink, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1)
        left, right = map(math.log, axes.get_xlim())
        late = (math.log(view.train_length) - left) / (right - left) > 0.5  # then there is more room before the line
        axes.text(
            view.train_length * (1 / 1.06 if late else 1.06), 0.985, "training length", va="top",
            ha="right" if late else "left", transform=axes.get_xaxis_transform(), size=style.SMALL, color=theme.faint,
        )  # fmt: skip
    return sheet.figure


def stretches(count: int, length: int) -> list[float]:
    """Find the middle of each of ``count`` equal parts of a text, without its first token, which is not predicted."""
    return [1 + (length - 1) * (index + 0.5) / count for index in range(count)]


def _lines(view: View, scored: Sequence[tuple[Row, Mapping[int, Point], str]]) -> list[Line]:
    """Make a line for each method that has numbers, and say why it ends early if it does."""
    lines = []
    for row, points, number in scored:
        found = {length: point for length in view.lengths if (point := view.at(points, length)) is not None}
        if not found:
            continue
        last = max(found)
        end = next((point.ends for point in points.values() if point.ends is not None), None)
        early = f"table ends at {end:,}" if end is not None else f"no result beyond {last:,}"
        lines.append(
            Line(
                row.name,
                number,
                [float(length) for length in found],
                [point.mean for point in found.values()],
                [min(point.seeds) for point in found.values()],
                [max(point.seeds) for point in found.values()],
                early if last < view.longest else "",
            )
        )
    return lines


def _level(view: View, scores: Scores, form: str) -> str:
    point = view.at(scores.levels, view.train_length)
    return "–" if point is None else form.format(point.mean).replace("%", " %")


def _all(lines: Sequence[Line]) -> list[float]:
    return [number for line in lines for number in (*line.y, *line.low, *line.high)]


def _at_the_end(ends: Sequence[tuple[float, str]]) -> str:
    """Say which methods have the lowest and the highest loss at the end of the text."""
    (low, best), (high, worst) = ends[0], ends[-1]
    said = f"Right of the dashed line is beyond the training length. At the end of the text the loss of {best} is "
    return said + (f"lowest, {low:.2f}, and that of {worst} highest, {high:.2f}." if len(ends) > 1 else f"{low:.2f}.")


def _bands(view: View) -> str:
    """Say what bands are, where there are any: one seed has no range."""
    return "; bands: range of seeds" if len(view.records.seeds) > 1 else ""


def _name(method: str) -> str:
    """Name a method in captions."""
    return words.called(style.short(method))


def _holding(view: View, scored: Sequence[tuple[Row, Scores]]) -> str:
    """Say which methods stay within the shade, which leaves it farthest, and from which losses they start."""
    names = [_name(row.name) for row, scores in scored if view.reach(scores) == view.longest]
    ends = {row.name: point.mean for row, scores in scored if (point := view.at(scores.changes, view.longest))}
    stay = "stays" if len(names) == 1 else "stay"
    who, far = words.listed(names, 3) if names else "No methods", view.times(view.longest)
    said = f"{who} {stay} in the shade, within {HOLDS} of 1×, up to {far}"
    worst = max(ends, key=lambda name: ends[name], default="")
    if worst and ends[worst] >= HOLDS:
        said += f"; {_name(worst)} changes most, {words.signed(ends[worst])}"
    return f"{said}. A small change is good only where the loss at 1× is low."
