"""Learned positions of an image: a table with one row per patch, and rows for prefix tokens.

Paper    Dosovitskiy et al. (ViT), arXiv:2010.11929, section 3.1 and appendix D.4.
Acts on  the input.    Learned: yes, (prefix + height width) x dim.    Relative: no.

    x_n + table[prefix + row width + column]

At another resolution the patches' rows are resized as an image and the prefix rows (class and register tokens)
are kept. Sizes are given as (height, width), never guessed from a square root or a scale factor.
"""

from __future__ import annotations

from typing import Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.arguments import (
    require_choice,
    require_count,
    require_everywhere,
    require_flags,
    require_size,
    require_spread,
)
from situs.encodings.base import InputEncoding
from situs.encodings.fitting import require_axes, require_device_of, require_embeddings, require_rows
from situs.functional.tables import resize_grid
from situs.positions import Positions, PositionsLike
from situs.registry import register

_PATCHES = "a picture's patches are counted both ways"


@final
@register(
    name="learned_grid",
    paper="Dosovitskiy et al. 2020, An Image is Worth 16x16 Words, arXiv:2010.11929",
    formula="x_n + table[prefix + row * width + column]",
)
class LearnedGrid(InputEncoding):
    """Add a trained vector for each patch of an image."""

    tags = frozenset({"unique", "learned", "bounded"})
    usable_length: int
    takes_unplaced = True  # they have the rows of the prefix

    def __init__(self, *, dim: int, size: tuple[int, int], prefix: int = 0, init_std: float = 0.02) -> None:
        """
        dim: channels of an embedding.
        size: (height, width) in patches.
        prefix: tokens before the patches: 1 for a class token, more with registers.
        init_std: standard deviation of the start, 0.02 as in ViT.
        """
        super().__init__()
        self.dim = dim = require_count("dim", dim, "it sizes the table", least=1)
        self.size = require_size("size", size, _PATCHES)
        self.prefix = prefix = require_count("prefix", prefix, "it counts tokens before the patches", least=0)
        self.init_std = require_spread(init_std)
        self.usable_length = prefix + self.size[0] * self.size[1]
        self.table = nn.Parameter(torch.empty(self.usable_length, dim))
        self.resolved = {"usable_length": self.usable_length}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the table anew, as ViT does: a normal cut off at two standard deviations."""
        nn.init.trunc_normal_(self.table, std=self.init_std, a=-2 * self.init_std, b=2 * self.init_std)

    def forward(
        self, x: Float[Tensor, "batch sequence dim"], positions: PositionsLike = None
    ) -> Float[Tensor, "batch sequence dim"]:
        """Add each token's row to ``x``. Positions count tokens, prefix first, or are (row, column) of patches, where
        those that have none, as in ``Positions.grid(height, width, prefix=1)``, take the rows of the prefix."""
        require_embeddings(self, x, self.dim)
        require_device_of(self.table, x)
        positions = Positions.of(positions, x.shape[-2], batch=x.shape[0], device=x.device)
        if positions.axes == 2:
            positions = self._flattened(positions)
        require_axes(self, positions)
        require_rows(positions, self.usable_length, "Use resize() for another size.")
        return x + nn.functional.embedding(positions.ids, self.table).to(x.dtype)

    @torch.no_grad()
    def resize(
        self,
        size: tuple[int, int],
        *,
        mode: Literal["bicubic", "bilinear"] = "bicubic",
        antialias: bool = False,
        align_corners: bool = False,
    ) -> LearnedGrid:
        """Make a copy for images of another size; the same size is the identity, and prefix rows stay as they are.

        mode: how rows between patches are interpolated.
        antialias: smooth the picture before it shrinks.
        align_corners: leave the corner patches as they are and spread the others between them, as ViLT and Qwen3-VL
            do; otherwise patches are squares whose outer edges stay, as in ViT and DINOv2.
        """
        require_choice("mode", mode, ("bicubic", "bilinear"), "rows between patches are interpolated one of these ways")
        size = require_size("size", size, _PATCHES)
        require_flags("the picture is smoothed before it shrinks or not", antialias=antialias)
        require_flags("corner patches stay as they are or not", align_corners=align_corners)
        resized = LearnedGrid(**{**self.config, "size": size}).to(self.table)
        patches = resize_grid(
            self.table[self.prefix :],
            self.size,
            resized.size,
            mode=mode,
            antialias=antialias,
            align_corners=align_corners,
        )
        resized.table.copy_(torch.cat((self.table[: self.prefix], patches)))
        return resized.train(self.training)

    def _flattened(self, positions: Positions) -> Positions:
        rows, columns = positions.ids.unbind(-1)
        height, width = self.size
        within = ((positions.ids >= 0) & (positions.ids < positions.ids.new_tensor(self.size))).all(-1)
        require_everywhere(
            within,
            f"positions must lie in a grid of {height} x {width}, the table's size",
            lambda: "row {}, column {}".format(*positions.ids[~within][0].tolist()),
            "Use resize() for another size.",
        )
        flat = self.prefix + rows * self.size[1] + columns
        if positions.placed is None:
            return Positions.explicit(flat)
        before = (~positions.placed).cumsum(-1) - 1
        require_everywhere(
            positions.placed | (before < self.prefix),
            f"positions must have at most {self.prefix} tokens without a cell, since the prefix has as many rows",
            lambda: int(before.max()) + 1,
            "Make a table with a longer prefix.",
        )
        return Positions.explicit(torch.where(positions.placed, flat, before))
