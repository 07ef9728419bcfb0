"""CoPE: contextual position encoding, which counts keys by how well they match the query.

Paper    Golovneva et al., arXiv:2405.18719, section 4.
Acts on  scores.    Learned: yes, max_position x head_dim.    Relative: yes, by order alone.

    g_ij = sigmoid(q_i . k_j / sqrt(d)),    p_ij = sum of g_il over the keys l from j to i
    score[i, j] = (q_i . k_j + q_i . e[p_ij]) / sqrt(d)

e is read between its rows, and its last row stands for all counts beyond. Positions enter by order alone: their numbers
do not matter.

Departures: the sum runs over the keys that the query may see, from j on, which is the paper's under a causal mask and
makes sense under any. The paper's listing adds q . e unscaled, the authors' repository scales it (``scaled``).
"""

from __future__ import annotations

from typing import final

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from situs.arguments import require_counts, require_flags, require_spread
from situs.encodings.base import computing_dtype, without_autocast
from situs.encodings.score import ScoreEncoding, require_terms
from situs.functional.contextual import between_rows, gate_counts
from situs.functional.heads import share_heads
from situs.positions import PositionsLike
from situs.registry import register

CHUNK = 128  # keys that are counted at once


@final
@register(
    name="cope",
    paper="Golovneva et al. 2024, Contextual Position Encoding: Learning to Count What's Important, arXiv:2405.18719",
    formula="(q_i . k_j + q_i . e[p_ij]) / sqrt(d), p_ij = sum of sigmoid(q_i . k_l / sqrt(d)) over l from j to i",
    dialects={"authors' repository": "the defaults", "paper's listing": "scaled=False"},
)
class CoPE(ScoreEncoding):
    """Count the keys that a query attends to, and add the product of the query with a learned vector of that count."""

    tags = frozenset({"relative", "bounded", "far", "learned"})
    by_order = True

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_position: int = 64,
        per_head: bool = False,
        scaled: bool = True,
        init_std: float = 0.0,
    ) -> None:
        """
        num_heads: heads of the queries.
        head_dim: channels of a head.
        max_position: rows of the table; counts beyond the last take the last.
        per_head: have a table for each head, instead of one for all.
        scaled: scale q . e as q . k is scaled; the paper's listing does not.
        init_std: standard deviation of the normal start; the authors start at 0.
        """
        super().__init__()
        num_heads, head_dim, max_position = require_counts(
            "it sizes the table", num_heads=num_heads, head_dim=head_dim, max_position=max_position
        )
        require_flags("each head has a table of its own or all share one", per_head=per_head)
        require_flags("q . e is scaled as q . k is or not", scaled=scaled)
        init_std = require_spread(init_std)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.max_position = max_position
        self.per_head = per_head
        self.scaled = scaled
        self.init_std = init_std
        self.table = nn.Parameter(torch.empty(num_heads if per_head else 1, max_position, head_dim))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the table anew."""
        self.table.normal_(std=self.init_std) if self.init_std else self.table.zero_()

    @without_autocast
    def forward(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch kv_heads key head_dim"],
        query_positions: PositionsLike = None,
        key_positions: PositionsLike = None,
        *,
        scale: float | None = None,
        visible: Bool[Tensor, "#batch #heads #query key"] | None = None,
    ) -> Float[Tensor, "batch heads query key"]:
        """Form ``q . e[p]``, where p counts the visible keys."""
        _, of_keys = require_terms(self, query, key, query_positions, key_positions, scale, visible)
        scale = self.scale_for(query.shape[-1]) if scale is None else scale
        dtype = computing_dtype(query.dtype)
        q, k = query.to(dtype), share_heads(key.to(dtype), query.shape[1])
        gates = torch.sigmoid(scale * (q @ k.transpose(-2, -1)))
        if visible is not None:
            gates = gates * visible
        products = q @ self.table.to(dtype).transpose(-2, -1)
        term = between_rows(products, gate_counts(gates, None if of_keys.in_order else of_keys.slots))
        return scale * term if self.scaled else term

    @torch.no_grad()
    def far_keys(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch heads key head_dim"],
        *,
        scale: float,
        visible: Bool[Tensor, "#batch #heads #query key"] | None,
    ) -> int:
        """Keys before those that have to be counted: counts never fall from one key to the one before, and the table's
        last row stands for all beyond. Counted back from the last key, until every query has reached that row."""
        dtype, first = computing_dtype(query.dtype), key.shape[2]
        counts = torch.zeros(query.shape[:3], dtype=dtype, device=query.device)
        while first and float(counts.min()) < self.max_position - 1:
            first, end = max(0, first - CHUNK), first
            gates = torch.sigmoid(scale * (query @ key[:, :, first:end].transpose(-2, -1)).to(dtype))
            counts += (gates if visible is None else gates * visible[..., first:end]).sum(-1)
        return first

    def far_vector(self, *, scale: float, dtype: torch.dtype) -> Float[Tensor, "heads_or_1 head_dim"]:
        """The table's last row."""
        return self.table[:, -1].to(dtype) * (1.0 if self.scaled else 1 / scale)
