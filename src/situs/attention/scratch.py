"""Scratch memory for the scores of a block, used again for the next, since fresh pages cost more than arithmetic."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Scratch:
    """Named pieces of memory, as large as was ever asked of each."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self.kept: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor of that shape, whatever is in it, and whatever was taken under that name before is lost."""
        size = math.prod(shape)
        if name not in self.kept or len(self.kept[name]) < size:
            self.kept[name] = torch.empty(size, dtype=self.dtype, device=self.device)
        return self.kept[name][:size].view(shape)
