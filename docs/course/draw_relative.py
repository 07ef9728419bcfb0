"""Draw the pictures of chapter 5: the terms of the score by method, and the rows of T5's table.

``PICTURES`` names them for ``python docs/make.py figures``, as in draw_first_half.py.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

import situs
from situs.checks.measures import draw_small_parameters
from situs.plots import style
from situs.plots.style import SMALL

DIM = 16


def terms(*, dark: bool = False) -> Figure:
    """Draw the four terms of the score for ten words, and which of them each method has."""
    columns = ("word, word", "word, position", "position, word", "position, position")
    found = _terms()
    left, wide, high, gap = 1.42, 1.4, 0.82, 0.12
    with style.figure(
        "Which terms of the score each method has",
        "each map: queries down, keys to the right, ten random words; colours are scaled map by map",
        "A term that depends on the distance alone has one colour along each diagonal. Where a map is missing, the "
        "method has no such term.",
        height=len(found) * (high + 0.28) + 0.2,
        dark=dark,
    ) as sheet:
        top = float(sheet.figure.get_figheight()) - sheet.top
        for row, (method, maps) in enumerate(found.items()):
            y = top - 0.2 - (row + 1) * (high + 0.28) + 0.06
            for column, (name, found_term) in enumerate(zip(columns, maps, strict=True)):
                axes = sheet.inches(left + column * (wide + gap), y, wide, high)
                axes.set_axis_off()
                if row == 0:
                    axes.text(0.5, 1.36, name, transform=axes.transAxes, ha="center", weight="bold", size=SMALL)
                if column == 0:
                    axes.text(-0.08, 0.5, method, transform=axes.transAxes, ha="right", va="center", weight="bold")
                if found_term is None:
                    axes.text(0.5, 0.5, "–", transform=axes.transAxes, ha="center", color=sheet.theme.faint)
                    continue
                formula, values = found_term
                reach = float(values.abs().max())
                axes.imshow(values, cmap=sheet.theme.signed, vmin=-reach, vmax=reach, aspect="auto")
                at: Any = {"transform": axes.transAxes, "ha": "center", "size": 8.0, "color": sheet.theme.faint}
                axes.text(0.5, 1.06, style.minus(formula), **at)
    return sheet.figure


Term = tuple[str, Tensor] | None


@torch.no_grad()
def _terms() -> dict[str, list[Term]]:
    """Compute each method's terms for the same words, in the order word-word, word-position, position-word, rest."""
    torch.manual_seed(0)
    words = 10
    heads: dict[str, Any] = {"num_heads": 1, "head_dim": DIM}
    x, p = torch.randn(2, words, DIM)
    project_query, project_key = torch.randn(2, DIM, DIM) / math.sqrt(DIM)
    q, k, pq, pk = x @ project_query, x @ project_key, p @ project_query, p @ project_key
    shaw, xl = situs.Shaw(max_distance=4, **heads), situs.TransformerXL(dim=DIM, **heads)
    deberta, t5 = situs.Deberta(dim=DIM, max_distance=8, **heads), situs.T5Bias(num_heads=1)
    tupe = situs.Tupe(dim=DIM, untie_cls=False, **heads)
    draw_small_parameters([shaw, xl, t5, tupe, deberta])
    offsets = torch.arange(1 - words, words)
    rows = torch.arange(words) - torch.arange(words)[:, None] + words - 1  # of each pair among the offsets
    positions = situs.Positions.range(words)

    def of_query(vectors: Tensor | None) -> Tensor:
        assert vectors is not None
        return torch.einsum("mc,mnc->mn", q, vectors[0, rows])

    def of_key(vectors: Tensor | None) -> Tensor:
        assert vectors is not None
        return torch.einsum("nc,mnc->mn", k, vectors[0, rows])

    of_shaw, of_xl, of_deberta = (each.vectors(offsets, torch.float32) for each in (shaw, xl, deberta))
    assert of_xl.for_every_key is not None
    assert of_xl.alone is not None
    content: Term = ("q · k", q @ k.T)
    from_anywhere = (k @ of_xl.for_every_key[0]).expand(words, -1)
    return {
        "absolute": [content, ("q · W p(n)", q @ pk.T), ("W p(m) · k", pq @ k.T), ("W p(m) · W p(n)", pq @ pk.T)],
        "Shaw": [content, ("q · a(n - m)", of_query(of_shaw.for_query)), None, None],
        "Transformer-XL": [
            content, ("q · W̃ r(m - n)", of_query(of_xl.for_query)), ("u · k", from_anywhere),
            ("v · W̃ r(m - n)", of_xl.alone[0, rows]),
        ],
        "T5": [content, None, None, ("b(n - m)", t5(positions)[0, 0])],
        "TUPE": [content, None, None, ("U p(m) · U' p(n)", tupe(positions)[0, 0])],
        "DeBERTa": [
            content, ("q · K(m - n)", of_query(of_deberta.for_query)), ("Q(m - n) · k", of_key(of_deberta.for_key)),
            None,
        ],
    }  # fmt: skip


def buckets(*, dark: bool = False) -> Figure:
    """Draw which distances share a row of T5's table, and of a clipped one."""
    length, high = 161, 0.42
    tables = {"T5": situs.T5Bias(num_heads=1), "clipped": situs.T5Bias(num_heads=1, buckets="clipped")}
    rows = tables["T5"].rows_of(-torch.arange(length))
    last = int((rows == rows[-1]).nonzero()[0])
    with style.figure(
        "Which distances share a row of the table",
        "how far the key lies behind the query; each block is one row",
        f"T5's encoder has eight rows for single distances, then eight for ranges that grow; the last is for all "
        f"distances from {last} on. The clipped table, often called T5's, has a row for every distance up to 128.",
        height=2 * (high + 0.2) + 0.4,
        dark=dark,
    ) as sheet:
        for number, (name, encoding) in enumerate(tables.items()):
            axes = sheet.inches(0.75, sheet.bottom + 0.5 + (1 - number) * (high + 0.2), sheet.width - 0.9, high)
            rows = encoding.rows_of(-torch.arange(length))
            starts = [0, *(1 + each for each in range(length - 1) if rows[each] != rows[each + 1]), length]
            for block, (first, after) in enumerate(itertools.pairwise(starts)):
                colour = sheet.theme.hues[0] if block % 2 else sheet.theme.grid
                axes.add_patch(Rectangle((first - 0.5, 0), after - first, 1, facecolor=colour, linewidth=0))
            axes.set(xlim=(-0.5, length - 0.5), ylim=(0, 1), yticks=[])
            axes.text(-0.012, 0.5, name, transform=axes.transAxes, ha="right", va="center", weight="bold", size=SMALL)
            axes.tick_params(labelbottom=number == 1)
        axes.set_xlabel("distance", labelpad=2, loc="left")
    return sheet.figure


PICTURES = {"terms": terms, "buckets": buckets}
"""Every picture of the chapter by its name."""
