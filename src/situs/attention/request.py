"""A request for attention: everything that was asked, resolved once, for the kernels to judge and to serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from situs.attention.partial import serves_flash
from situs.attention.reference import softmax_scale
from situs.attention.require import require_documents, require_mask, require_rows, require_shapes, require_window
from situs.attention.segments import Segment, segments
from situs.attention.task import Task
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
from situs.encodings.score import OffsetScore, OffsetVectors, PlaceScore, ScoreEncoding, ValueEncoding, require_sizes
from situs.functional.heads import share_heads
from situs.positions import Positions, PositionsLike, align

Kept = TypeVar("Kept")
TILE = 8  # channels that kernels take at a time


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

    @property
    def biases(self) -> list[BiasEncoding]:
        """Encodings that add to the scores whatever the content is."""
        return [each for each in self.encodings if isinstance(each, BiasEncoding)]

    @property
    def contents(self) -> list[ScoreEncoding]:
        """Encodings that add to the scores by content; those that have nothing to add are left out."""
        return [each for each in self.encodings if isinstance(each, ScoreEncoding) and each.acts_on_scores]

    @property
    def products(self) -> list[PlaceScore]:
        """Those of the contents that are products of places."""
        return [each for each in self.contents if isinstance(each, PlaceScore)]

    @property
    def values(self) -> list[ValueEncoding]:
        """Encodings that add to what is gathered."""
        return [each for each in self.encodings if isinstance(each, ValueEncoding) and each.acts_on_values]

    @cached_property
    def segments(self) -> list[Segment] | None:
        """Stretches of neighbouring positions, if these are such."""
        return segments(self.query_positions, self.key_positions)

    @property
    def segments_cannot(self) -> str | None:
        """Why segments do not tell all that a kernel must know; None if they do."""
        if self.mask is not None:
            return "a mask of the caller's own has no offsets"
        if self.dropout:
            return "dropout needs every weight"
        if self.segments is None:
            return f"{self.query_positions!r} are no stretches of neighbours that the host knows of"
        return None

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

    @property
    def by_flash(self) -> bool:
        """Whether torch's CPU kernel takes these tensors, so that parts of the keys can be met apart and cheaply."""
        return serves_flash(self.query, self.query, self.value)

    def numbers(self, lowest: int, highest: int) -> Tensor:
        """The sum of all biases over offsets, for each from ``lowest`` to ``highest``."""
        dtype = computing_dtype(self.query.dtype)

        def make(offsets: Tensor) -> Tensor:
            total = torch.zeros(1, len(offsets), dtype=dtype, device=offsets.device)
            for each in (*self.biases, *self.products):
                assert isinstance(each, OffsetBias | PlaceScore)
                added: Tensor | None = each.by_offset(offsets, dtype=dtype)
                total = total if added is None else total + added
            return total

        name = ("numbers", *map(id, (*self.biases, *self.products)), dtype)
        return self._kept(name, lowest, highest, make, _some)

    def vectors(self, encoding: OffsetScore, lowest: int, highest: int) -> OffsetVectors:
        """What an encoding has for each offset from ``lowest`` to ``highest``."""
        dtype = computing_dtype(self.query.dtype)
        return self._kept(
            ("vectors", id(encoding), dtype),
            lowest,
            highest,
            lambda offsets: encoding.vectors(offsets, dtype),
            OffsetVectors.some,
        )

    def of_key_places(self, encoding: PlaceScore) -> Tensor:
        """What an encoding has for the places of keys; of all that it knows, where a cache keeps it."""
        places, dtype = self.key_positions, computing_dtype(self.query.dtype)
        known, name = encoding.usable_length, ("places", id(encoding), self.scale, dtype)
        if self.kept is None or torch.is_grad_enabled() or places.start is None or known is None:
            return encoding.of_key(places, self.scale, dtype)
        if name not in self.kept:
            self.kept[name] = encoding.of_key(Positions.range(known, device=places.device), self.scale, dtype)
        found: Tensor = self.kept[name][:, :, places.start : places.start + places.length]
        return found

    def _kept(
        self,
        name: tuple[Any, ...],
        lowest: int,
        highest: int,
        make: Callable[[Tensor], Kept],
        some: Callable[[Kept, slice], Kept],
    ) -> Kept:
        """What ``make`` makes of offsets, or the part of it that was kept in an earlier step."""
        device = self.query.device
        if self.kept is None or torch.is_grad_enabled():
            return make(torch.arange(lowest, highest + 1, device=device))
        first, last, made = self.kept.get(name, (0, -1, None))
        if made is None or lowest < first or highest > last:
            # half as many again, so that the steps of a generation find theirs
            first, last = lowest - (highest - lowest) // 2 - 64, highest
            made = make(torch.arange(first, last + 1, device=device))
            self.kept[name] = first, last, made
        return some(made, slice(lowest - first, highest - first + 1))

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

    def widened(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same with what places have as more channels, and values as wide, for kernels that want it so. Places have
        vectors for every query head, so that keys are no longer shared."""
        query, key = self.turned()
        if not self.products:
            return query, key, self.value
        queries, keys, value = [query], [self.shared(key)], self.shared(self.value)
        for each in self.products:
            own = each.of_query(self.query_positions, self.scale, computing_dtype(query.dtype))
            for parts, added in ((queries, own), (keys, self.of_key_places(each))):
                parts.append(added.expand(query.shape[0], -1, -1, -1).to(query.dtype))
        most = max(sum(part.shape[-1] for part in queries), value.shape[-1])
        width = -(-most // TILE) * TILE
        query, key = (_padded(torch.cat(parts, -1), width) for parts in (queries, keys))
        return query, key, _padded(value, width)

    def narrowed(self, out: Tensor) -> Tensor:
        """What a kernel gave, without the channels that were added, and with heads as they were asked for."""
        return out.reshape(*self.query.shape[:3], -1)[..., : self.value.shape[-1]]

    def shared(self, tensor: Tensor) -> Tensor:
        """Keys or values for every query head."""
        return share_heads(tensor, self.query.shape[1])


def _some(numbers: Tensor, part: slice) -> Tensor:
    return numbers[..., part]


def _padded(tensor: Tensor, width: int) -> Tensor:
    return pad(tensor, (0, width - tensor.shape[-1]))


def make_request(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
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
    require_shapes(query, key, value)
    encodings = [each for each in as_encodings(encoding) if not isinstance(each, InputEncoding)]
    of_queries, of_keys = align(positions, key_positions, query.shape[2], key.shape[2], query.device)
    require_rows(of_queries, of_keys, query.shape[0])
    require_documents(of_queries, of_keys)
    for each in encodings:
        if isinstance(each, ScoreEncoding):
            require_sizes(each, query, key)
        elif isinstance(each, BiasEncoding) and each.num_heads != query.shape[1]:
            raise ValueError(
                f"query must have {each.num_heads} heads, since {type(each).__name__} was made for as many; got shape "
                f"{tuple(query.shape)}."
            )
    if mask is not None:
        require_mask(mask, (*query.shape[:3], key.shape[2]))
    require_window(window)
    require_dropout(dropout)
    return Request(
        query=query,
        key=key,
        value=value,
        encodings=encodings,
        query_positions=of_queries,
        key_positions=of_keys,
        causal=causal,
        window=window,
        mask=mask,
        scale=softmax_scale(encodings, query.shape[-1], scale),
        given_scale=scale,
        dropout=dropout,
        kept=kept,
    )
