"""Factors: what queries are multiplied by at each position, beside what other models multiply them by."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from situs.encodings.temperature import DIALECTS, WITHOUT_FACTOR, Temperature
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import labels, style
from situs.plots.panels import ALIKE, Map
from situs.plots.portraits.kinds import LONGEST_TEXT, MULTIPLYING, kind, noted
from situs.plots.style import SMALL, Sheet

STRETCH = 32  # times the original length, where no length is chosen
BEFORE = 8  # and from this part of it on, since little happens before
POINTS = 600
OWN, OTHERS = 3.6, 1.3  # widths of lines: others stay visible where they lie on the sitter's own


@kind("what queries are multiplied by at each position, in all dialects", MULTIPLYING, longest=LONGEST_TEXT)
def factors(sitters: list[Sitter], *, length: int | None = None, dark: bool = False) -> Figure:
    """Draw the factor of queries over positions, and that of the other dialects with the same numbers.

    length: of the text; 32 times the original length if left out.
    """
    sitter, encoding = sitters[0], cast(Temperature, sitters[0].encodings[0])
    original = encoding.original_length
    length = min(STRETCH * original, LONGEST_TEXT) if length is None else length
    ids = _positions(original, length)
    curves = {name: portraits.factors(each, ids).numpy() for name, each in _overlaid(encoding).items()}
    along = ids.double().numpy() + 1
    own = encoding.dialect
    with style.figure(
        f"{sitter.name}: what queries are multiplied by",
        f"factor by position, original length {original:,}; thick: {own}{_given(encoding)}; thin: other dialects",
        noted(sitters, _of_factors(curves[own], along, original)),
        height=3.4,
        dark=dark,
    ) as sheet:
        looks = style.looks(list(curves), sheet.theme)
        heading = f"at {length - 1:,}"
        ends = [
            labels.End(float(each[:, -1].mean()), name, f"{each[:, -1].mean():.3f}", looks[name])
            for name, each in curves.items()
        ]
        room = labels.room(ends, heading)
        axes = sheet.axes(left=0.5, right=room, above=0.22, below=0.5)
        _frame(axes, along, curves, original, sheet)
        every = max(1, len(along) // 6)
        for number, (name, each) in enumerate(curves.items()):
            drawn = {**looks[name].line, "linewidth": OWN if name == own else OTHERS, "zorder": 2 + (name != own)}
            for head, line in enumerate(each):  # the first has the name, which the others share
                where = number * every // len(curves) % len(along)
                axes.plot(along, line, label="_" * (head > 0) + name, markevery=(where, every), **drawn)
        labels.Column(sheet, axes, room).lines(ends, heading)
    return sheet.figure


def _positions(original: int, length: int) -> torch.Tensor:
    """Choose positions evenly on a logarithmic scale, up to the last, and both sides of every early step."""
    first = max(1, min(original, length) // BEFORE)
    even = torch.logspace(np.log10(first), np.log10(length), POINTS, dtype=torch.float64).round().long() - 1
    steps = torch.arange(1, BEFORE + 1) * original
    sides = torch.cat([steps - 2, steps - 1, steps])
    last = torch.tensor([length - 1])
    found: torch.Tensor = torch.unique(
        torch.cat([even, sides[(sides >= first) & (sides < length)], last]).clamp(0, length - 1)
    )
    return found


def _overlaid(encoding: Temperature) -> dict[str, Temperature]:
    """The sitter's own dialect first, and the others with its numbers; what learns is drawn only where it sits."""
    found = {encoding.dialect: encoding}
    for name in DIALECTS:
        if name not in (encoding.dialect, "ssmax"):
            factor = None if name in WITHOUT_FACTOR else encoding.factor
            found[name] = Temperature(dialect=name, original_length=max(2, encoding.original_length), factor=factor)
    return cast("dict[str, Temperature]", found)


def _given(encoding: Temperature) -> str:
    heads = f", {encoding.num_heads} heads" if encoding.dialect == "ssmax" else ""
    return heads if encoding.factor is None else f", a = {encoding.factor:g}"


def _frame(axes: Axes, along: Map, curves: dict[str, Map], original: int, sheet: Sheet) -> None:
    least, most = min(each.min() for each in curves.values()), max(each.max() for each in curves.values())
    space = max(0.05 * (most - least), 0.01)
    axes.set_xscale("log", base=2)
    axes.set_xlim(along[0], along[-1])
    axes.set_ylim(least - space, most + space)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    axes.set_xlabel("tokens up to the query, itself included", labelpad=3, loc="left")
    if along[0] <= original < along[-1]:
        axes.axvspan(original, along[-1], color=sheet.theme.shade, linewidth=0, zorder=0)
        axes.text(
            original, 0.96, "  beyond the original length", transform=axes.get_xaxis_transform(), size=SMALL, va="top",
            color=sheet.theme.faint,
        )  # fmt: skip


def _of_factors(own: Map, along: Map, original: int) -> str:
    """Say what queries of one text have of it: where they begin to be multiplied, and by how much the last is."""
    last = (
        f"{own[:, -1].min():.3g}" if np.ptp(own[:, -1]) < ALIKE else f"{own[:, -1].min():.3g} to {own[:, -1].max():.3g}"
    )
    early = own[:, along < original]
    said = "A softmax over more keys is flatter; larger queries sharpen it again."
    if early.size and float(np.abs(early - 1).max()) < ALIKE:
        said += f" Queries within the original length of {original:,} stay as they are."
    return f"{said} The query at position {int(along[-1]) - 1:,} is multiplied by {last}."
