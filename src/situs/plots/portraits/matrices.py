"""Query by key: biases, scores over positions, and attention weights."""

from __future__ import annotations

from typing import cast

import numpy as np
from matplotlib.figure import Figure

from situs.arguments import require_count
from situs.encodings.bias import BiasEncoding, PositionProduct
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter, alike
from situs.plots import style
from situs.plots.panels import Colours, Map, Panels, heads_shown, name
from situs.plots.portraits.kinds import BIASED, IN_TEXT, TELLING, kind, noted
from situs.plots.portraits.scores_axis import FLOOR

AXES = "rows: queries; columns: keys"


@kind("the bias of each head as a matrix", BIASED)
def bias(sitters: list[Sitter], *, length: int = 64, dark: bool = False) -> Figure:
    """Draw the bias as one map per head, in one colour scale.

    A bias that was trained under a causal mask is drawn where the mask lets it act. A product of positions is drawn
    relative to the highest number of each row, since it differs from row to row by what softmax cancels.
    """
    encoding = cast(BiasEncoding, sitters[0].encodings[0])
    values: Map = portraits.bias(encoding, length).double().numpy()
    said, how = _of_bias(values), ""
    if sitters[0].trained is not None:
        values, how = np.where(np.tril(np.ones_like(values, dtype=bool)), values, np.nan), ", causal"
    if isinstance(encoding, PositionProduct):
        values, how = values - np.nanmax(values, -1, keepdims=True), f"{how}; relative to the highest of each row"
    named = heads_shown(values)
    heads = list(named.values())
    panels = Panels(len(heads), min(4, len(heads)))
    with style.figure(
        f"{sitters[0].name}: what is added to the scores",
        f"{AXES}{how}",
        noted(sitters, said, length),
        height=panels.height,
        dark=dark,
    ) as sheet:
        colours = Colours.of([values[heads]], sheet.theme, floor=FLOOR + float(np.nanmax(values[heads])))
        for axes, (title, head) in zip(panels.axes(sheet), named.items(), strict=True):
            name(axes, title, "", sheet.theme)
            colours.draw(axes, values[head])
        colours.key(sheet, "added")
    return sheet.figure


@kind("the score of a token with itself at any two positions, side by side", TELLING, many=True)
def likeness(sitters: list[Sitter], *, length: int = 48, dark: bool = False) -> Figure:
    """Draw how a score depends on two positions, one map per encoding, minus the mean of its diagonal."""
    maps: list[Map] = []
    for sitter in sitters:
        values: Map = portraits.likeness(sitter, length).double().numpy()
        maps.append(values - np.diagonal(values).mean())
    panels = Panels(len(maps), min(4, len(maps)))
    with style.figure(
        "What position does to a score",
        "a token scored with itself; rows: position as query; columns: position as key; one colour scale per map",
        noted(sitters, _of_likeness(sitters, maps), length),
        height=panels.height,
        dark=dark,
    ) as sheet:
        for axes, sitter, values in zip(panels.axes(sheet), sitters, maps, strict=True):
            name(axes, style.short(sitter.name), _range(values), sheet.theme)
            Colours.of([values], sheet.theme, one_hue=True).draw(axes, values)
        Colours.of([np.array([0.0, 1.0])], sheet.theme).key(sheet, "score", ("lowest", "highest"))
    return sheet.figure


@kind("the attention weights of a head, without the encoding and with it", IN_TEXT, many=True, one_model=True)
def attention(
    sitters: list[Sitter], *, length: int = 48, head: int = 0, causal: bool = True, dark: bool = False
) -> Figure:
    """Draw the attention weights of a text: the one that is stored with a trained encoding, else a random one."""
    sitters = alike(sitters)
    sample = len(sitters) == 1 and sitters[0].sample is not None and length <= sitters[0].sample[0].shape[1]
    require_head(sitters[0], head, sitters[0].heads)
    without = portraits.attention(sitters[0], length, causal=causal, positions=False, sample=sample)
    maps: list[Map] = [without[head].double().numpy()]
    with_ = [portraits.attention(each, length, causal=causal, sample=sample) for each in sitters]
    maps += [each[head].double().numpy() for each in with_]
    hidden = np.triu(np.ones_like(maps[0], dtype=bool), 1) & causal
    panels = Panels(len(maps), min(3, len(maps)))
    with style.figure(
        f"Attention weights: {', '.join(each.name for each in sitters[:4])}{' …' * (len(sitters) > 4)}",
        f"{AXES}; head {head + 1}, {'held-out' if sample else 'random'} text{', causal' * causal}; colour: square "
        "root of the weight",
        noted(sitters, _of_attention(["without positions", *(each.name for each in sitters)], maps)),
        height=panels.height,
        dark=dark,
    ) as sheet:
        shown = [np.where(hidden, np.nan, np.sqrt(each)) for each in maps]  # weights of a long row are small
        colours = Colours.of(shown, sheet.theme, zero=True)
        titles = ["without positions", *(each.name for each in sitters)]
        for axes, title, values in zip(panels.axes(sheet), titles, shown, strict=True):
            name(axes, style.short(title), "", sheet.theme)
            colours.draw(axes, values)
        colours.key(sheet, "square root of weight")
    return sheet.figure


def require_head(sitter: Sitter, head: int, heads: int) -> None:
    require_count("head", head, "each has scores of its own")
    if not 0 <= head < heads:
        raise ValueError(f"head must be one of 0 .. {heads - 1}, since {sitter.name} has {heads} here; got {head}.")


def _of_bias(values: Map) -> str:
    count = values.shape[-1]
    toeplitz = all(
        float(np.ptp(np.diagonal(values, offset, 1, 2), axis=-1).max()) <= 1e-4 * max(1.0, float(np.ptp(values)))
        for offset in (-count // 2, -1, 0, 1, count // 2)
    )
    mirrored = bool(np.allclose(values, values.transpose(0, 2, 1), atol=1e-5))
    along = (
        f"Constant along diagonals: among {count} tokens only the distance counts"
        if toeplitz
        else "Rows differ: the query's position counts too, not only the distance"
    )
    return f"{along}{', the same ahead and behind' if mirrored else ''}."


def _range(values: Map) -> str:
    ends = (round(float(end(values)), 3) + 0.0 for end in (np.nanmin, np.nanmax))
    return style.minus(" to ".join(f"{end:.2g}" for end in ends))


def _of_likeness(sitters: list[Sitter], maps: list[Map]) -> str:
    positions = np.arange(len(maps[0]))
    apart = np.subtract.outer(positions, positions)
    unlike = {}
    for sitter, values in zip(sitters, maps, strict=True):
        spread = max(float(np.ptp(values[apart == distance])) for distance in (0, 1, len(positions) // 2))
        unlike[sitter.name] = spread / max(1e-9, float(np.nanmax(values) - np.nanmin(values)))
    absolute = [style.short(one) for one, share in unlike.items() if share > 0.02]
    if not absolute:
        return "Constant along diagonals: only the distance counts."
    if len(absolute) == len(maps):
        return "Not constant along diagonals: the positions themselves count, not only their distance."
    names = f"{', '.join(absolute[:-1])} and {absolute[-1]}" if len(absolute) > 1 else absolute[0]
    return f"Constant along diagonals: only the distance counts. Not so for {names}, where positions count too."


def _of_attention(names: list[str], maps: list[Map]) -> str:
    positions = np.arange(len(maps[0]))
    apart = np.abs(np.subtract.outer(positions, positions))
    reach = [float((each * apart).sum(1).mean()) for each in maps]
    listed = ", ".join(f"{one} {far:.1f}" for one, far in zip(names, reach, strict=True))
    return f"Mean distance from a query to the keys it attends to: {listed}."
