"""XLNet: Transformer-XL's products with sinusoids of the distance, and numbers for pairs of segments."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from situs.huggingface.families import Expects, Family
from situs.huggingface.families.rows import transformer_xl
from situs.huggingface.interface import PlacedBias, attended, dropout_of, refuse_weights
from situs.huggingface.short import is_short

FEW = 224
"""Tokens up to which the layer's own code, which forms all weights, is the faster way, as measured on the processor."""


class XLNet(Family):
    """The products and the softmax of a layer; masks and segments come as tensors of all pairs, where there are any."""

    expects: ClassVar[Expects] = {
        "rel_attn_core": (
            "self", "q_head", "k_head_h", "v_head_h", "k_head_r", "seg_mat", "attn_mask", "output_attentions",
        ),
    }  # fmt: skip

    def rel_attn_core(
        self: Any,
        q_head: Tensor,
        k_head_h: Tensor,
        v_head_h: Tensor,
        k_head_r: Tensor,
        seg_mat: Tensor | None = None,
        attn_mask: Tensor | None = None,
        output_attentions: bool = False,
    ) -> Tensor:
        """Attend without forming weights; tensors are (sequence, batch, heads, head_dim)."""
        refuse_weights(output_attentions)
        if is_short(len(k_head_h), FEW):
            return super().rel_attn_core(q_head, k_head_h, v_head_h, k_head_r, seg_mat, attn_mask)  # type: ignore[misc, no-any-return]
        query, key, value = (each.permute(1, 2, 0, 3) for each in (q_head, k_head_h, v_head_h))
        mask = None if attn_mask is None else torch.einsum("ijbn->bnij", attn_mask) == 0
        if mask is not None and not bool(mask.any(-1).all()):  # a query that sees nothing takes the mean of all values
            return super().rel_attn_core(q_head, k_head_h, v_head_h, k_head_r, seg_mat, attn_mask)  # type: ignore[misc, no-any-return]
        if seg_mat is not None:
            of_segments = torch.einsum("ibnd,snd->ibns", q_head + self.r_s_bias, self.seg_embed)
            added = torch.einsum("ijbs,ibns->bnij", seg_mat, of_segments) * self.scale
            mask = added if mask is None else added.masked_fill(~mask, -torch.inf)
        first = k_head_r[:, :1]
        # dropout, or a batch that is read backwards in half, gives each row vectors of its own
        rows = [slice(None)] if bool((k_head_r == first).all()) else [slice(i, i + 1) for i in range(len(query))]
        out = [
            attended(
                query[row], key[row], value[row], mask if mask is None or len(mask) == 1 else mask[row],
                bias=self._placed(k_head_r[:, row][:, 0].transpose(0, 1), key.shape[2], query.shape[2]),
                scale=self.scale, dropout=dropout_of(self, self.dropout),
            )
            for row in rows
        ]  # fmt: skip
        return torch.cat(out).transpose(0, 1)

    def _placed(self: Any, vectors: Tensor, keys: int, queries: int) -> PlacedBias:
        """Vectors of distances from ``keys`` down, (heads, distances, head_dim); queries are the last of the keys."""
        rows = torch.arange(2 * keys + 1, device=vectors.device).clamp(max=vectors.shape[1] - 1)
        return PlacedBias(transformer_xl(rows, vectors, self.r_w_bias, self.r_r_bias), keys - queries)
