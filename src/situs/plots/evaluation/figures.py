"""The figures of an evaluation. Each is drawn from the records alone, and is None where they have nothing for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from situs.lab.evaluating.records import NONE
from situs.lab.evaluating.summary import Row, Summary, reach
from situs.lab.scores import HOLDS, Scores, at
from situs.plots import style
from situs.plots.comparison.figures import stretches
from situs.plots.comparison.lines import Chart, Line, lengths_axis, limits
from situs.plots.comparison.words import listed, percent, signed
from situs.plots.depths import DepthMap, draw_maps, maps_height
from situs.plots.style import Look, Theme, looks

__all__ = ["figures", "loss_by_length", "loss_by_position", "passkey_by_depth"]


def figures(summary: Summary, *, dark: bool = False, narrow: bool = False) -> dict[str, Figure]:
    """Draw all figures that the records have numbers for, by the names of their files."""
    found = {
        "loss-by-length": loss_by_length(summary, dark=dark, narrow=narrow),
        "loss-by-position": loss_by_position(summary, dark=dark, narrow=narrow),
        "passkey-by-depth": passkey_by_depth(summary, dark=dark, narrow=narrow),
    }
    return {name: figure for name, figure in found.items() if figure is not None}


def unit(summary: Summary) -> str:
    """Name what a loss is measured in."""
    return f"nats per {summary.records.text.unit}"


def loss_by_length(summary: Summary, *, dark: bool = False, narrow: bool = False) -> Figure | None:
    """Draw the loss on the same tokens as the text before them grows, less that of the released model."""
    lines = []
    for row, scores in _scored(summary):
        points = {length: point for length in summary.lengths if (point := at(scores.changes, length)) is not None}
        if points:
            last, level = max(points), at(scores.levels, summary.longest)
            lines.append(
                Line(
                    row.name,
                    "–" if level is None else f"{level.mean:.2f}",
                    [float(length) for length in points],
                    [point.mean for point in points.values()],
                    [point.low for point in points.values()],
                    [point.high for point in points.values()],
                    "" if last == summary.longest else _early(scores, last),
                )
            )
    if not lines or len(summary.lengths) < 2:
        return None
    theme = style.DARK if dark else style.LIGHT
    chart = Chart(lines, _looks(summary, theme), f"loss at {summary.times(summary.longest)}")
    with style.figure(
        "Loss by length, against the released model",
        f"change in {unit(summary)} from the released model at {summary.base:,}, on the same {_units(summary)}; bands: "
        f"95 % intervals",
        _holding(summary),
        height=chart.height,
        dark=dark,
        narrow=narrow,
    ) as sheet:
        numbers = [number for line in lines for number in (*line.y, *line.low, *line.high)]
        axes = chart.draw(sheet, limits(numbers, low=0.0, high=4 * HOLDS))
        lengths_axis(axes, summary.lengths, summary.records.setup.trained, narrow=narrow)
        axes.axhspan(axes.get_ylim()[0], HOLDS, color=theme.shade, linewidth=0, zorder=0)
    return sheet.figure


def loss_by_position(summary: Summary, *, dark: bool = False, narrow: bool = False) -> Figure | None:
    """Draw the loss along the longest text: within the trained length, and beyond."""
    lines = []
    for row, scores in _scored(summary):
        if scores.along and all(map(math.isfinite, scores.along)):
            positions, losses = _grouped(scores.along, summary.longest)
            lines.append(Line(row.name, f"{losses[-1]:.2f}", positions, losses, losses, losses))
    if not lines:
        return None
    theme = style.DARK if dark else style.LIGHT
    chart = Chart(lines, _looks(summary, theme), "at the end", markers=False, under=0.45)
    trained = summary.records.setup.trained
    with style.figure(
        f"Loss along a text of {summary.longest:,}",
        f"{unit(summary)}, mean over parts of the text, longer ones towards its end",
        _at_the_end(lines, trained, summary.longest),
        height=chart.height,
        dark=dark,
        narrow=narrow,
    ) as sheet:
        axes = chart.draw(sheet, limits([number for line in lines for number in line.y]))
        axes.set_xlim(lines[0].x[0] / 1.12, summary.longest * 1.03)
        ticks = [trained * 2.0**power for power in range(-6, 20, 2 if narrow else 1)]
        ticks = [tick for tick in ticks if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{tick:,.0f}" for tick in ticks])
        axes.set_xlabel("position in the text", labelpad=3, loc="left")
        if trained < summary.longest:
            axes.axvline(trained, color=theme.ink, linewidth=1.0, linestyle=(0, (3, 2)), zorder=1)
            axes.text(
                trained / 1.06, 0.985, "trained length", va="top", ha="right", transform=axes.get_xaxis_transform(),
                size=style.SMALL, color=theme.faint,
            )  # fmt: skip
    return sheet.figure


def passkey_by_depth(summary: Summary, *, dark: bool = False, narrow: bool = False) -> Figure | None:
    """Draw the share of right answers by the length of the text and by how deep in it the number lies."""
    maps = []
    for row in summary.rows:
        scores = row.scores.get("passkey")
        if scores is not None and scores.depths:
            last = at(scores.levels, summary.longest)
            said = f"no result at {summary.times(summary.longest)}"
            if last is not None:
                said = f"{percent(last.mean)} at {summary.times(summary.longest)}"
            maps.append(DepthMap(row.name, said, scores.depths))
    if not maps:
        return None
    with style.figure(
        "Passkey: right answers by length and depth",
        "down: how deep in the text the number lies; right: length of the text, as a multiple of the trained length",
        _finding(summary),
        height=maps_height(len(maps), narrow=narrow),
        dark=dark,
        narrow=narrow,
    ) as sheet:
        draw_maps(sheet, maps, {length: summary.times(length) for length in summary.lengths})
    return sheet.figure


def _scored(summary: Summary) -> list[tuple[Row, Scores]]:
    return [(row, row.scores["text"]) for row in summary.rows if "text" in row.scores]


def _grouped(along: Sequence[float], length: int) -> tuple[list[float], list[float]]:
    """Join equal parts of a text to parts that grow with the position by about half, so that points lie evenly on the
    axis and late ones are means over more tokens; gives positions and losses."""
    middles = stretches(len(along), length)
    borders = sorted({round(1.5**power) for power in range(20) if 1.5**power < len(along)} | {0, len(along)})
    parts = [slice(first, last) for first, last in itertools.pairwise(borders)]
    return [fmean(middles[part]) for part in parts], [fmean(along[part]) for part in parts]


def _looks(summary: Summary, theme: Theme) -> dict[str, Look]:
    return looks([row.name for row in summary.rows], theme)


def _units(summary: Summary) -> str:
    return f"{summary.records.text.unit}s"


def _early(scores: Scores, last: int) -> str:
    end = next((point.ends for point in scores.levels.values() if point.ends is not None), None)
    return f"table ends at {end:,}" if end is not None else f"no result beyond {last:,}"


def _holding(summary: Summary) -> str:
    """Say which scalings stay within the shade to the longest length, and what the released model does."""
    names = [row.name for row, scores in _scored(summary) if reach(summary.records, scores) == summary.longest]
    far = summary.times(summary.longest)
    if all(at(scores.changes, summary.longest) is None for _, scores in _scored(summary)):
        return f"Nothing has a result at {far}. Each scaling is set once, for {far} or as written."
    who = listed((_named(name) for name in names), 3) if names else "No scaling"
    stay = "stays" if len(names) < 2 else "stay"
    said = f"{who} {stay} in the shade, within {HOLDS} of the released model, up to {far}"
    released = next((scores for row, scores in _scored(summary) if row.name == NONE), None)
    change = None if released is None else at(released.changes, summary.longest)
    if change is not None and change.mean >= HOLDS:
        said += f"; without a scaling the loss changes by {signed(change.mean)}"
    return f"{said}. Each scaling is set once, for {far} or as written."


def _named(name: str) -> str:
    return "the released model" if name == NONE else name


def _at_the_end(lines: Sequence[Line], trained: int, longest: int) -> str:
    ends = sorted((line.y[-1], _named(line.method)) for line in lines)
    (low, best), (high, worst) = ends[0], ends[-1]
    beyond = "Right of the dashed line is beyond the trained length. " if trained < longest else ""
    said = f"{beyond}At the end of the text the loss of {best} is "
    return said + (f"lowest, {low:.2f}, and that of {worst} highest, {high:.2f}." if len(ends) > 1 else f"{low:.2f}.")


def _finding(summary: Summary) -> str:
    shares = {
        row.name: point.mean
        for row in summary.rows
        if "passkey" in row.scores and (point := at(row.scores["passkey"].levels, summary.longest)) is not None
    }
    if not shares:
        return f"Nothing was measured at {summary.times(summary.longest)}."
    best = max(shares, key=lambda name: shares[name])
    if not shares[best]:
        return (
            f"No scaling finds the number at {summary.times(summary.longest)}. A model that does not find it within "
            f"its trained length either says nothing about scalings here."
        )
    return f"Most answers at {summary.times(summary.longest)} are right with {_named(best)}, {percent(shares[best])}."
