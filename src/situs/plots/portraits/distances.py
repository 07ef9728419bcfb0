"""Scores over distance: the bias of each head, and how the scores of like contents fall."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import torch
from matplotlib.figure import Figure

from situs.encodings.bias import BiasEncoding
from situs.lab import portraits
from situs.lab.portraits import Subject
from situs.plots import style
from situs.plots.panels import Map
from situs.plots.portraits.kinds import BIASED, LONGEST_CURVE, TELLING, kind, noted
from situs.plots.portraits.scores_axis import FLOOR, Curve, Curves, signed

HEADS, POINTS, BANDS = 8, 512, 3
BELOW = f" Lines that leave at {FLOOR:g} go on falling: such keys get next to no weight.".replace("-", "\u2212")
BEHIND = "how far the key lies behind the query"


@kind("the bias of each head over distance", BIASED, many=True, longest=LONGEST_CURVE)
def distance(subjects: list[Subject], *, length: int = 128, dark: bool = False) -> Figure:
    """What is added to the score of a key so far behind the query; of several encodings, the mean over heads."""
    along, curves = np.arange(length, dtype=float), []
    for subject in subjects:
        values: Map = portraits.bias_behind(cast(BiasEncoding, subject.encodings[0]), length).double().numpy()
        if len(subjects) > 1:
            values = values - values[:, :1]  # softmax does not see what is added everywhere
            curves.append(_overlaid(subject, along, values.mean(0), values.min(0), values.max(0)))
        else:
            curves += _by_head(along, values)
    drawn = _drawn(curves, length, dark)
    with style.figure(
        f"{', '.join(each.name for each in subjects)}: what is added to scores, by distance",
        "one line a head" if len(subjects) == 1 else f"mean of heads, against distance 0{_bands(drawn, 'all heads')}",
        noted(subjects, _of_biases(subjects, curves) + BELOW * drawn.cut),
        height=drawn.height,
        dark=dark,
    ) as sheet:
        drawn.draw(sheet, BEHIND)
    return sheet.figure


@kind("how scores of like contents fall with distance", TELLING, many=True, longest=LONGEST_CURVE)
def decay(subjects: list[Subject], *, length: int = 256, dark: bool = False) -> Figure:
    """Mean and envelope over random contents; by head where an encoding has a bias for each."""
    distances = torch.unique(torch.linspace(0, length - 1, min(length, POINTS)).round().long())
    along, curves = distances.double().numpy(), []
    by_head = len(subjects) == 1 and bool(subjects[0].of_kind(BiasEncoding))
    for subject in subjects:
        found = portraits.decay(subject, distances)
        start = found.mean[:, :1]
        mean, low, high = ((each - start).double().numpy() for each in (found.mean, found.low, found.high))
        if by_head:
            curves += _by_head(along, mean)
        elif subject.of_kind(BiasEncoding):
            curves.append(_overlaid(subject, along, mean.mean(0), mean.min(0), mean.max(0)))
        else:
            curves.append(_overlaid(subject, along, mean.mean(0), low.mean(0), high.mean(0)))
    drawn = _drawn(curves, length, dark)
    with style.figure(
        f"How scores fall with distance{f': {subjects[0].name}' * (len(subjects) == 1)}",
        f"mean score of like contents, against distance 0{_bands(drawn, 'nine of ten contents, or all heads')}",
        noted(subjects, _of_decay(curves, "heads" if by_head else "of them") + BELOW * drawn.cut),
        height=drawn.height,
        dark=dark,
    ) as sheet:
        drawn.draw(sheet, BEHIND)
    return sheet.figure


def _overlaid(subject: Subject, along: Map, mean: Map, low: Map, high: Map) -> Curve:
    return Curve(subject.name, along, mean, low, high, signed(mean[-1]))


def _by_head(along: Map, values: Map) -> list[Curve]:
    """A curve a head: of all, or of some from the first to the last."""
    heads = np.unique(np.linspace(0, len(values) - 1, min(len(values), HEADS)).round().astype(int))
    return [Curve(f"head {head + 1}", along, values[head], number=signed(values[head, -1])) for head in heads]


def _drawn(curves: list[Curve], length: int, dark: bool) -> Curves:
    """Ready to draw, without bands where there would be too many to see through."""
    theme = style.DARK if dark else style.LIGHT
    shown = curves if len(curves) <= BANDS else [replace(curve, low=None, high=None) for curve in curves]
    return Curves(shown, style.looks([curve.name for curve in curves], theme, families=False), f"at {length - 1:,}")


def _bands(drawn: Curves, of: str) -> str:
    return f"; bands: {of}" * any(curve.low is not None for curve in drawn.curves)


def _of_biases(subjects: list[Subject], curves: list[Curve]) -> str:
    last = {curve.name: float(curve.y[-1]) for curve in curves}
    lowest, highest = min(last, key=lambda name: last[name]), max(last, key=lambda name: last[name])
    if len(curves) == 1:
        return f"At the far end it adds {signed(last[lowest])}."
    where = "At the far end, " if len(subjects) > 1 else "Heads look at different distances: at the far end, "
    return f"{where}{lowest} adds {signed(last[lowest])} and {highest} {signed(last[highest])}."


def _of_decay(curves: list[Curve], whom: str) -> str:
    steady = [curve.name for curve in curves if bool((np.diff(curve.y) <= 1e-4).all())]
    swaying = [curve.name for curve in curves if curve.name not in steady]
    if len(curves) == 1:
        return f"It {'falls all the way' if steady else 'does not fall steadily: it sways on its way down'}."
    if not swaying:
        return f"All {whom} fall all the way."
    parts = [f"{_listed(steady)} fall{'s' * (len(steady) == 1)} all the way"] * bool(steady)
    parts += [f"{_listed(swaying)} sway{'s' * (len(swaying) == 1)}"]
    return "; ".join(parts) + "."


def _listed(names: list[str]) -> str:
    return ", ".join(names if len(names) < 6 else [*names[:4], f"{len(names) - 4} more"])
