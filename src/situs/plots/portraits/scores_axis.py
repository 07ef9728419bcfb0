"""Lines of scores over distances, each with its name at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from situs.plots import labels, style
from situs.plots.panels import Map
from situs.plots.style import SMALL, Look, Sheet

FLOOR = -12.0
"""Scores that are lower by so much are cut off: their weight is less than a hundred-thousandth."""
HEIGHT, ABOVE, BELOW = 2.7, 0.1, 0.5  # inches


@dataclass(frozen=True)
class Curve:
    """Hold a name, a line, and a band around it if there is one."""

    name: str
    x: Map
    y: Map
    low: Map | None = None
    high: Map | None = None
    number: str = ""


@dataclass(frozen=True)
class Curves:
    """Draw lines in one pair of axes, which go down to ``FLOOR`` at most."""

    curves: Sequence[Curve]
    looks: dict[str, Look]
    heading: str = ""
    trained: int | None = None
    """The least distance that was never trained, if some are shown."""
    whose: str = ""
    """Whose training that was, where others are drawn too."""
    logarithmic: bool = False
    """Whether near distances have more room than far ones."""

    @property
    def height(self) -> float:
        """The height in inches that all names need."""
        return max(HEIGHT, labels.height(len(self.curves)) + 0.1) + ABOVE + BELOW

    @property
    def floor(self) -> float:
        """The lowest score that is shown."""
        return FLOOR + min(0.0, max(float(curve.y.max()) for curve in self.curves))

    @property
    def cut(self) -> bool:
        """Whether lines go on below what is shown."""
        return any(float(curve.y.min()) < self.floor for curve in self.curves)

    def draw(self, sheet: Sheet, xlabel: str) -> Axes:
        """Draw axes with all lines, their names beside."""
        lows = [curve.y if curve.low is None else curve.low for curve in self.curves]
        highs = [curve.y if curve.high is None else curve.high for curve in self.curves]
        least, most = min(float(each.min()) for each in lows), max(float(each.max()) for each in highs)
        least = max(least, self.floor)
        room = 0.05 * (most - least or 1.0)
        limits = least - room * (least > self.floor), most + room
        ends = [self._end(curve, limits) for curve in self.curves]
        beside = labels.room(ends, self.heading)
        axes = sheet.axes(left=0.48, right=beside, above=ABOVE, below=BELOW)
        axes.set_ylim(*limits)
        axes.set_xlim(self.curves[0].x[0], self.curves[0].x[-1])
        for order, curve in enumerate(self.curves):
            self._plot(axes, curve, 3 + order / 100)
        axes.set_xlabel(xlabel, labelpad=3, loc="left")
        if self.logarithmic:
            axes.set_xscale("function", functions=(np.log1p, np.expm1))
            axes.xaxis.set_major_locator(FixedLocator([0, *(2**power for power in range(21))]))
        else:
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        self._mark_training(axes, sheet)
        labels.Column(sheet, axes, beside).lines(ends, self.heading)
        return axes

    def _mark_training(self, axes: Axes, sheet: Sheet) -> None:
        """Shade distances that were never trained, or only mark where they begin if others are drawn too."""
        last = float(self.curves[0].x[-1])
        if self.trained is None or self.trained > last:
            return
        if not self.whose:
            axes.axvspan(self.trained, last, color=sheet.theme.shade, linewidth=0, zorder=0, gid="never trained")
        axes.axvline(self.trained, color=sheet.theme.faint, linewidth=1.0, linestyle=(0, (3, 2)), gid="training")
        said, where, side = ("never trained", last, "right")
        if self.whose:
            said, where, side = (f" {self.whose}: trained up to here", self.trained, "left")
        axes.text(
            where, 0.98, said, size=SMALL - 0.5, color=sheet.theme.faint, va="top", ha=side,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip

    def _plot(self, axes: Axes, curve: Curve, order: float) -> None:
        look = self.looks[curve.name]
        if curve.low is not None and curve.high is not None:
            axes.fill_between(curve.x, curve.low, curve.high, color=look.colour, alpha=0.14, linewidth=0, zorder=2)
        every = max(1, len(curve.x) // 6)
        drawn = look if len(self.curves) > 1 else replace(look, marker="None")
        axes.plot(curve.x, curve.y, label=curve.name, zorder=order, markevery=(every // 2, every), **drawn.line)

    def _end(self, curve: Curve, limits: tuple[float, float]) -> labels.End:
        last = min(max(float(curve.y[-1]), limits[0]), limits[1])
        return labels.End(last, style.short(curve.name), curve.number, self.looks[curve.name])


def signed(number: float) -> str:
    """Write a number with its sign and two significant digits."""
    return style.minus(f"{number:+.2g}" if abs(number) < 100 else f"{number:+,.0f}")
