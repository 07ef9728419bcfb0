"""A request for attention: everything that was asked, resolved once, for the kernels to judge and to serve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from situs.attention.reference import softmax_scale
from situs.attention.segments import Segment, segments
from situs.attention.task import Task
from situs.attention.visibility import require_documents, require_window
from situs.encodings.base import (
    Encoding,
    Encodings,
    InputEncoding,
    QueryKeyEncoding,
    as_encodings,
    computing_dtype,
    require_dropout,
)
from situs.encodings.bias import BiasEncoding, OffsetBias
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import OffsetScore, ScoreEncoding, ValueEncoding, require_sizes
from situs.functional.heads import require_shared, share_heads
from situs.positions import Positions, PositionsLike, align


@dataclass(frozen=True)
class Request:
    """Queries, keys and values; encodings by the place where they act; positions; and who sees whom."""

    query: Tensor
    key: Tensor
    value: Tensor
    encodings: list[Encoding]
    query_positions: Positions
    key_positions: Positions
    causal: bool
    window: int | None
    mask: Tensor | None
    scale: float
    given_scale: float | None
    dropout: float
    kept: dict[Any, Any] | None = None
    """Vectors over offsets of earlier steps, where a cache keeps them."""
    found: dict[str, Any] = field(default_factory=dict)

    @property
    def biases(self) -> list[BiasEncoding]:
        """Encodings that add to the scores whatever the content is."""
        return [each for each in self.encodings if isinstance(each, BiasEncoding)]

    @property
    def contents(self) -> list[ScoreEncoding]:
        """Encodings that add to the scores by content; those that have nothing to add are left out."""
        return [each for each in self.encodings if isinstance(each, ScoreEncoding) and getattr(each, "keys", True)]

    @property
    def values(self) -> list[ValueEncoding]:
        """Encodings that add to what is gathered."""
        return [each for each in self.encodings if isinstance(each, ValueEncoding) and each.acts_on_values]

    @property
    def segments(self) -> list[Segment] | None:
        """Stretches of neighbouring positions, if these are such; found once."""
        if "segments" not in self.found:
            self.found["segments"] = segments(self.query_positions, self.key_positions)
        stretches: list[Segment] | None = self.found["segments"]
        return stretches

    @property
    def task(self) -> Task:
        """The segments as a task; ask for it only where there are such."""
        assert self.segments is not None
        return Task(self.segments, self.scale, self.causal, self.window)

    @property
    def by_offset(self) -> bool:
        """Whether all that is added to the scores depends on offsets alone, in one axis."""
        return all(isinstance(each, OffsetBias) and each.axes == 1 for each in self.biases) and all(
            isinstance(each, OffsetScore) for each in self.contents
        )

    def numbers(self, lowest: int, highest: int) -> Tensor:
        """The sum of all biases over offsets, for each from ``lowest`` to ``highest``."""
        dtype, device = computing_dtype(self.query.dtype), self.query.device
        if self.kept is None or torch.is_grad_enabled():
            return self._numbers(torch.arange(lowest, highest + 1, device=device), dtype)
        key = (*map(id, self.biases), dtype)
        first, vector = self.kept.get(key, (0, None))
        if vector is None or lowest < first or highest >= first + vector.shape[-1]:
            # half as many again, so that the steps of a generation find theirs
            first = lowest - (highest - lowest) // 2 - 64
            vector = self._numbers(torch.arange(first, highest + 1, device=device), dtype)
            self.kept[key] = first, vector
        found: Tensor = vector[..., lowest - first : highest - first + 1]
        return found

    def _numbers(self, offsets: Tensor, dtype: torch.dtype) -> Tensor:
        total = torch.zeros(1, len(offsets), dtype=dtype, device=offsets.device)
        for bias in self.biases:
            assert isinstance(bias, OffsetBias)
            total = total + bias.by_offset(offsets, dtype=dtype)
        return total

    def turned(self) -> tuple[Tensor, Tensor]:
        """Queries and keys with the encodings that act on them applied; keys as few as they are."""
        query, key = self.query, self.key
        for each in self.encodings:
            if isinstance(each, RotationEncoding):
                each.require_agreement(self.query_positions, self.key_positions)
                if self.query_positions is self.key_positions and not each.treats_roles_apart:
                    query, key = each.both(query, key, self.query_positions)
                    continue
            if isinstance(each, QueryKeyEncoding):
                query, key = each(query, self.query_positions), each(key, self.key_positions, role="key")
        return query, key

    def shared(self, tensor: Tensor) -> Tensor:
        """Keys or values for every query head."""
        return share_heads(tensor, self.query.shape[1])


def make_request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    encoding: Encodings,
    causal: bool,
    positions: PositionsLike,
    key_positions: PositionsLike,
    mask: Tensor | None,
    window: int | None,
    scale: float | None,
    dropout: float,
    kept: dict[Any, Any] | None = None,
) -> Request:
    """Check and resolve what a caller asked for."""
    _require_shapes(query, key, value)
    encodings = [each for each in as_encodings(encoding) if not isinstance(each, InputEncoding)]
    of_queries, of_keys = align(positions, key_positions, query.shape[2], key.shape[2], query.device)
    for name, places in (("positions", of_queries), ("key_positions", of_keys)):
        if places.rows not in (1, query.shape[0]):
            raise ValueError(
                f"{name} must have one row, or one for each of the {query.shape[0]} sequences; got {places.rows} rows."
            )
    require_documents(of_queries, of_keys)
    for each in encodings:
        if isinstance(each, ScoreEncoding):
            require_sizes(each, query, key)
        elif isinstance(each, BiasEncoding) and each.num_heads != query.shape[1]:
            raise ValueError(
                f"query must have {each.num_heads} heads, since {type(each).__name__} was made for as many; got shape "
                f"{tuple(query.shape)}."
            )
    require_window(window)
    require_dropout(dropout)
    factor = softmax_scale(encodings, query.shape[-1], scale)
    return Request(
        query, key, value, encodings, of_queries, of_keys, causal, window, mask, factor, scale, dropout, kept
    )


def _require_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = tuple(tuple(each.shape) for each in (query, key, value))
    if not all(len(shape) == 4 for shape in shapes):
        raise ValueError(f"query, key and value must be (batch, heads, sequence, head_dim); got shapes {shapes}.")
    (batch, heads, _, width), (key_batch, key_heads, keys, key_width), of_values = shapes
    if key_batch != batch or of_values[:3] != (batch, key_heads, keys) or key_width != width:
        raise ValueError(
            f"key must have the query's batch and head_dim, and value the key's batch, heads and sequence; got shapes "
            f"{shapes}."
        )
    require_shared(heads, key_heads)
