"""Two-axis relative positions: a learned vector for each offset down and another for each offset across an image.

Papers   Li et al. (MViTv2), arXiv:2112.01526, section 4.1; Li et al. (ViTDet), arXiv:2203.16527; Kirillov et al. (SAM),
         arXiv:2304.02643.
Acts on  scores.    Learned: yes, (2 height - 1 + 2 width - 1) x head_dim.    Relative: yes, in two axes.

    score[i, j] = q_i . k_j / sqrt(d) + q_i . R_h[y_i - y_j] + q_i . R_w[x_i - x_j]

Positions are cells of one window, ``Positions.grid(height, width)``. SAM has windows of 14 x 14 cells, each a row of
the batch, and a few layers whose window is the whole image. Packed images have a window each, wherever it begins. A
table is made for another window by ``resize``.

Departures: the paper divides all three products by sqrt(d), as ``scaled=True`` does. Released code, ours by default,
divides q . k alone.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from situs.arguments import require_counts, require_flags, require_size, require_spread
from situs.encodings.base import computing_dtype, without_autocast
from situs.encodings.extent import cells_of_windows, require_extent
from situs.encodings.score import ScoreEncoding, require_terms
from situs.functional.offsets import by_row
from situs.functional.tables import resize_rows
from situs.positions import PositionsLike
from situs.registry import register

_CELLS = "a window has that many cells each way"


@final
@register(
    name="vitdet",
    paper="Li et al. 2022, MViTv2: Improved Multiscale Vision Transformers for Classification and Detection, "
    "arXiv:2112.01526",
    formula="q_i . k_j / sqrt(d) + q_i . R_h[y_i - y_j] + q_i . R_w[x_i - x_j]",
    dialects={
        "SAM, ViTDet, MViTv2": "the defaults; tables rel_pos_h and rel_pos_w are down_table and across_table",
        "paper": "scaled=True",
    },
)
class ViTDet(ScoreEncoding):
    """Add products of queries with a learned vector for the offset down, and another for the offset across.

    >>> import situs, torch
    >>> sam = situs.ViTDet(num_heads=2, head_dim=8, window=(3, 4))
    >>> query = key = value = torch.randn(1, 2, 12, 8)
    >>> situs.attend(query, key, value, encoding=sam, positions=situs.Positions.grid(3, 4)).shape
    torch.Size([1, 2, 12, 8])
    """

    axes = 2
    whole = True
    tags = frozenset({"relative", "learned"})
    num_heads: int
    head_dim: int

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        window: tuple[int, int] = (14, 14),
        scaled: bool = False,
        init_std: float = 0.02,
    ) -> None:
        """
        num_heads: heads of the queries, which share the tables.
        head_dim: channels of a head.
        window: height and width of a window, in cells.
        scaled: multiply the products by the softmax scale, as the paper; released models do not.
        init_std: standard deviation of the normal start.
        """
        super().__init__()
        num_heads, head_dim = require_counts("it sizes the tables", num_heads=num_heads, head_dim=head_dim)
        require_flags("the products are multiplied by the softmax scale or not", scaled=scaled)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.window = self.extent = require_size("window", window, _CELLS)
        self.scaled = scaled
        self.init_std = require_spread(init_std)
        self.down_table = nn.Parameter(torch.empty(2 * self.window[0] - 1, head_dim))
        self.across_table = nn.Parameter(torch.empty(2 * self.window[1] - 1, head_dim))
        self.resolved = {"rows": (len(self.down_table), len(self.across_table))}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw both tables anew, as ViTDet does: a normal cut off at two standard deviations."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=self.init_std, a=-2 * self.init_std, b=2 * self.init_std)

    @without_autocast
    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        query_positions: PositionsLike = None,
        key_positions: PositionsLike = None,
        *,
        scale: float | None = None,
        visible: Bool[Tensor, "#batch #heads #query key"] | None = None,
    ) -> Float[Tensor, "batch heads query key"]:
        of_queries, of_keys = require_terms(self, query, key, query_positions, key_positions, scale, visible)
        require_extent(self, of_queries, of_keys)
        q = query.to(computing_dtype(query.dtype))
        if not of_queries.length or not of_keys.length:
            return q.new_zeros(*q.shape[:3], of_keys.length)
        down, across = (
            _met(q, table.to(q.dtype), *cells_of_windows(of_queries, of_keys, axis))
            for axis, table in enumerate((self.down_table, self.across_table))
        )
        if not self.scaled:
            return down + across
        return (self.scale_for(query.shape[-1]) if scale is None else scale) * (down + across)

    @torch.no_grad()
    def resize(self, window: tuple[int, int]) -> ViTDet:
        """Make a copy for another window; each table is interpolated linearly, as ViTDet and SAM do."""
        other = ViTDet(**{**self.config, "window": require_size("window", window, _CELLS)}).to(self.down_table)
        for own, longer in zip(self.parameters(), other.parameters(), strict=True):
            longer.copy_(resize_rows(own, len(longer)))
        return other.train(self.training)


def _met(
    q: Float[Tensor, "batch heads query head_dim"],
    table: Float[Tensor, "rows head_dim"],
    at_query: Int[Tensor, "#batch query"],
    at_key: Int[Tensor, "#batch key"],
) -> Float[Tensor, "batch heads query key"]:
    """Form ``q_i . table[row of i - j]`` for one axis of n cells: first for each cell of the window, then spread over
    the keys that lie in it, so that no index is made for each pair. Padding may lie outside, and takes any cell.

        products   (batch, heads, query, 2n - 1)    q_i . every row
        by cell    (batch, heads, query, n)         the row of each cell, as this query sees it
        term       (batch, heads, query, key)       the cell of each key
    """
    cells = (len(table) + 1) // 2
    cell = torch.arange(cells, device=q.device)
    rows = (at_query.unsqueeze(-1) - cell + cells - 1).clamp(0, 2 * cells - 2)  # (batch or 1, query, n)
    by_cell = by_row(q @ table.T, rows.unsqueeze(1))
    which = at_key.clamp(0, cells - 1)  # (batch or 1, key)
    # gathered by a view: torch's index_select writes column by column, ten times slower where rows are 4 KiB apart
    return by_row(by_cell, which[:, None, None].expand(-1, 1, q.shape[2], -1))
