"""Turning queries and keys, eagerly, with the tables at hand.

Inputs are the same tensors every time, results are allocated anew every time as eager code does. Short calls are warm:
one goes before each that is timed. Where queries and keys outgrow the caches (from 2048 tokens of 32 x 128 on)
everyone works from memory, and results above malloc's mapping limit (32 MiB) pay for fresh pages, ``clone`` included.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor

from benchmarks.peers import Both, appliers
from benchmarks.timing import CLONE, LLAMA4, SITUS, TORCH_ONLY, Contender, Effort, race
from situs.functional.rotation import PAIRINGS, Pairing
from situs.lab.probing.memory import peak_beyond_result

Layout = Literal["transposed", "contiguous"]
LAYOUTS: tuple[Layout, ...] = ("transposed", "contiguous")
SIZES = ((16, 64), (32, 128))
LENGTHS = (512, 2048, 8192)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# Near one another, so that it takes more rounds to tell them apart than it takes for the others.
CLOSE = (CLONE, SITUS, TORCH_ONLY, LLAMA4)

# Rows before position 128 are where bfloat16 positions, as rotary-embedding-torch makes them, are still exact.
AGREEMENT_ROWS = 128
AGREEMENT = {"float32": 1e-4, "bfloat16": 0.1, "float16": 0.02}


@dataclass(frozen=True)
class Row:
    """One case and what everyone took for it."""

    length: int
    heads: int
    head_dim: int
    dtype: str
    layout: Layout
    pairing: Pairing
    threads: int
    rounds: int
    milliseconds: dict[str, float]
    quartiles: dict[str, tuple[float, float]]
    extra_mib: dict[str, float]
    """For layout "transposed" alone."""

    @property
    def case(self) -> str:
        """The case in words."""
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{self.length} × {self.heads} × {self.head_dim} {self.dtype} {self.layout}, {threads}"

    def to_clone(self, name: str) -> float:
        """Its time as a multiple of the copy's."""
        return self.milliseconds[name] / self.milliseconds[CLONE]

    def speed_up(self, name: str, over: str) -> float:
        """How many times faster ``name`` is than ``over``."""
        return self.milliseconds[over] / self.milliseconds[name]


def vectors(length: int, heads: int, head_dim: int, dtype: torch.dtype, layout: Layout, seed: int) -> Tensor:
    """Random queries or keys, (1, heads, length, head_dim); "transposed" as a projection leaves them."""
    generator = torch.Generator().manual_seed(seed)
    shape = (1, length, heads, head_dim) if layout == "transposed" else (1, heads, length, head_dim)
    drawn = torch.randn(shape, generator=generator).to(dtype)
    return drawn.transpose(1, 2) if layout == "transposed" else drawn


def measure(
    effort: Effort,
    lengths: Sequence[int] = LENGTHS,
    dtypes: Sequence[str] = tuple(DTYPES),
    threads: Sequence[int] = (1, 2),
) -> Iterator[Row]:
    """Every case; the layout that models have gets twice the time of the other."""
    for heads, head_dim in SIZES:
        for length in lengths:
            for dtype in dtypes:
                for layout in LAYOUTS:
                    share = effort.scaled(1.0 if layout == "transposed" else 0.5)
                    query, key = (vectors(length, heads, head_dim, DTYPES[dtype], layout, seed) for seed in (0, 1))
                    print(f"  apply: {length} x {heads} x {head_dim} {dtype} {layout}", file=sys.stderr, flush=True)
                    for pairing in PAIRINGS:
                        yield from _case(query, key, dtype, layout, pairing, threads, share)


def _case(
    query: Tensor, key: Tensor, dtype: str, layout: Layout, pairing: Pairing, threads: Sequence[int], effort: Effort
) -> Iterator[Row]:
    require_agreement(appliers(query[:, :2, :AGREEMENT_ROWS], key[:, :2, :AGREEMENT_ROWS], pairing), AGREEMENT[dtype])
    contenders = appliers(query, key, pairing)
    extra = {}
    for contender in contenders if layout == "transposed" else ():
        with contender.in_force():
            extra[contender.name] = peak_beyond_result(contender.run) / 2**20
    contenders = [replace(each, brief=each.name not in CLOSE) for each in contenders]
    for count in threads:
        torch.set_num_threads(count)
        result = race(contenders, effort, warm=True)
        yield Row(
            query.shape[2], query.shape[1], query.shape[3], dtype, layout, pairing, count, result.rounds,
            {name: 1e3 * seconds for name, seconds in result.medians.items()},
            {name: (1e3 * low, 1e3 * high) for name, (low, high) in result.quartiles.items()},
            extra,
        )  # fmt: skip


def require_agreement(contenders: Sequence[Contender], tolerance: float) -> None:
    """Raise unless all that turn give the same vectors: a race between different maps says nothing."""
    results = {}
    for contender in contenders:
        if contender.name != CLONE:
            with contender.in_force():
                results[contender.name] = cast(Callable[[], Both], contender.run)()
    (first, expected), *others = results.items()
    for name, result in others:
        for actual, wanted in zip(result, expected, strict=True):
            apart = float((actual.float() - wanted.float()).abs().max())
            if apart > tolerance:
                raise RuntimeError(f"{name} and {first} differ by {apart:.3g}, more than {tolerance}.")
