"""Decoding: one token against a cache, with an encoding and without, 8 heads of 64.

layer    situs.Attention with a KVCache: projections, the cache's new row, attention
attend   situs.attend with one query and all keys, which keeps nothing from step to step
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import situs
from benchmarks.attention import PLAIN, encodings
from benchmarks.attention_cases import DTYPES
from benchmarks.attention_peers import HEAD_DIM, HEADS, Run
from benchmarks.timing import Contender, Effort, race

FORMS = ("layer", "attend")
NAMES = ("rotary", "t5", "alibi", "kerple", "shaw keys", "transformer_xl", "deberta")
LENGTHS = (1024, 4096, 16384)
STEPS = {1024: 4, 4096: 2, 16384: 1}


@dataclass(frozen=True)
class Row:
    """One length of cache, and what a step took with each encoding."""

    form: str
    length: int
    dtype: str
    threads: int
    rounds: int
    microseconds: dict[str, float]
    quartiles: dict[str, tuple[float, float]]

    def over_plain(self, name: str) -> float:
        """Times the time of the same step without an encoding."""
        return self.microseconds[name] / self.microseconds[PLAIN]

    @property
    def case(self) -> str:
        """The case in words."""
        return f"{self.length} cached, {self.dtype}, {self.threads} thread{'s' * (self.threads > 1)}"


def measure(effort: Effort, lengths: Sequence[int] = LENGTHS, threads: Sequence[int] = (1, 2)) -> Iterator[Row]:
    """Every form, length and dtype."""
    for form in FORMS:
        for length in lengths:
            for dtype in DTYPES:
                print(f"  attention decode: {form} {length} {dtype}", file=sys.stderr, flush=True)
                steps = STEPS.get(length, 2)
                prepare = _layers if form == "layer" else _attended
                contenders = [Contender(name, run) for name, run in prepare(length, DTYPES[dtype], steps).items()]
                for count in threads:
                    torch.set_num_threads(count)
                    with torch.no_grad():
                        race(contenders, Effort(0.0, 1))  # to warm up
                        raced = race(contenders, effort)
                    each = 1e6 / steps
                    yield Row(
                        form, length, dtype, count, raced.rounds,
                        {name: each * seconds for name, seconds in raced.medians.items()},
                        {name: (each * low, each * high) for name, (low, high) in raced.quartiles.items()},
                    )  # fmt: skip


def _chosen() -> dict[str, Any]:
    made = encodings()
    return {PLAIN: None} | {name: made[name] for name in NAMES}


def _layers(length: int, dtype: torch.dtype, steps: int) -> dict[str, Run]:
    """Some steps one after another, always from the same length on; all layers write to the same cache."""
    layers = {
        name: situs.Attention(dim=HEADS * HEAD_DIM, num_heads=HEADS, encoding=encoding).to(dtype).eval()
        for name, encoding in _chosen().items()
    }
    cache = layers[PLAIN].make_cache(batch=1, max_length=length + steps)
    cache.append(*torch.randn(2, 1, HEADS, length, HEAD_DIM).to(dtype))
    token = torch.randn(1, 1, HEADS * HEAD_DIM).to(dtype)

    def decode(layer: situs.Attention) -> None:
        cache.crop(length)
        for _ in range(steps):
            layer(token, cache=cache)

    return {name: _called(decode, layer) for name, layer in layers.items()}


def _attended(length: int, dtype: torch.dtype, steps: int) -> dict[str, Run]:
    """As many calls of ``attend`` against the same keys and values."""
    query = torch.randn(1, HEADS, 1, HEAD_DIM).to(dtype)
    keys, values = (torch.randn(1, HEADS, length, HEAD_DIM).to(dtype) for _ in range(2))

    def decode(encoding: situs.Encoding | None) -> None:
        for _ in range(steps):
            situs.attend(query, keys, values, encoding=encoding, causal=True)

    return {name: _called(decode, encoding) for name, encoding in _chosen().items()}


def _called(decode: Callable[[Any], None], what: object) -> Run:
    return lambda: decode(what)
