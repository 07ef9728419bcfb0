"""Properties of encodings for images, asked of a window of patches as ``probes`` asks those of text."""

from __future__ import annotations

import torch

from situs.checks.bench import Bench
from situs.checks.measures import ROUNDING, TOLD_APART, change_by_order, change_by_shift, distances_between
from situs.encodings.base import Encoding
from situs.lab.probing.findings import Finding
from situs.lab.probing.properties import PROBES, Answer, judge_norms
from situs.lab.probing.sitters import patches_of
from situs.positions import Positions

DIM, HEADS = 64, 4


def measure(encoding: Encoding, size: tuple[int, int]) -> dict[str, Finding]:
    """Measure every property that a window of patches can show; the others are not asked, since it has an end."""
    window = Window(Bench([encoding], dim=DIM, heads=HEADS), size)
    with torch.no_grad():
        answers = {
            "unique": window.unique(),
            "relative": window.relative(),
            "norm_preserving": window.norm_preserving(),
            "equivariant": window.equivariant(),
        }
    found = {name: Finding(*answer[:2], PROBES[name].unit, answer[2]) for name, answer in answers.items()}
    unasked = Finding(None, None, "", f"A window of {size[0]} x {size[1]} patches has an end.")
    return {name: found.get(name, unasked) for name in PROBES}


class Window:
    """Run an encoding on the patches of a window."""

    def __init__(self, bench: Bench, size: tuple[int, int]) -> None:
        self.bench, self.size = bench, size
        self.patches = patches_of(bench.encodings, size)

    def part(self, rows: slice, columns: slice) -> Positions:
        """Select the patches of some rows and columns."""
        chosen = torch.zeros(self.size, dtype=torch.bool)
        chosen[rows, columns] = True
        return Positions.explicit(self.patches.ids[:, chosen.flatten()], sequence_length=self.patches.length)

    def unique(self) -> Answer:
        """Ask whether one query in the middle scores the same key differently in all patches."""
        middle = [slice(side // 2, side // 2 + 1) for side in self.size]
        least = float(distances_between(self.bench, self.part(*middle), self.patches).min())
        said = (
            f"Of {self.patches.length} patches, the scores of the two most similar differ by {least:.2g} of the "
            "scores' spread."
        )
        return least > TOLD_APART, least, said

    def relative(self) -> Answer:
        """Ask whether patches in one corner of the window have the same scores one step down and right of it."""
        first, later = (self.part(each, each) for each in (slice(0, -1), slice(1, None)))
        worst = change_by_shift(self.bench, first, later, causal=False)
        said = f"Patches moved a step down and right change their scores by at most {worst:.2g} of the scores' spread."
        return worst <= ROUNDING, worst, said

    def norm_preserving(self) -> Answer:
        """Ask how the norms of inputs, queries and keys change by their positions."""
        holds, worst, said = judge_norms(self.bench, self.patches)
        return holds, worst, said[0].upper() + said[1:]

    def equivariant(self) -> Answer:
        """Ask whether permuted patches give permuted outputs."""
        free = change_by_order(self.bench, self.patches, causal=False)
        said = f"Outputs of permuted patches differ from permuted outputs by at most {free:.2g} of the outputs' spread."
        return free <= ROUNDING, free, said
