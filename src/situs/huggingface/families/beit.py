"""BEiT and Data2Vec's vision: a table of numbers for offsets of patches, of which each layer makes a bias of all pairs.

Torch's own attention takes that bias as it is. Here it is made of runs of the table, which are copied, instead of a
look-up for each pair.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from situs.functional.windows import bias_of_cells
from situs.huggingface.families import Expects, Family


class WindowTable(Family):
    """The table of a layer, or of all; its last rows are for pairs with [CLS]."""

    expects: ClassVar[Expects] = {"forward": ("self", "window_size", "interpolate_pos_encoding", "dim_size")}

    def forward(
        self: Any, window_size: tuple[int, int], interpolate_pos_encoding: bool = False, dim_size: int | None = None
    ) -> Tensor:
        """The bias of all pairs, (1, heads, 1 + cells, 1 + cells); [CLS] stands first."""
        if interpolate_pos_encoding:
            return super().forward(window_size, interpolate_pos_encoding, dim_size)  # type: ignore[no-any-return]
        table = self.relative_position_bias_table
        from_cls, to_cls, among = table[-3:].unsqueeze(-1).unbind(0)  # (heads, 1) each
        cells = bias_of_cells(self.by_offset(window_size))
        below = torch.cat((to_cls.unsqueeze(-1).expand(-1, cells.shape[1], -1), cells), -1)
        first = torch.cat((among, from_cls.expand(-1, cells.shape[1])), -1).unsqueeze(1)
        return torch.cat((first, below), 1).unsqueeze(0)

    def by_offset(self: Any, window_size: tuple[int, int]) -> Tensor:
        """The numbers of all offsets, query minus key, (heads, 2 height - 1, 2 width - 1), resized if need be."""
        height, width = (2 * size - 1 for size in self.window_size)
        sizes = [2 * int(size) - 1 for size in window_size]
        # the model lays its table out by columns, which is the same for square windows alone
        grid = self.relative_position_bias_table[:-3].view(1, width, height, -1).permute(0, 3, 1, 2)
        if [width, height] != sizes:
            grid = interpolate(grid, size=sizes, mode="bilinear")
        found: Tensor = grid[0]
        return found
