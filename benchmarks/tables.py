"""Turning queries and keys with the tables made first, as in a model's first layer."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.apply import DTYPES, LENGTHS, SIZES, vectors
from benchmarks.peers import BASE, Both, llama_apply, llama_embedding
from benchmarks.timing import CLONE, SITUS, TORCH_ONLY, TRANSFORMERS, Contender, Effort, race
from situs import Positions, Rotary


@dataclass(frozen=True)
class Row:
    """One case, pairing "halves", layout "transposed", and what everyone took for it."""

    length: int
    heads: int
    head_dim: int
    dtype: str
    threads: int
    rounds: int
    milliseconds: dict[str, float]


def measure(effort: Effort, lengths: Sequence[int] = LENGTHS, threads: Sequence[int] = (1, 2)) -> Iterator[Row]:
    """Every case, with positions made anew for each call."""
    for heads, head_dim in SIZES:
        for length in lengths:
            for dtype in ("float32", "bfloat16"):
                print(f"  tables: {length} x {heads} x {head_dim} {dtype}", file=sys.stderr, flush=True)
                query, key = (vectors(length, heads, head_dim, DTYPES[dtype], "transposed", seed) for seed in (0, 1))
                contenders = makers(query, key, 0)
                for count in threads:
                    torch.set_num_threads(count)
                    result = race(contenders, effort)
                    milliseconds = {name: 1e3 * seconds for name, seconds in result.medians.items()}
                    yield Row(length, heads, head_dim, dtype, count, result.rounds, milliseconds)


def makers(query: Tensor, key: Tensor, start: int) -> list[Contender]:
    """Situs and transformers from positions to turned vectors; both make the positions as well."""
    length, head_dim = query.shape[-2:]
    rotary = Rotary(head_dim=head_dim, base=BASE, pairing="halves")
    embedding = llama_embedding(head_dim)

    def situs() -> Both:
        return rotary.both(query, key, Positions.range(length, start=start))

    def transformers() -> Both:
        ids = (torch.arange(length) + start).unsqueeze(0)  # as LlamaModel.forward makes them
        return llama_apply(query, key, *embedding(query, ids))

    return [
        Contender(CLONE, lambda: (query.clone(), key.clone())),
        Contender(SITUS, situs),
        Contender(TORCH_ONLY, situs, fused=False),
        Contender(TRANSFORMERS, transformers),
    ]
