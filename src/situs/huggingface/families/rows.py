"""Vectors of offsets that a layer made already, as a term of scores."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from situs.encodings.score import OffsetScore, OffsetVectors

Vectors = Float[Tensor, "heads_or_1 rows head_dim"]


class RowScore(OffsetScore):
    """Add products with rows of vectors, one row for each offset."""

    whole = True

    def __init__(
        self,
        rows: Int[Tensor, "offsets"],
        for_query: Vectors | None = None,
        for_key: Vectors | None = None,
        alone: Float[Tensor, "heads rows"] | None = None,
        for_every_key: Float[Tensor, "heads head_dim"] | None = None,
        *,
        num_heads: int | None = None,
    ) -> None:
        """
        rows: the row of each offset from -span to span; beyond, that of the nearest.
        for_query: rows that queries meet.
        for_key: rows that keys meet.
        alone: a number for each row.
        for_every_key: a vector that all keys meet, whatever the offset.
        num_heads: heads of the queries, where all of them share the rows.
        """
        super().__init__()
        vectors = for_query if for_query is not None else for_key
        if vectors is None:
            raise ValueError("for_query or for_key must be given, since rows are met by one of them; got neither.")
        self.rows, self.for_query, self.for_key = rows, for_query, for_key
        self.alone, self.for_every_key = alone, for_every_key
        self.num_heads = len(vectors) if num_heads is None else num_heads
        self.head_dim, self.span = vectors.shape[-1], len(rows) // 2

    def vectors(self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Look up the rows of offsets."""
        assert self.span is not None
        rows = self.rows.to(offsets.device)[self.span + offsets.clamp(-self.span, self.span)]
        query, key, alone = (
            None if each is None else each.to(dtype).index_select(1, rows)
            for each in (self.for_query, self.for_key, self.alone)
        )
        every = None if self.for_every_key is None else self.for_every_key.to(dtype)
        return OffsetVectors(for_query=query, for_key=key, alone=alone, for_every_key=every)


def transformer_xl(
    rows: Int[Tensor, "offsets"],
    vectors: Float[Tensor, "heads rows head_dim"],
    content_bias: Float[Tensor, "heads head_dim"],
    position_bias: Float[Tensor, "heads head_dim"],
) -> RowScore:
    """Make Transformer-XL's term of projected sinusoids: queries meet them, ``content_bias`` meets keys and
    ``position_bias`` the sinusoids."""
    alone = torch.einsum("hd,hrd->hr", position_bias, vectors)
    return RowScore(rows, for_query=vectors, alone=alone, for_every_key=content_bias)
