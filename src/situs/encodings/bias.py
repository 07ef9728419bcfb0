"""Content-free biases: added to the scores, and dependent on the two positions alone.

Most depend on the offset, key minus query, and nothing else. Such a method is written once, as a rule for single
numbers, and is then had in three forms: a dense bias for anyone's own attention, a vector over offsets for kernels
that never form the matrix, and a ``score_mod`` for FlexAttention.

    class Linear(situs.OffsetBias):
        def __init__(self, *, num_heads):
            super().__init__()
            self.num_heads = num_heads

        def rule(self, device, dtype):
            return lambda offset, head: -offset.abs().to(dtype) / (head + 1)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias, final

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from situs.arguments import WIDE, require_dtype, require_real, told
from situs.encodings.base import Encoding, computing_dtype, without_autocast
from situs.encodings.extent import by_axis, require_extent
from situs.encodings.fitting import require_axes, require_whole
from situs.functional.offsets import range_offsets, toeplitz
from situs.positions import Positions, require

Rule: TypeAlias = Callable[..., Tensor]
ScoreMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


FROM_UNPLACED, TO_UNPLACED, AMONG_UNPLACED = 2**30, 2**30 + 1, 2**30 + 2
"""What stands for the offset where a token has no position (``Positions.placed``): the query, the key, or both. Rules
of encodings that say ``takes_unplaced`` tell them from offsets."""


class BiasEncoding(Encoding):
    """Add to every score a bias that depends on the two positions alone."""

    place = "score"
    num_heads: int

    @abstractmethod
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "#batch heads query key"]:
        """Form the bias to add to ``scale q . k``; keys stand where the queries do unless told. In float32 or wider,
        whatever the parameters were cast to."""

    @abstractmethod
    def score_mod(
        self, query_positions: Positions | Tensor, key_positions: Positions | Tensor | None = None
    ) -> ScoreMod:
        """Make a ``score_mod`` for ``torch.nn.attention.flex_attention``: a function of one score and its indices."""


class PairBias(BiasEncoding):
    """Form a bias by a rule for one query position, one key position and a head."""

    @abstractmethod
    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Make a function of (query, key, head) that broadcasts; for scalars it may use pointwise operations only."""

    @without_autocast
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "#batch heads query key"]:
        query, key = as_positions(self, query_positions, key_positions)
        dtype = bias_dtype(self, dtype)
        (of_queries,), (of_keys,) = by_axis(query), by_axis(key)
        rule = self.rule(query.device, dtype)
        return rule(of_queries[:, None, :, None], of_keys[:, None, None, :], _heads(self, query.device, 2)).to(dtype)

    @final
    @without_autocast
    def score_mod(
        self, query_positions: Positions | Tensor, key_positions: Positions | Tensor | None = None
    ) -> ScoreMod:
        query, key = as_positions(self, query_positions, key_positions)
        rule = self.rule(query.device, bias_dtype(self, None))
        (at_query,), (at_key,) = _readers(query), _readers(key)

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
            return score + rule(at_query(batch, query_index), at_key(batch, key_index), head).to(score.dtype)

        return add_bias


class OffsetBias(BiasEncoding):
    """Form a bias by a rule for one offset, key minus query, and a head."""

    pointwise: bool = True
    """Whether the rule consists of pointwise operations, which FlexAttention compiles into its kernel. Where not, as
    for a network with matrix products, ``score_mod`` reads the bias off a table."""

    span: int | None = None
    """The distance from which on all offsets are alike; None where they never are."""

    @abstractmethod
    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """Make a function of (offset, head) that broadcasts, of pointwise operations only, unless ``pointwise`` is
        false; with several axes, of (offset, offset, ..., head)."""

    @final
    @without_autocast
    def by_offset(
        self, offsets: Num[Tensor, "..."], *, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads offsets"]:
        """Form the bias of each offset, key minus query: all that a kernel needs to know. With several axes, offsets
        have their coordinates last."""
        given: Any = offsets
        if self.axes > 1 or not isinstance(given, Tensor) or given.dtype != torch.int64 or given.ndim != 1:
            self._require_offsets(given)
        dtype = bias_dtype(self, dtype)
        rule, heads = self.rule(offsets.device, dtype), _heads(self, offsets.device, 1)
        by_axis = (offsets[None],) if self.axes == 1 else offsets[None].unbind(-1)
        return rule(*by_axis, heads).to(dtype)

    def _require_offsets(self, offsets: Any) -> None:
        """Raise unless these are offsets, in a list, that the rule can take."""
        require_real("offsets", offsets, "each gets a bias")
        if offsets.ndim != (1 if self.axes == 1 else 2) or (self.axes > 1 and offsets.shape[-1] != self.axes):
            wanted = "(offsets,)" if self.axes == 1 else f"(offsets, {self.axes})"
            raise ValueError(f"offsets must have shape {wanted}, since each gets a bias; got {tuple(offsets.shape)}.")
        if self.whole and offsets.is_floating_point():
            raise TypeError(
                f"offsets must be whole numbers, since {type(self).__name__} looks them up in a table; got dtype "
                f"{offsets.dtype}."
            )

    @without_autocast
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "#batch heads query key"]:
        query, key = as_positions(self, query_positions, key_positions)
        dtype = bias_dtype(self, dtype)
        vector = self._between_ranges(query, key, dtype)
        if vector is not None:
            return toeplitz(vector, key.length).unsqueeze(0)
        rule = self.rule(query.device, dtype)
        placed = [None if each.placed is None else each.placed[:, None] for each in (query, key)]
        offsets = [
            _offset(
                at_query[:, None, :, None],
                at_key[:, None, None, :],
                None if placed[0] is None else placed[0].unsqueeze(-1),
                None if placed[1] is None else placed[1].unsqueeze(-2),
            )
            for at_query, at_key in zip(by_axis(query), by_axis(key), strict=True)
        ]
        return rule(*offsets, _heads(self, query.device, 2)).to(dtype)

    @final
    @without_autocast
    def score_mod(
        self, query_positions: Positions | Tensor, key_positions: Positions | Tensor | None = None
    ) -> ScoreMod:
        query, key = as_positions(self, query_positions, key_positions)
        if not self.pointwise:
            return self._tabled_mod(query, key)
        rule = self.rule(query.device, bias_dtype(self, None))
        readers = list(zip(_readers(query), _readers(key), strict=True))
        of_query, of_key = (None if each.placed is None else _reader(each.placed) for each in (query, key))

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
            placed = (
                None if of_query is None else of_query(batch, query_index),
                None if of_key is None else of_key(batch, key_index),
            )
            offsets = [
                _offset(at_query(batch, query_index), at_key(batch, key_index), *placed) for at_query, at_key in readers
            ]
            return score + rule(*offsets, head).to(score.dtype)

        return add_bias

    def _tabled_mod(self, query: Positions, key: Positions) -> ScoreMod:
        """Make a score_mod that looks the bias up: by offset between two ranges, else by pair."""
        vector = self._between_ranges(query, key, bias_dtype(self, None))
        if vector is None:
            return _matrix_mod(self(query, key))
        last = query.length - 1  # the query from which the first key has the lowest offset

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
            return score + vector[head, key_index - query_index + last].to(score.dtype)

        return add_bias

    def _between_ranges(
        self, query: Positions, key: Positions, dtype: torch.dtype
    ) -> Float[Tensor, "heads offsets"] | None:
        """Form the bias of every offset between two ranges; None for positions of another kind."""
        if query.start is None or key.start is None or not query.length or not key.length:
            return None
        offsets = range_offsets(query.start, query.length, key.start, key.length, query.device)
        return self.by_offset(offsets, dtype=dtype)


class PositionProduct(BiasEncoding):
    """A bias that is the product of a vector of the query's position and one of the key's.

    Vectors of positions are more channels of queries and keys, so that any kernel adds such a bias; a part that depends
    on the offset alone may stand beside.
    """

    head_dim: int

    adds_by_offset: bool = False
    """Whether there is such a part."""

    @abstractmethod
    def query_vectors(self, positions: Positions, dtype: torch.dtype) -> Float[Tensor, "#batch heads query channels"]:
        """The vectors of queries' positions."""

    @abstractmethod
    def key_vectors(self, positions: Positions, dtype: torch.dtype) -> Float[Tensor, "#batch heads key channels"]:
        """The vectors of keys' positions, whose products with those of queries are the bias."""

    @abstractmethod
    def by_offset(
        self, offsets: Int[Tensor, "*pairs"], *, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads *pairs"] | None:
        """What is added for each offset, key minus query, beside the product; None if nothing is."""

    @without_autocast
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "#batch heads query key"]:
        query, key = as_positions(self, query_positions, key_positions)
        dtype = bias_dtype(self, dtype)
        bias = self.query_vectors(query, dtype) @ self.key_vectors(key, dtype).transpose(-2, -1)
        if self.adds_by_offset:
            beside = self.by_offset(key.ids[:, None, :] - query.ids[:, :, None], dtype=dtype)
            bias = bias if beside is None else bias + beside.transpose(0, 1)
        return bias

    @final
    def score_mod(
        self, query_positions: Positions | Tensor, key_positions: Positions | Tensor | None = None
    ) -> ScoreMod:
        """The bias as a score_mod, which reads it off the whole matrix: no pointwise rule forms a product."""
        return _matrix_mod(self(query_positions, key_positions))


def _matrix_mod(bias: Float[Tensor, "#batch heads query key"]) -> ScoreMod:
    """Make a score_mod that reads the bias of a pair off the whole matrix."""
    rows = len(bias)

    def add_bias(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
        row = batch if rows > 1 else torch.zeros_like(batch)
        return score + bias[row, head, query_index, key_index].to(score.dtype)

    return add_bias


def as_positions(
    encoding: BiasEncoding, query: Positions | Tensor, key: Positions | Tensor | None
) -> tuple[Positions, Positions]:
    """Make positions of queries and keys such as the encoding takes."""
    both = []
    for name, given in (("query_positions", query), ("key_positions", query if key is None else key)):
        if not isinstance(given, (Positions, Tensor)):
            raise TypeError(
                f"{name} must be Positions or a tensor, since a bias has a row or column for each position; got "
                f"{told(given)}. Use Positions.range(length, start=...)."
            )
        if isinstance(given, Tensor):
            require.ids(given, name)
        positions = given if isinstance(given, Positions) else Positions.explicit(given)
        require_axes(encoding, positions)
        require_whole(encoding, positions)
        both.append(positions)
    if both[0].rows != both[1].rows and 1 not in (both[0].rows, both[1].rows):
        raise ValueError(
            f"query_positions and key_positions must have as many rows, or one, since rows belong together; got "
            f"{both[0].rows} and {both[1].rows}."
        )
    require_extent(encoding, *both)
    return both[0], both[1]


def bias_dtype(encoding: Encoding, asked: Any) -> torch.dtype:
    """Choose the dtype of a bias: what was asked for, else as wide as the parameters; float32 at least."""
    if asked is None:
        return computing_dtype(next((parameter.dtype for parameter in encoding.parameters()), torch.float32))
    if not isinstance(asked, torch.dtype) or asked not in WIDE:
        require_dtype(asked, "a bias is a fraction")
    return computing_dtype(asked)


def _offset(at_query: Tensor, at_key: Tensor, query_placed: Tensor | None, key_placed: Tensor | None) -> Tensor:
    """Subtract the query's coordinate from the key's; what stands for the offset where one has none."""
    offset = at_key - at_query
    if query_placed is None and key_placed is None:
        return offset
    among = TO_UNPLACED if query_placed is None else torch.where(query_placed, TO_UNPLACED, AMONG_UNPLACED)
    from_or = offset if query_placed is None else torch.where(query_placed, offset, FROM_UNPLACED)
    return from_or if key_placed is None else torch.where(key_placed, from_or, among)


def _heads(encoding: BiasEncoding, device: torch.device, axes: int) -> Tensor:
    return torch.arange(encoding.num_heads, device=device).view(-1, *[1] * axes)


def _readers(positions: Positions) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """Make, for each coordinate, a function from batch row and index to the position there; a range needs no table."""
    start = positions.start
    if start is not None:
        return [lambda batch, index: index + start]
    return [_reader(ids.contiguous()) for ids in by_axis(positions)]


def _reader(ids: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    if ids.shape[0] > 1:
        return lambda batch, index: ids[batch, index]
    alone = ids[0]
    return lambda batch, index: alone[index]
