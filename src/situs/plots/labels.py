"""Names beside what they name, none upon another."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from situs.plots.style import SMALL, Look, Sheet, text_width

LEADER = 0.22  # inches from the axes to the markers of the labels
SAMPLE = 0.12  # and from those to the letters
GAP = SMALL * 1.42 / 72
RINGS = (0.1, 0.17, 0.26, 0.38, 0.52, 0.7, 0.9, 1.3, 1.8)  # inches from a point to its name
ROUNDS = 3


@dataclass(frozen=True)
class End:
    """Hold where a line ends, and what is written there: a name, and a number in a column of its own."""

    y: float
    name: str
    number: str
    look: Look


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Find the heights nearest to the wanted ones (least squares) that are ``gap`` apart, in order, within bounds."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    pools: list[list[float]] = []
    for rank, index in enumerate(order):
        pools.append([wanted[index] - rank * gap])
        while len(pools) > 1 and _mean(pools[-2]) > _mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    level = [_mean(pool) for pool in pools for _ in pool]
    upper = max(low, high - gap * (len(wanted) - 1))
    heights = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        heights[index] = min(max(level[rank], low), upper) + rank * gap
    return heights


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def room(ends: Sequence[End], heading: str) -> float:
    """Measure the inches that labels need to the right of axes."""
    if not ends:
        return 0.2
    names = max(text_width(end.name, SMALL) for end in ends)
    numbers = max(text_width(end.number, SMALL) for end in ends)
    return LEADER + SAMPLE + max(names + 0.14 + numbers, text_width(heading, SMALL)) + 0.1


def height(count: int) -> float:
    """Measure the inches that so many labels need."""
    return GAP * (count + 1)


@dataclass(frozen=True)
class Column:
    """Write labels beside axes, whose limits must be set before."""

    sheet: Sheet
    axes: Axes
    room: float

    def lines(self, ends: Sequence[End], heading: str) -> None:
        """Write labels as near as can be to the ends of their lines, joined to them, and a heading over the numbers."""
        along = self.sheet.figure.get_figheight() * self.axes.get_position().height
        wanted = [_fraction(self.axes, end.y) * along for end in ends]
        heights = spread(wanted, GAP, GAP / 2, max(along - GAP / 2, GAP * len(ends)))
        for end, start, level in zip(ends, wanted, heights, strict=True):
            self._write(end, level / along, start / along)
        if ends:
            self._text(self.room - 0.1, (max(heights) + 1.1 * GAP) / along, heading, faint=True, right=True)

    def below(self, ended: Mapping[str, Sequence[End]]) -> None:
        """Write labels of lines that end early under the axes, by what is said of them."""
        along = self.sheet.figure.get_figheight() * self.axes.get_position().height
        level = 0.0
        for said, ends in ended.items():
            level -= GAP
            self._text(LEADER - 0.04, level / along, said, faint=True)
            for end in ends:
                level -= GAP
                self._write(end, level / along)

    def _write(self, end: End, level: float, start: float | None = None) -> None:
        across = self.sheet.width * self.axes.get_position().width
        at = 1 + LEADER / across
        colour: dict[str, Any] = {"color": end.look.colour, "transform": self.axes.transAxes, "clip_on": False}
        if start is not None:
            self.axes.add_artist(Line2D([1.0, at], [start, level], linewidth=0.7, alpha=0.6, **colour))
        mark = Line2D([at], [level], marker=end.look.marker, markersize=4.6, linestyle="none", **colour)
        self.axes.add_artist(mark)
        self._text(LEADER + SAMPLE, level, end.name, gid="label")
        self._text(self.room - 0.1, level, end.number, faint=True, right=True, gid="number")

    def _text(
        self, x: float, y: float, text: str, *, faint: bool = False, right: bool = False, gid: str = "heading"
    ) -> None:
        across = self.sheet.width * self.axes.get_position().width
        self.axes.text(
            1 + x / across, y, text, size=SMALL, va="center", ha="right" if right else "left", clip_on=False, gid=gid,
            color=self.sheet.theme.faint if faint else self.sheet.theme.ink, transform=self.axes.transAxes,
        )  # fmt: skip


def _fraction(axes: Axes, y: float) -> float:
    """Tell how far up the axes a number lies."""
    display = axes.transData.transform((axes.get_xlim()[1], y))
    return float(axes.transAxes.inverted().transform(display)[1])


Spot = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, bottom, right and top."""


@lru_cache(maxsize=8)  # the same by day and by night
def around(points: tuple[Spot, ...], sizes: tuple[Spot, ...], frame: Box) -> list[Box]:
    """Put a box of each size near its point: within the frame, and clear of points and other boxes where it can be."""
    taken: dict[int, Box] = {}
    crowded = sorted(range(len(points)), key=lambda one: -sum(math.dist(points[one], other) < 0.6 for other in points))
    for index in crowded * ROUNDS:
        rest = {other: box for other, box in taken.items() if other != index}
        leaders = [spot for other, box in rest.items() for spot in leader(points[other], box)]
        others = [point for other, point in enumerate(points) if other != index]
        choices = [_beside(points[index], sizes[index], ring, turn) for ring in RINGS for turn in range(16)]
        costs = [_badness(box, points[index], others, leaders, list(rest.values()), frame) for box in choices]
        taken[index] = choices[costs.index(min(costs))]
    return [taken[index] for index in range(len(points))]


def _beside(point: Spot, size: Spot, ring: float, turn: int) -> Box:
    """Put a box at a sixteenth of a circle around a point: beside, above or below, or at a corner."""
    cosine, sine = math.cos(math.tau * turn / 16), math.sin(math.tau * turn / 16)
    x = point[0] + ring * cosine + size[0] * (_side(cosine) - 1) / 2
    y = point[1] + ring * sine + size[1] * (_side(sine) - 1) / 2
    return x, y, x + size[0], y + size[1]


def _side(part: float) -> int:
    return 0 if abs(part) < 0.2 else 1 if part > 0 else -1


def nearest(point: Spot, box: Box) -> Spot:
    """Find the spot of a box that is nearest to a point."""
    return min(max(point[0], box[0]), box[2]), min(max(point[1], box[1]), box[3])


def leader(point: Spot, box: Box) -> list[Spot]:
    """List spots on the way from a point to the edge of its box."""
    edge = nearest(point, box)
    step = (edge[0] - point[0]) / 6, (edge[1] - point[1]) / 6
    return [(point[0] + part * step[0], point[1] + part * step[1]) for part in range(7)]


def _badness(
    box: Box, point: Spot, others: Sequence[Spot], leaders: Sequence[Spot], boxes: Sequence[Box], frame: Box
) -> float:
    """Count what is wrong with a box: outside, upon something, crossed, nearer to another point, or far."""
    left, bottom, right, top = box[0] - 0.07, box[1] - 0.05, box[2] + 0.07, box[3] + 0.05
    outside = _area(box) - _overlap(box, frame)
    upon = sum(_overlap(box, other) for other in boxes)
    hidden = sum(left < x < right and bottom < y < top for x, y in (*others, *leaders))
    crossed = sum(other[0] < x < other[2] and other[1] < y < other[3] for other in boxes for x, y in leader(point, box))
    apart = math.dist(point, nearest(point, box))
    doubtful = sum(max(0.0, apart + 0.08 - math.dist(other, nearest(other, box))) for other in others)
    level = 0.1 * abs((box[1] + box[3]) / 2 - point[1]) + 0.02 * (box[0] < point[0])
    return 2000 * outside + 400 * upon + 3 * hidden + 3 * crossed + 4 * doubtful + apart + level


def _area(box: Box) -> float:
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def _overlap(one: Box, other: Box) -> float:
    return _area((max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])))
