"""Accuracy: bfloat16 vectors turned, and float32 tables made, against float64.

An error is counted in bfloat16 steps (ulps) at the norm of its pair, which turning keeps: a result rounded once from
the truth is off by half a step or less. Angles are compared as points on the circle, in radians.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from rotary_embedding_torch import RotaryEmbedding
from torch import Tensor

from benchmarks.apply import vectors
from benchmarks.peers import BASE, appliers, llama_embedding
from benchmarks.timing import CLONE, ROTARY_EMBEDDING_TORCH, SITUS, TRANSFORMERS
from situs import Positions, Rotary
from situs.functional.rotation import PAIRINGS, Pairing

STARTS = (0, 4096, 100_000, 1_000_000)
HEADS, HEAD_DIM, COUNT = 16, 128, 64
FRACTION_BITS = 7
FAR, FAR_COUNT = 1_000_000, 4096


@dataclass(frozen=True)
class Row:
    """Positions ``start .. start + 63`` and everyone's largest error, in ulps."""

    start: int
    pairing: Pairing
    ulps: dict[str, float]


def measure() -> Iterator[Row]:
    """Every start for both pairings."""
    query, key = (vectors(COUNT, HEADS, HEAD_DIM, torch.bfloat16, "transposed", seed) for seed in (0, 1))
    for pairing in PAIRINGS:
        for start in STARTS:
            truths = _turned(query, start, pairing), _turned(key, start, pairing)
            ulps = {}
            for contender in appliers(query, key, pairing, start):
                if contender.name != CLONE:
                    with contender.in_force():
                        results = contender.run()
                    assert isinstance(results, tuple)
                    ulps[contender.name] = max(_ulps(*each, pairing) for each in zip(results, truths, strict=True))
            yield Row(start, pairing, ulps)


def angle_errors() -> dict[str, float]:
    """The largest error of a float32 table's angles at 4096 positions from one million, in radians."""
    ids = torch.arange(FAR, FAR + FAR_COUNT).unsqueeze(0)
    table = Rotary(head_dim=HEAD_DIM, base=BASE).table(Positions.range(FAR_COUNT, start=FAR))
    scattered = Rotary(head_dim=HEAD_DIM, base=BASE).table(Positions.explicit(ids))
    llama_cos, llama_sin = llama_embedding(HEAD_DIM)(torch.empty(0), ids)
    module = RotaryEmbedding(HEAD_DIM, theta=BASE)
    kept = module.forward(module.get_seq_pos(FAR_COUNT, offset=FAR), seq_len=FAR_COUNT, offset=FAR)[:, ::2]
    half = HEAD_DIM // 2
    return {
        f"{SITUS}, a range": _radians(table.cos[0, 0], table.sin[0, 0]),
        f"{SITUS}, ids": _radians(scattered.cos[0, 0], scattered.sin[0, 0]),
        TRANSFORMERS: _radians(llama_cos[0, :, :half], llama_sin[0, :, :half]),
        ROTARY_EMBEDDING_TORCH: _radians(kept.cos(), kept.sin()),
    }


def _angles(start: int, count: int) -> Tensor:
    """``p base^(-2i/d)`` in float64, from Python's own power."""
    frequencies = torch.tensor([BASE ** (-2 * i / HEAD_DIM) for i in range(HEAD_DIM // 2)], dtype=torch.float64)
    return torch.arange(start, start + count, dtype=torch.float64).unsqueeze(-1) * frequencies


def _pairs(x: Tensor, pairing: Pairing) -> Tensor:
    """Channel pairs as complex numbers in float64."""
    wide = x.double()
    first, second = (wide[..., ::2], wide[..., 1::2]) if pairing == "interleaved" else wide.chunk(2, -1)
    return torch.complex(first.contiguous(), second.contiguous())


def _turned(x: Tensor, start: int, pairing: Pairing) -> Tensor:
    angles = _angles(start, x.shape[-2])
    return _pairs(x, pairing) * torch.polar(torch.ones_like(angles), angles)


def _ulps(result: Tensor, truth: Tensor, pairing: Pairing) -> float:
    error = torch.view_as_real(_pairs(result, pairing) - truth).abs().amax(-1)
    norm = truth.abs().clamp(min=torch.finfo(torch.bfloat16).tiny)
    return float((error / torch.exp2(norm.log2().floor() - FRACTION_BITS)).max())


def _radians(cos: Tensor, sin: Tensor) -> float:
    points = torch.complex(cos.detach().double(), sin.detach().double())
    angles = _angles(FAR, FAR_COUNT)
    apart = (points * torch.polar(torch.ones_like(angles), -angles)).angle().abs().max()
    return min(float(apart), math.pi)
