"""T5 and its kin: a learned number for each bucket of offsets.

Their layers ask transformers' interface and hand a dense bias to it. Here ``compute_bias`` gives an encoding instead,
which reads the model's own table; nothing between the two does arithmetic on it. Cross-attention of the first block
would make a bias of zeros for all pairs, and is told that there is none.
"""

from __future__ import annotations

from typing import Any, ClassVar

from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import t5_bias, table_of
from situs.huggingface.interface import PlacedBias


class UMT5(Family):
    """A table in every layer."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "encoder_hidden_states", "past_key_values", "attention_mask"),
        "compute_bias": ("self", "query_length", "key_length", "device", "past_seen_tokens"),
    }

    def compute_bias(
        self: Any, query_length: int, key_length: int, device: Any = None, past_seen_tokens: Any = 0
    ) -> PlacedBias:
        """Give the encoding of the table instead of a bias of all pairs."""
        return PlacedBias(buckets_of(self, bidirectional=self.tells_ahead()), past_seen_tokens)

    def tells_ahead(self: Any) -> bool:
        """Whether keys ahead are told from keys behind."""
        return not self.is_decoder


def buckets_of(module: Any, *, bidirectional: bool) -> Any:
    """The encoding of a module's own table."""
    return t5_bias(
        module, table_of(module.relative_attention_bias, module.relative_attention_num_buckets),
        num_heads=module.n_heads, num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance, bidirectional=bidirectional,
    )  # fmt: skip


class T5(UMT5):
    """A table in the first layer, whose bias all layers share."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "mask", "key_value_states", "position_bias", "past_key_values"),
        "compute_bias": ("self", "query_length", "key_length", "device", "past_seen_tokens"),
    }

    def forward(
        self: Any,
        hidden_states: Any,
        mask: Any = None,
        key_value_states: Any = None,
        position_bias: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Attend without a bias of zeros in cross-attention."""
        if position_bias is None and not self.has_relative_attention_bias:
            position_bias = PlacedBias(None)
        return super().forward(hidden_states, mask, key_value_states, position_bias, past_key_values, **kwargs)


class Pix2Struct(T5):
    """A layer of Pix2Struct's text, which is a decoder always."""

    def tells_ahead(self) -> bool:
        """Count keys ahead as distance 0."""
        return False
