"""Small maps side by side, in one scale of colours, with a key to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from situs.plots.style import MARGIN, SMALL, WIDE, Sheet, Theme, minus, text_width

GAP, NAMES, TICKS, KEY = 0.16, 0.24, 0.24, 0.26  # inches: between panels, over, under, and for the key
BESIDE = 0.07  # from a name to what is said of it
ALIKE = 1e-4  # what differs by less is rounding
ALL_HEADS = "all heads"
NAMED = 4  # heads with one curve that are named
Map = NDArray[np.float64]


@dataclass(frozen=True)
class Panels:
    """Lay out rows of panels that are alike in size."""

    count: int
    columns: int
    aspect: float = 1.0
    """Height over width."""
    left: float = 0.48
    widest: float = 3.3
    names: bool = True
    """Whether each has its name over it."""
    key: bool = True

    @property
    def width(self) -> float:
        """The width of a panel in inches."""
        room = WIDE - self.left - MARGIN - GAP * (self.columns - 1)
        return min(self.widest, room / self.columns)

    @property
    def height(self) -> float:
        """The height of all panels in inches, with names, ticks and key."""
        return math.ceil(self.count / self.columns) * self._pitch - GAP + TICKS + KEY * self.key

    @property
    def _pitch(self) -> float:
        return NAMES * self.names + self.width * self.aspect + GAP

    def axes(self, sheet: Sheet) -> list[Axes]:
        """Make the panels, row by row; only the first of a row has ticks at its side, and the last row below."""
        top = float(sheet.figure.get_figheight()) - sheet.top
        made = []
        for number in range(self.count):
            down, across = divmod(number, self.columns)
            y = top - (down + 1) * self._pitch + GAP
            axes = sheet.inches(self.left + across * (self.width + GAP), y, self.width, self.width * self.aspect)
            axes.grid(visible=False)
            axes.tick_params(length=0, pad=2)
            axes.tick_params(labelleft=across == 0, labelbottom=number + self.columns >= self.count)
            axes.spines["bottom"].set_visible(False)
            made.append(axes)
        return made


@dataclass(frozen=True)
class Colours:
    """Give numbers their colours, and tell whether some lie beyond."""

    colormap: Colormap
    norm: Normalize
    cut: bool
    """Whether some are less than the least that has a colour of its own."""

    @staticmethod
    def of(
        values: Sequence[Map],
        theme: Theme,
        *,
        floor: float = -math.inf,
        zero: bool = False,
        one_hue: bool = False,
    ) -> Colours:
        """Choose two hues around 0 where there are numbers on both sides of it, else one; ``zero`` begins with 0."""
        finite = np.concatenate([each[np.isfinite(each)] for each in values])
        least, most = float(finite.min()), float(finite.max())
        cut = least < floor
        least = max(least, floor)
        if least < 0 < most and not one_hue:
            reach = max(-least, most)
            return Colours(theme.signed, Normalize(-reach, reach), cut)
        least, most = (0.0, most) if zero else (least, most)
        return Colours(theme.colormap, Normalize(least, most if most > least else least + 1), cut)

    def draw(self, axes: Axes, values: Map, *, ticks: int = 4) -> None:
        """Draw a map whose cells lie around whole numbers from 0 on, the first row at the top."""
        rows, columns = values.shape
        extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
        axes.imshow(values, cmap=self.colormap, norm=self.norm, extent=extent, aspect="auto", interpolation="nearest")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(ticks, integer=True))

    def key(
        self, sheet: Sheet, words: str, ends: tuple[str, str] | None = None, *, room: float = 0.5, above: float = 0.0
    ) -> None:
        """Explain the colours below the panels at the right, ``above`` so many inches that something else needs.

        ends: words for both ends, where panels have scales of their own.
        room: inches for the last of them.
        """
        width, low, high = 1.3, self.norm.vmin or 0.0, self.norm.vmax or 0.0
        least, most = ends or (f"{_number(low)}{' or less' if self.cut else ''}", _number(high))
        axes = sheet.inches(sheet.width - MARGIN - width - room, sheet.bottom + 0.06 + above, width, 0.09)
        axes.set_gid("key")
        axes.imshow(np.linspace(low, high, 64)[None], cmap=self.colormap, norm=self.norm, aspect="auto")
        axes.set_axis_off()
        for x, side, text in ((-0.04, "right", f"{words}: {least}"), (1.04, "left", most)):
            axes.text(
                x, 0.45, text, transform=axes.transAxes, ha=side, va="center", size=SMALL, color=sheet.theme.faint
            )


def heads_shown(values: Map, most: int = 8) -> dict[str, int]:
    """Choose which heads are shown, each by its name: heads with the same numbers once, under one name; of more than
    ``most`` different ones, some from the first to the last.

    values: (heads, ...).

    >>> heads_shown(np.array([[1.0], [2.0], [1.0], [1.0]]))
    {'heads 1, 3, 4': 0, 'head 2': 1}
    """
    groups: list[list[int]] = []
    for head, own in enumerate(values):
        alike = [group for group in groups if np.allclose(values[group[0]], own, rtol=0, atol=ALIKE, equal_nan=True)]
        if alike:
            alike[0].append(head)
        else:
            groups.append([head])
    if len(groups) == 1 and len(values) > 1:
        return {ALL_HEADS: 0}
    chosen = np.unique(np.linspace(0, len(groups) - 1, min(len(groups), most)).round()).astype(int)
    return {_heads(groups[each]): groups[each][0] for each in chosen}


def _heads(group: Sequence[int]) -> str:
    """Name heads, which people count from 1; of many, the first and how many more."""
    numbers = [str(head + 1) for head in group]
    if len(numbers) > NAMED:
        numbers = [*numbers[: NAMED - 1], f"{len(numbers) - NAMED + 1} more"]
    return f"head{'s' * (len(group) > 1)} {', '.join(numbers)}"


def name(axes: Axes, title: str, said: str, theme: Theme) -> None:
    """Write over a panel what it shows: a name, and something beside in fainter letters if there is room for it,
    in smaller ones where that helps."""
    wide = axes.get_position().width * axes.figure.get_figwidth()  # type: ignore[union-attr]
    room = wide - text_width(title, SMALL, "bold") - BESIDE
    size = next((each for each in (SMALL, SMALL - 1, SMALL - 2) if text_width(said, each) <= room), None)
    high = axes.get_position().height * axes.figure.get_figheight()  # type: ignore[union-attr]
    y = 1 + 0.06 / high
    written = axes.text(0, y, title, transform=axes.transAxes, size=SMALL, weight="bold", va="bottom")
    if said and size is not None:
        axes.annotate(
            said, (1, 0), xycoords=written, xytext=(5, 0), textcoords="offset points", size=size, color=theme.faint,
            va="bottom",
        )  # fmt: skip


def _number(value: float) -> str:
    return minus(f"{value:.2g}")
