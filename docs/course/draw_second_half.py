"""Pictures of chapters 6 to 10 of the course; ``python docs/make.py figures`` writes them.

Each function computes with Situs' own objects, or reads the record of the comparison, and returns a figure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, Rectangle, Wedge
from matplotlib.ticker import FuncFormatter

import situs
from situs.attention.visibility import visibility
from situs.plots import style
from situs.plots.panels import name
from situs.plots.style import MARGIN, SMALL, Sheet, Theme, minus

PAIR = 4  # of the picture of rotary: its steps can be seen well
RECORD = Path(__file__).parent / "choosing.json"


def rotary(*, dark: bool = False) -> Figure:
    """Draw a query and a key in one pair before and after both move, and their score over the distance."""
    head = situs.Rotary(head_dim=64, pairing="interleaved")
    query, key = (1.0, 0.25), (0.6, -0.2)
    shifts = ((3, 1), (7, 5))
    apart, step = (math.degrees(each) for each in (_angle(query) - _angle(key), float(head.frequencies[0, PAIR])))
    with style.figure(
        "Rotary: both arrows rotate, the angle between them stays",
        f"left: pair {PAIR} of a head of 64, {float(head.frequencies[0, PAIR]):.2f} radians per position; right: "
        "the score of equal vectors",
        "Four positions later, both arrows have rotated by the same angle. Their lengths and the angle between them "
        f"({apart:.1f}° between their contents and 2 steps of {step:.1f}°) are the same, and so is the score. A single "
        "pair repeats; the 32 pairs of a head, each at its own speed, do not.",
        height=2.75,
        dark=dark,
    ) as sheet:
        theme, size, low = sheet.theme, 2.1, sheet.bottom + 0.3
        for number, (m, n) in enumerate(shifts):
            axes = sheet.inches(0.15 + number * (size + 0.2), low, size, size)
            name(axes, f"m = {m}, n = {n}", f"m {minus('-')} n = {m - n}", theme)
            _plane(axes, 1.15)
            ends = [_rotated(head, vector, position) for vector, position in ((query, m), (key, n))]
            for end, label, hue in zip(ends, ("query", "key"), theme.hues, strict=False):
                _arrow(axes, end, label, hue)
            first, second = sorted(math.degrees(_angle(end)) % 360 for end in ends)
            first, second = (second, first + 360) if second - first > 180 else (first, second)
            axes.add_patch(Arc((0, 0), 0.5, 0.5, theta1=first, theta2=second, color=theme.ink, linewidth=1.2))
            middle = math.radians((first + second) / 2)
            said = f"{second - first:.0f}°"
            axes.text(0.4 * math.cos(middle), 0.4 * math.sin(middle), said, size=SMALL, ha="center", va="center")
        left = 0.15 + 2 * (size + 0.2) + 0.35
        _scores(sheet.inches(left, low + 0.1, sheet.width - left - MARGIN, size - 0.35), head, theme)
    return sheet.figure


def _scores(axes: Axes, head: situs.Rotary, theme: Theme) -> None:
    """Draw the score of equal vectors over the distance: of one pair, and of the whole head."""
    distances, ones = torch.arange(0, 33), torch.ones(1, 1, 33, head.head_dim, dtype=torch.float64)
    products = (head(ones, 0)[:, :, :1] * head(ones, -distances))[0, 0]  # (distance, channel)
    one, all_pairs = products[:, 2 * PAIR : 2 * PAIR + 2].sum(-1) / 2, products.mean(-1)
    for label, score, hue, dashes in (
        (f"pair {PAIR}", one, 3, style.DASHES[1]),
        ("all 32 pairs", all_pairs, 2, "solid"),
    ):
        axes.plot(distances, score, color=theme.hues[hue], linestyle=dashes, linewidth=1.6, label=label)
    axes.set_xlim(0, 32)
    axes.set_ylim(-1.05, 1.05)
    axes.set_xlabel(f"m {minus('-')} n", labelpad=2, loc="left")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: minus(f"{number:g}")))
    axes.legend(loc="lower left", bbox_to_anchor=(-0.05, 1.0), ncol=2, frameon=False, fontsize=SMALL, handlelength=1.8)


def _rotated(encoding: situs.Rotary, vector: tuple[float, float], position: int) -> tuple[float, float]:
    """Rotate one pair of a head whose other channels are 0."""
    x = torch.zeros(1, 1, 1, encoding.head_dim, dtype=torch.float64)
    x[..., 2 * PAIR : 2 * PAIR + 2] = torch.tensor(vector)
    first, second = encoding(x, position)[..., 2 * PAIR : 2 * PAIR + 2].flatten().tolist()
    return first, second


def _angle(vector: tuple[float, float]) -> float:
    return math.atan2(vector[1], vector[0])


def _plane(axes: Axes, reach: float) -> None:
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.set_axis_off()


def _arrow(axes: Axes, end: tuple[float, float], label: str, colour: str) -> None:
    length = math.hypot(*end)
    props = {"arrowstyle": "-|>", "color": colour, "linewidth": 2.0, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, (0, 0), arrowprops=props, zorder=3)
    axes.add_patch(Circle((0, 0), length, fill=False, color=colour, linewidth=0.6, linestyle=(0, (1, 3))))
    x, y = (each * (1 + 0.14 / length) for each in end)
    axes.text(x, y, label, size=SMALL, color=colour, ha="center", va="center")


def reach(*, dark: bool = False) -> Figure:
    """Draw ALiBi's biases over the distance, and where each head passes -5."""
    alibi, distances = situs.ALiBi(num_heads=8), torch.arange(1, 2049)
    biases = alibi.by_offset(-distances).numpy()
    reaches = (5 / -alibi.by_offset(torch.tensor([-1]))[:, 0]).tolist()
    with style.figure(
        "ALiBi: how far each head sees",
        "left: the bias of eight heads over the distance; right: the distance at which it passes \u22125",
        "A bias of \u22125 leaves a key less than a hundredth of the weight of an equal key at distance 0. At a "
        "distance of 1024 only head 8 has a bias above \u22125.",
        height=2.9,
        dark=dark,
    ) as sheet:
        theme, low, high = sheet.theme, sheet.bottom + 0.45, 2.3
        width = (sheet.width - 0.55 - 0.75 - 0.55) / 2
        lines, bars = sheet.inches(0.55, low, width, high), sheet.inches(0.55 + width + 0.75, low, width, high)
        shades = [theme.colormap(0.35 + 0.65 * head / 7) for head in range(8)]
        for head, each in enumerate(biases):
            lines.plot(distances, each, color=shades[head], linewidth=1.6)
            lines.text(reaches[head] * 1.08, -4.9, str(head + 1), size=SMALL, color=theme.ink, va="bottom")
        lines.axhline(-5, color=theme.ink, linewidth=1.0, linestyle=(0, (3, 2)))
        lines.set_ylim(-8, 0.2)
        _log_distances(lines, 1, 2048)
        lines.yaxis.set_major_formatter(FuncFormatter(lambda number, _: minus(f"{number:g}")))
        bars.barh(range(1, 9), reaches, color=shades, height=0.66)
        for head, each in enumerate(reaches, 1):
            paper = {"facecolor": theme.paper, "edgecolor": "none", "pad": 1.5}
            bars.text(each * 1.12, head, f"{each:,.0f}", size=SMALL, va="center", color=theme.ink, bbox=paper)
        for length, said in ((64, "trained"), (1024, "tested")):
            bars.axvline(length, color=theme.ink, linewidth=1.0, linestyle=(0, (3, 2)))
            bars.text(length / 1.08, 0.35, said, size=SMALL, ha="right", va="center", color=theme.faint)
        bars.set_ylim(8.6, 0.0)
        bars.set_yticks(range(1, 9), [f"head {head}" for head in range(1, 9)])
        bars.grid(visible=False)
        _log_distances(bars, 4, 2600)
    return sheet.figure


def _log_distances(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log", base=4)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
    axes.set_xlabel("distance", labelpad=3, loc="left")


def longer(*, dark: bool = False) -> Figure:
    """Draw one step of the fastest pair, and the angles of two slow ones, plain and with three scalings."""
    trained, tested = 2048, 8192
    stretch: dict[str, Any] = {"original_length": trained, "target_length": tested}
    plain = situs.Rotary(head_dim=64)
    scalings = {
        "plain": None,
        "interpolation": situs.LinearScaling(**stretch),
        "NTK": situs.NTKScaling(**stretch),
        "YaRN": situs.YaRN(**stretch),
    }
    with style.figure(
        f"Rotary trained at {trained:,} tokens and tested at {tested:,}",
        "top: one step of the fastest pair. Below: angles seen in training (outer ring) and met in the test (inner "
        "ring)",
        "Angles that training never showed are orange. Interpolation has none of them, but makes neighbours more "
        "similar than in training. NTK leaves neighbours as they were, and repairs only the slowest pair. YaRN leaves "
        "neighbours as they were, and repairs every slow pair.",
        height=4.5,
        dark=dark,
    ) as sheet:
        theme, size, left = sheet.theme, 1.32, 0.95
        gap = (sheet.width - left - MARGIN - 4 * size) / 3
        for column, (label, scaling) in enumerate(scalings.items()):
            speeds = situs.Rotary(head_dim=64, scaling=scaling).frequencies[0]
            for row, pair in enumerate((0, 23, 31)):
                low = sheet.bottom + (2 - row) * (size + 0.08)
                axes = sheet.inches(left + column * (size + gap), low, size, size)
                _plane(axes, 1.1)
                if row == 0:
                    axes.text(0, 1.3, label, size=SMALL, weight="bold", ha="center", va="bottom")
                    _step(axes, float(speeds[pair]), theme)
                else:
                    _rings(axes, trained * float(plain.frequencies[0, pair]), tested * float(speeds[pair]), theme)
                if column == 0:
                    axes.text(-1.35, 0, f"pair {pair}", size=SMALL, ha="right", va="center")
    return sheet.figure


def _step(axes: Axes, radians: float, theme: Theme) -> None:
    """Draw a vector at two neighbouring positions."""
    axes.add_patch(Circle((0, 0), 1.0, fill=False, color=theme.grid, linewidth=1.0))
    for angle in (0.0, radians):
        end = math.cos(angle), math.sin(angle)
        props = {"arrowstyle": "-|>", "color": theme.hues[0], "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, (0, 0), arrowprops=props)
    axes.text(-0.12, -0.35, f"{math.degrees(radians):.0f}°", size=SMALL, ha="center", va="center")


def _rings(axes: Axes, seen: float, met: float, theme: Theme) -> None:
    """Draw which angles a pair showed in training and which it shows in a test, both in radians."""
    whole = math.tau * 0.9999  # a full circle is the most that can be seen
    axes.text(0, 0, f"{math.degrees(met):.0f}°", size=SMALL, ha="center", va="center")
    seen, met = min(seen, whole), min(met, whole)
    for radius in (1.0, 0.76):
        axes.add_patch(Circle((0, 0), radius - 0.1, fill=False, color=theme.grid, linewidth=6.0))
    for radius, start, end, colour in (
        (1.0, 0.0, seen, theme.hues[2]),
        (0.76, 0.0, min(met, seen), theme.hues[0]),
        (0.76, seen, met, theme.hues[1]),
    ):
        if end > start * 1.001:
            degrees = math.degrees(start), math.degrees(end)
            axes.add_patch(Wedge((0, 0), radius, *degrees, width=0.2, facecolor=colour, edgecolor="none"))


def practice(*, dark: bool = False) -> Figure:
    """Draw positions of tokens as they lie in memory, and which keys their queries see."""
    mask = torch.tensor([[1, 1, 1, 1, 1, 0, 0, 0]])
    right = situs.Positions.from_mask(mask, side="right")
    left = situs.Positions.from_mask(mask.flip(-1), side="left")
    packed = situs.Positions.packed([5, 3])
    mixed = situs.Positions.mixed([3, situs.Vision(time=1, height=2, width=3), 2])
    of_image = [int(3 <= token < 9) for token in range(mixed.length)]
    with style.figure(
        "The index of a token is not its position",
        "left: tokens as they lie in memory, with their positions; right: which keys (columns) a query (row) sees",
        "The position of padding is never used, and no query sees it. Each packed document counts from 0, and they do "
        "not see each other. Six patches of an image take three positions; the text continues after the largest "
        "number.",
        height=3.3,
        dark=dark,
    ) as sheet:
        axes = sheet.inches(MARGIN, sheet.bottom + 0.05, 5.3, 3.15)
        axes.set_xlim(-3.7, 11.1)
        axes.set_ylim(8.8, 0)
        axes.set_axis_off()
        for top, label, row, groups in (
            (0.1, "padded right", right.ids[0], _padding(right)),
            (1.5, "padded left", left.ids[0], _padding(left)),
            (2.9, "packed", packed.ids[0], packed.documents[0].tolist() if packed.documents is not None else []),
            (4.7, "image: time", mixed.ids[0, :, 0], of_image),
            (5.8, "height", mixed.ids[0, :, 1], of_image),
            (6.9, "width", mixed.ids[0, :, 2], of_image),
        ):
            _strip(axes, top, label, row.tolist(), groups, sheet.theme)
        for number, (label, positions) in enumerate((("padded left", left), ("packed", packed))):
            low = sheet.bottom + 0.05 + (1 - number) * 1.6
            _seen(sheet.inches(sheet.width - MARGIN - 1.5, low, 1.3, 1.3), label, positions, sheet)
    return sheet.figure


def _padding(positions: situs.Positions) -> list[int]:
    """Mark padding by -1, and real tokens by 0."""
    assert positions.valid is not None
    return [int(real) - 1 for real in positions.valid[0].tolist()]


def _strip(axes: Axes, top: float, label: str, ids: list[int], groups: list[int], theme: Theme) -> None:
    """Draw a row of tokens; a group of -1 is padding."""
    axes.text(-0.35, top + 0.5, label, size=SMALL, ha="right", va="center")
    for index, (position, group) in enumerate(zip(ids, groups, strict=True)):
        colour = theme.paper if group < 0 else theme.hues[(0, 2)[group % 2]]
        box = Rectangle((index + 0.04, top), 0.92, 0.92, facecolor=colour, edgecolor=theme.faint, linewidth=0.7)
        box.set_alpha(0.3 if group >= 0 else None)
        axes.add_patch(box)
        said = "\u2013" if group < 0 else str(position)
        axes.text(index + 0.5, top + 0.48, said, size=SMALL, ha="center", va="center")


def _seen(axes: Axes, label: str, positions: situs.Positions, sheet: Sheet) -> None:
    """Draw which keys each query sees under a causal mask."""
    allowed = visibility(positions, positions, causal=True)
    assert allowed is not None
    seen = allowed[0].double().numpy()
    axes.imshow(seen, cmap=sheet.theme.colormap, vmin=0, vmax=1.25, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
    for line in np.arange(0.5, len(seen) - 1):
        axes.axhline(line, color=sheet.theme.paper, linewidth=0.8)
        axes.axvline(line, color=sheet.theme.paper, linewidth=0.8)
    name(axes, label, "", sheet.theme)


def choosing(*, dark: bool = False) -> Figure:
    """Draw three numbers of every method in the table of chapter 10."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    short, long = record["lengths"][0], record["lengths"][-1]
    rows = sorted(record["rows"], key=lambda row: (row["ends"], row["changes"].get(str(long), 0.0)))
    columns: list[tuple[str, Callable[[dict[str, Any]], float | None], str]] = [
        (f"loss at {short}, as trained", lambda row: row["loss"], "{:.2f}"),
        (f"change of the loss at {long}", lambda row: row["changes"].get(str(long)), "{:+.3f}"),
        (f"passkeys found at {long}", lambda row: row["passkey"], "{:.0%}"),
    ]
    with style.figure(
        "Loss at the trained length, its change beyond it, and passkeys found",
        f"decoders of two layers, trained on {short} bytes; left and middle: nats per byte, less is better",
        "Ordered by the middle column. Where a table of positions ends there is no number.",
        height=0.21 * len(rows) + 0.55,
        dark=dark,
    ) as sheet:
        theme, left, gap = sheet.theme, 1.15, 0.5
        width = (sheet.width - left - 2 * gap - 0.55) / 3
        for number, (title, value, form) in enumerate(columns):
            low = sheet.bottom + 0.05
            axes = sheet.inches(left + number * (width + gap), low, width, 0.21 * len(rows))
            _bars(axes, [value(row) for row in rows], form, theme.hues[(0, 1, 2)[number]], theme)
            name(axes, title, "", theme)
            if not number:
                axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    return sheet.figure


def _bars(axes: Axes, values: list[float | None], form: str, colour: str, theme: Theme) -> None:
    """Draw a bar and its number for each value that there is."""
    most = max(value for value in values if value is not None)
    for row, value in enumerate(values):
        if value is not None:
            axes.barh(row, max(value, 0.0), color=colour, height=0.62)
            said = minus(form.format(value))
            axes.text(max(value, 0.0) + 0.03 * most, row, said, size=SMALL - 1, va="center", color=theme.ink)
    axes.set_ylim(len(values) - 0.5, -0.6)
    axes.set_xlim(0, 1.05 * most)
    axes.set_yticks([])
    axes.set_xticks([])
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


PICTURES: dict[str, Callable[..., Figure]] = {
    "rotary": rotary,
    "reach": reach,
    "longer": longer,
    "practice": practice,
    "choosing": choosing,
}
"""What follows ``figures/course-`` in a picture's file name, and what draws it."""
