"""What is added to the input: the whole table, single channels, and how similar positions are."""

from __future__ import annotations

from typing import cast

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from situs.arguments import require_count, require_several
from situs.encodings.base import InputEncoding, QueryKeyEncoding
from situs.encodings.learned import Learned
from situs.encodings.learned_grid import LearnedGrid
from situs.encodings.sinusoidal import Sinusoidal
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import style
from situs.plots.panels import Colours, Map, Panels
from situs.plots.portraits.kinds import ADDED, COMPARED, kind, noted
from situs.plots.style import MARGIN, SMALL
from situs.positions import Positions

CHANNELS = (0, 1, 4, 8, 16, 32, 64)
STRIP = 0.4  # inches


@kind("what is added at each position, as a map over positions and channels", ADDED)
def table(sitters: list[Sitter], *, length: int = 128, dark: bool = False) -> Figure:
    """Draw what is added at each position: one row per position, one column per channel."""
    encoding = cast(InputEncoding, sitters[0].encodings[0])
    values = _table(encoding, length)
    panels = Panels(1, 1, aspect=0.5, widest=style.WIDE, names=False)
    with style.figure(
        f"What {sitters[0].name} adds to the input",
        "rows: positions; columns: channels; colour: the number that is added",
        noted(sitters, _of_table(sitters[0], length)),
        height=panels.height,
        dark=dark,
    ) as sheet:
        (axes,) = panels.axes(sheet)
        colours = Colours.of([values], sheet.theme)
        colours.draw(axes, values, ticks=6)
        colours.key(sheet, "added")
    return sheet.figure


@kind("single channels of what is added, over positions", ADDED)
def dimensions(
    sitters: list[Sitter], *, length: int = 128, channels: tuple[int, ...] | None = None, dark: bool = False
) -> Figure:
    """Draw what is added over positions, one strip per channel."""
    encoding = cast(InputEncoding, sitters[0].encodings[0])
    values = _table(encoding, length)
    chosen = tuple(each for each in CHANNELS if each < values.shape[1]) if channels is None else channels
    chosen = require_several("channels", chosen, "each is drawn by itself")
    chosen = tuple([require_count("channels", each, "they are numbered") for each in chosen])
    if not chosen or not all(0 <= each < values.shape[1] for each in chosen):
        raise ValueError(
            f"channels must be one or more of 0 .. {values.shape[1] - 1}, since {sitters[0].name} has that many; got "
            f"{channels}."
        )
    top = float(np.abs(values[:, list(chosen)]).max()) * 1.1 or 1.0
    with style.figure(
        f"Single channels of {sitters[0].name}",
        style.minus(f"the number that is added at each position, from {-top / 1.1:.2g} to {top / 1.1:.2g}"),
        noted(sitters, _of_table(sitters[0], length)),
        height=len(chosen) * STRIP + 0.5,
        dark=dark,
    ) as sheet:
        for number, channel in enumerate(chosen):
            y = sheet.bottom + 0.45 + (len(chosen) - 1 - number) * STRIP
            axes = sheet.inches(0.95, y, sheet.width - 0.95 - 1.6, STRIP * 0.86)
            axes.plot(np.arange(length), values[:, channel], color=sheet.theme.hues[0], linewidth=1.4)
            axes.set_label(f"channel {channel}")
            axes.set_ylim(-top, top)
            axes.set_xlim(0, length - 1)
            axes.set_yticks([0.0], [""])
            last = number == len(chosen) - 1
            axes.spines["bottom"].set_visible(last)
            axes.tick_params(axis="x", labelbottom=last, length=3 if last else 0)
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
            at = {"transform": axes.transAxes, "va": "center", "size": SMALL}
            axes.text(-0.02, 0.5, f"channel {channel}", ha="right", **at)  # type: ignore[arg-type]
            axes.text(1.02, 0.5, _wave(encoding, channel), ha="left", color=sheet.theme.faint, **at)  # type: ignore[arg-type]
        axes.set_xlabel("position", labelpad=3, loc="left")
    return sheet.figure


@kind("how similar any two positions are, as a map and from one in the middle", COMPARED)
def similarity(sitters: list[Sitter], *, length: int = 128, dark: bool = False) -> Figure:
    """Draw cosines or scores between positions."""
    sitter = sitters[0]
    values: Map = portraits.similarity(sitter, Positions.range(length)).double().numpy()
    middle = length // 2
    panels = Panels(1, 1, widest=2.7, names=False)
    rotated = isinstance(sitter.encodings[0], QueryKeyEncoding)
    with style.figure(
        f"{sitter.name}: how similar positions are",
        "mean score of a vector of length 1 with itself, at two positions"
        if rotated
        else "cosine between the vectors that two positions add",
        noted(sitters, _of_similarity(values, middle, "scores" if rotated else "cosines")),
        height=panels.height + 0.25,
        dark=dark,
    ) as sheet:
        (axes,) = panels.axes(sheet)
        colours = Colours.of([values], sheet.theme)
        colours.draw(axes, values, ticks=5)
        left = panels.left + panels.width + 0.75
        place = axes.get_position()
        curve = sheet.inches(
            left, place.y0 * sheet.figure.get_figheight(), sheet.width - left - MARGIN, panels.width * panels.aspect
        )
        curve.axhline(0, color=sheet.theme.faint, linewidth=0.8)
        curve.plot(np.arange(length) - middle, values[middle], color=sheet.theme.hues[0], linewidth=1.6)
        curve.set_xlim(-middle, length - 1 - middle)
        curve.set_xlabel(f"offset from position {middle}", labelpad=3, loc="left")
        colours.key(sheet, "score" if rotated else "cosine")
    return sheet.figure


def _table(encoding: InputEncoding, length: int) -> Map:
    values: Map = portraits.table(encoding, Positions.range(length)).double().numpy()
    return values


def _wave(encoding: InputEncoding, channel: int) -> str:
    if not isinstance(encoding, Sinusoidal) or encoding.axes > 1:
        return ""
    pairs = encoding.frequencies(0)
    pair = channel // 2 if encoding.layout == "interleaved" else channel % len(pairs)
    return f"{2 * np.pi / float(pairs[pair]):,.3g} positions per wave" if pair < len(pairs) else "left over"


def _of_table(sitter: Sitter, length: int) -> str:
    encoding = sitter.encodings[0]
    if isinstance(encoding, Sinusoidal):
        waves = portraits.wavelengths(encoding, length)
        slow = int((waves > length).sum())
        return (
            f"Fast channels distinguish neighbours, slow ones distant parts of the text: {slow} of {len(waves)} "
            f"pairs make less than one wave within {length:,} positions."
        )
    if isinstance(encoding, Learned | LearnedGrid):
        last = sitter.trained is not None and sitter.trained.recipe.task == "text" and length == sitter.trained.length
        unused = " In training nothing is predicted from the last position, so its row did not learn."
        return (
            "Each position has its own vector. Only positions that occur in training learn, and there is nothing "
            "beyond the table's last row." + unused * last
        )
    return "Each row is the vector that is added at that position."


def _of_similarity(values: Map, middle: int, what: str) -> str:
    count = len(values)
    near, far = values[middle, middle - 1], values[middle, 0]
    diagonals = [np.diagonal(values, offset) for offset in (1, count // 4)]
    spread = max(float(each.max() - each.min()) for each in diagonals)
    if spread < 1e-3:
        said = (
            f"Constant along diagonals: only the distance counts. Neighbours have {near:.2f}, positions {middle} apart"
        )
        return style.minus(f"{said} {far:.2f}.")
    said = f"Pairs of positions at the same distance differ: their {what} by up to {spread:.2g}."
    return style.minus(
        f"{said} Seen from position {middle}, the one before it has {near:.2f}, and position 0 {far:.2f}."
    )
