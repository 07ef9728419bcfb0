"""Content-free biases: numbers added to the scores that depend on the two positions alone.

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
from typing import TypeAlias, final

import torch
from jaxtyping import Float, Num
from torch import Tensor

from situs.encodings.base import Encoding, computing_dtype, require_axes, require_whole, without_autocast
from situs.functional.angles import widest
from situs.functional.offsets import range_offsets, toeplitz
from situs.positions import Positions, require

Rule: TypeAlias = Callable[..., Tensor]
ScoreMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class BiasEncoding(Encoding):
    """Adds to every score a number that depends on the two positions alone."""

    place = "score"
    num_heads: int

    extent: tuple[int, ...] | None = None
    """Sizes of the window that all positions of a row must fit into, one an axis, where the bias ends."""

    @abstractmethod
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "#batch heads query key"]:
        """The bias to add to ``scale q . k``; keys stand where the queries do unless told. In float32 or wider,
        whatever the parameters were cast to."""

    @abstractmethod
    def score_mod(
        self, query_positions: Positions | Tensor, key_positions: Positions | Tensor | None = None
    ) -> ScoreMod:
        """The same for ``torch.nn.attention.flex_attention``: a function of one score and its indices."""


class PairBias(BiasEncoding):
    """A bias given by a rule for one query position, one key position and a head."""

    @abstractmethod
    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """A function of (query, key, head) that broadcasts; for scalars it may use pointwise operations only."""

    @without_autocast
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "#batch heads query key"]:
        query, key = placed(self, query_positions, key_positions)
        dtype = bias_dtype(self, dtype)
        (of_queries,), (of_keys,) = _by_axis(query), _by_axis(key)
        rule = self.rule(query.device, dtype)
        return rule(of_queries[:, None, :, None], of_keys[:, None, None, :], _heads(self, query.device, 2)).to(dtype)

    @final
    @without_autocast
    def score_mod(
        self, query_positions: Positions | Tensor, key_positions: Positions | Tensor | None = None
    ) -> ScoreMod:
        query, key = placed(self, query_positions, key_positions)
        rule = self.rule(query.device, bias_dtype(self, None))
        (at_query,), (at_key,) = _readers(query), _readers(key)

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
            return score + rule(at_query(batch, query_index), at_key(batch, key_index), head).to(score.dtype)

        return add_bias


class OffsetBias(BiasEncoding):
    """A bias given by a rule for one offset, key minus query, and a head."""

    @abstractmethod
    def rule(self, device: torch.device, dtype: torch.dtype) -> Rule:
        """A function of (offset, head) that broadcasts, of pointwise operations only; with several axes, of
        (offset, offset, ..., head)."""

    @final
    @without_autocast
    def by_offset(
        self, offsets: Num[Tensor, "..."], *, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "heads offsets"]:
        """The bias of each offset, key minus query: all that a kernel needs to know. With several axes, offsets have
        their coordinates last."""
        if offsets.ndim != (1 if self.axes == 1 else 2) or (self.axes > 1 and offsets.shape[-1] != self.axes):
            wanted = "(offsets,)" if self.axes == 1 else f"(offsets, {self.axes})"
            raise ValueError(f"offsets must have shape {wanted}, since each gets a number; got {tuple(offsets.shape)}.")
        if self.whole and offsets.is_floating_point():
            raise TypeError(
                f"offsets must be whole numbers, since {type(self).__name__} looks them up in a table; got dtype "
                f"{offsets.dtype}."
            )
        dtype = bias_dtype(self, dtype)
        rule = self.rule(offsets.device, dtype)
        by_axis = (offsets,) if self.axes == 1 else offsets.unbind(-1)
        return rule(*(each.unsqueeze(0) for each in by_axis), _heads(self, offsets.device, 1)).to(dtype)

    @without_autocast
    def forward(
        self,
        query_positions: Positions | Tensor,
        key_positions: Positions | Tensor | None = None,
        *,
        dtype: torch.dtype | None = None,
    ) -> Float[Tensor, "#batch heads query key"]:
        query, key = placed(self, query_positions, key_positions)
        dtype = bias_dtype(self, dtype)
        vector = self._between_ranges(query, key, dtype)
        if vector is not None:
            return toeplitz(vector, key.length).unsqueeze(0)
        rule = self.rule(query.device, dtype)
        offsets = [
            at_key[:, None, None, :] - at_query[:, None, :, None]
            for at_query, at_key in zip(_by_axis(query), _by_axis(key), strict=True)
        ]
        return rule(*offsets, _heads(self, query.device, 2)).to(dtype)

    @final
    @without_autocast
    def score_mod(
        self, query_positions: Positions | Tensor, key_positions: Positions | Tensor | None = None
    ) -> ScoreMod:
        query, key = placed(self, query_positions, key_positions)
        rule = self.rule(query.device, bias_dtype(self, None))
        readers = list(zip(_readers(query), _readers(key), strict=True))

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, query_index: Tensor, key_index: Tensor) -> Tensor:
            offsets = [at_key(batch, key_index) - at_query(batch, query_index) for at_query, at_key in readers]
            return score + rule(*offsets, head).to(score.dtype)

        return add_bias

    def _between_ranges(
        self, query: Positions, key: Positions, dtype: torch.dtype
    ) -> Float[Tensor, "heads offsets"] | None:
        """The bias of every offset between two ranges; None for places of another kind."""
        if query.start is None or key.start is None or not query.length or not key.length:
            return None
        offsets = range_offsets(query.start, query.length, key.start, key.length, query.device)
        return self.by_offset(offsets, dtype=dtype)


def placed(
    encoding: BiasEncoding, query: Positions | Tensor, key: Positions | Tensor | None
) -> tuple[Positions, Positions]:
    """Positions of queries and keys such as the encoding takes."""
    both = []
    for name, given in (("query_positions", query), ("key_positions", query if key is None else key)):
        if not isinstance(given, (Positions, Tensor)):
            raise TypeError(
                f"{name} must be Positions or a tensor, since a bias has a row or column for each place; got "
                f"{given!r}. Use Positions.range(length, start=...)."
            )
        places = given if isinstance(given, Positions) else Positions.explicit(given)
        require_axes(encoding, places)
        require_whole(encoding, places)
        both.append(places)
    if both[0].rows != both[1].rows and 1 not in (both[0].rows, both[1].rows):
        raise ValueError(
            f"query_positions and key_positions must have as many rows, or one, since rows belong together; got "
            f"{both[0].rows} and {both[1].rows}."
        )
    _require_extent(encoding, *both)
    return both[0], both[1]


def _require_extent(encoding: BiasEncoding, query: Positions, key: Positions) -> None:
    """Raise if positions span more than the encoding's window; where values may not be read, the device asserts."""
    if encoding.extent is None or not query.length or not key.length:
        return
    for axis, size in enumerate(encoding.extent):
        lowest, highest = zip(*(_ends(places, axis) for places in (query, key)), strict=True)
        spread = torch.maximum(*highest) - torch.minimum(*lowest)
        _require_span(type(encoding).__name__, axis, size, spread)


def _require_span(name: str, axis: int, size: int, spread: Tensor) -> None:
    require.everywhere(
        spread < size,
        f"positions must span at most {size} cells along axis {axis}, since {name} ends there",
        lambda: int(spread.max()) + 1,
        "Use resize() for a larger window.",
    )


def _ends(places: Positions, axis: int) -> tuple[Tensor, Tensor]:
    """The lowest and the highest coordinate among the real tokens of each row."""
    ids = _by_axis(places)[axis]
    if places.valid is None:
        return ids.amin(-1), ids.amax(-1)
    far = torch.iinfo(torch.int32).max
    return torch.where(places.valid, ids, far).amin(-1), torch.where(places.valid, ids, -far).amax(-1)


def bias_dtype(encoding: Encoding, asked: torch.dtype | None) -> torch.dtype:
    """What to compute a bias in: what was asked for, else as wide as the parameters; float32 at least."""
    if asked is None:
        asked = next((parameter.dtype for parameter in encoding.parameters()), torch.float32)
    return computing_dtype(asked)


def _by_axis(places: Positions) -> tuple[Num[Tensor, "batch sequence"], ...]:
    """Ids, one tensor a coordinate; real ones as wide as can be, since offsets of far ones are small differences."""
    ids = places.ids
    ids = ids.to(widest(ids.device)) if ids.is_floating_point() else ids
    return (ids,) if places.axes == 1 else ids.unbind(-1)


def _heads(encoding: BiasEncoding, device: torch.device, places: int) -> Tensor:
    return torch.arange(encoding.num_heads, device=device).view(-1, *[1] * places)


def _readers(places: Positions) -> list[Callable[[Tensor, Tensor], Tensor]]:
    """For each coordinate, a function from a batch row and an index to the position there; a range needs no table."""
    start = places.start
    if start is not None:
        return [lambda batch, index: index + start]
    return [_reader(ids.contiguous()) for ids in _by_axis(places)]


def _reader(ids: Num[Tensor, "batch sequence"]) -> Callable[[Tensor, Tensor], Tensor]:
    if ids.shape[0] > 1:
        return lambda batch, index: ids[batch, index]
    alone = ids[0]
    return lambda batch, index: alone[index]
