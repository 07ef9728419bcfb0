"""MPNet: T5's buckets in an encoder, with a table that all layers share and scores divided by sqrt(head_dim)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from torch import Tensor

from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import t5_bias, table_of
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights

BUCKETS, FARTHEST = 32, 128  # whatever a configuration says


class MPNetTable(Family):
    """The encoder, which makes the bias of all layers."""

    expects: ClassVar[Expects] = {"compute_position_bias": ("self", "x", "position_ids", "num_buckets")}

    def compute_position_bias(
        self: Any, x: Tensor, position_ids: Tensor | None = None, num_buckets: int = BUCKETS
    ) -> Tensor | PlacedBias:
        """Give the encoding of the table instead of a bias of all pairs."""
        if position_ids is not None:
            return super().compute_position_bias(x, position_ids, num_buckets)  # type: ignore[misc, no-any-return]
        sizes = {"num_heads": self.n_heads, "num_buckets": num_buckets, "max_distance": FARTHEST}
        return PlacedBias(t5_bias(self, table_of(self.relative_attention_bias, num_buckets), **sizes), 0)


class MPNetLayer(Family):
    """The attention of a layer."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "attention_mask", "position_bias", "output_attentions")
    }

    def forward(
        self: Any,
        hidden_states: Tensor,
        attention_mask: Any = None,
        position_bias: Any = None,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor]:
        """Attend without forming weights."""
        refuse_weights(output_attentions)
        shape = *hidden_states.shape[:2], self.num_attention_heads, self.attention_head_size
        query, key, value = (each(hidden_states).view(shape).transpose(1, 2) for each in (self.q, self.k, self.v))
        out = attended(
            query, key, value, attention_mask, bias=position_bias, scale=1 / math.sqrt(self.attention_head_size),
            dropout=dropout_of(self, self.dropout), rounded=True,
        )  # fmt: skip
        return (self.o(out.reshape(*shape[:2], -1)),)
