"""Scores over distance: the bias of each head, and how the scores of like contents fall."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from matplotlib.figure import Figure

from situs.encodings.base import Encoding
from situs.encodings.bias import BiasEncoding
from situs.encodings.rotation import RotationEncoding
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import style
from situs.plots.panels import Map, some
from situs.plots.portraits.kinds import BIASED, LONGEST_CURVE, TELLING, kind, noted
from situs.plots.portraits.scores_axis import FLOOR, Curve, Curves, signed

POINTS, BANDS = 512, 3
ALIKE = 1e-4  # what differs by less is rounding
BELOW = style.minus(f" What is below {FLOOR:g} is cut off: such keys get next to no weight.")
BEHIND = "how far the key lies behind the query"


@kind("the bias of each head over distance", BIASED, many=True, longest=LONGEST_CURVE)
def distance(sitters: list[Sitter], *, length: int = 128, dark: bool = False) -> Figure:
    """Draw what is added to the score of a key so far behind the query; of several encodings, the mean over heads."""
    along, curves = np.arange(length, dtype=float), []
    for sitter in sitters:
        values: Map = portraits.bias_behind(cast(BiasEncoding, sitter.encodings[0]), length).double().numpy()
        values = values - values[:, :1]  # softmax does not see what is added everywhere
        if len(sitters) > 1:
            curves.append(_overlaid(sitter, along, values.mean(0), values.min(0), values.max(0)))
        else:
            curves += _by_head(along, values)
    drawn = _drawn(curves, length, dark)
    with style.figure(
        f"{', '.join(each.name for each in sitters)}: what is added to scores, by distance",
        f"{'one line a head' if len(sitters) == 1 else 'mean of heads'}, against distance 0"
        f"{_bands(drawn, 'all heads')}",
        noted(sitters, _of_biases(sitters, curves) + BELOW * drawn.cut),
        height=drawn.height,
        dark=dark,
    ) as sheet:
        drawn.draw(sheet, BEHIND)
    return sheet.figure


@kind("how scores of like contents fall with distance", TELLING, many=True, longest=LONGEST_CURVE)
def decay(sitters: list[Sitter], *, length: int = 256, dark: bool = False) -> Figure:
    """Draw mean and envelope of scores over random contents; by head where an encoding has a bias for each."""
    distances = torch.unique(torch.linspace(0, length - 1, min(length, POINTS)).round().long())
    along, curves = distances.double().numpy(), []
    by_head = len(sitters) == 1 and _heads_differ(sitters[0])
    for sitter in sitters:
        found = portraits.decay(sitter, distances)
        start = found.mean[:, :1]
        mean, low, high = ((each - start).double().numpy() for each in (found.mean, found.low, found.high))
        if by_head:
            curves += _by_head(along, mean)
        elif sitter.of_kind(BiasEncoding):
            curves.append(_overlaid(sitter, along, mean.mean(0), mean.min(0), mean.max(0)))
        else:
            curves.append(_overlaid(sitter, along, mean.mean(0), low.mean(0), high.mean(0)))
    drawn = _drawn(curves, length, dark)
    with style.figure(
        f"How scores fall with distance{f': {sitters[0].name}' * (len(sitters) == 1)}",
        f"mean score of like contents, against distance 0{_bands(drawn, 'nine of ten contents, or all heads')}",
        noted(sitters, _of_decay(curves, "heads" if by_head else "of them") + BELOW * drawn.cut),
        height=drawn.height,
        dark=dark,
    ) as sheet:
        drawn.draw(sheet, BEHIND)
    return sheet.figure


def _heads_differ(sitter: Sitter) -> bool:
    """Tell whether heads were made to differ: by a bias of their own, or by a base of their own."""
    return any(isinstance(each, BiasEncoding) or _base_a_head(each) for each in sitter.encodings)


def _base_a_head(encoding: Encoding) -> bool:
    return isinstance(encoding, RotationEncoding) and encoding.num_heads is not None


def _overlaid(sitter: Sitter, along: Map, mean: Map, low: Map, high: Map) -> Curve:
    return Curve(sitter.name, along, mean, low, high, signed(mean[-1]))


def _by_head(along: Map, values: Map) -> list[Curve]:
    """Make a curve for each head: of all, or of some from the first to the last."""
    shown = some(len(values))
    return [Curve(f"head {head + 1}", along, values[head], number=signed(values[head, -1])) for head in shown]


def _drawn(curves: list[Curve], length: int, dark: bool) -> Curves:
    """Make curves ready to draw, without bands where there would be too many to see through."""
    theme = style.DARK if dark else style.LIGHT
    shown = curves if len(curves) <= BANDS else [replace(curve, low=None, high=None) for curve in curves]
    return Curves(shown, style.looks([curve.name for curve in curves], theme), f"at {length - 1:,}")


def _bands(drawn: Curves, of: str) -> str:
    return f"; bands: {of}" * any(curve.low is not None for curve in drawn.curves)


def _of_biases(sitters: list[Sitter], curves: list[Curve]) -> str:
    last = {curve.name: float(curve.y[-1]) for curve in curves}
    lowest, highest = min(last, key=lambda name: last[name]), max(last, key=lambda name: last[name])
    if last[highest] - last[lowest] < ALIKE:
        return f"{'All add' if len(last) > 1 else 'It adds'} {signed(last[lowest])} at the far end."
    whose = "Heads look at different distances: at" if len(sitters) == 1 else "At"
    return f"{whose} the far end, {lowest} adds {signed(last[lowest])} and {highest} {signed(last[highest])}."


def _of_decay(curves: list[Curve], whom: str) -> str:
    groups: dict[str, list[str]] = {}
    for curve in curves:
        groups.setdefault(_course(curve.y), []).append(curve.name)
    if len(curves) == 1:
        return f"It {_verb(next(iter(groups)), one=True)}."
    if len(groups) == 1:
        return f"All {whom} {_verb(next(iter(groups)), one=False)}."
    return "; ".join(f"{_listed(names)} {_verb(course, one=len(names) == 1)}" for course, names in groups.items()) + "."


def _course(y: Map) -> str:
    if float(np.ptp(y)) < ALIKE:
        return "stay"
    steps = np.diff(y)
    if bool((steps <= ALIKE).all()) and y[-1] < y[0]:
        return "fall"
    return "rise" if bool((steps >= -ALIKE).all()) else "sway down" if y[-1] < y[0] else "sway"


def _verb(course: str, *, one: bool) -> str:
    words = {
        "stay": ("stay", " as it is" if one else " as they are"), "fall": ("fall", " all the way"),
        "rise": ("rise", " all the way"), "sway down": ("sway", " on the way down"), "sway": ("sway", ""),
    }  # fmt: skip
    verb, rest = words[course]
    return f"{verb}{'s' * one}{rest}"


def _listed(names: list[str]) -> str:
    return ", ".join(names if len(names) < 6 else [*names[:4], f"{len(names) - 4} more"])
