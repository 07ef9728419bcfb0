"""Scores over distance: the bias of each head, and how the score of a token with itself falls."""

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
from situs.plots.panels import ALIKE, ALL_HEADS, Map, heads_shown
from situs.plots.portraits.kinds import BY_DISTANCE, LONGEST_CURVE, TELLING, kind, noted
from situs.plots.portraits.scores_axis import FLOOR, Curve, Curves, signed

POINTS, BANDS = 512, 3
BELOW = style.minus(f" Values below {FLOOR:g} are cut off: such keys get almost no weight.")
BEHIND = "how far the key lies behind the query"


@kind("the bias of each head over distance", BY_DISTANCE, many=True, longest=LONGEST_CURVE)
def distance(sitters: list[Sitter], *, length: int = 128, dark: bool = False) -> Figure:
    """Draw the bias by distance, one line per head; of several encodings, the mean over heads."""
    along, curves = np.arange(length, dtype=float), []
    for sitter in sitters:
        values: Map = portraits.bias_behind(cast(BiasEncoding, sitter.encodings[0]), length).double().numpy()
        values = values - values[:, :1]  # softmax does not see what is added everywhere
        if len(sitters) > 1:
            curves.append(_overlaid(sitter, along, values.mean(0), values.min(0), values.max(0)))
        else:
            curves += _by_head(along, values)
    drawn = _drawn(sitters, curves, length, dark)
    with style.figure(
        f"{', '.join(each.name for each in sitters)}: what is added to the scores, by distance",
        f"{_whose(sitters, curves)}, relative to distance 0{_bands(drawn, 'all heads')}",
        noted(sitters, _of_biases(sitters, curves) + BELOW * drawn.cut),
        height=drawn.height,
        dark=dark,
    ) as sheet:
        drawn.draw(sheet, BEHIND + ", logarithmic" * drawn.logarithmic)
    return sheet.figure


@kind("how the score of a token with itself falls with distance", TELLING, many=True, longest=LONGEST_CURVE)
def decay(sitters: list[Sitter], *, length: int = 256, dark: bool = False) -> Figure:
    """Draw mean and range of scores over tokens; one line per head where heads have biases of their own."""
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
    drawn = _drawn(sitters, curves, length, dark)
    with style.figure(
        f"How scores fall with distance{f': {sitters[0].name}' * (len(sitters) == 1)}",
        f"mean score of a token with itself, relative to distance 0{_bands(drawn, _spread_of(sitters))}",
        noted(sitters, _of_decay(curves, "heads" if by_head else "curves") + BELOW * drawn.cut),
        height=drawn.height,
        dark=dark,
    ) as sheet:
        drawn.draw(sheet, BEHIND + ", logarithmic" * drawn.logarithmic)
    return sheet.figure


def _heads_differ(sitter: Sitter) -> bool:
    """Tell whether heads have biases or bases of their own."""
    return any(isinstance(each, BiasEncoding) or _has_base_per_head(each) for each in sitter.encodings)


def _has_base_per_head(encoding: Encoding) -> bool:
    return isinstance(encoding, RotationEncoding) and encoding.num_heads is not None


def _overlaid(sitter: Sitter, along: Map, mean: Map, low: Map, high: Map) -> Curve:
    return Curve(sitter.name, along, mean, low, high, signed(mean[-1]))


def _by_head(along: Map, values: Map) -> list[Curve]:
    """Make a curve for each head that has one of its own: of all, or of some from the first to the last."""
    shown = heads_shown(values)
    return [Curve(name, along, values[head], number=signed(values[head, -1])) for name, head in shown.items()]


def _drawn(sitters: list[Sitter], curves: list[Curve], length: int, dark: bool) -> Curves:
    """Make curves ready to draw, without bands where there are many, and with a mark where training ended."""
    theme = style.DARK if dark else style.LIGHT
    shown = curves if len(curves) <= BANDS else [replace(curve, low=None, high=None) for curve in curves]
    trained = [each for each in sitters if each.trained is not None]
    return Curves(
        shown,
        style.looks([curve.name for curve in curves], theme),
        f"at {length - 1:,}",
        trained=min((each.trained.length for each in trained if each.trained is not None), default=None),
        whose=", ".join(each.name for each in trained) if len(trained) < len(sitters) else "",
        logarithmic=len(trained) == len(sitters) and bool(sitters[0].of_kind(BiasEncoding)),
    )


def _bands(drawn: Curves, of: str) -> str:
    return f"; bands: {of}" * any(curve.low is not None for curve in drawn.curves)


def _whose(sitters: list[Sitter], curves: list[Curve]) -> str:
    if len(sitters) > 1:
        return "mean of heads"
    return f"one line for {ALL_HEADS}" if curves[0].name == ALL_HEADS else "one line per head"


def _spread_of(sitters: list[Sitter]) -> str:
    """Say what bands cover: heads, where these have biases of their own, and else tokens."""
    kinds = {"all heads" if sitter.of_kind(BiasEncoding) else "90 % of tokens" for sitter in sitters}
    return ", or ".join(sorted(kinds))


def _of_biases(sitters: list[Sitter], curves: list[Curve]) -> str:
    last = {curve.name: float(curve.y[-1]) for curve in curves}
    lowest, highest = min(last, key=lambda name: last[name]), max(last, key=lambda name: last[name])
    if last[highest] - last[lowest] < ALIKE:
        whose = "All heads add" if ALL_HEADS in last else "All add" if len(last) > 1 else "It adds"
        return f"{whose} {signed(last[lowest])} at the greatest distance."
    adds = "adds" if _is_one([lowest]) else "add"
    said = f"At the greatest distance {lowest} {adds} {signed(last[lowest])} and {highest} {signed(last[highest])}."
    if len(sitters) > 1 or sitters[0].trained is None:
        return f"{'Heads differ. ' if len(sitters) == 1 else ''}{said}"
    peaks = sorted({int(curve.x[int(curve.y.argmax())]) for curve in curves})
    where = f"distance {peaks[0]}" if len(peaks) == 1 else f"distances {', '.join(map(str, peaks))}"
    return f"Heads prefer keys at {where}. {said}"


def _of_decay(curves: list[Curve], whom: str) -> str:
    groups: dict[str, list[str]] = {}
    for curve in curves:
        groups.setdefault(_course(curve.y), []).append(curve.name)
    if curves[0].name == ALL_HEADS:
        return f"All heads {_verb(next(iter(groups)), one=False)}."
    if len(curves) == 1:
        return f"The score {_verb(next(iter(groups)), one=True)}."
    if len(groups) == 1:
        return f"All {whom} {_verb(next(iter(groups)), one=False)}."
    return "; ".join(f"{_listed(names)} {_verb(course, one=_is_one(names))}" for course, names in groups.items()) + "."


def _course(y: Map) -> str:
    if float(np.ptp(y)) < ALIKE:
        return "stay"
    steps = np.diff(y)
    if bool((steps <= ALIKE).all()) and y[-1] < y[0]:
        return "fall"
    return "rise" if bool((steps >= -ALIKE).all()) else "sway down" if y[-1] < y[0] else "sway"


def _verb(course: str, *, one: bool) -> str:
    words = {
        "stay": ("stay", " constant"), "fall": ("fall", " at every step"),
        "rise": ("rise", " at every step"), "sway down": ("go", f" up and down, and end{'s' * one} lower"),
        "sway": ("go", " up and down"),
    }  # fmt: skip
    verb, rest = words[course]
    return f"{verb}{('es' if verb == 'go' else 's') * one}{rest}"


def _is_one(names: list[str]) -> bool:
    """Tell whether a verb has an s: "heads 2, 4" are several."""
    return len(names) == 1 and not names[0].startswith("heads ")


def _listed(names: list[str]) -> str:
    return ", ".join(names if len(names) < 6 else [*names[:4], f"{len(names) - 4} more"])
