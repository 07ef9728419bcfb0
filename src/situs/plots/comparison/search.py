"""Retrieval by length and depth: one small map per method."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from situs.lab.comparing.records import Comparison
from situs.lab.comparing.summary import Row, Scores
from situs.plots import style
from situs.plots.comparison import words
from situs.plots.comparison.findings import answers
from situs.plots.comparison.view import View
from situs.plots.panels import Colours
from situs.plots.style import MARGIN, SMALL, Sheet

LEFT = 0.42
PANEL, TITLES, GAP, TICKS = 0.86, 0.36, 0.12, 0.22  # inches


def retrieval(
    records: Comparison | View, task: str | None = None, *, dark: bool = False, narrow: bool = False
) -> Figure | None:
    """Draw the share of right answers by the length of the text and by how deep in it the answer lies."""
    view = View.of(records)
    task = task or next((task for task in view.answer_tasks if view.searched(task)), "")
    maps = [(row, scores) for row, scores in view.scored(task) if scores.depths]
    if not maps:
        return None
    columns = 3 if narrow else 5
    rows = math.ceil(len(maps) / columns)
    pitch = TITLES + PANEL + GAP
    with style.figure(
        f"{task.capitalize()}: right answers by length and depth",
        "down: how deep in the text the answer lies; right: length of the text, as a multiple of the training length",
        answers(view, task) or "Only the training length was tested.",
        height=rows * pitch + TICKS + 0.24,
        dark=dark,
        narrow=narrow,
    ) as sheet:
        width = (sheet.width - LEFT - MARGIN - GAP * (columns - 1)) / columns
        top = float(sheet.figure.get_figheight()) - sheet.top
        for number, (row, scores) in enumerate(maps):
            down, across = divmod(number, columns)
            box = (LEFT + across * (width + GAP), top - (down + 1) * pitch + GAP, width, PANEL)
            below = number + columns >= len(maps)
            _panel(sheet, view, row, scores, box, left=across == 0, below=below)
        found = Colours(sheet.theme.colormap, Normalize(0, 1), cut=False)
        found.key(sheet, "right", ("0 %", "100 %"), room=0.45)
    return sheet.figure


def grid(view: View, scores: Scores) -> tuple[NDArray[np.float64], list[float]]:
    """Arrange shares by depth (down) and length (right), nan where there are none; gives the depths too."""
    depths = sorted({depth for found in scores.depths.values() for depth in found})
    cells = [[scores.depths.get(length, {}).get(depth, math.nan) for length in view.lengths] for depth in depths]
    return np.array(cells, dtype=float), depths


def _panel(
    sheet: Sheet,
    view: View,
    row: Row,
    scores: Scores,
    box: tuple[float, float, float, float],
    *,
    left: bool,
    below: bool,
) -> None:
    cells, depths = grid(view, scores)
    axes = sheet.inches(*box)
    axes.set_gid("map")
    axes.set_label(row.name)
    axes.grid(visible=False)
    axes.pcolormesh(cells, cmap=sheet.theme.colormap, vmin=0.0, vmax=1.0, edgecolors=sheet.theme.paper, linewidth=0.8)
    axes.set_ylim(len(depths), 0)
    axes.set_xlim(0, len(view.lengths))
    missing = [index for index, length in enumerate(view.lengths) if not scores.depths.get(length)]
    for index in missing:
        hatched = Rectangle((index, 0), 1, len(depths), hatch="////", fill=False, linewidth=0)
        hatched.set_edgecolor(sheet.theme.grid)
        axes.add_patch(hatched)
    axes.spines["bottom"].set_visible(False)
    times = [view.times(length) for length in view.lengths]
    axes.set_xticks([index + 0.5 for index in range(len(times))], times if below else [])
    axes.set_yticks([0.5, len(depths) - 0.5], ["start", "end"] if left else [])
    axes.tick_params(length=0, pad=2, labelsize=SMALL - 1)
    last = view.last(scores.levels)
    share = "" if last is None else f"{words.percent(last[1].mean)} at {view.times(last[0])}"
    ended = next((point.ends for point in scores.levels.values() if point.ends is not None), None)
    if last is None or last[0] < view.longest:
        share = f"no result at {view.times(view.longest)}"
    said = share if ended is None else f"table ends at {ended:,}"
    name = fitting(row.name, box[2])
    above: dict[str, Any] = {"transform": axes.transAxes, "va": "bottom"}
    axes.text(0, 1 + 0.2 / box[3], name, size=SMALL, weight="bold", **above)
    axes.text(0, 1 + 0.05 / box[3], said, size=SMALL - 0.5, color=sheet.theme.faint, **above)


def fitting(name: str, width: float) -> str:
    """Shorten a name to what fits into so many inches, in bold."""
    shorter = (style.short(name, letters) for letters in range(40, 4, -1))
    return next((text for text in shorter if style.text_width(text, SMALL, "bold") <= width), style.short(name, 5))
