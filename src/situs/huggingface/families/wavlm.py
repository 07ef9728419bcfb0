"""WavLM: T5's buckets, with a gate of each token and head."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from situs.encodings.gated import GatedBias
from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import borrowing, table_of
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.huggingface.seeing import Rules, Sight
from situs.huggingface.short import is_short
from situs.positions import Positions

DENSE_UP_TO = 160
"""Frames of a sound up to which a bias of all pairs is the faster way, as measured on the processor."""


class WavLM(Family):
    """A layer; the first has the table, and hands its bias to all."""

    expects: ClassVar[Expects] = {"forward": ("self", "hidden_states", "attention_mask", "position_bias", "index")}

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        position_bias: PlacedBias | Tensor | None = None,
        index: int = 0,
        **kwargs: Any,
    ) -> tuple[Tensor, None, PlacedBias | Tensor]:
        """Attend without forming weights; the mask tells which frames are real."""
        refuse_weights(kwargs.get("output_attentions"))
        batch, frames, _ = hidden_states.shape
        if position_bias is None:
            position_bias = self.bias_of(frames, hidden_states)
        query, key, value = (self.heads(each(hidden_states)) for each in (self.q_proj, self.k_proj, self.v_proj))
        gates = self.gates(hidden_states)
        if isinstance(position_bias, Tensor):
            bias: PlacedBias | Tensor = gates * position_bias
        else:
            bias = position_bias._replace(features={"bias_gate": gates})
        real = None if attention_mask is None else attention_mask.eq(1)
        if real is not None and bool(real.all()):
            real = None
        out = attended(
            query, key, value, Sight(Rules(), frames, frames, 0, 0, real), bias=bias, scale=self.scaling,
            dropout=dropout_of(self, self.dropout), every_query=True,
        )  # fmt: skip
        return self.out_proj(out.reshape(batch, frames, -1)), None, position_bias

    def bias_of(self: Any, frames: int, hidden_states: Tensor) -> PlacedBias | Tensor:
        """The bias that all layers share: an encoding, or of all pairs, (1, heads, frames, frames), where they are
        few."""
        sizes = {"num_buckets": self.num_buckets, "max_distance": self.max_distance}
        encoding = borrowing(
            self,
            lambda: GatedBias(num_heads=self.num_heads, options=sizes),
            {"bias_by_offset.table": table_of(self.rel_attn_embed, self.num_buckets)},
        )
        if not is_short(frames, DENSE_UP_TO):
            return PlacedBias(encoding)
        by_pair: Tensor = encoding.bias_by_offset(Positions.range(frames, device=hidden_states.device))
        return by_pair.to(hidden_states.dtype)

    def gates(self: Any, hidden_states: Tensor) -> Tensor:
        """What multiplies the bias of each token and head, (batch, heads, frames, 1)."""
        # (batch, heads, frames, 8) -> sums of four, (batch, heads, frames, 2)
        sums = self.gru_rel_pos_linear(self.heads(hidden_states)).unflatten(-1, (2, 4)).sum(-1)
        update, reset = torch.sigmoid(sums).chunk(2, -1)
        found: Tensor = update * (reset * self.gru_rel_pos_const - 1) + 2
        return found

    def heads(self: Any, states: Tensor) -> Tensor:
        """Channels by head, (batch, heads, frames, head_dim)."""
        return states.view(*states.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
