"""Probe numbers: multiples of 1/64 that any language can make again, exact in float16, bfloat16 and float32.

    seed      FNV-1a of the array's name in UTF-8, 32 bits:  h = 2166136261;  h = (h xor byte) 16777619 mod 2^32
    state     s = (1664525 s + 1013904223) mod 2^32 for each number, from s = seed
    number    (floor(s / 2^25) - 64) / 64, which lies in -1 .. 63/64

Arrays are filled in row-major order. A number depends on the name of its array and on its place, on nothing else.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

MULTIPLIER, INCREMENT, MASK = 1664525, 1013904223, 2**32 - 1
RECIPE = (
    "seed = FNV-1a (32 bits) of the array's name; s = (1664525 s + 1013904223) mod 2^32 from s = seed; "
    "number = (floor(s / 2^25) - 64) / 64"
)


def seed_of(name: str) -> int:
    """Hash a name.

    >>> from situs.models.oracle.probes import seed_of
    >>> seed_of("layer0.q")
    2947376767
    """
    found = 2166136261
    for byte in name.encode():
        found = (found ^ byte) * 16777619 & MASK
    return found


@functools.lru_cache(maxsize=256)
def probe(name: str, *shape: int) -> Tensor:
    """Make the probe numbers of an array; nobody may change them.

    >>> from situs.models.oracle.probes import probe
    >>> probe("layer0.q", 2, 2)
    tensor([[-0.5000, -0.2031],
            [ 0.7656,  0.0938]], dtype=torch.float64)
    """
    count = math.prod(shape)
    # at least a page, so that few lengths are made
    multipliers, increments = _jumps(max(4096, 1 << max(count - 1, 0).bit_length()))
    states = (multipliers[:count] * seed_of(name) + increments[:count]) & MASK
    return ((states >> 25) - 64).double().div(64).reshape(shape)


@functools.lru_cache(maxsize=8)
def _jumps(count: int) -> tuple[Tensor, Tensor]:
    """What takes the seed to each of ``count`` states, by doubling; where products wrap around, 32 bits stay right."""
    multipliers = torch.tensor([MULTIPLIER], dtype=torch.int64)
    increments = torch.tensor([INCREMENT], dtype=torch.int64)
    while len(multipliers) < count:
        last, more = multipliers[-1], increments[-1]
        increments = torch.cat((increments, (multipliers * more + increments) & MASK))
        multipliers = torch.cat((multipliers, (multipliers * last) & MASK))
    return multipliers[:count], increments[:count]
