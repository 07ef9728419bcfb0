"""Images: how one patch relates to all others."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from situs.arguments import require_count, require_several
from situs.encodings.bias import BiasEncoding
from situs.encodings.learned_grid import LearnedGrid
from situs.encodings.score import ScoreEncoding
from situs.encodings.swin import SwinBias
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import style
from situs.plots.panels import ALL_HEADS, Colours, Map, Panels, heads_shown, name
from situs.plots.portraits.kinds import SPATIAL, kind, noted
from situs.positions import Positions

LARGEST, CROSS = 64, 0.05


@kind("an image: how similar one patch is to all others, or what is added to their scores", SPATIAL)
def grid(sitters: list[Sitter], *, size: tuple[int, int] | None = None, dark: bool = False) -> Figure:
    """Draw how similar one patch is to all others, or the bias between them.

    size: (height, width) in patches; the encoding's own if it has one, else that it was trained on, else 14 x 14.
    """
    sitter, encoding = sitters[0], sitters[0].encodings[0]
    usual = (14, 14) if sitter.trained is None else sitter.trained.recipe.sides
    own = encoding.size if isinstance(encoding, LearnedGrid) else getattr(encoding, "window", usual)
    sides = require_several("size", own if size is None else size, "an image has patches both ways")
    chosen_size = tuple([require_count("size", each, "it counts patches") for each in sides])
    if len(chosen_size) != 2 or not all(2 <= each <= LARGEST for each in chosen_size):
        raise ValueError(
            f"size must be 2 to {LARGEST} patches each way, since fewer show nothing and more cannot be seen in "
            f"a figure; got {chosen_size}."
        )
    height, width = chosen_size
    if isinstance(encoding, BiasEncoding):
        values = portraits.bias_around(encoding, (height, width))
        return _added(sitter, values.double().numpy(), (height, width), dark)
    if isinstance(encoding, ScoreEncoding):
        return _added(sitter, portraits.term_around(sitter, (height, width)).double().numpy(), (height, width), dark)
    alike: Map = portraits.similarity(sitter, Positions.grid(height, width)).double().numpy()
    rows, columns = (sorted({size // 6, size // 2, size - 1 - size // 6}) for size in (height, width))
    chosen = [(row, column) for row in rows for column in columns]
    panels = Panels(len(chosen), len(columns), aspect=height / width, widest=1.75, left=1.0)
    with style.figure(
        f"{sitter.name} on an image of {height} × {width} patches",
        "cosine between the marked patch and all others",
        noted([sitter], _of_image(alike, height, width)),
        height=panels.height,
        dark=dark,
    ) as sheet:
        off = [alike[row * width + column].reshape(height, width) for row, column in chosen]
        colours = Colours.of(off, sheet.theme)
        for axes, (row, column), values in zip(panels.axes(sheet), chosen, off, strict=True):
            name(axes, f"row {row}, column {column}", "", sheet.theme)
            colours.draw(axes, values)
            axes.plot([column], [row], marker="s", markersize=5, fillstyle="none", color=sheet.theme.ink)
        colours.key(sheet, "cosine")
    return sheet.figure


def _added(sitter: Sitter, values: Map, size: tuple[int, int], dark: bool) -> Figure:
    encoding, shown = sitter.encodings[0], heads_shown(values)
    heads, by_content = list(shown.values()), isinstance(encoding, ScoreEncoding)
    panels = Panels(len(heads), min(4, len(heads)), aspect=size[0] / size[1])
    named = f"version {encoding.version[1:]}" if isinstance(encoding, SwinBias) else ""
    with style.figure(
        f"{sitter.name}: {'term' if by_content else 'bias'} from the marked patch to all others",
        f"what is added to the scores in a window of {size[0]} × {size[1]} patches, "
        f"{f'one map for {ALL_HEADS}' if ALL_HEADS in shown else 'one map per head'}{', ' * bool(named)}{named}",
        noted([sitter], _of_window(values, size, by_content=by_content)),
        height=panels.height,
        dark=dark,
    ) as sheet:
        colours = Colours.of([values[heads]], sheet.theme)
        for axes, (title, head) in zip(panels.axes(sheet), shown.items(), strict=True):
            name(axes, title, "", sheet.theme)
            colours.draw(axes, values[head])
            axes.plot([size[1] // 2], [size[0] // 2], marker="s", markersize=5, fillstyle="none", color=sheet.theme.ink)
        colours.key(sheet, "added")
    return sheet.figure


def _of_window(values: Map, size: tuple[int, int], *, by_content: bool) -> str:
    """Say where the highest biases lie, seen from the middle patch."""
    rows, columns = np.indices(size)
    near = np.maximum(abs(rows - size[0] // 2), abs(columns - size[1] // 2)) == 1
    far = np.maximum(abs(rows - size[0] // 2), abs(columns - size[1] // 2)) > 1
    said = "The bias depends on the offset only, so every patch has the same map around it."
    if by_content:
        said = "Rows and columns add up; what each adds depends on the query of the marked patch."
    if not far.any():
        return said
    gain = float(values[:, near].mean() - values[:, far].mean())
    word = "more" if gain > 0 else "less"
    return f"{said} On average the eight neighbours get {abs(gain):.2g} {word} than patches farther away."


def _of_image(alike: Map, height: int, width: int) -> str:
    middle = height // 2 * width + width // 2
    map_ = alike[middle].reshape(height, width)
    beside = np.concatenate((np.delete(map_[height // 2], width // 2), np.delete(map_[:, width // 2], height // 2)))
    rest = np.delete(np.delete(map_, height // 2, 0), width // 2, 1)
    if float(beside.mean() - rest.mean()) > CROSS:
        said = (
            f"Patches of the same row or column as the middle one are more similar to it (mean {beside.mean():.2f}) "
            f"than others ({rest.mean():.2f})."
        )
    else:
        said = (
            f"Patches of the same row or column as the middle one (mean {beside.mean():.2f}) are not more similar to "
            f"it than others ({rest.mean():.2f})."
        )
    return style.minus(said)
