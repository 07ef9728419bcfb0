"""LongT5's encoder: tokens see the keys near them, and with transient-global attention a summary of each block too."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers.models.longt5 import modeling_longt5 as blocks

from situs.huggingface.families import Expects, Family
from situs.huggingface.families.t5 import buckets_of
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.huggingface.seeing import Rules, Sight

LAYER = "self", "hidden_states", "mask", "position_bias", "output_attentions"
HIDDEN = -1e10
"""What LongT5 adds to scores of keys that are not seen."""


class LongT5Local(Family):
    """A layer of LongT5's encoder that sees ``local_radius`` keys on either side."""

    expects: ClassVar[Expects] = {"forward": LAYER}

    def forward(
        self: Any,
        hidden_states: Tensor,
        mask: Tensor | None = None,
        position_bias: PlacedBias | None = None,
        output_attentions: bool = False,
    ) -> Any:
        """Attend in a window; the mask has blocks of queries with the keys of three blocks, and hides by distance."""
        refuse_weights(output_attentions)
        if mask is None:
            raise ValueError(
                "mask must be given while a model is accelerated, since LongT5 hides far keys by it; got None. Call "
                "situs.huggingface.restore(model) first."
            )
        batch, tokens, _ = hidden_states.shape
        if position_bias is None:
            tabled = self.has_relative_attention_bias
            position_bias = PlacedBias(buckets_of(self, bidirectional=not self.is_decoder) if tabled else None)
        query, key, value = (
            each(hidden_states).view(batch, tokens, self.n_heads, -1).transpose(1, 2)
            for each in (self.q, self.k, self.v)
        )
        # a token sees itself where it is real: (batch, 1, block, query, 3 blocks of keys) -> (batch, token)
        real = mask[:, 0].diagonal(self.block_len, dim1=-2, dim2=-1).flatten(1)[:, :tokens].bool()
        near = Sight(Rules(window=self.block_len), tokens, tokens, 0, 0, None if bool(real.all()) else real)
        out = attended(query, key, value, near, bias=position_bias, scale=1.0, dropout=dropout_of(self, self.dropout))
        if near.real is not None:
            out = torch.where(real[..., None, None], out, self.means(value)[:, :tokens])
        return self.o(out.reshape(batch, tokens, -1)), position_bias

    def means(self: Any, value: Tensor) -> Tensor:
        """What padding gets, whose keys are all hidden alike: the mean of the values of three blocks, (batch, tokens,
        heads, head_dim). A decoder reads it where ``generate`` reads a text in chunks and cuts the encoder's mask."""
        means = blocks._split_into_blocks(value.transpose(1, 2), self.block_len, dim=1).mean(2, keepdim=True)
        near = blocks._concatenate_3_blocks(means, block_dim=1, sequence_dim=2).mean(2)
        found: Tensor = near.repeat_interleave(self.block_len, 1)
        return found


class LongT5Global(Family):
    """A layer of LongT5's encoder that sees summaries of blocks beside what is near.

    It has its queries in blocks already, each with the keys of three blocks and all summaries, and one bias for both.
    That stays; scores and weights are not formed.
    """

    expects: ClassVar[Expects] = {
        "forward": LAYER,
        "compute_bias": ("self", "block_length"),
        "compute_side_bias": ("self", "mask", "global_segment_ids"),
    }

    def forward(
        self: Any,
        hidden_states: Tensor,
        mask: Tensor | None = None,
        position_bias: Tensor | None = None,
        output_attentions: bool = False,
    ) -> Any:
        """Attend block by block without forming weights; the mask tells which tokens are real."""
        refuse_weights(output_attentions)
        if mask is None:
            return super().forward(hidden_states, mask, position_bias)
        batch, tokens, _ = hidden_states.shape
        block_of_token, segments = blocks._make_global_fixed_block_ids(mask, self.global_block_size)
        summed = blocks._create_global_aggregates(hidden_states, block_of_token, segments.shape[-1])
        summaries = self.global_input_layer_norm(summed)
        if position_bias is None:
            position_bias = self.bias_of_blocks(mask, segments).type_as(hidden_states)
        query = self.heads(blocks._split_into_blocks(self.q(hidden_states), self.block_len, dim=1))
        key, value = (self.heads(self.near_and_summed(each, hidden_states, summaries)) for each in (self.k, self.v))
        out = attended(
            query, key, value, None, bias=position_bias.flatten(0, 1), scale=1.0,
            dropout=dropout_of(self, self.dropout),
        )  # fmt: skip
        # (batch x blocks, block, heads, head_dim) -> (batch, tokens, channels)
        return self.o(out.reshape(batch, -1, self.inner_dim)[:, :tokens]), position_bias

    def near_and_summed(self: Any, projection: Any, hidden_states: Tensor, summaries: Tensor) -> Tensor:
        """Keys or values of three blocks and of all summaries, (batch, blocks, keys, channels)."""
        own = blocks._split_into_blocks(projection(hidden_states), self.block_len, dim=1)
        near = blocks._concatenate_3_blocks(own, block_dim=1, sequence_dim=2)
        return torch.cat((near, projection(summaries).unsqueeze(1).expand(-1, near.shape[1], -1, -1)), 2)

    def bias_of_blocks(self: Any, mask: Tensor, segments: Tensor) -> Tensor:
        """The bias of near keys and of summaries, which hides as well, (batch, blocks, heads, block, keys)."""
        seen = blocks._get_local_attention_mask(mask, self.block_len, mask.device).transpose(1, 2)
        near = torch.where(seen, 0.0, HIDDEN)  # (batch, blocks, 1, block, 3 block)
        if self.has_relative_attention_bias:
            near = near + self.compute_bias(self.block_len)
        side = blocks._split_into_blocks(self.compute_side_bias(mask, segments), self.block_len, dim=-2)
        return torch.cat((near.expand(-1, -1, self.n_heads, -1, -1), side.transpose(1, 2)), -1)

    def heads(self: Any, states: Tensor) -> Tensor:
        """Channels by head, (batch x blocks, heads, sequence, head_dim)."""
        return states.reshape(-1, states.shape[2], self.n_heads, self.key_value_proj_dim).transpose(1, 2)
