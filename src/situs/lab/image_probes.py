"""Properties of encodings for images, asked of a window of patches as ``probes`` asks those of text."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from situs.encodings.base import Encoding
from situs.lab.acting import Acting, normal
from situs.lab.probes import PROBES, ROUNDING, TOLD_APART, Answer, Finding, kept_lengths, looks_apart, told_by_order
from situs.positions import Positions

DIM, HEADS = 64, 4


def measure(encoding: Encoding, size: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """Every property that a window of patches can show; the others are not asked, since it has an end."""
    window = Window(encoding, size)
    with torch.no_grad():
        answers = {
            "unique": window.unique(),
            "relative": window.relative(),
            "norm_preserving": window.norm_preserving(),
            "equivariant": window.equivariant(),
        }
    found = {name: Finding(*answer[:2], PROBES[name].unit, answer[2]) for name, answer in answers.items()}
    unasked = Finding(None, None, "", f"A window of {size[0]} x {size[1]} patches has an end.")
    return {name: asdict(found.get(name, unasked)) for name in PROBES}


class Window:
    """An encoding at work on patches."""

    def __init__(self, encoding: Encoding, size: tuple[int, int]) -> None:
        self.size = size
        self.acting = Acting([encoding], dim=DIM, heads=HEADS)
        self.count = size[0] * size[1]

    def places(self, chosen: Bool[Tensor, "height width"] | None = None) -> Positions:
        """All patches row by row, or those that are chosen."""
        whole = Positions.grid(*self.size)
        if chosen is None:
            return whole
        return Positions.explicit(whole.ids[:, chosen.flatten()], sequence_length=self.count)

    def unique(self) -> Answer:
        """One query in the middle meets the same key at every patch: do all look different?"""
        middle = torch.zeros(self.size, dtype=torch.bool)
        middle[self.size[0] // 2, self.size[1] // 2] = True
        query, key = normal(2, 2, 1, DIM, seed=3)
        seen = self.acting.scores(query, key.expand(-1, self.count, -1), self.places(middle), self.places())
        least = float(looks_apart(seen).min())
        said = f"Of {self.count} patches, the two most alike are {least:.2g} of the scores' spread apart."
        return least > TOLD_APART, least, said

    def relative(self) -> Answer:
        """The same patches in one corner of the window and one step down and right of it: are scores the same?"""
        first, later = torch.zeros(2, *self.size, dtype=torch.bool)
        first[:-1, :-1], later[1:, 1:] = True, True
        x = normal(2, int(first.sum()), DIM, seed=4)
        here, there = (self.acting.scores(x, x, self.places(each), self.places(each)) for each in (first, later))
        worst = float((there - here).abs().max() / here.std())
        said = f"Patches moved a step down and right change their scores by at most {worst:.2g} of the scores' spread."
        return worst <= ROUNDING, worst, said

    def norm_preserving(self) -> Answer:
        """Lengths of inputs, queries and keys with their positions over those without."""
        holds, worst, said = kept_lengths(self.acting, self.places())
        return holds, worst, said[0].upper() + said[1:]

    def equivariant(self) -> Answer:
        """Outputs of permuted patches against permuted outputs."""
        free = told_by_order(self.acting, self.places(), causal=False)
        said = f"Permuted patches give outputs that are {free:.2g} of the outputs' spread from permuted ones."
        return free <= ROUNDING, free, said
