"""Rotary whose rotations differ by band of distance: where each band is, and the positions that are rotated by there.

i the query's position, j the key's, W the window, G the group, C the chunk size, s = C - local size

SelfExtend   |i - j| < W: (i, j);      farther: (i // G + S, j // G), S = W - W // G, or -S for keys ahead
ReRoPE       |i - j| < W: (i, j);      farther: (a i + S, a j), S = (1 - a) W, or -S for keys ahead
DualChunk    i // s - j // s = 0: (i % s, j % s);   1: (min(i % s + s, C), j % s);   2 or more: (C, j % s);
             -1: (i % s, min(j % s + s, C));        -2 or less: (i % s, C)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import situs
from tests.fuzz.oracle_tokens import Pairs, Tokens

BANDS = (situs.SelfExtend, situs.ReRoPE, situs.DualChunk)


def has_bands(encoding: Any) -> bool:
    """Whether an encoding is a rotary with bands."""
    return isinstance(encoding, situs.Rotary) and isinstance(encoding.scaling, BANDS)


def in_bands(scaling: Any, pairs: Pairs) -> Iterator[tuple[Tensor, Tokens, Tokens]]:
    """Where a band is, and queries and keys at the positions that they have there. Shape: (rows, 1, n, m)."""
    i, j = pairs.query.ids.double(), pairs.key.ids.double()
    for inside, query, key in _bands(scaling, i, j):
        yield inside[:, None], replace(pairs.query, ids=query), replace(pairs.key, ids=key)


def _bands(scaling: Any, i: Tensor, j: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    behind = i[:, :, None] - j[:, None, :]
    if isinstance(scaling, situs.DualChunk):
        most, size = scaling.chunk_size, scaling.chunk_size - scaling.local_size
        chunks = (i / size).floor()[:, :, None] - (j / size).floor()[:, None, :]
        own_i, own_j = (each - size * (each / size).floor() for each in (i, j))
        beside_i, beside_j = ((each + size).clamp(max=most) for each in (own_i, own_j))
        far_i, far_j = torch.full_like(i, most), torch.full_like(j, most)
        yield chunks == 0, own_i, own_j
        yield chunks == 1, beside_i, own_j
        yield chunks >= 2, far_i, own_j
        yield chunks == -1, own_i, beside_j
        yield chunks <= -2, own_i, far_j
        return
    window = scaling.window
    if isinstance(scaling, situs.SelfExtend):
        slow_i, slow_j = ((each / scaling.group).floor() for each in (i, j))
        shift: float = window - window // scaling.group
    else:
        slow_i, slow_j, shift = scaling.leak * i, scaling.leak * j, (1 - scaling.leak) * window
    yield behind.abs() < window, i, j
    yield behind >= window, slow_i + shift, slow_j
    yield behind <= -window, slow_i - shift, slow_j
