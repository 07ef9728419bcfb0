"""Swin and kin whose layers form scores themselves: a number for each offset inside a window, of a table or a network.

The bias of a window's pairs is the same for all windows, and stays. What is left out are scores and weights of all
windows.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor
from torch.nn.functional import normalize

from situs.huggingface.families import Expects, Family
from situs.huggingface.interface import attended, dropout_of, refuse_weights


class Swin(Family):
    """A layer with a table."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "attention_mask", "output_attentions"),
    }

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool | None = False,
    ) -> tuple[Tensor]:
        """Attend without forming weights; the mask, (windows of an image, cells, cells), is added."""
        refuse_weights(output_attentions)
        windows, cells, _ = hidden_states.shape
        query, key, value = (
            each(hidden_states).view(windows, cells, self.num_attention_heads, -1).transpose(1, 2)
            for each in (self.query, self.key, self.value)
        )
        bias = self.bias().view(cells, cells, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if attention_mask is not None:
            bias = bias + self.times_masked * attention_mask.unsqueeze(1)
            images = windows // len(attention_mask)
            bias = bias.expand(images, *bias.shape).flatten(0, 1)
        query, key, scale = self.scaled(query, key)
        out = attended(query, key, value, None, bias=bias, scale=scale, dropout=dropout_of(self, self.dropout))
        return (out.reshape(windows, cells, -1),)

    times_masked = 1

    def bias(self: Any) -> Tensor:
        """The numbers of all pairs, (pairs, heads)."""
        found: Tensor = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        return found

    def scaled(self: Any, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """Queries and keys, and what multiplies their products."""
        return query, key, 1 / math.sqrt(self.attention_head_size)


class SwinV2(Swin):
    """A layer with a network, whose scores are cosines; it adds the mask twice."""

    times_masked = 2

    def bias(self: Any) -> Tensor:
        """The numbers of all pairs, (pairs, heads)."""
        by_offset = self.continuous_position_bias_mlp(self.relative_coords_table).view(-1, self.num_attention_heads)
        found: Tensor = (16 * by_offset.sigmoid())[self.relative_position_index.view(-1)]
        return found

    def scaled(self: Any, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
        """Queries and keys of length 1, the queries' times a factor of each head."""
        factor = self.logit_scale.clamp(max=math.log(100)).exp()
        return normalize(query, dim=-1) * factor, normalize(key, dim=-1), 1.0
