"""Grids: coordinates of image patches and video frames, and of text around them.

M-RoPE (Qwen2-VL, arXiv:2409.12191, section 2.1) gives every token three coordinates (time, height, width).
Text advances all three together; a picture or video starts at the next free position and counts each of
its axes from there; what follows starts one past the largest coordinate used so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float64, Num
from torch import Tensor

from situs.arguments import refuse, require_choice, require_count, require_counts, require_number, told


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
        require_counts("it counts tokens", time=self.time, height=self.height, width=self.width)
        require_number("time_step", self.time_step, "frames follow one another", least=0)


def grid_coordinates(*sizes: int) -> Num[Tensor, "cells axes"]:
    """List every cell of a grid in row-major order, the last axis fastest: ``(2, 2)`` gives 00, 01, 10, 11."""
    sizes = tuple([require_count("sizes", size, "they count cells", least=0) for size in sizes])
    if not sizes:
        refuse(ValueError, "sizes", "be one or more", "a grid has an axis for each", "none")
    return torch.cartesian_prod(*(torch.arange(size, device="cpu") for size in sizes)).view(-1, len(sizes))


def normalised_coordinates(
    *sizes: int, by: Literal["each", "longest", "shortest"] = "each"
) -> Float64[Tensor, "cells axes"]:
    """List the centre of every cell of a grid, as ``2 (k + 1/2) / side - 1``, row-major (DINOv3, arXiv:2508.10104).

    ``by`` tells the side: each axis' own, so that all lie in -1 .. 1, or the longest or shortest for all axes.
    """
    sizes = tuple([require_count("sizes", size, "they count cells", least=1) for size in sizes])
    cells = grid_coordinates(*sizes)
    require_choice("by", by, ("each", "longest", "shortest"), "coordinates are divided by a side of the grid")
    sides = {"each": sizes, "longest": (max(sizes),) * len(sizes), "shortest": (min(sizes),) * len(sizes)}[by]
    return 2 * (cells + 0.5) / torch.tensor(sides, dtype=torch.float64, device="cpu") - 1


def multimodal_coordinates(segments: Sequence[int | Vision]) -> tuple[Num[Tensor, "tokens 3"], int]:
    """Give text (as token counts) and vision segments their coordinates, in their order.

    Also returns the *delta*: a later token in slot n has position ``n + delta`` on every axis, so decoding
    needs no look at the grid again.
    """
    reason = "text is told by its number of tokens, and pictures by their size"
    parts: list[Tensor] = []
    free = 0
    if isinstance(segments, (str, bytes, dict)) or not isinstance(segments, Sequence):
        refuse(TypeError, "segments", "be a sequence of whole numbers and situs.Vision", reason, told(segments))
    for segment in segments:
        if isinstance(segment, Vision):
            cells = grid_coordinates(segment.time, segment.height, segment.width)
            if segment.time_step != 1:  # frames fall on whole positions, as released models were trained
                cells[:, 0] = (cells[:, 0] * segment.time_step).long()
            last = int(cells.max())
        else:
            _require_segment(segment, reason)
            segment = require_count("segments", segment, reason, least=0)
            cells = torch.arange(segment, device="cpu").unsqueeze(-1).expand(-1, 3)
            last = segment - 1
        parts.append(cells + free)
        free += last + 1
    coordinates = torch.cat(parts) if parts else torch.zeros(0, 3, dtype=torch.int64, device="cpu")
    return coordinates, free - len(coordinates)


def _require_segment(segment: object, reason: str) -> None:
    """Raise unless this is a number of tokens, of any library, or a graph's."""
    if isinstance(segment, bool) or not (isinstance(segment, (int, torch.SymInt)) or hasattr(segment, "__index__")):
        refuse(TypeError, "segments", "be whole numbers and situs.Vision", reason, told(segment))
