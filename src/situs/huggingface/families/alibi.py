"""BLOOM, MPT and Falcon: a bias that falls with the distance, which these models add as one row over keys.

Softmax does not see what all keys of a query share, so that slope x position of the key says as much as slope x
distance. The row is taken as the model makes it, rounding and all, but for MPT's; what is left out are the scores,
weights and masks of all pairs. Falcon may rotate instead, and then has no row.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from situs.encodings.bias import OffsetBias, Rule
from situs.huggingface.families import Expects, Family
from situs.huggingface.families.rotary import rotation_like
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.huggingface.seeing import Sight


class Bloom(Family):
    """Fused projections, a residual added behind the output's, positions counted over real tokens."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "residual", "alibi", "attention_mask", "layer_past")
    }

    @classmethod
    def cannot(cls, module: Any) -> str | None:
        """Leave layers that sum up their output rank by rank to their own code."""
        return "slow_but_exact sums its output up rank by rank" if module.slow_but_exact else None

    def forward(
        self: Any,
        hidden_states: Tensor,
        residual: Tensor,
        alibi: Tensor,
        attention_mask: Any,
        layer_past: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        refuse_weights(output_attentions)
        batch, queries, _ = hidden_states.shape
        query, key, value = self._reshape(self.query_key_value(hidden_states))
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        out = attended(
            query, key, value, attention_mask, bias=alibi.view(batch, self.num_heads, 1, -1), source=alibi,
            scale=self.inv_norm_factor, dropout=dropout_of(self, self.attention_dropout), rounded=True,
        ).reshape(batch, queries, -1)  # fmt: skip
        return residual + nn.functional.dropout(self.dense(out), self.hidden_dropout, self.training), None


class BloomGelu(Family):
    """BLOOM's GELU, which makes six tensors of the size of its input: at 4096 tokens a fifth of the model's time and
    most of its memory, once attention needs none. Torch has the same formula in one."""

    expects: ClassVar[Expects] = {"forward": ("self", "x")}
    runs: ClassVar[str] = "in one pass over memory"

    def forward(self, x: Tensor) -> Tensor:
        """Compute ``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2``."""
        return nn.functional.gelu(x, approximate="tanh")


class Mpt(Family):
    """Slots as positions. Its row falls to the front, where float32 keeps little of a query's own scores: offsets say
    it exactly, and serve longer texts than ``max_seq_len``."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "position_bias", "past_key_values", "attention_mask")
    }

    def forward(
        self: Any,
        hidden_states: Tensor,
        position_bias: Tensor | None,
        past_key_values: Any = None,
        attention_mask: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        batch, queries, _ = hidden_states.shape
        mixed = self.Wqkv(hidden_states)
        if self.clip_qkv:
            mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
        query, key, value = (
            each.view(batch, queries, self.n_heads, self.head_dim).transpose(1, 2) for each in mixed.chunk(3, dim=2)
        )
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        bias: Tensor | PlacedBias | None = None
        keys = key.shape[2]
        if position_bias is not None and queries == 1 and keys <= position_bias.shape[-1]:
            bias = position_bias[None, :, :, -keys:]  # that of the last query
        elif position_bias is not None:  # (heads, 1, max_seq_len), 0 at the last key
            bias = PlacedBias(slopes_of(position_bias, attention_mask), keys - queries)
        if isinstance(attention_mask, Tensor):
            attention_mask = ~attention_mask.bool()  # true where it hides
        out = attended(
            query, key, value, attention_mask, bias=bias, source=position_bias, scale=self.softmax_scale,
            dropout=dropout_of(self, self.attn_dropout_p), rounded=True,
        )  # fmt: skip
        return self.out_proj(out.reshape(batch, queries, -1)), None


class MptBlock(Family):
    """A block of MPT, which alone is told whether weights are asked for."""

    expects: ClassVar[Expects] = {
        "forward": ("self", "hidden_states", "position_bias", "attention_mask", "layer_past", "use_cache",
                    "output_attentions"),
    }  # fmt: skip

    def forward(self: Any, *args: Any, output_attentions: bool = False, **kwargs: Any) -> Any:
        """Run the block."""
        refuse_weights(output_attentions)
        return super().forward(*args, **kwargs)


class Slopes(OffsetBias):
    """Add slope x offset, which is 0 at the query's own key and falls with the distance."""

    whole = True

    def __init__(self, slopes: Float[Tensor, "heads"]) -> None:
        """
        slopes: one for each head.
        """
        super().__init__()
        self.slopes, self.num_heads = slopes, len(slopes)

    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Multiply."""
        slopes = self.slopes.to(device, dtype)
        return lambda offset, head: slopes[head] * offset.to(dtype)


def slopes_of(bias: Float[Tensor, "heads 1 keys"], mask: Any) -> Slopes:
    """The slopes of a bias that MPT makes, made once for all layers."""

    def make() -> Slopes:
        return Slopes(bias[:, 0, -1] - bias[:, 0, -2])

    return mask.shared("slopes", bias, make) if isinstance(mask, Sight) else make()


class Falcon(Family):
    """Fused projections of three layouts; the row is divided by sqrt(head_dim) like the scores."""

    expects: ClassVar[Expects] = {
        "forward": (
            "self", "hidden_states", "alibi", "attention_mask", "position_ids", "layer_past", "use_cache",
            "output_attentions", "position_embeddings",
        ),
        "_split_heads": ("self", "fused_qkv"),
    }  # fmt: skip
    rotates: ClassVar[bool] = True

    @classmethod
    def methods(cls, before: type[nn.Module]) -> dict[str, Any]:
        """Rotate as the file of the original does."""
        from transformers.models.falcon import modeling_falcon

        return {"rotated": staticmethod(rotation_like(modeling_falcon.apply_rotary_pos_emb))}

    def forward(
        self: Any,
        hidden_states: Tensor,
        alibi: Tensor | None,
        attention_mask: Any,
        position_ids: Tensor | None = None,
        layer_past: Any = None,
        use_cache: bool = False,
        output_attentions: bool = False,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Attend without forming weights."""
        refuse_weights(output_attentions)
        batch, queries, _ = hidden_states.shape
        query, key, value = (each.transpose(1, 2) for each in self._split_heads(self.query_key_value(hidden_states)))
        if alibi is None:
            assert position_embeddings is not None
            query, key = self.rotated(query, key, *position_embeddings)
        if layer_past is not None:
            key, value = layer_past.update(key, value, self.layer_idx)
        row = None if alibi is None else alibi.view(batch, self.num_heads, 1, -1) * self.inv_norm_factor
        dropout = 0.0 if alibi is None else dropout_of(self, self.attention_dropout)
        out = attended(
            query, key, value, attention_mask, bias=row, source=alibi, scale=self.inv_norm_factor, dropout=dropout
        )
        return self.dense(out.reshape(batch, queries, -1)), None
