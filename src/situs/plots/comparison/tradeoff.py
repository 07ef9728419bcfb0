"""What a method costs against the loss that it reaches: one point per method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from situs.lab.comparing.records import Comparison
from situs.plots import labels, style
from situs.plots.comparison import words
from situs.plots.comparison.lines import limits
from situs.plots.comparison.view import View
from situs.plots.style import SMALL, Sheet

TICKS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 100.0, 500.0)
APART = 0.42  # inches
POWERS = 2.5  # the range of times from which the axis is logarithmic
FAR = 3.0  # times the lowest loss, from which the axis of losses is logarithmic


@dataclass(frozen=True)
class Spot:
    """Hold the time of a method with its interval, and its loss."""

    time: float
    low: float
    high: float
    loss: float


def cost_and_loss(records: Comparison | View, *, dark: bool = False, narrow: bool = False) -> Figure | None:
    """Draw the loss at the longest length against the time of attention over a long text."""
    view = View.of(records)
    if not view.cost_lengths or not view.beyond or view.loss_task is None:
        return None
    length = view.cost_lengths[-1]
    spots: dict[str, Spot] = {}
    for entry in view.rank(view.loss_task, view.longest).entries:
        cost = view.cost(entry.row, length)
        if cost.time is not None:
            low, high = (cost.time if end is None else end for end in (cost.time_low, cost.time_high))
            spots[entry.row.name] = Spot(cost.time, low, high, entry.point.mean)
    if not spots:
        return None
    left_out = [name for name in view.names if name not in spots]
    with style.figure(
        "What it costs, and the loss it reaches",
        f"loss in {words.unit(view.loss_task)} at {view.times(view.longest)}; bars: 95 % interval of the time",
        _caption(spots, left_out),
        height=(4.0 if narrow else 3.5) + 0.05 * len(spots),
        dark=dark,
        narrow=narrow,
    ) as sheet:
        axes = sheet.axes(below=0.5)
        divided = ", without positions: 1×" if narrow else ", as a multiple of the time without positions"
        _scales(sheet, axes, spots)
        axes.set_xlabel(f"time over {length:,} tokens{divided}", labelpad=3, loc="left")
        looks = view.looks(sheet.theme)
        for name, spot in spots.items():
            look = looks[name]
            axes.plot(
                [spot.low, spot.high], [spot.loss] * 2, color=look.colour, linewidth=1.2, alpha=0.6, zorder=1.5,
                label="_interval",
            )  # fmt: skip
            axes.plot(
                [spot.time], [spot.loss], color=look.colour, marker=look.marker, markersize=7, linestyle="none",
                label=name,
            )  # fmt: skip
        _name(sheet, axes, {name: (spot.time, spot.loss) for name, spot in spots.items()})
    return sheet.figure


def best_of_both(spots: Mapping[str, Spot]) -> list[str]:
    """Find the methods that no other beats in both time and loss, the fastest first."""
    found: list[str] = []
    for name in sorted(spots, key=lambda name: (spots[name].time, spots[name].loss)):
        if not found or spots[name].loss < spots[found[-1]].loss:
            found.append(name)
    return found


def _caption(spots: Mapping[str, Spot], left_out: list[str]) -> str:
    each = [f"{words.called(style.short(name))} ({spots[name].time:.2f}×)" for name in best_of_both(spots)]
    are = "is the only one" if len(each) == 1 else "are those"
    said = f"Down and left is better. {words.listed(each, 5)} {are} that no other beats in both time and loss."
    missing = words.listed((words.called(style.short(name)) for name in left_out), 3)
    return f"{said} Without a point, since a number is missing: {missing}." if left_out else said


def _scales(sheet: Sheet, axes: Axes, spots: Mapping[str, Spot]) -> None:
    times = [time for spot in spots.values() for time in (spot.low, spot.high, spot.time)]
    low, high = min(*times, 1.0), max(*times, 1.0)
    if high / low > POWERS:
        axes.set_xscale("log", base=2)
        axes.set_xlim(low / 1.15, high * 1.15)
        axes.xaxis.set_major_locator(FixedLocator(_ticks(axes, sheet.width * axes.get_position().width)))
    else:
        span = max(high - low, 0.3)
        axes.set_xlim(low - 0.1 * span, low + 1.1 * span)
    losses = [spot.loss for spot in spots.values()]
    if max(losses) > FAR * min(losses) > 0:  # one that fails does not flatten all others
        axes.set_yscale("log")
        axes.set_ylim(min(losses) / 1.06, max(losses) * 1.06)
        axes.yaxis.set_major_locator(
            FixedLocator([power * 10**exponent for exponent in range(-2, 5) for power in (1, 2, 5)])
        )
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    else:
        axes.set_ylim(*limits(losses))
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
            size=SMALL, gid="label", path_effects=[withStroke(linewidth=2.5, foreground=sheet.theme.paper)],
        )  # fmt: skip
