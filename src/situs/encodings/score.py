"""Content-based scores: terms added to the scores that depend on queries and keys as well as positions.

Several methods know positions by the offset alone, key minus query, through vectors that meet the query or the key:

    g(q_i, k_j, i, j) = scale (q_i . A[j - i] + k_j . B[j - i] + c[j - i] + u . k_j)

Such a method says which vectors its offsets have (``vectors``), and one program forms the scores for all: a slanted
view of the products for ranges, a look-up for other positions. The same vectors are what block-wise kernels take.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor, nn

from situs.encodings.base import Encoding, computing_dtype, require_axes, require_whole, without_autocast
from situs.functional.heads import share_heads
from situs.functional.offsets import by_row, range_offsets, skew, skew_keys, toeplitz, unskew
from situs.positions import Positions, PositionsLike, align, is_deferred


class ScoreEncoding(Encoding):
    """Adds to every score a term that depends on the content too."""

    place = "score"

    num_heads: int | None = None
    """Heads of the queries that it is made for; None where any will do."""

    head_dim: int | None = None
    """Channels of a head that it is made for; None where any will do."""

    @property
    def acts_on_scores(self) -> bool:
        """Whether this one does so at all; where not, its term is 0 and need not be formed."""
        return True

    @property
    def borrowed(self) -> tuple[nn.Module, ...]:
        """Modules that are another's and that it computes with, such as the attention's own projections. Their
        parameters are not its own, but learn through its term as well."""
        return ()

    @abstractmethod
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
        """The term to add to ``scale q . k``, in float32 or wider.

        ``scale`` is the softmax scale, the method's own if left out. ``visible`` is true where a query may see a
        key: for methods that count what lies between, not for masking.
        """


class PlaceScore(ScoreEncoding):
    """A term that is the product of a vector of the query's place and one of the key's, whatever the content.

    Vectors of places are more channels of queries and keys, so that any kernel adds such a term; a part that depends on
    the offset alone is a bias beside.
    """

    num_heads: int
    head_dim: int

    adds_by_offset: bool = False
    """Whether there is such a part."""

    @property
    def usable_length(self) -> int | None:
        """Places that have vectors, from 0 on; None if all have."""
        return None

    @abstractmethod
    def of_query(
        self, places: Positions, scale: float, dtype: torch.dtype
    ) -> Float[Tensor, "#batch heads query channels"]:
        """The vectors of queries' places, whose products are multiplied by ``scale``."""

    @abstractmethod
    def of_key(self, places: Positions, scale: float, dtype: torch.dtype) -> Float[Tensor, "#batch heads key channels"]:
        """The vectors of keys' places."""

    @abstractmethod
    def by_offset(self, offsets: Int[Tensor, "*places"], dtype: torch.dtype) -> Float[Tensor, "heads *places"] | None:
        """What is added for each offset, key minus query, beside the product; None if nothing is."""


class ValueEncoding(Encoding):
    """Adds to what attention gathers a vector for each offset, weighted as the values are."""

    span: int

    @property
    @abstractmethod
    def acts_on_values(self) -> bool:
        """Whether this one does so at all; many such methods make it an option."""

    @abstractmethod
    def value_vectors(
        self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype
    ) -> Float[Tensor, "heads_or_1 offsets value_dim"]:
        """The vector of each offset, key minus query."""

    @final
    @without_autocast
    def gathered(
        self,
        weights: Float[Tensor, "batch heads query key"],
        query_positions: PositionsLike = None,
        key_positions: PositionsLike = None,
    ) -> Float[Tensor, "batch heads query value_dim"]:
        """``sum_j a_ij r[j - i]``, to be added to ``sum_j a_ij v_j``."""
        if not weights.numel():
            width = self.value_vectors(_whole_span(self.span, weights.device), weights.dtype).shape[-1]
            return weights.new_zeros(*weights.shape[:3], width)
        query, key = align(query_positions, key_positions, weights.shape[-2], weights.shape[-1], weights.device)
        if query.start is not None and key.start is not None:
            offsets = range_offsets(query.start, query.length, key.start, key.length, weights.device)
            return unskew(weights) @ self.value_vectors(offsets, weights.dtype)
        rows = _clipped(query, key, self.span).expand(*weights.shape[:2], -1, -1)
        by_offset = weights.new_zeros(*weights.shape[:3], 2 * self.span + 1).scatter_add(-1, rows, weights)
        return by_offset @ self.value_vectors(_whole_span(self.span, weights.device), weights.dtype)


@dataclass(frozen=True)
class OffsetVectors:
    """What a method has for each offset: vectors that meet the query, vectors that meet the key, plain numbers; and
    one vector that every key meets."""

    for_query: Float[Tensor, "heads_or_1 offsets head_dim"] | None = None
    for_key: Float[Tensor, "heads_or_1 offsets head_dim"] | None = None
    alone: Float[Tensor, "heads offsets"] | None = None
    for_every_key: Float[Tensor, "heads head_dim"] | None = None

    def some(self, part: slice) -> OffsetVectors:
        """Those of some offsets."""
        of_query, of_key, alone = (
            None if each is None else each[:, part] for each in (self.for_query, self.for_key, self.alone)
        )
        return OffsetVectors(of_query, of_key, alone, self.for_every_key)


class OffsetScore(ScoreEncoding):
    """A term whose positions enter by the offset alone."""

    num_heads: int
    head_dim: int

    span: int | None = None
    """The distance from which on all offsets are alike; None where they never are."""

    @abstractmethod
    def vectors(self, offsets: Num[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """What each offset, key minus query, has."""

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
        of_queries, of_keys = placed(self, query, key, query_positions, key_positions)
        dtype = computing_dtype(query.dtype)
        q, k = query.to(dtype), share_heads(key.to(dtype), query.shape[1])
        if scale is None:
            scale = self.scale_for(query.shape[-1])
        return scale * self._term(q, k, of_queries, of_keys)

    def _term(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        if not query.length or not key.length:
            return q.new_zeros(*q.shape[:3], key.length)
        if query.start is not None and key.start is not None:
            offsets = range_offsets(query.start, query.length, key.start, key.length, q.device)
            return _by_slant(self.vectors(offsets, q.dtype), q, k)
        span = _farthest(query, key, self.span)
        if span is not None:
            return _by_look_up(self.vectors(_whole_span(span, q.device), q.dtype), q, k, _clipped(query, key, span))
        offsets = key.ids[:, None, :] - query.ids[:, :, None]
        return _by_pair(self.vectors(offsets.flatten(), q.dtype), q, k, offsets.shape)


def _by_slant(vectors: OffsetVectors, q: Tensor, k: Tensor) -> Tensor:
    """The term between two ranges: every offset once, read along a slant."""
    term = _every_key(vectors, k)
    if vectors.for_query is not None:
        term = term + skew(q @ vectors.for_query.transpose(-2, -1), k.shape[-2])
    if vectors.for_key is not None:
        term = term + skew_keys(k @ vectors.for_key.transpose(-2, -1), q.shape[-2])
    if vectors.alone is not None:
        term = term + toeplitz(vectors.alone, k.shape[-2])
    return term.expand(*q.shape[:3], k.shape[-2])


def _by_look_up(vectors: OffsetVectors, q: Tensor, k: Tensor, rows: Int[Tensor, "#batch 1 query key"]) -> Tensor:
    """The term between any whole positions: every offset of the span once, then looked up."""
    term = _every_key(vectors, k)
    if vectors.for_query is not None:
        term = term + by_row(q @ vectors.for_query.transpose(-2, -1), rows)
    if vectors.for_key is not None:
        products = k @ vectors.for_key.transpose(-2, -1)
        term = term + by_row(products, rows.transpose(-2, -1)).transpose(-2, -1)
    if vectors.alone is not None:
        term = term + vectors.alone[:, rows[:, 0]].transpose(0, 1)
    return term.expand(*q.shape[:3], k.shape[-2])


def _by_pair(vectors: OffsetVectors, q: Tensor, k: Tensor, pairs: torch.Size) -> Tensor:
    """The term between positions of which nothing is known: a vector for every pair."""
    term = _every_key(vectors, k)
    if vectors.for_query is not None:
        term = term + torch.einsum("bhqd,hbqkd->bhqk", q, _for_pairs(vectors.for_query, q, pairs))
    if vectors.for_key is not None:
        term = term + torch.einsum("bhkd,hbqkd->bhqk", k, _for_pairs(vectors.for_key, q, pairs))
    if vectors.alone is not None:
        term = term + vectors.alone.view(-1, *pairs).transpose(0, 1)
    return term.expand(*q.shape[:3], k.shape[-2])


def _for_pairs(vectors: Tensor, q: Tensor, pairs: torch.Size) -> Tensor:
    wide = vectors.view(vectors.shape[0], *pairs, -1)
    return wide.expand(q.shape[1], q.shape[0], *pairs[1:], -1)


def _every_key(vectors: OffsetVectors, k: Tensor) -> Tensor:
    if vectors.for_every_key is None:
        return k.new_zeros(())
    return (k @ vectors.for_every_key.unsqueeze(-1)).transpose(-2, -1)


def _whole_span(span: int, device: torch.device) -> Int[Tensor, "offsets"]:
    return torch.arange(-span, span + 1, device=device)


def _clipped(query: Positions, key: Positions, span: int) -> Int[Tensor, "#batch 1 query key"]:
    """The row of each pair's offset among those of the span."""
    offsets = key.ids[:, None, None, :] - query.ids[:, None, :, None]
    return offsets.clamp(-span, span) + span


def _farthest(query: Positions, key: Positions, span: int | None) -> int | None:
    """A distance from which on all offsets are alike, or that none exceeds, as far as the host knows without waiting;
    None where there is none, or where it is more than the pairs that would be looked up."""
    if query.ids.is_floating_point() or key.ids.is_floating_point():
        return None
    if span is not None:
        return span
    ends = [_ends(places) for places in (query, key)]
    if ends[0] is None or ends[1] is None:
        return None
    (first, last), (low, high) = ends[0], ends[1]
    farthest = max(abs(last - low), abs(high - first))
    return farthest if farthest < query.length * key.length else None


def _ends(places: Positions) -> tuple[int, int] | None:
    if places.below is not None:
        return 0, places.below - 1
    ids = places.ids
    return None if is_deferred(ids) or not ids.numel() else (int(ids.min()), int(ids.max()))


def placed(
    encoding: ScoreEncoding,
    query: Tensor,
    key: Tensor,
    query_positions: PositionsLike,
    key_positions: PositionsLike,
    *,
    by_order: bool = False,
) -> tuple[Positions, Positions]:
    """Positions of queries and keys such as the encoding takes, for tensors such as it takes; any coordinates, where
    it goes ``by_order`` alone."""
    require_sizes(encoding, query, key)
    both = align(query_positions, key_positions, query.shape[-2], key.shape[-2], query.device)
    for places in both:
        if not by_order:
            require_axes(encoding, places)
            require_whole(encoding, places)
        if places.rows not in (1, query.shape[0]):
            raise ValueError(
                f"positions must have one row, or one for each of the {query.shape[0]} sequences; got {places.rows} "
                f"rows."
            )
    return both


def require_sizes(encoding: ScoreEncoding, query: Tensor, key: Tensor) -> None:
    """Raise unless queries have the encoding's heads and width, and keys fit them."""
    heads = query.shape[1] if encoding.num_heads is None else encoding.num_heads
    width = query.shape[-1] if encoding.head_dim is None else encoding.head_dim
    if query.ndim != 4 or (query.shape[1], query.shape[-1]) != (heads, width):
        raise ValueError(
            f"query must have shape (batch, {heads}, sequence, {width}), since {type(encoding).__name__} was made for "
            f"{heads} heads of {width}; got shape {tuple(query.shape)}."
        )
    if key.ndim != 4 or (key.shape[0], key.shape[-1]) != (query.shape[0], width):
        raise ValueError(
            f"key must have shape ({query.shape[0]}, heads, sequence, {width}), since it meets the query; got shape "
            f"{tuple(key.shape)}."
        )
