"""LayoutLMv3: learned numbers for offsets in the text and on the page, divided by sqrt(head_dim) like the scores.

Boxes lie anywhere, so that the bias stays one of all pairs, which the encoder makes once for all layers. Here it is
divided there too, and no layer forms scores and weights.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor

from situs.huggingface.families import Expects, Family
from situs.huggingface.interface import attended, dropout_of, refuse_weights


class LayoutLMv3Encoder(Family):
    """The encoder, which makes the bias of all layers."""

    expects: ClassVar[Expects] = {"_cal_1d_pos_emb": ("self", "position_ids"), "_cal_2d_pos_emb": ("self", "bbox")}

    def _cal_1d_pos_emb(self: Any, position_ids: Tensor) -> Tensor:
        """The bias of the text, divided."""
        return self.divided(super()._cal_1d_pos_emb(position_ids))  # type: ignore[misc, no-any-return]

    def _cal_2d_pos_emb(self: Any, bbox: Tensor) -> Tensor:
        """The bias of the page, divided."""
        return self.divided(super()._cal_2d_pos_emb(bbox))  # type: ignore[misc, no-any-return]

    def divided(self: Any, bias: Tensor) -> Tensor:
        """A bias, divided in place by what scores are divided by."""
        return bias.div_(math.sqrt(self.config.hidden_size // self.config.num_attention_heads))


class LayoutLMv3(Family):
    """The attention of a layer."""

    expects: ClassVar[Expects] = {"forward": ("self", "hidden_states", "attention_mask", "rel_pos", "rel_2d_pos")}

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Any = None,
        rel_pos: Tensor | None = None,
        rel_2d_pos: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        refuse_weights(kwargs.get("output_attentions"))
        shape = *hidden_states.shape[:2], self.num_attention_heads, self.attention_head_size
        query, key, value = (
            each(hidden_states).view(shape).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        bias = rel_pos if self.has_relative_attention_bias else None
        if bias is not None and rel_2d_pos is not None and self.has_spatial_attention_bias:
            bias = bias + rel_2d_pos
        out = attended(
            query, key, value, attention_mask, bias=bias, scale=1 / math.sqrt(self.attention_head_size),
            dropout=dropout_of(self, self.dropout),
        )  # fmt: skip
        return out.reshape(*shape[:2], -1), None
