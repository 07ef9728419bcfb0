"""Blocks: channels whose halves make pairs, where they are fewer than all that is rotated.

    one layout over the head    [a0 a1 b0 b1 | a0' a1' b0' b1']     halves of everything, axes a and b within
    a layout for each block     [a0 a1 | a0' a1'] [b0 b1 | b0' b1']     Gemma 4's vision

Rotations know the first layout only; the second is laid out as the first before, and back after.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Shaped
from torch import Tensor


def joined_halves(x: Shaped[Tensor, "*rows dim"], blocks: Sequence[int]) -> Shaped[Tensor, "*rows dim"]:
    """Lay the first halves of all blocks before the second halves; channels behind the blocks stay last."""
    if len(blocks) < 2:
        return x
    halves = [size // 2 for size in blocks for _ in range(2)]
    parts = torch.split(x, [*halves, x.shape[-1] - sum(halves)], -1)
    return torch.cat((*parts[0:-1:2], *parts[1:-1:2], parts[-1]), -1)


def parted_halves(x: Shaped[Tensor, "*rows dim"], blocks: Sequence[int]) -> Shaped[Tensor, "*rows dim"]:
    """Undo ``joined_halves``."""
    if len(blocks) < 2:
        return x
    halves = [size // 2 for size in blocks]
    parts = torch.split(x, [*halves, *halves, x.shape[-1] - 2 * sum(halves)], -1)
    firsts, seconds = parts[: len(blocks)], parts[len(blocks) : -1]
    return torch.cat([each for pair in zip(firsts, seconds, strict=True) for each in pair] + [parts[-1]], -1)
