"""Read a figure back: its words, its panels, and the numbers that are drawn."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
MINUS = "\u2212"


def words(figure: Figure) -> list[str]:
    """Title, subtitle and caption, without the ends of lines."""
    return [text.get_text().replace("\n", " ") for text in figure.texts[:3]]


def panels(figure: Figure) -> list[Axes]:
    """All axes but the key to colours."""
    return [axes for axes in figure.axes if axes.get_gid() != "key"]


def names(figure: Figure) -> list[tuple[str, str]]:
    """What stands over each panel, and beside it in fainter letters."""
    found = []
    for axes in panels(figure):
        bold = [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"]
        beside = [each.get_text() for each in axes.texts if isinstance(each, Annotation) and each.arrow_patch is None]
        found += [(title, beside[0] if beside else "") for title in bold]
    return found


def image(axes: Axes) -> AxesImage:
    """The one map of a panel."""
    (found,) = axes.images
    return found


def drawn(axes: Axes) -> Numbers:
    """The numbers of a panel's map; what has none is nan."""
    values: Any = image(axes).get_array()
    return np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)


def extent(axes: Axes) -> tuple[float, ...]:
    """Left, right, bottom and top of a panel's map."""
    return tuple(image(axes).get_extent())


def key(figure: Figure) -> list[str]:
    """What is written beside the key to colours."""
    (axes,) = (axes for axes in figure.axes if axes.get_gid() == "key")
    return [text.get_text() for text in axes.texts]


def limits(axes: Axes) -> tuple[float, float]:
    """The numbers of the least and the greatest colour of a panel's map."""
    low, high = image(axes).get_clim()
    assert low is not None
    assert high is not None
    return low, high


def lines(axes: Axes) -> dict[str, tuple[Numbers, Numbers]]:
    """Lines that have a name, as numbers across and up."""
    named = {str(line.get_label()): line for line in axes.get_lines()}
    return {name: points(line) for name, line in named.items() if name and not name.startswith("_")}


def points(line: Line2D) -> tuple[Numbers, Numbers]:
    """A line's numbers across and up."""
    return np.asarray(line.get_xdata(), dtype=float), np.asarray(line.get_ydata(), dtype=float)


def written(axes: Axes, kind: str) -> list[str]:
    """Words beside lines: each "label", "number" or "heading"."""
    return [text.get_text() for text in axes.texts if text.get_gid() == kind]


def arrows(axes: Axes) -> Numbers:
    """Where arrows from the middle end."""
    found = [text for text in axes.texts if isinstance(text, Annotation) and text.arrow_patch is not None]
    assert all(tuple(each.xyann) == (0, 0) for each in found)
    return np.array([each.xy for each in found], dtype=float)
