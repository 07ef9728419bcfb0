"""DeBERTa's disentangled attention: products of content and relative position, for queries and for keys.

Paper    He et al., arXiv:2006.03654, section 3.1; v2 and v3 as released.
Acts on  scores.    Learned: yes, a table of relative positions and two projections.    Relative: yes.

    score[i, j] = (q_i . k_j + q_i . K[d(i, j)] + k_j . Q[d(i, j)]) / sqrt(3 d)
                               c2p                p2c

K and Q are the table's rows, projected; d(i, j) = clip(i - j + span, 0, 2 span - 1), where v2 puts far distances into
growing buckets first. One more term than c2p and p2c, or one less, changes the 3.

Departures: the paper reads Q[d(j, i)] for p2c, every released model Q[d(i, j)]: ``p2c_row`` chooses. The paper names a
p2p term and drops it, and no released code computes one that runs; here it is Q[d(j, i)] . K[d(i, j)].
"""

from __future__ import annotations

import math
from typing import Literal, final

import torch
from jaxtyping import Int
from torch import Tensor, nn

from situs.arguments import (
    require_choice,
    require_count,
    require_counts,
    require_flags,
    require_instance,
    require_several,
    require_spread,
)
from situs.encodings.score import OffsetScore, OffsetVectors
from situs.functional.buckets import deberta_rows
from situs.registry import register

TERMS = ("c2p", "p2c", "p2p")


@final
@register(
    name="deberta",
    paper="He et al. 2021, DeBERTa: Decoding-enhanced BERT with Disentangled Attention, arXiv:2006.03654",
    formula="(q_i . k_j + q_i . K[d(i, j)] + k_j . Q[d(i, j)]) / sqrt(3 d)",
    dialects={
        "DeBERTa v1": "key_bias=False",
        "DeBERTa v2, v3": "buckets=256, share_att_key=True, layer_norm=True",
        "paper": 'p2c_row="mirrored"',
    },
)
class Deberta(OffsetScore):
    """Add products of queries and of keys with learned vectors of relative positions."""

    tags = frozenset({"relative", "bounded", "far", "learned"})
    whole = True
    span: int

    def __init__(
        self,
        *,
        dim: int,
        num_heads: int,
        head_dim: int,
        max_distance: int = 512,
        buckets: int | None = None,
        terms: tuple[str, ...] = ("c2p", "p2c"),
        p2c_row: Literal["same", "mirrored"] = "same",
        share_att_key: bool = False,
        key_bias: bool = True,
        layer_norm: bool = False,
        init_std: float = 0.02,
    ) -> None:
        """
        dim: channels of the table, the model's width.
        num_heads: heads of the queries.
        head_dim: channels of a head.
        max_distance: max_relative_positions of a config; all beyond share a row.
        buckets: position_buckets of v2; None gives every distance its row, as v1.
        terms: which of "c2p", "p2c" and "p2p" to add; their number sets the softmax scale.
        p2c_row: "same" row as c2p, as released, or "mirrored" as in the paper.
        share_att_key: use the attention's own projections; hand them over with ``tie``.
        key_bias: have a bias in the projection of keys; v1 has none.
        layer_norm: normalise the table first (norm_rel_ebd of v2).
        init_std: standard deviation of the normal start of all weights.
        """
        super().__init__()
        dim, num_heads, head_dim, max_distance = require_counts(
            "it sizes the table and the projections",
            dim=dim, num_heads=num_heads, head_dim=head_dim, max_distance=max_distance,
        )  # fmt: skip
        buckets = buckets if buckets is None else require_count("buckets", buckets, "it counts rows of the table")
        terms = require_several("terms", terms, "each adds to the scores")
        for each in terms:
            require_choice("terms", each, TERMS, "each adds to the scores")
        require_flags("projections are the attention's own or not", share_att_key=share_att_key)
        require_flags("the projection of keys has a bias or not", key_bias=key_bias)
        require_flags("the table is normalised or not", layer_norm=layer_norm)
        init_std = require_spread(init_std)
        self.dim = dim
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.max_distance = max_distance
        self.buckets = buckets
        self.terms = terms
        self.p2c_row = p2c_row
        self.share_att_key = share_att_key
        self.key_bias = key_bias
        self.layer_norm = layer_norm
        self.init_std = init_std
        self.span = max_distance
        if buckets is not None and (buckets % 2 or not 4 <= buckets < 2 * (max_distance - 1)):
            raise ValueError(
                f"buckets must be even and lie in 4 .. {2 * max_distance - 3}, since half of them hold a single "
                f"distance below max_distance - 1; got {buckets}."
            )
        if not terms or len(set(terms)) < len(terms):
            raise ValueError(
                f"terms must be among {', '.join(TERMS)}, each once, and at least one, since each adds to the scores; "
                f"got {terms!r}."
            )
        require_choice("p2c_row", p2c_row, ("same", "mirrored"), "released models and the paper differ")
        self.softmax_scale = 1 / math.sqrt(head_dim * (1 + len(terms)))
        self._rows = deberta_rows(max_distance, buckets)
        self.table = nn.Parameter(torch.empty(2 * (max_distance if buckets is None else buckets), dim))
        width = num_heads * head_dim
        own_query = not share_att_key and ("p2c" in terms or "p2p" in terms)
        own_key = not share_att_key and ("c2p" in terms or "p2p" in terms)
        self.query_projection = nn.Linear(dim, width) if own_query else None
        self.key_projection = nn.Linear(dim, width, bias=key_bias) if own_key else None
        self.norm = nn.LayerNorm(dim, eps=1e-7) if layer_norm else None
        self._tied: tuple[nn.Linear, ...] = ()
        self.resolved = {"rows": len(self.table)}
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw table and projections anew."""
        self.table.normal_(std=self.init_std)
        for projection in (self.query_projection, self.key_projection):
            if projection is not None:
                projection.weight.normal_(std=self.init_std)
                bias: Tensor | None = projection.bias
                if bias is not None:
                    bias.zero_()
        if self.norm is not None:
            self.norm.reset_parameters()

    def tie(self, *, query: nn.Linear, key: nn.Linear) -> Deberta:
        """Use the attention's own projections (share_att_key). They stay the attention's: they appear neither among
        this encoding's parameters nor in its checkpoint."""
        if not self.share_att_key:
            raise ValueError(
                "share_att_key must be True to tie projections, since this encoding has its own; got "
                "share_att_key=False."
            )
        for name, projection in (("query", query), ("key", key)):
            require_instance(name, projection, nn.Linear, "rows of the table go through it", "a torch.nn.Linear")
            shape = projection.out_features, projection.in_features
            if shape != (self.num_heads * self.head_dim, self.dim):
                raise ValueError(
                    f"{name} must project {self.dim} channels to {self.num_heads * self.head_dim}, since rows of the "
                    f"table go through it; got {shape[1]} to {shape[0]}."
                )
        self._tied = (query, key)  # in a tuple, so that the module does not claim them
        return self

    @property
    def borrowed(self) -> tuple[nn.Module, ...]:
        """The attention's projections, where they are tied."""
        return self._tied

    def vectors(self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Project rows: by the key projection for queries, by the query projection for keys."""
        query, key = self._projections()
        table = self.table.to(dtype)
        if self.norm is not None:
            norm = self.norm
            table = nn.functional.layer_norm(table, (self.dim,), norm.weight.to(dtype), norm.bias.to(dtype), norm.eps)
        near = offsets.clamp(-self.span, self.span)
        rows = self._rows.to(offsets.device)
        same, mirrored = rows[self.span + near], rows[self.span - near]
        of_keys = self._projected(table, key, same, dtype) if key is not None else None
        alone = None
        if "p2p" in self.terms:
            assert of_keys is not None
            alone = (self._projected(table, query, mirrored, dtype) * of_keys).sum(-1)
        return OffsetVectors(
            for_query=of_keys if "c2p" in self.terms else None,
            for_key=self._projected(table, query, same if self.p2c_row == "same" else mirrored, dtype)
            if "p2c" in self.terms
            else None,
            alone=alone,
        )

    def _projections(self) -> tuple[nn.Linear | None, nn.Linear | None]:
        if not self.share_att_key:
            return self.query_projection, self.key_projection
        if not self._tied:
            raise ValueError(
                "tie(query=..., key=...) must be called first, since share_att_key means the attention's own "
                "projections are used; got none."
            )
        return self._tied[0], self._tied[1]

    def _projected(self, table: Tensor, projection: nn.Linear | None, rows: Tensor, dtype: torch.dtype) -> Tensor:
        assert projection is not None
        bias: Tensor | None = projection.bias
        bias = None if bias is None else bias.to(dtype)
        projected = nn.functional.linear(table, projection.weight.to(dtype), bias)
        return projected.view(-1, self.num_heads, self.head_dim).transpose(0, 1).index_select(1, rows)
