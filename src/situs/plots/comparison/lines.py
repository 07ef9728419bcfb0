"""Line charts with the name of each line at its end, and a band for the range of its seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from situs.plots import labels, style
from situs.plots.style import Look, Sheet

FAR = 3.0  # above, the axis goes on in powers, so that one that fails does not flatten all others
LEAST, ABOVE = 2.6, 0.1  # inches of axes, and over them


@dataclass(frozen=True)
class Line:
    """Hold a method's numbers, the least and the greatest of its seeds, and why its line ends early, if it does."""

    method: str
    number: str
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    ended: str = ""


@dataclass(frozen=True)
class Chart:
    """Draw and name lines: what is shared by all charts of this kind."""

    lines: list[Line]
    looks: dict[str, Look]
    heading: str
    """Over the numbers beside the names."""
    markers: bool = True
    under: float = 0.6
    """Inches for what stands under the axes."""

    @property
    def height(self) -> float:
        """The height of the drawing in inches, so that all names find room."""
        through = [line for line in self.lines if not line.ended]
        return max(LEAST, labels.height(len(through)) + 0.1) + ABOVE + self._below

    @property
    def _below(self) -> float:
        ended = [line.ended for line in self.lines if line.ended]
        return max(self.under, labels.height(len(ended) + len(set(ended))))

    def draw(self, sheet: Sheet, limits: tuple[float, float]) -> Axes:
        """Draw axes with the lines, and the names beside them; under those, lines that ended early."""
        through = [self._end(sheet, line) for line in self.lines if not line.ended]
        ended: dict[str, list[labels.End]] = {}
        for line in self.lines:
            if line.ended:
                ended.setdefault(line.ended, []).append(self._end(sheet, line))
        everyone = [*through, *(end for ends in ended.values() for end in ends)]
        heading = max([self.heading, *ended], key=len)
        room = labels.room(everyone, heading)
        axes = sheet.axes(left=0.52, right=room, above=ABOVE, below=self._below)
        axes.set_xscale("log", base=2)
        set_height(axes, limits)
        for order, line in enumerate(sorted(self.lines, key=lambda line: -line.y[-1])):
            self._plot(axes, line, 3 + order / 100)
        column = labels.Column(sheet, axes, room)
        column.lines(through, self.heading)
        column.below(ended)
        return axes

    def _plot(self, axes: Axes, line: Line, order: float) -> None:
        look = self.looks[line.method]
        if any(low < high for low, high in zip(line.low, line.high, strict=True)):
            axes.fill_between(line.x, line.low, line.high, color=look.colour, alpha=0.16, linewidth=0, zorder=2)
        drawn = look if self.markers else replace(look, marker="None")
        axes.plot(line.x, line.y, label=line.method, zorder=order, **drawn.line)

    def _end(self, sheet: Sheet, line: Line) -> labels.End:
        name = style.short(line.method, 16 if sheet.narrow else 24)
        return labels.End(line.y[-1], name, line.number, self.looks[line.method])


def set_height(axes: Axes, limits: tuple[float, float]) -> None:
    """Set the range of the vertical axis, which beyond ``FAR`` goes on in powers."""
    if limits[1] > FAR and limits[0] < 1:
        axes.set_yscale("symlog", linthresh=1.0, linscale=1.5)
        ticks = [0, 0.5, 1, *(power * 10**exponent for exponent in range(5) for power in (2, 5, 10))]
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.set_ylim(*limits)


def lengths_axis(axes: Axes, lengths: Sequence[int], train_length: int, *, narrow: bool) -> None:
    """Set ticks at lengths, and say what they are times the training length."""
    axes.set_xlim(lengths[0] / 1.12, lengths[-1] * 1.06)
    axes.xaxis.set_major_locator(FixedLocator(lengths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{length / train_length:g}×\n{length:,}" for length in lengths])
    axes.set_xlabel(
        f"length of the text{'' if narrow else ', and as a multiple of the training length'}", labelpad=3, loc="left"
    )


def limits(numbers: Sequence[float], *, low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """Find the range of numbers and of what must be seen, with some room."""
    known = [number for number in (*numbers, low, high) if number is not None and math.isfinite(number)]
    least, most = min(known), max(known)
    room = 0.06 * (most - least or 1.0)
    return least - min(room, 0.1), most + room
