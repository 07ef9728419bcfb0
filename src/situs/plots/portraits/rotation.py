"""Rotation: one vector at successive positions, and pairs that rotate at different speeds."""

from __future__ import annotations

import math
from typing import TypeAlias, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from situs.arguments import require_count
from situs.encodings.rotary_value import RotaryValue
from situs.encodings.rotation import RotationEncoding
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import style
from situs.plots.panels import Map, Panels, name
from situs.plots.portraits.kinds import ROTATING, kind, noted
from situs.plots.style import MARGIN, SMALL, Sheet, Theme

Rotating: TypeAlias = RotationEncoding | RotaryValue
LEGIBLE = math.tau / 16  # a step that eight arrows show well
PAIRS_SHOWN = 8


@kind("one pair of channels, rotated at successive positions", ROTATING, longest=32)
def rotation(sitters: list[Sitter], *, length: int = 8, pair: int | None = None, dark: bool = False) -> Figure:
    """Draw the rotated vector at each position, and its two channels over positions."""
    sitter, encoding = sitters[0], cast(Rotating, sitters[0].encodings[0])
    pair = None if pair is None else require_count("pair", pair, "each pair rotates at its own speed")
    waves = portraits.wavelengths(encoding, length)
    chosen = int((math.tau / waves - LEGIBLE).abs().argmin()) if pair is None else pair
    if not 0 <= chosen < len(waves):
        raise ValueError(f"pair must be one of 0 .. {len(waves) - 1}, since so many pairs rotate; got {pair!r}.")
    ends = _rotated(encoding, chosen, torch.arange(length))
    smooth = torch.linspace(0, length - 1, 40 * length, dtype=torch.float64)
    path = _rotated(encoding, chosen, smooth)
    step = math.tau / float(waves[chosen])
    panels = Panels(1, 1, widest=2.9, left=0.2)
    with style.figure(
        f"{sitter.name}: a vector rotated by its position",
        f"pair {chosen} of {len(waves)}, rotated by {step:.3g} radians per position",
        noted(sitters, _of_rotation(encoding, ends, step * (length - 1))),
        height=panels.height,
        dark=dark,
    ) as sheet:
        (axes,) = panels.axes(sheet)
        name(axes, "the vector", f"at positions 0 to {length - 1}", sheet.theme)
        _arrows(axes, ends, sheet.theme, numbered=True)
        left = panels.left + panels.width + 0.8
        low = axes.get_position().y0 * sheet.figure.get_figheight()
        waves_axes = sheet.inches(left, low, sheet.width - left - MARGIN, panels.width)
        _channels(waves_axes, smooth.numpy(), path, ends, sheet)
    return sheet.figure


@kind("pairs of channels side by side, which rotate at different speeds", ROTATING, longest=32)
def speeds(sitters: list[Sitter], *, length: int = 8, dark: bool = False) -> Figure:
    """Draw the same positions in pairs from the fastest to the slowest."""
    sitter, encoding = sitters[0], cast(Rotating, sitters[0].encodings[0])
    waves = portraits.wavelengths(encoding, length)
    chosen = _spread_pairs(waves.numpy(), length)
    panels = Panels(len(chosen), 4, left=0.2, key=False)
    positions = torch.arange(length)
    with style.figure(
        f"{sitter.name}: every pair rotates at its own speed",
        f"the vector (1, 0) of each pair at positions 0 to {length - 1}; beside each name: positions per full rotation",
        noted(
            sitters,
            "Fast pairs distinguish neighbours, but repeat soon. Slow pairs distinguish near from far, and hardly move "
            "in a short text.",
        ),
        height=panels.height,
        dark=dark,
    ) as sheet:
        for axes, pair in zip(panels.axes(sheet), chosen, strict=True):
            wave = float(waves[pair])
            said = f"{wave:,.{1 if wave < 100 else 0}f} per rotation" if math.isfinite(wave) else "not rotated"
            name(axes, f"pair {pair}", said, sheet.theme)
            _arrows(axes, _rotated(encoding, int(pair), positions), sheet.theme, numbered=False)
    return sheet.figure


def _spread_pairs(waves: Map, length: int) -> list[int]:
    """Choose pairs that visibly move within so many positions, from the fastest on, and the slowest of all."""
    moving = max(2, int((waves < 60 * length).sum()))
    some = np.linspace(0, min(moving, len(waves)) - 1, min(PAIRS_SHOWN - 1, len(waves))).round().astype(int)
    return sorted({int(pair) for pair in some} | {len(waves) - 1})


def _rotated(encoding: Rotating, pair: int, positions: torch.Tensor) -> Map:
    ends: Map = portraits.rotated_pair(encoding, pair, positions).double().numpy()
    return ends


def _arrows(axes: Axes, ends: Map, theme: Theme, *, numbered: bool) -> None:
    reach = max(1.0, float(np.hypot(*ends.T).max())) * (1.22 if numbered else 1.1)
    axes.set_xlim(-reach, reach)
    axes.set_ylim(-reach, reach)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.add_patch(Circle((0, 0), 1.0, fill=False, color=theme.grid, linewidth=1.0))
    axes.plot([-1, 1], [0, 0], color=theme.grid, linewidth=0.8)
    axes.plot([0, 0], [-1, 1], color=theme.grid, linewidth=0.8)
    shades = LinearSegmentedColormap.from_list("later", [theme.ink, theme.much, theme.hues[4]])
    for position, (x, y) in enumerate(ends):
        colour = shades(position / max(1, len(ends) - 1))
        axes.annotate(
            "", (x, y), (0, 0), zorder=3,
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip
        if numbered:
            length = math.hypot(x, y) or 1.0
            where = x * (1 + 0.11 / length), y * (1 + 0.11 / length)
            axes.text(*where, str(position), size=SMALL, ha="center", va="center", color=theme.ink, gid="position")


def _channels(axes: Axes, along: Map, path: Map, ends: Map, sheet: Sheet) -> None:
    names = ("first channel", "second channel")
    looks = style.looks(names, sheet.theme)
    for channel, label in enumerate(names):
        look = looks[label]
        axes.plot(along, path[:, channel], color=look.colour, linestyle=look.dashes, linewidth=1.6, label=label)
        axes.plot(ends[:, channel], marker=look.marker, markersize=4.4, linestyle="none", color=look.colour)
    axes.set_xlim(-0.2, len(ends) - 0.8)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("position", labelpad=3, loc="left")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncol=2, frameon=False, fontsize=SMALL, borderaxespad=0)


def _of_rotation(encoding: Rotating, ends: Map, angle: float) -> str:
    lengths = np.hypot(*ends.T)
    said = "The angle between two arrows depends only on the distance between their positions."
    if angle > math.tau:
        said = f"{angle / math.tau:.1f} full rotations in all: alone, this pair cannot distinguish all positions."
    if not isinstance(encoding, RotaryValue) and encoding.treats_roles_apart:
        return f"{said} Queries are scaled from {lengths[0]:.3g} to {lengths[-1]:.3g}, keys by the inverse."
    same = float(np.abs(lengths - 1).max()) < 1e-6
    said += " The vector keeps its length." if same else f" The vector is {lengths[0]:.3g} times as long."
    if not isinstance(encoding, RotaryValue):
        return said
    if encoding.rotate_back:
        return f"{said} Values are rotated so, and outputs back by the query's position: the difference remains."
    return f"{said} Values are rotated so, and outputs are not rotated back: they depend on absolute positions."
