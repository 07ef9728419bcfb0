"""Maps of retrieval: the share of right answers by the length of the text and by how deep in it the answer lies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from situs.plots import style
from situs.plots.panels import Colours
from situs.plots.style import MARGIN, SMALL, Sheet

LEFT = 0.42
PANEL, TITLES, GAP, TICKS = 0.86, 0.36, 0.12, 0.22  # inches

Depths = Mapping[int, Mapping[float, float]]
"""For each length and depth, a share."""


@dataclass(frozen=True)
class DepthMap:
    """Hold the name over a map, what is said below the name, and its shares."""

    name: str
    said: str
    depths: Depths


def columns_of(narrow: bool) -> int:
    """Tell how many maps stand beside each other."""
    return 3 if narrow else 5


def maps_height(count: int, *, narrow: bool) -> float:
    """Measure the inches that so many maps need."""
    return math.ceil(count / columns_of(narrow)) * (TITLES + PANEL + GAP) + TICKS + 0.24


def draw_maps(sheet: Sheet, maps: Sequence[DepthMap], lengths: Mapping[int, str]) -> None:
    """Draw maps in rows, and a key to their colours.

    lengths: what is written under each length.
    """
    columns = columns_of(sheet.narrow)
    pitch = TITLES + PANEL + GAP
    width = (sheet.width - LEFT - MARGIN - GAP * (columns - 1)) / columns
    top = float(sheet.figure.get_figheight()) - sheet.top
    for number, each in enumerate(maps):
        down, across = divmod(number, columns)
        box = (LEFT + across * (width + GAP), top - (down + 1) * pitch + GAP, width, PANEL)
        _panel(sheet, each, lengths, box, left=across == 0, below=number + columns >= len(maps))
    found = Colours(sheet.theme.colormap, Normalize(0, 1), cut=False)
    found.key(sheet, "right", ("0 %", "100 %"), room=0.45)


def cells_of(depths: Depths, lengths: Sequence[int]) -> tuple[NDArray[np.float64], list[float]]:
    """Arrange shares by depth (down) and length (right), nan where there are none; gives the depths too."""
    known = sorted({depth for found in depths.values() for depth in found})
    cells = [[depths.get(length, {}).get(depth, math.nan) for length in lengths] for depth in known]
    return np.array(cells, dtype=float), known


def _panel(
    sheet: Sheet,
    each: DepthMap,
    lengths: Mapping[int, str],
    box: tuple[float, float, float, float],
    *,
    left: bool,
    below: bool,
) -> None:
    cells, depths = cells_of(each.depths, list(lengths))
    axes = sheet.inches(*box)
    axes.set_gid("map")
    axes.set_label(each.name)
    axes.grid(visible=False)
    axes.pcolormesh(cells, cmap=sheet.theme.colormap, vmin=0.0, vmax=1.0, edgecolors=sheet.theme.paper, linewidth=0.8)
    axes.set_ylim(len(depths), 0)
    axes.set_xlim(0, len(lengths))
    missing = [index for index, length in enumerate(lengths) if not each.depths.get(length)]
    for index in missing:
        hatched = Rectangle((index, 0), 1, len(depths), hatch="////", fill=False, linewidth=0)
        hatched.set_edgecolor(sheet.theme.grid)
        axes.add_patch(hatched)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([index + 0.5 for index in range(len(lengths))], list(lengths.values()) if below else [])
    axes.set_yticks([0.5, len(depths) - 0.5], ["start", "end"] if left else [])
    axes.tick_params(length=0, pad=2, labelsize=SMALL - 1)
    name = fitting(each.name, box[2])
    above: dict[str, Any] = {"transform": axes.transAxes, "va": "bottom"}
    axes.text(0, 1 + 0.2 / box[3], name, size=SMALL, weight="bold", **above)
    axes.text(0, 1 + 0.05 / box[3], each.said, size=SMALL - 0.5, color=sheet.theme.faint, **above)


def fitting(name: str, width: float) -> str:
    """Shorten a name to what fits into so many inches, in bold."""
    shorter = (style.short(name, letters) for letters in range(40, 4, -1))
    return next((text for text in shorter if style.text_width(text, SMALL, "bold") <= width), style.short(name, 5))
