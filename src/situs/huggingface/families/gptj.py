"""GPT-J and CodeGen: rotated by their own code; the products and the softmax have a method of their own."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from situs.huggingface.families import Expects, Family
from situs.huggingface.interface import attended, dropout_of, refuse_weights

LAYER = "self", "hidden_states", "layer_past", "attention_mask", "position_ids", "use_cache", "output_attentions"


class CodeGen(Family):
    """A layer of CodeGen."""

    expects: ClassVar[Expects] = {"forward": LAYER, "_attn": ("self", "query", "key", "value", "attention_mask")}

    def forward(
        self: Any,
        hidden_states: Tensor,
        layer_past: Any = None,
        attention_mask: Any = None,
        position_ids: Tensor | None = None,
        use_cache: bool | None = False,
        output_attentions: bool | None = False,
        **kwargs: Any,
    ) -> Any:
        """Run the layer, which forms no weights."""
        refuse_weights(output_attentions)
        return super().forward(hidden_states, layer_past, attention_mask, position_ids, use_cache, **kwargs)

    def _attn(self: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        out = attended(
            query.to(value.dtype), key.to(value.dtype), value, attention_mask, causal=True, scale=1 / self.scale_attn,
            dropout=dropout_of(self, self.attn_dropout),
        )  # fmt: skip
        return out.transpose(1, 2), None


class GPTJ(CodeGen):
    """A layer of GPT-J."""

    expects: ClassVar[Expects] = {**CodeGen.expects, "_get_embed_positions": ("self", "position_ids")}

    def _get_embed_positions(self: Any, position_ids: Tensor) -> Tensor:
        """Sines and cosines of all positions, seen by every text instead of copied for it."""
        found: Tensor = super()._get_embed_positions(position_ids[:1])  # type: ignore[misc]
        return found.expand(len(position_ids), -1, -1)
