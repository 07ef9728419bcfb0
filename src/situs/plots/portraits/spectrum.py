"""Wavelengths: how many positions each pair takes for a full rotation, and how scalings of rotary change them."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from situs.encodings.rotary import Rotary
from situs.encodings.scaling import LinearScaling, Llama3Scaling, LongRoPE, NTKScaling, Scaling, YaRN
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import labels, style
from situs.plots.panels import Map
from situs.plots.portraits.kinds import LONGEST_TEXT, SCALED, WAVING, kind, noted
from situs.plots.style import MARGIN, SMALL, Sheet

PHI = (
    1.08, 1.11, 1.14, 1.34, 1.59, 1.60, 1.62, 2.62, 3.23, 3.23, 4.79, 7.40, 7.70, 9.09, 12.20, 17.67, 24.46, 28.57,
    30.42, 30.84, 32.59, 32.93, 42.32, 44.96, 50.34, 50.45, 57.55, 57.93, 58.21, 60.14, 62.61, 62.62, 62.71, 63.14,
    63.14, 63.77, 63.93, 63.96, 63.97, 64.03, 64.07, 64.08, 64.12, 64.41, 64.48, 64.51, 64.53, 64.84,
)  # fmt: skip
"""What LongRoPE's search found for Phi-3.5-mini's 48 pairs, from 4,096 tokens to 131,072; there is no formula for it.
They are spread over the pairs that are drawn, and only for about the same stretch."""
PHI_STRETCH = 32
BINS, TO_A_BIN = 48, 16
"""Over far distances scores go up and down at every step, so means over some steps are drawn."""


@kind("positions per full rotation of each pair, beside the training length", WAVING, many=True, longest=LONGEST_TEXT)
def wavelengths(
    sitters: list[Sitter], *, train_length: int = 2048, length: int | None = None, dark: bool = False
) -> Figure:
    """Draw how many positions each pair takes for a full rotation.

    length: of the text, for scalings that choose by it; as long as in training if left out.
    """
    waves = {
        sitter.name: portraits.wavelengths(sitter.encodings[0], length or train_length).numpy() for sitter in sitters
    }
    finite = np.concatenate([each[np.isfinite(each)] for each in waves.values()])
    if not len(finite):
        raise ValueError(
            f"wavelengths needs pairs that rotate, since others have no wavelength; got {', '.join(waves)}."
        )
    most = max(len(each) for each in waves.values())
    with style.figure(
        "Wavelengths",
        "positions that a pair takes for one full rotation; beside each name: pairs that take longer than training",
        noted(sitters, _of_waves(sitters, waves, train_length)),
        height=3.2,
        dark=dark,
    ) as sheet:
        looks = style.looks(list(waves), sheet.theme)
        ends = [
            labels.End(float(each[np.isfinite(each)][-1]), style.short(name), _count(each, train_length), looks[name])
            for name, each in waves.items()
            if np.isfinite(each).any()
        ]
        room = labels.room(ends, "above")
        axes = sheet.axes(left=0.62, right=room, above=0.1, below=0.5)
        axes.set_yscale("log")
        axes.set_ylim(min(finite.min(), 4) / 1.3, max(finite.max(), train_length) * 1.6)
        axes.set_xlim(-0.6, most - 0.4)
        axes.axhspan(train_length, axes.get_ylim()[1], color=sheet.theme.shade, linewidth=0, zorder=0)
        axes.axhline(train_length, color=sheet.theme.ink, linewidth=1.0, linestyle=(0, (3, 2)), gid="training")
        said = f"longer than the {train_length:,} positions of training"
        axes.text(0.02, 0.96, said, size=SMALL, color=sheet.theme.ink, va="top", transform=axes.transAxes)
        for name, each in waves.items():
            axes.plot(np.arange(len(each)), each, label=name, **looks[name].line)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
        axes.set_xlabel("pair of channels", labelpad=3, loc="left")
        labels.Column(sheet, axes, room).lines(ends, "above")
    return sheet.figure


@kind("rotary's scalings overlaid, over pairs and over distance", SCALED, longest=LONGEST_TEXT)
def scalings(sitters: list[Sitter], *, train_length: int = 4096, length: int = 131_072, dark: bool = False) -> Figure:
    """Draw how far each pair is slowed from the training length to ``length``, and the mean score of a token with "
    "itself."""
    if length <= train_length:
        raise ValueError(
            f"length must be more than train_length={train_length}, since scalings extend the one to the other; got "
            f"{length}."
        )
    plain = cast(Rotary, sitters[0].encodings[0])
    made = _scaled(plain, train_length, length)
    base = portraits.wavelengths(made["plain"], length)
    slowed = {name: (portraits.wavelengths(each, length) / base).numpy() for name, each in made.items()}
    distances, bins = _log_bins(length)
    middles = _means(distances.double().numpy(), bins)
    scores = {
        name: _means(portraits.decay(Sitter(name, (each,)), distances).mean.double().mean(0).numpy(), bins)
        for name, each in made.items()
    }
    with style.figure(
        f"Rotary from {train_length:,} to {length:,} tokens",
        "left: wavelength relative to plain rotary; right: mean score of a token with itself, heads of "
        f"{plain.head_dim}",
        _of_scalings(base.numpy(), slowed, train_length, length / train_length),
        height=3.7,
        dark=dark,
    ) as sheet:
        looks = style.looks(list(made), sheet.theme)
        width = (sheet.width - 0.5 - 0.5 - MARGIN - 0.1) / 2
        low, high = sheet.bottom + 0.5, 3.7 - 0.5 - 0.5
        over_pairs = sheet.inches(0.5, low, width, high)
        over_distance = sheet.inches(0.5 + width + 0.5, low, width, high)
        for name in made:
            look = looks[name]
            _line(over_pairs, np.arange(len(base), dtype=float), slowed[name], look, name)
            _line(over_distance, middles, scores[name], look, name)
        over_pairs.set_yscale("log", base=2)
        over_pairs.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}×"))
        over_pairs.set_xlabel("pair of channels", labelpad=3, loc="left")
        over_distance.set_xscale("log", base=2)
        over_distance.set_xlabel("distance", labelpad=3, loc="left")
        over_distance.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:,.0f}"))
        over_distance.axvspan(train_length, length, color=sheet.theme.shade, linewidth=0, zorder=0)
        over_distance.set_xlim(1, length)
        over_distance.text(
            length / 1.1, 0.98, "beyond training", transform=over_distance.get_xaxis_transform(), size=SMALL,
            ha="right", va="top", color=sheet.theme.faint,
        )  # fmt: skip
        _legend(over_pairs, sheet)
    return sheet.figure


def _scaled(plain: Rotary, train_length: int, length: int) -> dict[str, Rotary]:
    lengths: dict[str, Any] = {"original_length": train_length, "target_length": length}
    pairs = len(plain.frequencies[0])
    found = np.interp(np.linspace(0, 1, pairs), np.linspace(0, 1, len(PHI)), PHI).tolist()
    short = tuple([1.0] * pairs)
    chosen: dict[str, Scaling | None] = {
        "plain": None,
        "linear (PI)": LinearScaling(**lengths),
        "NTK": NTKScaling(**lengths),
        "YaRN": YaRN(**lengths),
        "Llama 3": Llama3Scaling(**lengths),
    }
    if PHI_STRETCH / 2 <= length / train_length <= 2 * PHI_STRETCH:
        chosen["LongRoPE (Phi-3.5)"] = LongRoPE(short_factors=short, long_factors=tuple(found), **lengths)
    options = {name: value for name, value in plain.config.items() if name not in ("scaling", "split")}
    return {name: Rotary(**options, scaling=scaling) for name, scaling in chosen.items()}


def _log_bins(length: int) -> tuple[torch.Tensor, Map]:
    """Choose distances evenly on a logarithmic scale, and tell which bin each is in."""
    exponents = torch.linspace(0, math.log2(length - 1), BINS * TO_A_BIN, dtype=torch.float64)
    distances = torch.unique(torch.exp2(exponents).round().long())
    bins = (torch.log2(distances.double()) / math.log2(length) * BINS).floor().numpy()
    return distances, bins


def _means(values: Map, bins: Map) -> Map:
    return np.array([values[bins == each].mean() for each in np.unique(bins)])


def _line(axes: Axes, x: Map, y: Map, look: style.Look, name: str) -> None:
    every = max(1, len(x) // 6)
    axes.plot(x, y, label=name, markevery=(every // 2, every), **look.line)


def _legend(axes: Axes, sheet: Sheet) -> None:
    handles, names = axes.get_legend_handles_labels()
    top = 1 - (sheet.top + 0.02) / float(sheet.figure.get_figheight())
    sheet.figure.legend(
        handles, names, loc="upper left", bbox_to_anchor=(0.4 / sheet.width, top), ncol=3, frameon=False,
        fontsize=SMALL, handlelength=2.6, columnspacing=2.2,
    )  # fmt: skip


def _slow(waves: Map, train_length: int) -> int:
    """Count pairs that rotate, but less than once within the training length."""
    return int(((waves > train_length) & np.isfinite(waves)).sum())


def _count(waves: Map, train_length: int) -> str:
    return f"{_slow(waves, train_length)} of {len(waves)}"


def _of_waves(sitters: list[Sitter], waves: dict[str, Map], train_length: int) -> str:
    scaled = [one.name for one in sitters if any(getattr(each, "scaling", None) is not None for each in one.encodings)]
    slow = {name: each for name, each in waves.items() if name not in scaled and _slow(each, train_length)}
    said = []
    if slow:
        many = _count(next(iter(slow.values())), train_length) if len(slow) == 1 else "Some"
        whose = f" of {next(iter(slow))}" * (len(waves) > 1 and len(slow) == 1)
        said.append(
            f"{many} pairs{whose} make less than one full rotation within the training length: at longer lengths "
            "they reach angles that never occurred in training."
        )
    elif len(scaled) < len(waves):
        said.append("All pairs make a full rotation within the training length: longer texts bring no new angles.")
    if scaled:
        said.append("Scalings slow pairs down, so that a longer text stays within the angles of training.")
    return " ".join(said)


def _of_scalings(base: Map, slowed: dict[str, Map], train_length: int, factor: float) -> str:
    """Say which scalings leave all angles within those of training: slow pairs must be slowed by the whole stretch."""
    others = {name: each for name, each in slowed.items() if name != "plain"}
    slow = base > train_length
    within = [name for name, each in others.items() if (each[slow] > 0.99 * factor).all()]
    beyond = [name for name in others if name not in within]
    kept = ", ".join(f"{name} {int((each < 1.01).sum())}" for name, each in others.items())
    one = len(within) == 1, len(beyond) == 1
    said = (
        f"{', '.join(within)} slow{'s' * one[0]} all pairs that made less than a full rotation by {factor:.3g} or more"
    )
    lag = f"{', '.join(beyond)} {'does' if one[1] else 'do'} not, and so reach{'es' * one[1]} new angles"
    joined = "; ".join(part for part, names in ((said, within), (lag, beyond)) if names)
    if not slow.any():
        joined = "All pairs made a full rotation in training, so that none reaches new angles"
    raising = " and ".join(name.split(" (")[0] for name in others if name.startswith(("YaRN", "LongRoPE")))
    multiply = f"{raising} multipl{'y' if ' and ' in raising else 'ies'} all scores, too"
    return f"{joined}. Unchanged pairs: {kept} of {len(base)}. {multiply}."
