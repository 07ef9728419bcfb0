"""Inkling: each token mixes a bank of profiles of distance into the bias of its own query.

Convolutions beside and behind attention keep what the last tokens got for the next call. transformers hides padding
from them, but not in a call of one token. So a token of padding that comes alone attends by the model's own code, which
gives it the mean of all values; kernels would give 0.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from situs.encodings.projected import ProjectedBias
from situs.huggingface.at_once import FEW_PAIRS
from situs.huggingface.families import Expects, Family
from situs.huggingface.families.borrowing import borrowing
from situs.huggingface.families.rotary import with_name
from situs.huggingface.interface import PlacedBias
from situs.huggingface.seeing import Sight
from situs.huggingface.short import is_short

MIXED = "relative"
"""The feature by which tokens mix profiles."""
ASKED, OWN = "ALL_ATTENTION_FUNCTIONS", "situs_own_attention"
"""What a layer asks for attention by the name in its configuration, and what gives it its file's own."""


class MixedBias(PlacedBias):
    """The bias of profiles that tokens mix. Layers multiply it by a temperature, which multiplies what mixes."""

    @property
    def dtype(self) -> torch.dtype:
        """That of what tokens mix by."""
        return self.mixing.dtype

    @property
    def mixing(self) -> Tensor:
        """The numbers by which tokens mix, (batch, heads, query, rank)."""
        assert self.features is not None
        return self.features[MIXED]

    def float(self) -> MixedBias:
        """Mix by float32."""
        return self.to(torch.float32)

    def to(self, dtype: torch.dtype) -> MixedBias:
        """Mix by another dtype."""
        return self._replace(features={MIXED: self.mixing.to(dtype)})

    def __mul__(self, factors: Tensor) -> MixedBias:  # type: ignore[override]
        """Multiply by a factor for each query."""
        return self._replace(features={MIXED: self.mixing * factors})


class Inkling(Family):
    """The profiles of a layer, which its attention asks for a bias of all pairs and hands to the interface."""

    expects: ClassVar[Expects] = {"forward": ("self", "relative_states", "query_positions", "key_positions")}

    def forward(
        self: Any, relative_states: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> MixedBias | Tensor:
        """Give the encoding of the profiles, and what tokens mix them by, (batch, query, heads, rank); for one query,
        and for short texts without gradients, the bias itself, (batch, heads, query, key)."""
        pairs, single = len(query_positions) * len(key_positions), len(query_positions) == 1
        if single or (not torch.is_grad_enabled() and is_short(len(relative_states) * pairs, FEW_PAIRS)):
            bias: Tensor = super().forward(relative_states, query_positions, key_positions)
            return bias
        rank, distances = self.proj.shape
        sizes = {"num_heads": relative_states.shape[2], "distances": distances, "rank": rank}
        encoding = borrowing(self, lambda: ProjectedBias(**sizes), {"profiles": self.proj})
        first = query_positions[0] - key_positions[0]
        return MixedBias(encoding, first, {MIXED: relative_states.transpose(1, 2)})


class OwnAttention:
    """Give a layer the attention of its file, whatever its configuration names."""

    def get_interface(self, name: str, own: Any) -> Any:
        """The file's own."""
        return own


class InklingLayer(Family):
    """The attention of a layer."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "attention_mask", "conv_mask", "past_key_values")
    }

    @classmethod
    def methods(cls, before: Any) -> dict[str, Any]:
        """Keep the layer's own code beside that which asks for Situs."""
        return {"forward_by_own": with_name(before.forward, ASKED, OWN, OwnAttention())}

    def forward(self: Any, hidden_states: Tensor, attention_mask: Any, *args: Any, **kwargs: Any) -> Any:
        """Run the layer, by its own code for one token that may be padding."""
        if hidden_states.shape[1] == 1 and _may_be_padding(attention_mask):
            return self.forward_by_own(hidden_states, _added(attention_mask, hidden_states), *args, **kwargs)
        return super().forward(hidden_states, attention_mask, *args, **kwargs)


def _may_be_padding(mask: Sight | Tensor | None) -> bool:
    """Whether the one token of any text may be padding; not known of masks of pairs."""
    if not isinstance(mask, Sight):
        return mask is not None
    real, token = mask.real, mask.first_query - mask.first_key
    return real is not None and mask.shared("padding", None, lambda: not bool(real[:, token].all()))


def _added(mask: Sight | Tensor, states: Tensor) -> Tensor:
    """A mask to add to scores, as the layer's own code takes it, which forms weights in float32."""
    zero = states.new_zeros(1, 1, 1, 1, dtype=torch.float32 if states.dtype == torch.float64 else states.dtype)
    if isinstance(mask, Sight):
        return mask.added_to(zero.expand(-1, -1, -1, mask.keys))
    return torch.where(mask, zero, torch.finfo(zero.dtype).min) if mask.dtype == torch.bool else mask
