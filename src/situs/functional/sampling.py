"""Sampling: positions drawn from a longer range than the sequence needs.

Training on sorted random positions shows a model positions it will meet only in longer texts.

    randomised   a sorted sample of ``count`` from 0 .. high - 1        Ruoss et al. 2023, arXiv:2305.16843
    skips        ``chunks`` runs of neighbours with random gaps before  PoSE, Zhu et al. 2023, arXiv:2309.10400
"""

from __future__ import annotations

import torch
from jaxtyping import Int64
from torch import Tensor

from situs.arguments import refuse, require_count


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


def _require_range(count: int, high: int) -> tuple[int, int]:
    """So many different positions must fit below the highest."""
    count = require_count("count", count, "it counts positions", least=0)
    high = require_count("high", high, "positions lie below it", least=0)
    if count > high:
        reason = f"{count} different positions lie below it"
        refuse(ValueError, "high", f"be at least count={count}", reason, str(high))
    return count, high
