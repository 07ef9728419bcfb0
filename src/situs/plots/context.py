"""The spectrum of a released model: how long each pair takes for a rotation, beside trained and target length."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from situs.models.inspecting.report import Group, Report
from situs.plots import style
from situs.plots.style import SMALL, Sheet

STATES = {"seen": "o", "interpolated": "^", "never seen": "X", "not rotated": "."}
TALL = math.ceil(SMALL * 1.4)
"""Points that a label takes, with its ground."""
MOST = 4
"""Groups of layers that are drawn; more would hide each other."""


def context(report: Report, *, dark: bool = False) -> Figure:
    """Draw the pairs of each group of layers that rotates: what each meets at the target, by marker and colour."""
    groups = [(part, group) for part in report.parts for group in part.groups if group.pairs]
    if not groups:
        raise ValueError(
            f"a figure needs layers that rotate, and a length that the model was trained on; {report.model.model_type} "
            f"has neither, or not both."
        )
    drawn = groups[:MOST]
    training = drawn[0][0].training
    assert training is not None
    unseen = max(sum(pair.state == "never seen" for pair in group.pairs) for _, group in drawn)
    told = "no pair meets" if not unseen else "1 pair meets" if unseen == 1 else f"{unseen} pairs meet"
    caption = (
        f"Pairs above {training.length:,} made less than one rotation in training, so that longer texts show them new "
        f"angles unless a scaling slows them. At {report.target:,} tokens {told} angles that training did not show."
    )
    if any(group.layer.window or group.layer.chunk for _, group in drawn):
        caption += " Layers with a window or chunks meet no larger distances in longer texts."
    if len(groups) > MOST:
        caption += f" Of {len(groups)} groups of layers, the first {MOST} are drawn."
    with style.figure(
        f"{report.model.model_type} at {report.target:,} tokens",
        "positions that a pair takes for one full rotation",
        caption,
        height=3.4,
        dark=dark,
    ) as sheet:
        axes = sheet.axes(left=0.95, right=0.2, above=0.1, below=0.5)
        _draw(sheet, axes, report, [group for _, group in drawn], training.length)
    return sheet.figure


def _draw(sheet: Sheet, axes: Axes, report: Report, groups: list[Group], trained: int) -> None:
    theme = sheet.theme
    waves = [pair.wavelength for group in groups for pair in group.pairs if math.isfinite(pair.wavelength)]
    axes.set_yscale("log")
    axes.set_ylim(min(waves) / 1.5, max(*waves, report.target) * 2.5)
    colours = dict(zip(STATES, (theme.hues[0], theme.hues[2], theme.hues[1], theme.faint), strict=True))
    shown: set[str] = set()
    lengths = {"trained": trained, "target": report.target} if trained != report.target else {"trained": trained}
    for group in groups:
        numbers = [pair.index for pair in group.pairs]
        axes.plot(numbers, [pair.wavelength for pair in group.pairs], color=theme.faint, linewidth=0.8, zorder=1)
        for state, marker in STATES.items():
            some = [pair for pair in group.pairs if pair.state == state and math.isfinite(pair.wavelength)]
            if some:
                label = state if state not in shown else "_"
                shown.add(state)
                axes.plot([pair.index for pair in some], [pair.wavelength for pair in some], marker, markersize=4.2,
                          color=colours[state], label=label, linestyle="none", zorder=2)  # fmt: skip
    if len(groups) > 1:
        _name(sheet, axes, groups, lengths.values())
    for name, length in lengths.items():
        axes.axhline(length, color=theme.ink, linewidth=1.0, linestyle=(0, (3, 2)))
        others = [each for each in lengths.values() if each != length]
        moved = (0, _free(axes, length, others, (3, -TALL - 3)))
        _label(sheet, axes, f"{name}: {length:,}", (0.01, length), axes.get_yaxis_transform(), "left", moved)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    axes.set_xlabel("pair of channels", labelpad=3, loc="left")
    axes.legend(loc="lower right", frameon=False, fontsize=SMALL, labelcolor=theme.ink)


def _name(sheet: Sheet, axes: Axes, groups: list[Group], lines: Collection[float | int]) -> None:
    """Write the layers of each group beside the end of its curve: above the highest one, below the others, and to the
    right of those that end early."""
    ends: dict[tuple[int, float], list[str]] = {}  # groups that rotate alike have one curve
    for group in groups:
        moving = [pair for pair in group.pairs if math.isfinite(pair.wavelength)]
        if moving:
            ends.setdefault((moving[-1].index, moving[-1].wavelength), []).append(_shortened(group.layers))
    last, highest = max(index for index, _ in ends), max(wave for _, wave in ends)
    above, below = (6, 6 + TALL, 6 + 2 * TALL), (-6 - 3 * TALL, -6 - 4 * TALL, 6)
    for (index, wave), layers in ends.items():
        name, end = f"layers {' and '.join(layers)}", (index, wave)
        if index < 0.7 * last:
            moved = (8, _free(axes, wave, lines, (-TALL // 2, -TALL - 6, 6)))
            _label(sheet, axes, name, end, axes.transData, "left", moved)
        else:
            moved = (-4, _free(axes, wave, lines, above if wave == highest else below))
            _label(sheet, axes, name, end, axes.transData, "right", moved)


def _free(axes: Axes, value: float | int, lines: Collection[float | int], places: tuple[int, ...]) -> int:
    """The first place of a label, in points above a value, that no line of another value crosses."""
    heights = {each: axes.transData.transform((0.0, each))[1] * 72 / axes.figure.dpi for each in (value, *lines)}
    taken = [heights[each] - heights[value] for each in lines]
    free = (place for place in places if not any(place - 2 < each < place + TALL for each in taken))
    return next(free, places[0])


def _label(
    sheet: Sheet, axes: Axes, text: str, where: tuple[float, float], transform: Any, align: str, moved: tuple[int, int]
) -> None:
    """Write beside a point, on a ground of its own where lines cross."""
    ground = {"boxstyle": "square,pad=0.1", "facecolor": sheet.theme.paper, "edgecolor": "none", "alpha": 0.85}
    axes.annotate(text, where, xycoords=transform, xytext=moved, textcoords="offset points", ha=align, va="bottom",
                  size=SMALL, color=sheet.theme.ink, bbox=ground, zorder=3)  # fmt: skip


def _shortened(layers: str) -> str:
    return layers if len(layers) <= 12 else f"{layers[:10].rpartition(',')[0]} ..."
