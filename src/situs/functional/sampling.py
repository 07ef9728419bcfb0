"""Sampling: positions drawn from a longer range than the sequence needs.

Training on sorted random positions shows a model positions it will meet only in longer texts.

    randomised   a sorted sample of ``count`` from 0 .. high - 1        Ruoss et al. 2023, arXiv:2305.16843
    skips        ``chunks`` runs of neighbours with random gaps before  PoSE, Zhu et al. 2023, arXiv:2309.10400
    stretches    a random move and stretch of coordinates                DINOv3, Simeoni et al. 2025, arXiv:2508.10104
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from situs.arguments import refuse, require_count, require_number


def randomised(count: int, high: int, seed: int) -> Int64[Tensor, "count"]:
    """Draw ``count`` different positions below ``high``, ascending; the same for the same seed everywhere."""
    count, high = _require_range(count, high)
    seed = require_count("seed", seed, "it starts the random numbers")
    generator = torch.Generator(device="cpu").manual_seed(seed)
    return torch.randperm(high, generator=generator, device="cpu")[:count].sort().values


def skips(count: int, high: int, chunks: int, seed: int) -> Int64[Tensor, "count"]:
    """Cut ``0 .. count - 1`` into ``chunks`` random pieces and move each up, in order, to end at most at ``high``."""
    count, high = _require_range(count, high)
    chunks = require_count("chunks", chunks, "the range is cut into them", least=0 if count == 0 else 1)
    seed = require_count("seed", seed, "it starts the random numbers")
    if count == 0:
        return torch.zeros(0, dtype=torch.int64, device="cpu")
    generator = torch.Generator(device="cpu").manual_seed(seed)
    cuts = torch.randperm(count - 1, generator=generator, device="cpu")[: chunks - 1].sort().values + 1
    gaps = torch.randint(0, high - count + 1, (chunks - 1,), generator=generator, device="cpu").sort().values
    chunk_of_token = torch.bucketize(torch.arange(count, device="cpu"), cuts, right=True)
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64, device="cpu"), gaps))
    return torch.arange(count, device="cpu") + offsets[chunk_of_token]


def stretches(
    axes: int, seed: int, *, shift: float | int = 0.0, jitter: float | int = 1.0, rescale: float | int = 1.0
) -> tuple[Float64[Tensor, "axes"], Float64[Tensor, "axes"]]:
    """Draw what coordinates are moved by, ``-shift .. shift`` an axis, and then multiplied by: a number of
    ``1/jitter .. jitter`` an axis, times one of ``1/rescale .. rescale`` for all, both uniform in the logarithm."""
    axes = require_count("axes", axes, "it counts coordinates", least=1)
    seed = require_count("seed", seed, "it starts the random numbers")
    shift = require_number("shift", shift, "coordinates are moved by at most that", least=0)
    jitter = require_number("jitter", jitter, "each axis is stretched or shrunk by at most that", least=1)
    rescale = require_number("rescale", rescale, "all axes are stretched or shrunk by at most that", least=1)
    generator = torch.Generator(device="cpu").manual_seed(seed)
    drawn = 2 * torch.rand(2 * axes + 1, generator=generator, dtype=torch.float64, device="cpu") - 1
    moves, single, common = drawn[:axes], drawn[axes:-1], drawn[-1]
    return shift * moves, (math.log(jitter) * single + math.log(rescale) * common).exp()


def _require_range(count: int, high: int) -> tuple[int, int]:
    """So many different positions must fit below the highest."""
    count = require_count("count", count, "it counts positions", least=0)
    high = require_count("high", high, "positions lie below it", least=0)
    if count > high:
        reason = f"{count} different positions lie below it"
        refuse(ValueError, "high", f"be at least count={count}", reason, str(high))
    return count, high
