"""The order of tokens: what a layer can tell of it, with an encoding or with a causal mask alone."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import labels, style
from situs.plots.panels import Colours, Map, Panels, name
from situs.plots.portraits.kinds import IN_TEXT, kind, noted
from situs.plots.portraits.matrices import AXES
from situs.plots.style import SMALL, Sheet

LINES = 1.95  # inches
LEVEL = 1e-3  # a share of the greatest weight; what differs by less is rounding


@kind("what happens to attention weights when tokens are shuffled", IN_TEXT)
def order(sitters: list[Sitter], *, length: int = 12, dark: bool = False) -> Figure:
    """Draw the weights of a random text, of the same text shuffled, and both in the original order; and how much weight
    the first token has under a causal mask."""
    sitter = sitters[0]
    found = portraits.shuffled(sitter, length)
    maps: list[Map] = [np.sqrt(each.double().numpy()) for each in found.maps]
    panels = Panels(4, 4)
    with style.figure(
        f"{sitter.name}: what the layer knows about order",
        f"attention of {length} random tokens, mean of heads; {AXES}; colour: square root of the weight",
        noted(sitters, _of_order(maps[0], maps[2]), length),
        height=panels.height + LINES,
        dark=dark,
    ) as sheet:
        colours = Colours.of(maps, sheet.theme, zero=True)
        shown = {
            "in order": range(length), "shuffled": found.order.tolist(), "shuffled, put back": range(length),
            "same, causal mask": range(length),
        }  # fmt: skip
        for axes, (title, tokens), values in zip(panels.axes(sheet), shown.items(), maps, strict=True):
            name(axes, title, "", sheet.theme)
            colours.draw(axes, values)
            if length <= len(ascii_lowercase):
                _label_tokens(axes, tokens)
        colours.key(sheet, "square root of weight", above=LINES)
        _draw_first(sheet, sitter.name, found.first.double().numpy())
    return sheet.figure


def _label_tokens(axes: Axes, tokens: Sequence[int]) -> None:
    """Write a letter for each token along both axes."""
    letters = [ascii_lowercase[token] for token in tokens]
    axes.set_xticks(range(len(letters)), letters)
    axes.set_yticks(range(len(letters)), letters)
    axes.tick_params(labelleft=True, labelsize=SMALL - 2, pad=1)


def _draw_first(sheet: Sheet, called: str, first: Map) -> None:
    """Draw the weight of the first token by the query's position, beside one share among all visible tokens."""
    names = (style.short(called), "1 / visible tokens")
    looks = style.looks(names, sheet.theme)
    even = 1 / np.arange(1, len(first) + 1)
    lines = dict(zip(names, (first, even), strict=True))
    ends = [labels.End(float(y[-1]), one, f"{y[-1]:.2f}", looks[one]) for one, y in lines.items()]
    room = labels.room(ends, f"at {len(first) - 1}")
    axes = sheet.inches(0.48, sheet.bottom + 0.42, sheet.width - 0.48 - room, LINES - 0.42 - 0.3)
    axes.set_gid("first")
    axes.set_ylim(0, 1.05 * max(1.0, float(first.max())))
    axes.set_xlim(0, len(first) - 1)
    for one, y in lines.items():
        axes.plot(np.arange(len(y)), y, label=one, **looks[one].line)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("position of the query", labelpad=3, loc="left")
    axes.set_title(
        "weight of the first token under a causal mask, mean of texts", loc="left", fontsize=SMALL, fontweight="bold",
        pad=4,
    )  # fmt: skip
    labels.Column(sheet, axes, room).lines(ends, f"at {len(first) - 1}")


def _of_order(plain: Map, back: Map) -> str:
    change = float(np.abs(back**2 - plain**2).max() / (plain**2).max())
    if change < LEVEL:
        said = "Shuffled tokens have the same weights, shuffled along: put back in order, nothing has changed."
    else:
        said = (
            f"Shuffled tokens have other weights: put back in order, they differ by up to {change:.0%} of the largest."
        )
    return (
        f"{said} A causal mask tells order by itself: each token sees only those before it, so the weight of the first "
        "token falls with the query's position."
    )
