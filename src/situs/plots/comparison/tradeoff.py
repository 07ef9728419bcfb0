"""What a method costs against how far it carries: one point for each."""

from __future__ import annotations

import math
from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import HOLDS
from situs.plots import labels, style
from situs.plots.comparison import words
from situs.plots.comparison.lines import limits, set_height
from situs.plots.comparison.view import View
from situs.plots.style import SMALL, Sheet

TICKS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 100.0, 500.0)
APART = 0.42  # inches
POWERS = 2.5  # the range of times from which the axis is logarithmic


def cost_and_reach(records: Comparison | View, *, dark: bool = False, narrow: bool = False) -> Figure | None:
    """Draw the time of attention over a long text against the change of the loss at the longest length."""
    view = View.of(records)
    if not view.cost_lengths or not view.beyond:
        return None
    length = view.cost_lengths[-1]
    points: dict[str, tuple[float, float]] = {}
    for row, scores in view.scored(view.loss_task):
        time, change = view.cost(row, length).time, view.at(scores.changes, view.longest)
        if time is not None and change is not None:
            points[row.name] = time, change.mean
    if not points:
        return None
    left_out = [name for name in view.names if name not in points]
    with style.figure(
        "What it costs, and how far it carries",
        f"change in {words.unit(view.loss_task)} at {view.times(view.longest)}; shaded: holds, within {HOLDS}",
        _caption(points, left_out),
        height=(4.0 if narrow else 3.5) + 0.05 * len(points),
        dark=dark,
        narrow=narrow,
    ) as sheet:
        axes = sheet.axes(below=0.5)
        _scales(sheet, axes, points)
        axes.set_xlabel(f"time of attention over {length:,} tokens, times plain", labelpad=3, loc="left")
        axes.axhspan(axes.get_ylim()[0], HOLDS, color=sheet.theme.shade, linewidth=0, zorder=0)
        looks = view.looks(sheet.theme)
        for name, (x, y) in points.items():
            look = looks[name]
            axes.plot([x], [y], color=look.colour, marker=look.marker, markersize=7, linestyle="none", label=name)
        _name(sheet, axes, points)
    return sheet.figure


def _caption(points: Mapping[str, tuple[float, float]], left_out: list[str]) -> str:
    holding = {name: time for name, (time, change) in points.items() if change < HOLDS}
    if holding:
        cheapest = min(holding, key=lambda name: holding[name])
        time = f"{holding[cheapest]:.2f} times the time of plain"
        said = f"Down and left is better: {words.called(cheapest)} holds at {time}."
    else:
        best = min(points, key=lambda name: points[name][1])
        nearest = f"{words.called(best)} comes nearest, {words.signed(points[best][1])}"
        said = f"Down and left is better: nobody holds; {nearest}."
    missing = words.listed((words.called(style.short(name)) for name in left_out), 3)
    return f"{said} Without a point: {missing}." if left_out else said


def _scales(sheet: Sheet, axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    times, changes = [x for x, _ in points.values()], [y for _, y in points.values()]
    low, high = min(*times, 1.0), max(*times, 1.0)
    if high / low > POWERS:
        axes.set_xscale("log", base=2)
        axes.set_xlim(low / 1.15, high * 1.15)
        axes.xaxis.set_major_locator(FixedLocator(_ticks(axes, sheet.width * axes.get_position().width)))
    else:
        span = max(high - low, 0.3)
        axes.set_xlim(low - 0.1 * span, low + 1.1 * span)
    set_height(axes, limits(changes, low=0.0, high=4 * HOLDS))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:.3g}×"))


def _ticks(axes: Axes, width: float) -> list[float]:
    """Choose round times, 1 before all others, as many as stand apart on so many inches."""
    transform = axes.transData + axes.transAxes.inverted()
    spots = {tick: width * float(transform.transform((tick, 0.0))[0]) for tick in TICKS}
    chosen: list[float] = []
    for tick in sorted(spots, key=lambda tick: (tick != 1, tick != round(tick), tick)):
        if 0 <= spots[tick] <= width and all(abs(spots[tick] - spots[other]) > APART for other in chosen):
            chosen.append(tick)
    return sorted(chosen)


def _name(sheet: Sheet, axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each name where there is room for it."""
    box = axes.get_position()
    width, height = box.width * sheet.width, box.height * float(sheet.figure.get_figheight())
    transform = axes.transData + axes.transAxes.inverted()
    spots = [tuple(transform.transform(point)) for point in points.values()]
    inches = [(float(x) * width, float(y) * height) for x, y in spots]
    names = [style.short(name, 15 if sheet.narrow else 20) for name in points]
    sizes = [(style.text_width(name, SMALL) + 0.03, SMALL * 1.25 / 72) for name in names]
    boxes = labels.around(tuple(inches), tuple(sizes), (0.0, 0.0, width, height))
    for name, point, at in zip(names, inches, boxes, strict=True):
        way = labels.leader(point, at)
        if math.dist(way[0], way[-1]) < 0.15:
            way = []
        axes.plot(
            [x / width for x, _ in way], [y / height for _, y in way], transform=axes.transAxes, linewidth=0.6,
            color=sheet.theme.faint, zorder=1,
        )  # fmt: skip
        axes.text(
            at[0] / width, (at[1] + at[3]) / 2 / height, name, transform=axes.transAxes, va="center_baseline",
            size=SMALL, gid="label",
        )  # fmt: skip
