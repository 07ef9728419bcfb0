"""Swin's relative bias: a learned number for each two-dimensional offset inside a window.

Paper    Liu et al., arXiv:2103.14030, section 3.2 (v1); arXiv:2111.09883, section 3.3 (v2). With [CLS]: Bao et al.
         (BEiT), arXiv:2106.08254. Distances without a sign: Graham et al. (LeViT), arXiv:2104.01136, section 4.2.
Acts on  scores.    Learned: yes, a table (v1) or a small MLP (v2).    Relative: yes, in two axes.

    v1    score[h, i, j] = q_i . k_j / sqrt(d) + table[i - j, h]
    v2    score[h, i, j] = cos(q_i, k_j) / tau_h + 16 sigmoid(MLP_h(log-spaced (i - j)))

Positions are cells of one window, ``Positions.grid(height, width)``. A v1 table is made for another window by
``resize``; v2's network takes any window. The cosine and its temperature belong to v2's attention, not to the bias.

Tokens that have no cell, such as [CLS] in ``Positions.grid(height, width, prefix=1)``, have three more rows in BEiT's
tables (``cls=True``), behind those of the offsets: from them to cells, from cells to them, and among themselves.
LeViT's tables have one row for all offsets of the same distances, up or down and left or right (``signed=False``).

Departures: v2's released code scales offsets by 8, divides by the window and takes sixteen times a sigmoid, of which
the paper writes only the logarithm; so does this. A window one cell high or wide works.
"""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from torch import Tensor, nn

from situs.arguments import require_choice, require_counts, require_flags, require_size, require_spread
from situs.encodings.bias import FROM_UNPLACED, OffsetBias, Rule
from situs.functional.tables import resize_grid
from situs.functional.windows import distance_rows, log_coordinates, window_rows
from situs.registry import register


@final
@register(
    name="swin",
    paper="Liu et al. 2021, Swin Transformer: Hierarchical Vision Transformer using Shifted Windows, "
    "arXiv:2103.14030; v2: arXiv:2111.09883",
    formula="q_i . k_j / sqrt(d) + table[i - j, h], i and j cells of a window",
    dialects={
        "Swin": 'version="v1", a table',
        "Swin v2": 'version="v2", an MLP of log-spaced offsets',
        "BEiT, Data2Vec vision": 'cls=True, window=(14, 14); their tables are resized by mode="bilinear"',
        "LeViT": "signed=False; its table is the transpose of ours",
    },
)
class SwinBias(OffsetBias):
    """Add a learned number for each offset inside a two-dimensional window.

    >>> import situs, torch
    >>> beit = situs.SwinBias(num_heads=2, window=(3, 4), cls=True)
    >>> query = key = value = torch.randn(1, 2, 13, 8)
    >>> situs.attend(query, key, value, encoding=beit, positions=situs.Positions.grid(3, 4, prefix=1)).shape
    torch.Size([1, 2, 13, 8])
    """

    axes = 2
    whole = True

    def __init__(
        self,
        *,
        num_heads: int,
        window: tuple[int, int] = (7, 7),
        version: Literal["v1", "v2"] = "v1",
        trained_window: tuple[int, int] | None = None,
        width: int = 512,
        cls: bool = False,
        signed: bool = True,
        init_std: float = 0.02,
    ) -> None:
        """
        num_heads: heads, each with its own numbers.
        window: height and width of a window, in cells.
        version: "v1", a table of all offsets, or "v2", a network of them.
        trained_window: for v2, the window it was trained at (pretrained_window_size); this one if left out.
        width: hidden units of v2's network.
        cls: have rows for pairs with tokens that have no cell, such as [CLS], as BEiT; for v1.
        signed: tell up from down and left from right; LeViT does not. For v1.
        init_std: standard deviation of the normal start.
        """
        super().__init__()
        num_heads, width = require_counts("it sizes the parameters", num_heads=num_heads, width=width)
        window = require_size("window", window, "a window has that many cells each way")
        if trained_window is not None:
            trained_window = require_size("trained_window", trained_window, "a window has that many cells each way")
        require_flags("tokens without a cell have rows or not", cls=cls)
        require_flags("up is told from down or not", signed=signed)
        init_std = require_spread(init_std)
        self.num_heads = num_heads
        self.window = window
        self.version = version
        self.trained_window = trained_window
        self.width = width
        self.cls = cls
        self.signed = signed
        self.init_std = init_std
        require_choice("version", version, ("v1", "v2"), "the bias is a table or a network")
        trained = window if trained_window is None else trained_window
        if version == "v2" and (cls or not signed):
            raise ValueError(
                f"version must be 'v1' for cls=True or signed=False, since they are rows of a table; got "
                f"version='v2', cls={cls}, signed={signed}."
            )
        self.takes_unplaced = cls
        rows = math.prod(self._grid(window)) + 3 * cls
        if version == "v1":
            self.table = nn.Parameter(torch.empty(rows, num_heads))
        else:
            self.hidden = nn.Linear(2, width)
            self.out = nn.Linear(width, num_heads, bias=False)
            self._coordinates = log_coordinates(window, trained)
        self.tags = frozenset({"relative", "learned"})
        self.extent = window
        self.resolved = {"rows": rows}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw table or network anew."""
        if self.version == "v1":
            nn.init.trunc_normal_(self.table, std=self.init_std)
            return
        nn.init.trunc_normal_(self.hidden.weight, std=self.init_std)
        nn.init.trunc_normal_(self.out.weight, std=self.init_std)
        self.hidden.bias.zero_()

    def by_row(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Form the bias of every offset of a window, (rows, heads), in the order of released tables."""
        if self.version == "v1":
            return self.table.to(dtype)
        shown = self._coordinates.to(device, dtype)
        hidden = nn.functional.linear(shown, self.hidden.weight.to(dtype), self.hidden.bias.to(dtype)).relu()
        return 16 * nn.functional.linear(hidden, self.out.weight.to(dtype)).sigmoid()

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Look up ``table[row(offset), head]``."""
        table, window, cls, signed = self.by_row(device, dtype), self.window, self.cls, self.signed

        def look_up(down: Tensor, right: Tensor, head: Tensor) -> Tensor:
            # padding may lie outside; what they get is never seen
            below, beside = down.clamp(1 - window[0], window[0] - 1), right.clamp(1 - window[1], window[1] - 1)
            rows = window_rows(below, beside, window) if signed else distance_rows(below, beside, window)
            if cls:
                rows = torch.where(down < FROM_UNPLACED, rows, down - FROM_UNPLACED + len(table) - 3)
            return table[rows, head]

        return look_up

    @torch.no_grad()
    def resize(self, window: tuple[int, int], *, mode: Literal["bicubic", "bilinear"] = "bicubic") -> SwinBias:
        """Make a copy for another window: a table is interpolated, a network evaluated at the new offsets.

        mode: how numbers between offsets are interpolated, "bicubic" as timm and Swin, "bilinear" as BEiT. Rows of
            tokens without a cell stay as they are.
        """
        require_choice("mode", mode, ("bicubic", "bilinear"), "a table is interpolated one of these ways")
        window = require_size("window", window, "a window has that many cells each way")
        trained = self.window if self.trained_window is None else self.trained_window
        options = {**self.config, "window": window, "trained_window": trained if self.version == "v2" else None}
        other = SwinBias(**options).to(next(self.parameters()))
        if self.version == "v2":
            other.load_state_dict(self.state_dict())
        else:
            old, new = self._grid(self.window), self._grid(window)
            cells = math.prod(old)
            other.table.copy_(torch.cat((resize_grid(self.table[:cells], old, new, mode=mode), self.table[cells:])))
        return other.train(self.training)

    def _grid(self, window: tuple[int, int]) -> tuple[int, int]:
        """How many offsets a window has each way."""
        return (2 * window[0] - 1, 2 * window[1] - 1) if self.signed else window
