"""Content-based terms: what an encoding adds to the scores of a text, as maps and by distance."""

from __future__ import annotations

from typing import cast

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from situs.arguments import require_floating, require_same_device
from situs.checks.bench import normal
from situs.encodings.score import ScoreEncoding
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots import labels, style
from situs.plots.panels import Colours, Map, Panels, heads_shown, name
from situs.plots.portraits.kinds import BY_CONTENT, kind, noted
from situs.plots.portraits.matrices import AXES, require_head
from situs.plots.portraits.scores_axis import signed
from situs.plots.style import SMALL, Sheet

LINES = 1.95  # inches for the lines by distance
NEAR, FAR = (1, 4), 16  # distances whose means the caption compares


@kind("scores of a text: by content, by position, and both", BY_CONTENT)
def scores(
    sitters: list[Sitter],
    *,
    length: int = 48,
    head: int | None = None,
    query: Float[Tensor, "heads length head_dim"] | None = None,
    key: Float[Tensor, "heads length head_dim"] | None = None,
    dark: bool = False,
) -> Figure:
    """Draw the scores of ``length`` tokens, causal; below, what position adds by distance, one line per head.

    head: which head's maps are drawn; the one whose term changes most with distance if left out.
    query, key: (heads, length, head_dim); those of a trained layer reading a text, or random ones, if left out.
    """
    sitter, encoding = sitters[0], cast(ScoreEncoding, sitters[0].encodings[0])
    queries, keys, whose = _queries_and_keys(sitter, length, query, key)
    if head is not None:
        require_head(sitter, head, len(queries))
    contents, terms = (each.double().numpy() for each in portraits.content_scores(encoding, queries, keys))
    seen = np.tril(np.ones_like(contents[0], dtype=bool))  # as under a causal mask: CoPE counts what a query may see
    means = _by_distance(terms)
    chosen = int(means.std(1).argmax()) if head is None else head
    content, term = contents[chosen], terms[chosen]
    maps = [np.where(seen, each, np.nan) for each in (content, term, content + term)]
    panels = Panels(3, 3)
    with style.figure(
        f"{sitter.name}: scores by content and by position",
        f"{AXES}; head {chosen + 1}, {whose}, causal",
        noted(sitters, _of_term(content[seen], term[seen], means), len(content)),
        height=panels.height + LINES,
        dark=dark,
    ) as sheet:
        colours = Colours.of(maps, sheet.theme)
        titles = ("content", "position", "both")
        for axes, title, values in zip(panels.axes(sheet), titles, maps, strict=True):
            name(axes, title, {"content": "scale · q·k", "position": "what is added"}.get(title, ""), sheet.theme)
            colours.draw(axes, values)
        colours.key(sheet, "score", above=LINES)
        _draw_means(sheet, means)
    return sheet.figure


def _queries_and_keys(
    sitter: Sitter, length: int, query: Tensor | None, key: Tensor | None
) -> tuple[Tensor, Tensor, str]:
    """Take what was given, what is stored, or random numbers; and say which."""
    for called, tensor in (("query", query), ("key", key)):
        if tensor is not None:
            require_floating(called, tensor, "scores are computed from it")
    if query is not None and key is not None:
        require_same_device("key", key, "query", query)
    given = query if query is not None else key
    if given is None and sitter.sample is not None and length <= sitter.sample[0].shape[1]:
        stored = [each[:, :length] for each in sitter.sample]
        return stored[0], stored[1], "a held-out text"
    shape = (sitter.heads, length, sitter.head_dim) if given is None else tuple(given.shape)
    queries, keys = (normal(*shape, seed=seed) if each is None else each for seed, each in ((6, query), (7, key)))
    if queries.ndim != 3 or queries.shape != keys.shape:
        raise ValueError(
            f"query and key must have one shape (heads, length, head_dim), since both are of one text; got "
            f"{tuple(queries.shape)} and {tuple(keys.shape)}."
        )
    named = [called for called, each in (("queries", query), ("keys", key)) if each is not None]
    return queries, keys, f"given {' and '.join(named)}" if named else "random queries and keys"


def _by_distance(terms: Map) -> Map:
    """Average each head's term over the tokens of the text, by how far the key lies behind: (heads, distances)."""
    return np.stack([np.diagonal(terms, -apart, 1, 2).mean(-1) for apart in range(terms.shape[-1])], 1)


def _draw_means(sheet: Sheet, means: Map) -> None:
    """Draw the mean term by distance, one line per head; the farthest quarter has few pairs and is left out."""
    shown = max(2, means.shape[1] * 3 // 4)
    named = heads_shown(means[:, :shown])
    names, heads = list(named), list(named.values())
    looks = style.looks(names, sheet.theme)
    ends = [
        labels.End(float(means[head, shown - 1]), called, signed(means[head, shown - 1]), looks[called])
        for head, called in zip(heads, names, strict=True)
    ]
    room = labels.room(ends, f"at {shown - 1}")
    axes = sheet.inches(0.48, sheet.bottom + 0.42, sheet.width - 0.48 - room, LINES - 0.42 - 0.3)
    axes.set_gid("means")
    low, high = float(means[heads, :shown].min()), float(means[heads, :shown].max())
    margin = 0.06 * (high - low or 1.0)
    axes.set_ylim(low - margin, high + margin)
    axes.set_xlim(0, shown - 1)
    for head, called in zip(heads, names, strict=True):
        axes.plot(
            np.arange(shown), means[head, :shown], label=called, markevery=max(1, shown // 6), **looks[called].line
        )
    axes.set_xlabel("how far the key lies behind the query", labelpad=3, loc="left")
    axes.set_title("what position adds, mean over the text", loc="left", fontsize=SMALL, fontweight="bold", pad=4)
    labels.Column(sheet, axes, room).lines(ends, f"at {shown - 1}")


def _of_term(content: Map, term: Map, means: Map) -> str:
    said = (
        f"Scores by content have a standard deviation of {content.std():.2g}, what position adds {term.std():.2g}. "
        "Diagonal stripes come from the distance, rows from the query, columns from the key."
    )
    if means.shape[1] <= 2 * FAR:
        return said
    gain = means[:, NEAR[0] : NEAR[1] + 1].mean(1) - means[:, FAR : 2 * FAR].mean(1)
    most = int(np.abs(gain).argmax())
    more = "more" if gain[most] > 0 else "less"
    return (
        f"{said} Head {most + 1} adds {abs(gain[most]):.2g} {more} to keys at distances {NEAR[0]} to {NEAR[1]} than at "
        f"{FAR} to {2 * FAR - 1}."
    )
