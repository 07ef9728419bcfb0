"""SpeechT5: queries of the encoder meet a vector of each offset, as in Shaw; all layers share them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import EncoderDecoderCache

from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import table_of
from situs.huggingface.families.rows import RowScore
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.huggingface.short import is_short

DENSE_UP_TO = 160
"""Frames of a sound up to which a bias of all pairs is the faster way, as measured on the processor."""


class SpeechT5Table(Family):
    """The table of vectors, which would make one of each pair for the layers."""

    expects: ClassVar[Expects] = {"forward": ("self", "hidden_states")}

    def forward(self: Any, hidden_states: Tensor) -> PlacedBias:
        """Give the term of the table; its rows run from the farthest key ahead to the farthest behind."""
        span, vectors = self.max_length, table_of(self.pe_k, 2 * self.max_length)
        distances = torch.arange(span, -span - 1, -1, device="cpu")  # query minus key
        rows = distances.clamp(max=span - 1) + span
        heads = hidden_states.shape[-1] // self.dim
        return PlacedBias(RowScore(rows, for_query=vectors.unsqueeze(0), num_heads=heads))


class SpeechT5(Family):
    """The attention of an encoder or a decoder, to itself or across."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "key_value_states", "past_key_values", "attention_mask", "position_bias",
                    "output_attentions"),
    }  # fmt: skip

    def forward(
        self: Any,
        hidden_states: Tensor,
        key_value_states: Tensor | None = None,
        past_key_values: Any = None,
        attention_mask: Any = None,
        position_bias: PlacedBias | None = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        refuse_weights(output_attentions)
        query = self.heads(self.q_proj(hidden_states))
        key, value = self.keys_and_values(hidden_states, key_value_states, past_key_values)
        bias: PlacedBias | Tensor | None = position_bias
        if position_bias is not None and is_short(key.shape[2], DENSE_UP_TO):
            assert position_bias.encoding is not None
            bias = position_bias.encoding(query, key, scale=self.scaling).to(query.dtype)
        out = attended(
            query, key, value, attention_mask, bias=bias, scale=self.scaling,
            dropout=dropout_of(self, self.dropout),
        )  # fmt: skip
        return self.out_proj(out.reshape(*out.shape[:2], -1)), None

    def keys_and_values(
        self: Any, hidden_states: Tensor, across: Tensor | None, past_key_values: Any
    ) -> tuple[Tensor, Tensor]:
        """Those of this text and of what is cached; those of the encoder are made once."""
        both = isinstance(past_key_values, EncoderDecoderCache)
        cache = past_key_values
        if both:
            cache = cache.self_attention_cache if across is None else cache.cross_attention_cache
            if across is not None and past_key_values.is_updated.get(self.layer_idx):
                return cache.layers[self.layer_idx].keys, cache.layers[self.layer_idx].values
        states = hidden_states if across is None else across
        key, value = self.heads(self.k_proj(states)), self.heads(self.v_proj(states))
        if cache is None:
            return key, value
        key, value = cache.update(key, value, self.layer_idx)
        if both and across is not None:
            past_key_values.is_updated[self.layer_idx] = True
        return key, value

    def heads(self: Any, states: Tensor) -> Tensor:
        """Channels by head, (batch, heads, sequence, head_dim)."""
        return states.view(*states.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
