"""SAM, ViTDet and kin: queries meet a vector of the offset down an image, and another of the offset across.

Their layers add both up for all pairs of cells, 4096 x 4096 numbers for each head of SAM's global layers. Here a layer
computes what each query has for every row and for every column of the image, as its own code does, and tiles add these
up. Windows of a few cells keep that code, which is faster for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from situs.encodings.base import Feature, computing_dtype, without_autocast
from situs.encodings.score import ScoreEncoding, require_terms
from situs.huggingface.families import Expects, Family
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.positions import PositionsLike

DENSE_UP_TO = 640
"""Cells of a window or an image up to which the layers' own code is the faster way, as measured on the processor."""


class RowsAndColumns(ScoreEncoding):
    """Add what a query has for the row and for the column of a key; keys are the cells of an image, row by row."""

    whole = True
    by_features_alone = True
    heads_apart = True

    def __init__(self, height: int, width: int) -> None:
        """
        height: rows of the image.
        width: its columns.
        """
        super().__init__()
        self.height, self.width = height, width
        self.features = {"rows": Feature(width=height), "columns": Feature(width=width)}

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
        features: Mapping[str, Tensor] | None = None,
    ) -> Float[Tensor, "batch heads query key"]:
        _, of_keys = require_terms(self, query, key, query_positions, key_positions, scale, visible)
        assert features is not None
        by_row, by_column = (features[name].to(computing_dtype(query.dtype)) for name in ("rows", "columns"))
        # (batch, heads, query, height, 1) + (batch, heads, query, 1, width) -> (batch, heads, query, cells)
        term = (by_row.unsqueeze(-1) + by_column.unsqueeze(-2)).flatten(-2)
        return term if of_keys.length == term.shape[-1] else term.index_select(-1, of_keys.ids[0])


class Cells(Family):
    """A layer whose states are the cells of an image or a window, (batch, height, width, channels)."""

    @classmethod
    def sample(cls, module: Any) -> Tensor:
        """States of an image that is not square, and larger than what keeps the layer's own code."""
        side, weight = math.isqrt(DENSE_UP_TO), module.qkv.weight
        return torch.randn(1, side + 1, side + 2, weight.shape[1], device=weight.device).to(weight.dtype)

    def is_served(self: Any, states: Tensor) -> bool:
        """Whether the layer's own code would take longer, and nothing is asked for that tiles cannot do."""
        return not (
            states.shape[1] * states.shape[2] <= DENSE_UP_TO
            or dropout_of(self, getattr(self, "dropout", 0.0))
            or torch.compiler.is_compiling()
        )

    def attended_cells(self: Any, states: Tensor, num_heads: int) -> Tensor:
        """Attend without numbers of all pairs."""
        batch, height, width, _ = states.shape
        mixed = self.qkv(states).view(batch, height * width, 3, num_heads, -1)
        query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)  # (batch, heads, cells, head_dim) each
        bias = None
        if hasattr(self, "rel_pos_h"):
            cells = query.unflatten(2, (height, width))
            rows = torch.einsum("bnhwc,hkc->bnhwk", cells, self.vectors(height, self.rel_pos_h)).flatten(2, 3)
            columns = torch.einsum("bnhwc,wkc->bnhwk", cells, self.vectors(width, self.rel_pos_w)).flatten(2, 3)
            bias = PlacedBias(RowsAndColumns(height, width), 0, {"rows": rows, "columns": columns})
        out = attended(query, key, value, None, bias=bias, scale=self.scale)
        found: Tensor = self.proj(out.reshape(batch, height, width, -1))
        return found

    def vectors(self: Any, size: int, table: Tensor) -> Tensor:
        """The vector of each pair of rows or of columns, (size, size, head_dim), of a table that is resized if need
        be."""
        found: Tensor = self.get_rel_pos(size, size, table)
        return found


class Sam(Cells):
    """A layer of SAM, or of what took over its image encoder; SegGPT's is the same."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "output_attentions"),
        "get_rel_pos": ("self", "q_size", "k_size", "rel_pos"),
    }

    def forward(self: Any, hidden_states: Tensor, output_attentions: bool | None = None) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        refuse_weights(output_attentions)
        if not self.is_served(hidden_states):
            return super().forward(hidden_states)[0], None
        return self.attended_cells(hidden_states, self.num_attention_heads), None


class VitDet(Cells):
    """A layer of ViTDet."""

    expects: ClassVar[Expects] = {"forward": ("self", "hidden_state", "output_attentions")}

    def forward(self: Any, hidden_state: Tensor, output_attentions: bool = False) -> tuple[Tensor]:
        """Attend without forming weights."""
        refuse_weights(output_attentions)
        if not self.is_served(hidden_state):
            return super().forward(hidden_state)  # type: ignore[no-any-return]
        return (self.attended_cells(hidden_state, self.num_heads),)

    def vectors(self: Any, size: int, table: Tensor) -> Tensor:
        """The vector of each pair of rows or of columns, (size, size, head_dim)."""
        from transformers.models.vitdet.modeling_vitdet import get_rel_pos

        found: Tensor = get_rel_pos(size, size, table)
        return found
