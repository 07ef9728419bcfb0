"""Content-based scores: terms added to the scores that depend on queries and keys as well as positions.

Several methods know positions by the offset alone, key minus query, through vectors that meet the query or the key:

    g(q_i, k_j, i, j) = scale (q_i . A[j - i] + k_j . B[j - i] + c[j - i] + u . k_j)

Such a method says which vectors its offsets have (``vectors``), and one program forms the scores for all: a slanted
view of the products for ranges, a look-up for other positions. The same vectors are what block-wise kernels take.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor, nn

from situs.arguments import (
    is_deferred,
    refuse,
    require_axes_of,
    require_bool,
    require_floating,
    require_number,
    require_same_device,
    told,
)
from situs.encodings.base import Encoding, computing_dtype, without_autocast
from situs.encodings.features import feature_of
from situs.encodings.fitting import require_axes, require_whole
from situs.functional.heads import share_heads
from situs.functional.offsets import by_row, range_offsets, skew, skew_keys, sum_by_row, toeplitz, unskew
from situs.positions import Positions, PositionsLike, align


class ScoreEncoding(Encoding):
    """Add to every score a term that depends on the content too."""

    place = "score"

    @property
    def acts_on_scores(self) -> bool:
        """Whether it adds to the scores at all; where not, its term is 0 and need not be formed."""
        return True

    by_order: bool = False
    """Whether positions enter by their order alone, so that any coordinates will do."""

    by_features_alone: bool = False
    """Whether it computes with neither queries nor keys, so that these may be rotated before they are cached."""

    heads_apart: bool = False
    """Whether it forms its term for some of the heads, given these alone; kernels take as many as a cache holds."""

    @property
    def borrowed(self) -> tuple[nn.Module, ...]:
        """Modules that are another's and that the term is computed with, such as the attention's own projections. Their
        parameters are not the encoding's own, but learn through its term as well."""
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
        """Form the term to add to ``scale q . k``, in float32 or wider.

        ``scale`` is the softmax scale, the method's own if left out. ``visible`` is true where a query may see a
        key: for methods that count what lies between, not for masking. Methods that declare features are handed
        ``features`` too, (batch, heads, sequence, width) by name.
        """

    def far_keys(
        self,
        query: Float[Tensor, "batch heads query head_dim"],
        key: Float[Tensor, "batch heads key head_dim"],
        *,
        scale: float,
        visible: Bool[Tensor, "#batch #heads #query key"] | None,
    ) -> int:
        """How many of the first keys all of these queries, which are the last of the keys, meet with one and the same
        vector (``far_vector``): kernels then form no term for them. None, unless an encoding says more."""
        return 0

    def far_vector(self, *, scale: float, dtype: torch.dtype) -> Float[Tensor, "heads_or_1 head_dim"] | None:
        """The vector e of such far keys, for which the term is ``scale q . e``; None where there are none."""
        return None


class ValueEncoding(Encoding):
    """Add to what attention gathers a vector for each offset, weighted as the values are."""

    place = "value"

    span: int | None = None
    """The distance from which on all offsets are alike; None where they never are."""

    @property
    def acts_on_values(self) -> bool:
        """Whether it adds to the values at all; many such methods make it an option."""
        return True

    @abstractmethod
    def value_vectors(
        self, offsets: Int[Tensor, "offsets"], dtype: torch.dtype
    ) -> Float[Tensor, "heads_or_1 offsets value_dim"]:
        """Make the vector of each offset, key minus query."""

    @final
    @without_autocast
    def gathered(
        self,
        weights: Float[Tensor, "batch heads query key"],
        query_positions: PositionsLike = None,
        key_positions: PositionsLike = None,
    ) -> Float[Tensor, "batch heads query value_dim"]:
        """Weigh the vectors of all pairs, ``sum_j a_ij r[j - i]``, to be added to ``sum_j a_ij v_j``."""
        require_floating("weights", weights, "they weigh vectors")
        require_axes_of("weights", weights, ("batch", "heads", "query", "key"), "each pair has one")
        dtype, device = weights.dtype, weights.device
        names = ("query_positions", "key_positions")
        for parameter in self.parameters():
            require_same_device("weights", weights, "the encoding", parameter)
        if not weights.numel():
            width = self.value_vectors(_whole_span(0, device), dtype).shape[-1]
            return weights.new_zeros(*weights.shape[:3], width)
        query, key = align(query_positions, key_positions, weights.shape[-2], weights.shape[-1], device, names)
        if query.start is not None and key.start is not None:
            offsets = range_offsets(query.start, query.length, key.start, key.length, device)
            return unskew(weights) @ self.value_vectors(offsets, dtype)
        span = _farthest(query, key, self.span)
        if span is not None:
            by_offset = sum_by_row(weights, _clipped(query, key, span), 2 * span + 1)
            return by_offset @ self.value_vectors(_whole_span(span, device), dtype)
        offsets = key.ids[:, None, :] - query.ids[:, :, None]
        vectors = _for_pairs(self.value_vectors(offsets.flatten(), dtype), weights, offsets.shape)
        return torch.einsum("bhqk,hbqkd->bhqd", weights, vectors)


@dataclass(frozen=True)
class OffsetVectors:
    """Hold what each offset has: a vector that meets the query, one that meets the key, a bias; and one vector that
    every key meets."""

    for_query: Float[Tensor, "heads_or_1 offsets head_dim"] | None = None
    for_key: Float[Tensor, "heads_or_1 offsets head_dim"] | None = None
    alone: Float[Tensor, "heads offsets"] | None = None
    for_every_key: Float[Tensor, "heads head_dim"] | None = None

    def part(self, part: slice) -> OffsetVectors:
        """Take those of some offsets."""
        of_query, of_key, alone = (
            None if each is None else each[:, part] for each in (self.for_query, self.for_key, self.alone)
        )
        return OffsetVectors(of_query, of_key, alone, self.for_every_key)

    def map(self, change: Callable[[Tensor], Tensor]) -> OffsetVectors:
        """Change all that there are."""
        fields = self.for_query, self.for_key, self.alone, self.for_every_key
        return OffsetVectors(*(None if each is None else change(each) for each in fields))


class OffsetScore(ScoreEncoding):
    """Add a term whose positions enter by the offset alone."""

    num_heads: int
    head_dim: int

    meets: str | None = None
    """The feature of queries that its vectors meet instead of queries, unscaled; None where they meet queries."""

    span: int | None = None
    """The distance from which on all offsets are alike; None where they never are."""

    @abstractmethod
    def vectors(self, offsets: Num[Tensor, "offsets"], dtype: torch.dtype) -> OffsetVectors:
        """Make what each offset, key minus query, has."""

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
        features: Mapping[str, Tensor] | None = None,
    ) -> Float[Tensor, "batch heads query key"]:
        of_queries, of_keys = require_terms(self, query, key, query_positions, key_positions, scale, visible)
        dtype = computing_dtype(query.dtype)
        q, k = query.to(dtype), share_heads(key.to(dtype), query.shape[1])
        if self.meets is None and features is not None:
            refuse(ValueError, "features", "be left out", f"{type(self).__name__} declares none", told(features))
        if self.meets is not None:
            return self._term(feature_of(self, features, query.shape[2], query).to(dtype), k, of_queries, of_keys)
        if scale is None:
            scale = self.scale_for(query.shape[-1])
        return scale * self._among_placed(self._term(q, k, of_queries, of_keys), k, of_queries, of_keys)

    def _among_placed(self, term: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        """Leave the offset out where the query or the key has no position: what every key meets remains."""
        if (query.placed is None and key.placed is None) or not term.numel():
            return term
        both = _placed(query).unsqueeze(-1) & _placed(key).unsqueeze(-2)  # (batch or 1, query, key)
        alone = _every_key(self.vectors(_whole_span(0, k.device), k.dtype), k)
        return torch.where(both.unsqueeze(1), term, alone)

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
    """Form the term between two ranges: every offset once, read along a slant."""
    term = _every_key(vectors, k)
    if vectors.for_query is not None:
        term = term + skew(q @ vectors.for_query.transpose(-2, -1), k.shape[-2])
    if vectors.for_key is not None:
        term = term + skew_keys(k @ vectors.for_key.transpose(-2, -1), q.shape[-2])
    if vectors.alone is not None:
        term = term + toeplitz(vectors.alone, k.shape[-2])
    return term.expand(*q.shape[:3], k.shape[-2])


def _by_look_up(vectors: OffsetVectors, q: Tensor, k: Tensor, rows: Int[Tensor, "#batch 1 query key"]) -> Tensor:
    """Form the term between any whole positions: every offset of the span once, then looked up."""
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
    """Form the term between positions of which nothing is known: a vector for every pair."""
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


def _placed(positions: Positions) -> Bool[Tensor, "#batch sequence"]:
    if positions.placed is not None:
        return positions.placed
    return torch.ones(1, positions.length, dtype=torch.bool, device=positions.device)


def _whole_span(span: int, device: torch.device) -> Int[Tensor, "offsets"]:
    return torch.arange(-span, span + 1, device=device)


def _clipped(query: Positions, key: Positions, span: int) -> Int[Tensor, "#batch 1 query key"]:
    """Find the row of each pair's offset among those of the span."""
    offsets = key.ids[:, None, None, :] - query.ids[:, None, :, None]
    return offsets.clamp(-span, span) + span


def _farthest(query: Positions, key: Positions, span: int | None) -> int | None:
    """Find a distance from which on all offsets are alike, or that none exceeds, as far as the host knows without
    waiting; None where there is none, or where it is more than the pairs that would be looked up."""
    if query.ids.is_floating_point() or key.ids.is_floating_point():
        return None
    if span is not None:
        return span
    ends = [_ends(positions) for positions in (query, key)]
    if ends[0] is None or ends[1] is None:
        return None
    (first, last), (low, high) = ends[0], ends[1]
    farthest = max(abs(last - low), abs(high - first))
    return farthest if farthest < query.length * key.length else None


def _ends(positions: Positions) -> tuple[int, int] | None:
    if positions.below is not None:
        return 0, positions.below - 1
    ids = positions.ids
    return None if is_deferred(ids) or not ids.numel() else (int(ids.min()), int(ids.max()))


def require_terms(
    encoding: ScoreEncoding,
    query: Tensor,
    key: Tensor,
    query_positions: PositionsLike,
    key_positions: PositionsLike,
    scale: object,
    visible: object,
) -> tuple[Positions, Positions]:
    """Raise unless a term can be formed of these; make positions of queries and keys such as the encoding takes, of any
    coordinates where it goes by their order alone."""
    require_sizes(encoding, query, key)
    names = ("query_positions", "key_positions")
    both = align(query_positions, key_positions, query.shape[-2], key.shape[-2], query.device, names)
    for positions in both:
        if not encoding.by_order:
            require_axes(encoding, positions)
            require_whole(encoding, positions)
        if positions.rows not in (1, query.shape[0]):
            raise ValueError(
                f"positions must have one row, or one for each of the {query.shape[0]} sequences; got {positions.rows} "
                f"rows."
            )
    if scale is not None:
        require_number("scale", scale, "it multiplies q . k")
    if visible is not None:
        _require_visible(visible, query, key)
    return both


def require_sizes(encoding: ScoreEncoding, query: Tensor, key: Tensor) -> None:
    """Raise unless queries have the encoding's heads and width, and keys fit them."""
    for name, given in (("query", query), ("key", key)):
        require_floating(name, given, "vectors of positions meet it")
        if given.ndim < 2:
            require_axes_of(name, given, ("batch", "heads", "sequence", "head_dim"), "heads are met apart")
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
            f"{tuple(key.shape)} for a query of shape {tuple(query.shape)}."
        )
    require_same_device("key", key, "query", query)


def _require_visible(visible: object, query: Tensor, key: Tensor) -> None:
    """Raise unless what queries may see is a matrix for each head."""
    tensor = require_bool("visible", visible, "it is true where a query may see a key")
    wanted, given = (query.shape[0], query.shape[1], query.shape[2], key.shape[2]), tuple(tensor.shape)
    if tensor.ndim != 4 or any(own not in (1, size) for own, size in zip(given, wanted, strict=True)):
        raise ValueError(
            f"visible must broadcast to (batch, heads, query, key) = {wanted}, since it tells which query may see "
            f"which key; got shape {given}."
        )
    require_same_device("visible", tensor, "query", query)
