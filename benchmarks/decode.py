"""A decode step: one token at position 4096, 32 query heads and 8 key heads of 128.

So little is computed that the time is that of Python and of starting operations.

    table given    the table was made before: every layer but the first
    later layers   Situs finds the table in the positions it was handed; transformers is handed it
    with table     positions and table are made, then applied: the first layer
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from benchmarks.apply import DTYPES, vectors
from benchmarks.peers import BASE, appliers
from benchmarks.tables import makers
from benchmarks.timing import LLAMA4, SITUS, TORCH_ONLY, TRANSFORMERS, Contender, Effort, race
from situs import Positions, Rotary
from situs.functional.rotation import PAIRINGS, Pairing

POSITION = 4096
HEADS, KEY_HEADS, HEAD_DIM = 32, 8, 128
CALLS = 100


@dataclass(frozen=True)
class Row:
    """One way to take the step and what everyone took for it."""

    step: str
    pairing: Pairing
    dtype: str
    threads: int
    microseconds: dict[str, float]

    @property
    def case(self) -> str:
        """The case in words."""
        return f"{self.pairing} {self.dtype}, {self.threads} thread{'s' * (self.threads > 1)}"


def measure(effort: Effort, threads: tuple[int, ...] = (1, 2)) -> Iterator[Row]:
    """Every step; "with table" for halves only, where transformers has a module for it."""
    for dtype in ("float32", "bfloat16"):
        query = vectors(1, HEADS, HEAD_DIM, DTYPES[dtype], "transposed", 0)
        key = vectors(1, KEY_HEADS, HEAD_DIM, DTYPES[dtype], "transposed", 1)
        for pairing in PAIRINGS:
            given = appliers(query, key, pairing, POSITION)
            steps = {"table given": given}
            rotary = Rotary(head_dim=HEAD_DIM, base=BASE, pairing=pairing)
            handed = Positions.range(1, start=POSITION)
            run = lambda r=rotary, p=handed, q=query, k=key: r.both(q, k, p)  # noqa: E731
            others = [contender for contender in given if contender.name in (TRANSFORMERS, LLAMA4)]
            steps["later layers"] = [Contender(SITUS, run), Contender(TORCH_ONLY, run, fused=False), *others]
            if pairing == "halves":
                steps["with table"] = makers(query, key, POSITION)
            for step, contenders in steps.items():
                for count in threads:
                    torch.set_num_threads(count)
                    race(contenders, Effort(0.0, 1), calls=CALLS)  # to warm up
                    medians = race(contenders, effort, calls=CALLS).medians
                    yield Row(step, pairing, dtype, count, {name: 1e6 * each for name, each in medians.items()})
