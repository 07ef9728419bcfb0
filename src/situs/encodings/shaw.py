"""Shaw's relative positions: a learned vector for each offset, added to keys, and another added to values.

Paper    Shaw, Uszkoreit & Vaswani, arXiv:1803.02155, section 3.
Acts on  scores and values.    Learned: yes, (2 K + 1) x head_dim, twice.    Relative: yes.

    score[i, j] = q_i . (k_j + a[clip(j - i, -K, K)]) / sqrt(d)
    out[i]      = sum_j softmax(score)[i, j] (v_j + r[clip(j - i, -K, K)])

The vectors are added after the projections of keys and values: some explanations write W (x_j + a), which is another
model.
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from situs.arguments import require_counts, require_flags
from situs.encodings.score import OffsetScore, OffsetVectors, ValueEncoding
from situs.registry import register


@final
@register(
    name="shaw",
    paper="Shaw et al. 2018, Self-Attention with Relative Position Representations, arXiv:1803.02155",
    formula="q_i . (k_j + a[clip(j - i)]) / sqrt(d), and values v_j + r[clip(j - i)]",
    dialects={"tensor2tensor": "the defaults: tables shared by heads", "most later models": "values=False"},
)
class Shaw(OffsetScore, ValueEncoding):
    """Add to each key a learned vector of its offset from the query, and to each value another."""

    place = "score and value"
    tags = frozenset({"relative", "bounded", "far", "learned"})
    whole = True
    span: int

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_distance: int = 16,
        keys: bool = True,
        values: bool = True,
        per_head: bool = False,
    ) -> None:
        """
        num_heads: heads of the queries.
        head_dim: channels of a head.
        max_distance: the paper's K; offsets beyond it count as K.
        keys: add vectors to the keys, and so to the scores.
        values: add vectors to the values.
        per_head: give each head vectors of its own, instead of one table for all heads.
        """
        super().__init__()
        num_heads, head_dim, max_distance = require_counts(
            "it sizes the tables", num_heads=num_heads, head_dim=head_dim, max_distance=max_distance
        )
        require_flags("the method acts on keys, on values or on both", keys=keys, values=values)
        require_flags("each head has tables of its own or all share them", per_head=per_head)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.max_distance = max_distance
        self.keys = keys
        self.values = values
        self.per_head = per_head
        self.span = max_distance
        if not (keys or values):
            raise ValueError("keys or values must be True, since the method acts on one of them; got neither.")
        shape = num_heads if per_head else 1, 2 * max_distance + 1, head_dim
        self.key_table = nn.Parameter(torch.empty(shape)) if keys else None
        self.value_table = nn.Parameter(torch.empty(shape)) if values else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the tables anew, each head's by Glorot's rule."""
        for table in (self.key_table, self.value_table):
            for rows in () if table is None else table:
                nn.init.xavier_uniform_(rows)

    @property
    def acts_on_scores(self) -> bool:
        """Whether queries meet vectors."""
        return self.keys

    @property
    def acts_on_values(self) -> bool:
        """Whether values have vectors."""
        return self.values

    def vectors(self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Look up each offset's vector for queries."""
        return OffsetVectors() if self.key_table is None else OffsetVectors(self._rows(self.key_table, offsets, dtype))

    def value_vectors(
        self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype
    ) -> Float[Tensor, "heads_or_1 offsets value_dim"]:
        """Look up each offset's vector for values."""
        if self.value_table is None:
            raise ValueError("values must be True for vectors that join the values; got values=False.")
        return self._rows(self.value_table, offsets, dtype)

    def _rows(self, table: Tensor, offsets: Tensor, dtype: torch.dtype) -> Tensor:
        return table.to(dtype)[:, offsets.clamp(-self.span, self.span) + self.span]
