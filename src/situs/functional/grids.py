"""Grids: coordinates of image patches and video frames, and of text around them.

M-RoPE (Qwen2-VL, arXiv:2409.12191, section 2.1) gives every token three coordinates (time, height, width).
Text advances all three together; a picture or video starts at the next free position and counts each of
its axes from there; what follows starts one past the largest coordinate used so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Num
from torch import Tensor


@dataclass(frozen=True)
class Vision:
    """A picture (``time=1``) or video among text: its size in tokens, after any patch merging.

    ``time_step`` is the distance between frames in positions; Qwen2.5-VL derives it from the frame rate.
    """

    time: int
    height: int
    width: int
    time_step: float | int = 1

    def __post_init__(self) -> None:
        if min(self.time, self.height, self.width) < 1:
            raise ValueError(
                f"time, height and width must be 1 or more, since they count tokens; "
                f"got {self.time}, {self.height} and {self.width}."
            )
        if not 0 <= self.time_step < math.inf:
            raise ValueError(
                f"time_step must be 0 or more and finite, since frames follow one another; got {self.time_step}."
            )


def grid_coordinates(*sizes: int) -> Num[Tensor, "cells axes"]:
    """List every cell of a grid in row-major order, the last axis fastest: ``(2, 2)`` gives 00, 01, 10, 11."""
    return torch.cartesian_prod(*(torch.arange(size, device="cpu") for size in sizes)).view(-1, len(sizes))


def multimodal_coordinates(segments: Sequence[int | Vision]) -> tuple[Num[Tensor, "tokens 3"], int]:
    """Give text (as token counts) and vision segments their coordinates, in their order.

    Also returns the *delta*: a later token in slot n has position ``n + delta`` on every axis, so decoding
    needs no look at the grid again.
    """
    parts: list[Tensor] = []
    free = 0
    for segment in segments:
        if isinstance(segment, Vision):
            cells = grid_coordinates(segment.time, segment.height, segment.width)
            if segment.time_step != 1:  # frames fall on whole positions, as released models were trained
                cells[:, 0] = (cells[:, 0] * segment.time_step).long()
            last = int(cells.max())
        else:
            if not isinstance(segment, (int, torch.SymInt)):
                raise TypeError(f"a segment must be a number of text tokens, or a Vision; got {segment!r}.")
            if segment < 0:
                raise ValueError(f"a text segment must have 0 or more tokens; got {segment}.")
            cells = torch.arange(segment, device="cpu").unsqueeze(-1).expand(-1, 3)
            last = segment - 1
        parts.append(cells + free)
        free += last + 1
    coordinates = torch.cat(parts) if parts else torch.zeros(0, 3, dtype=torch.int64, device="cpu")
    return coordinates, free - len(coordinates)
