"""Query by key: biases, terms by content, and the weights that come of them."""

from __future__ import annotations

from typing import cast

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from situs.arguments import require_count, require_floating, require_same_device
from situs.checks.bench import normal
from situs.encodings.bias import BiasEncoding
from situs.encodings.score import ScoreEncoding
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter, alike
from situs.plots import style
from situs.plots.panels import Colours, Map, Panels, name, some
from situs.plots.portraits.kinds import BIASED, BY_CONTENT, IN_TEXT, TELLING, kind, noted
from situs.plots.portraits.scores_axis import FLOOR

DOWN = "down: query; right: key"


@kind("the bias of each head as a matrix", BIASED)
def bias(sitters: list[Sitter], *, length: int = 64, dark: bool = False) -> Figure:
    """Draw the bias as one map a head, in one scale."""
    values: Map = portraits.bias(cast(BiasEncoding, sitters[0].encodings[0]), length).double().numpy()
    heads = some(len(values))
    panels = Panels(len(heads), min(4, len(heads)))
    with style.figure(
        f"{sitters[0].name}: what is added to the scores",
        DOWN,
        noted(sitters, _of_bias(values)),
        height=panels.height,
        dark=dark,
    ) as sheet:
        colours = Colours.of([values[heads]], sheet.theme, floor=FLOOR + float(values[heads].max()))
        for axes, head in zip(panels.axes(sheet), heads, strict=True):
            name(axes, f"head {head + 1}", "", sheet.theme)
            colours.draw(axes, values[head])
        colours.key(sheet, "added")
    return sheet.figure


@kind("the score of one content at any two positions, side by side", TELLING, many=True)
def likeness(sitters: list[Sitter], *, length: int = 48, dark: bool = False) -> Figure:
    """Draw all that position does to a score, one map an encoding, each against the mean of its own diagonal."""
    maps: list[Map] = []
    for sitter in sitters:
        values: Map = portraits.likeness(sitter, length).double().numpy()
        maps.append(values - np.diagonal(values).mean())
    panels = Panels(len(maps), min(4, len(maps)))
    with style.figure(
        "What position does to a score",
        f"one content as query (down) and as key (right) at positions 0 to {length - 1}; colours are each map's own",
        noted(sitters, _of_likeness(sitters, maps)),
        height=panels.height,
        dark=dark,
    ) as sheet:
        for axes, sitter, values in zip(panels.axes(sheet), sitters, maps, strict=True):
            name(axes, style.short(sitter.name), _range(values), sheet.theme)
            Colours.of([values], sheet.theme, one_hue=True).draw(axes, values)
        Colours.of([np.array([0.0, 1.0])], sheet.theme).key(sheet, "score", ("least", "greatest"))
    return sheet.figure


@kind("scores of given queries and keys: by content, by position, and both", BY_CONTENT)
def scores(
    sitters: list[Sitter],
    *,
    length: int = 48,
    head: int = 0,
    query: Float[Tensor, "heads length head_dim"] | None = None,
    key: Float[Tensor, "heads length head_dim"] | None = None,
    dark: bool = False,
) -> Figure:
    """Draw the scores of ``length`` tokens, causal.

    query, key: (heads, length, head_dim), random unless given.
    """
    sitter, encoding = sitters[0], cast(ScoreEncoding, sitters[0].encodings[0])
    for called, tensor in (("query", query), ("key", key)):
        if tensor is not None:
            require_floating(called, tensor, "scores are computed from it")
    if query is not None and key is not None:
        require_same_device("key", key, "query", query)
    given = query if query is not None else key
    shape = (sitter.heads, length, sitter.head_dim) if given is None else tuple(given.shape)
    queries, keys = (normal(*shape, seed=seed) if each is None else each for seed, each in ((6, query), (7, key)))
    if queries.ndim != 3 or queries.shape != keys.shape:
        raise ValueError(
            f"query and key must have one shape (heads, length, head_dim), since both are of one text; got "
            f"{tuple(queries.shape)} and {tuple(keys.shape)}."
        )
    _require_head(sitter, head, len(queries))
    content, term = (each[head].double().numpy() for each in portraits.content_scores(encoding, queries, keys))
    seen = np.tril(np.ones_like(content, dtype=bool))  # as under a causal mask: CoPE counts what a query may see
    maps = [np.where(seen, each, np.nan) for each in (content, term, content + term)]
    panels = Panels(3, 3)
    with style.figure(
        f"{sitter.name}: scores by content and by position",
        f"{DOWN}; head {head + 1}, {_whose(query, key)}, causal",
        noted(sitters, _of_term(content[seen], term[seen])),
        height=panels.height,
        dark=dark,
    ) as sheet:
        colours = Colours.of(maps, sheet.theme)
        titles = ("content", "position", "both")
        for axes, title, values in zip(panels.axes(sheet), titles, maps, strict=True):
            name(axes, title, {"content": "scale · q·k", "position": "what is added"}.get(title, ""), sheet.theme)
            colours.draw(axes, values)
        colours.key(sheet, "score")
    return sheet.figure


@kind("the attention pattern of a head, without the encoding and with it", IN_TEXT, many=True)
def attention(
    sitters: list[Sitter], *, length: int = 48, head: int = 0, causal: bool = True, dark: bool = False
) -> Figure:
    """Draw the attention weights of a random text."""
    sitters = alike(sitters)
    _require_head(sitters[0], head, sitters[0].heads)
    without = portraits.attention(sitters[0], length, causal=causal, positions=False)
    maps: list[Map] = [without[head].double().numpy()]
    maps += [portraits.attention(each, length, causal=causal)[head].double().numpy() for each in sitters]
    hidden = np.triu(np.ones_like(maps[0], dtype=bool), 1) & causal
    panels = Panels(len(maps), min(3, len(maps)))
    with style.figure(
        f"Who looks at whom: {', '.join(each.name for each in sitters[:4])}{' …' * (len(sitters) > 4)}",
        f"{DOWN}; head {head + 1} of a random text{', causal' * causal}; colour: root of the weight",
        noted(sitters, _of_attention(["without", *(each.name for each in sitters)], maps)),
        height=panels.height,
        dark=dark,
    ) as sheet:
        shown = [np.where(hidden, np.nan, np.sqrt(each)) for each in maps]  # weights of a long row are small
        colours = Colours.of(shown, sheet.theme, zero=True)
        titles = ["without positions", *(each.name for each in sitters)]
        for axes, title, values in zip(panels.axes(sheet), titles, shown, strict=True):
            name(axes, style.short(title), "", sheet.theme)
            colours.draw(axes, values)
        colours.key(sheet, "root of weight")
    return sheet.figure


def _whose(query: Tensor | None, key: Tensor | None) -> str:
    given = [name for name, each in (("queries", query), ("keys", key)) if each is not None]
    return "random queries and keys" if not given else f"given {' and '.join(given)}"


def _require_head(sitter: Sitter, head: int, heads: int) -> None:
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
        else "Rows differ: the query's place counts"
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
        return "Not constant along diagonals: the place counts too, not only the distance."
    return f"Constant along diagonals where only the distance counts; not so for {', '.join(absolute)}."


def _of_term(content: Map, term: Map) -> str:
    return (
        f"The term spreads by {term.std():.2g} where content spreads by {content.std():.2g}. Stripes along diagonals "
        "come from the distance, along rows from the query, along columns from the key."
    )


def _of_attention(names: list[str], maps: list[Map]) -> str:
    positions = np.arange(len(maps[0]))
    apart = np.abs(np.subtract.outer(positions, positions))
    reach = [float((each * apart).sum(1).mean()) for each in maps]
    listed = ", ".join(f"{one} {far:.1f}" for one, far in zip(names, reach, strict=True))
    return f"Mean distance that a token looks: {listed}."
