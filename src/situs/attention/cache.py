"""The cache of keys and values, which owns decoding: prefill, chunks, single tokens, rows of unequal length, eviction.

Keys are cached as attention needs them: rotated already, where an encoding rotates them, and the cache knows by which.
Each row has its own length, so that a batch of unequal prompts decodes without padding between: padding takes no slot,
whichever side it stands on, and a new token goes right behind its row's last. Memory is allocated once, in the cache's
own dtype; attention with it is computed in that dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from situs.arguments import (
    require_count,
    require_device,
    require_dtype,
    require_instance,
)
from situs.attention.fitting import require_new_keys, require_queries, require_valid
from situs.attention.offsets import OffsetCache
from situs.attention.request import softmax_scale
from situs.encodings.base import Encoding, Encodings, QueryKeyEncoding, as_encodings, computing_dtype
from situs.encodings.rotation import RotationEncoding
from situs.encodings.score import ScoreEncoding
from situs.functional.angles import widest
from situs.positions import Positions, PositionsLike, is_deferred
from situs.rotation import RotationTable

STEPS = 64  # of a generation, whose angles are made at once


class Step(NamedTuple):
    """What attention computes with: queries, all keys and values, their positions, and what is left to do."""

    query: Tensor
    key: Tensor
    value: Tensor
    encodings: Sequence[Encoding]
    """Encodings that have not acted yet."""
    query_positions: Positions
    key_positions: Positions
    scale: float
    before: tuple[int, Tensor | None, tuple[QueryKeyEncoding, ...] | None, int | Tensor | None, bool]
    """What a cache held before this step."""


@final
class KVCache:
    """Keys and values of the tokens so far.

    >>> import torch, situs
    >>> layer = situs.Attention(dim=32, num_heads=4, encoding=situs.Rotary(head_dim=8)).eval()
    >>> cache = layer.make_cache(batch=1, max_length=16)
    >>> prompt, token = torch.randn(1, 5, 32), torch.randn(1, 1, 32)
    >>> with torch.no_grad():
    ...     layer(prompt, cache=cache).shape, layer(token, cache=cache).shape, cache.length
    (torch.Size([1, 5, 32]), torch.Size([1, 1, 32]), 6)
    """

    def __init__(
        self,
        *,
        batch: int,
        num_heads: int,
        head_dim: int,
        max_length: int,
        value_dim: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """
        batch: rows.
        num_heads: key heads.
        head_dim: channels of a key.
        max_length: tokens that a row can hold.
        value_dim: channels of a value; head_dim if left out.
        dtype: of keys and values, and of attention with them.
        device: where they live.
        """
        value_dim = head_dim if value_dim is None else value_dim
        for name, size in (
            ("batch", batch), ("num_heads", num_heads), ("head_dim", head_dim), ("max_length", max_length),
            ("value_dim", value_dim),
        ):  # fmt: skip
            require_count(name, size, "it sizes the cache", least=1)
        require_dtype(dtype, "keys and values hold fractions")
        device = require_device(device)
        shape = batch, num_heads, max_length
        with torch.inference_mode(False):  # what is allocated in inference mode could not be written to outside
            self.keys = torch.zeros(*shape, head_dim, dtype=dtype, device=device)
            self.values = torch.zeros(*shape, value_dim, dtype=dtype, device=device)
        self.max_length = max_length
        self.length = 0
        """Slots in use: tokens of the longest row, and what padding came with the last; where reading the rows'
        lengths would make the host wait, all padding so far."""
        self.lengths: Int[Tensor, "batch"] | None = None
        """Tokens of each row, where they may differ."""
        self.rotated_by: tuple[QueryKeyEncoding, ...] | None = None
        """What rotated the keys before they were cached; None where ``append`` was told only of the keys."""
        self.sequence_length: int | Tensor | None = None
        """How long the sequence is for which they were rotated, where that was told."""
        self.is_counted = True
        """Whether the positions of all tokens count them, 0, 1, 2, ...; if not, only the caller knows the next ones."""
        self.offsets = OffsetCache()
        """Biases and vectors over offsets, for the steps of one generation."""
        self._tables: dict[object, tuple[int, list[RotationTable]]] = {}

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of keys and values, and of attention with them."""
        return self.keys.dtype

    @property
    def batch(self) -> int:
        """Rows."""
        return self.keys.shape[0]

    def __repr__(self) -> str:
        return (
            f"KVCache(batch={self.batch}, num_heads={self.keys.shape[1]}, head_dim={self.keys.shape[-1]}, "
            f"length={self.length} of {self.max_length}, dtype={self.dtype})"
        )

    def positions(self) -> Positions:
        """Where the cached tokens stand."""
        if self.lengths is None:
            return Positions.range(self.length, device=self.keys.device)
        slots = torch.arange(self.length, device=self.keys.device)
        return Positions.from_mask(slots < self.lengths[:, None], side="right")

    def positions_of_next(self, count: int, *, sequence_length: int | None = None) -> Positions:
        """Where the next tokens stand: right behind each row's last."""
        if type(count) is not int or count < 0:
            count = require_count("count", count, "it counts tokens", least=0)
        if self.lengths is None:
            return Positions.range(
                count, start=self.length, sequence_length=sequence_length, device=self.keys.device
            )  # fmt: skip
        next_ones = Positions.range(count, start=self.lengths, sequence_length=sequence_length)
        return replace(next_ones, below=self.length + count)

    def extend(
        self,
        query: Float[Tensor, "batch heads new head_dim"],
        key: Float[Tensor, "batch kv_heads new head_dim"],
        value: Float[Tensor, "batch kv_heads new value_dim"],
        positions: PositionsLike,
        encodings: Encodings,
    ) -> Step:
        """Take new tokens in, and give what their attention computes with. What is refused changes nothing."""
        self._require_room(key, value, "key", "value")
        count, dtype = key.shape[2], self.dtype
        require_queries(query, self.keys, count)
        listed = as_encodings(encodings, "encodings")
        if not query.dtype == key.dtype == value.dtype == dtype:
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        admitted = self.admit(positions, count)
        is_counted = self.is_counted and (positions is None or _counts_tokens(positions, admitted))
        scale = softmax_scale(listed, query.shape[-1])
        rotations, left = _rotations_and_others(listed)
        _require_counted(admitted, left)
        before = self.length, self.lengths, self.rotated_by, self.sequence_length, self.is_counted
        if self.length:
            self._require_same_rotations(rotations)
        query, key = self._rotated(query, key, admitted, rotations)
        if not self.length:
            self.rotated_by, self.sequence_length = tuple(rotations), admitted.sequence_length
        self.is_counted = is_counted
        keys, values = self._append(key, value, admitted.valid)
        of_keys = self.positions()
        if not rotations and any(isinstance(each, RotationEncoding) for each in left):  # keys are rotated in each step
            of_keys = replace(of_keys, sequence_length=admitted.sequence_length)
        return Step(query, keys, values, left, admitted, of_keys, scale, before)

    def admit(self, positions: PositionsLike, count: int) -> Positions:
        """Give positions the slots behind those in the cache, of which padding takes none; raise where they tell other
        ones."""
        if type(count) is not int or count < 0:
            count = require_count("count", count, "it counts tokens", least=0)
        if positions is None:
            if not self.is_counted:
                raise ValueError(
                    f"positions must be given, since those of the {self.length} tokens in the cache do not count them, "
                    f"and nothing tells which come next; got None."
                )
            positions = self.positions_of_next(count)
            if self.lengths is None:
                return positions
        admitted = Positions.of(positions, count, batch=self.batch, device=self.keys.device)
        if admitted.start is not None and self.lengths is None and admitted.start == self.length:
            return admitted
        valid, told, slots = admitted.valid, admitted.slots, self._slots_of_next(count)
        if valid is not None and count:
            slots = slots[:, :1] + (valid.cumsum(-1) - 1).clamp(min=0)
            if told is not None and admitted.given_slots is None:
                told = _without_padding(told, valid, slots if self.length else None)
        if told is not None and not _agree(told, slots, valid):
            raise ValueError(
                f"positions must follow those in the cache, {self.length} so far, since a token sees what stands "
                f"before it; got {admitted!r}. Leave them out, or slice those of the whole sequence: "
                f"positions[first:last]."
            )
        return replace(admitted, given_slots=slots, tables={})

    def append(
        self,
        keys: Float[Tensor, "batch heads new head_dim"],
        values: Float[Tensor, "batch heads new value_dim"],
        valid: Bool[Tensor, "#batch new"] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add tokens behind each row's last, and give all keys and values so far. ``valid`` tells real tokens of padded
        rows: those are stored one after another, and the next ones of a row go right behind them."""
        self._require_room(keys, values)
        if valid is not None:
            require_valid(valid, self.keys, keys.shape[2])
        return self._append(keys.to(self.dtype), values.to(self.dtype), valid)

    def _append(self, keys: Tensor, values: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Write keys and values that fit, in the cache's dtype."""
        count = keys.shape[2]
        if valid is not None:
            keys, values = (each.masked_fill(~valid[:, None, :, None], 0) for each in (keys, values))
            if is_ahead_of_tokens(valid):
                order = (~valid).int().argsort(dim=-1, stable=True)[:, None, :, None]
                keys, values = (each.gather(2, order.expand(each.shape)) for each in (keys, values))
        if self.lengths is None:
            here = slice(self.length, self.length + count)
            self.keys[:, :, here], self.values[:, :, here] = keys, values
            if valid is not None:
                self.lengths = self.length + valid.sum(-1).expand(self.batch)
        else:
            self.length = self.longest
            rows, slots = torch.arange(self.batch, device=self.keys.device)[:, None], self._slots_of_next(count)
            self.keys[rows, :, slots], self.values[rows, :, slots] = keys.transpose(1, 2), values.transpose(1, 2)
            self.lengths = self.lengths + (count if valid is None else valid.sum(-1))
        self.length += count
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def crop(self, length: int) -> None:
        """Forget all tokens behind the first ``length`` of each row, as after a rejected draft."""
        require_count("length", length, "it counts tokens", least=0)
        if length > self.length:
            raise ValueError(f"length must be at most {self.length}, since so many tokens are cached; got {length}.")
        if not length:
            self.reset()
            return
        self.length = length
        self.lengths = None if self.lengths is None else self.lengths.clamp(max=length)

    def reset(self) -> None:
        """Forget everything, and begin anew in the same memory."""
        self.length, self.lengths = 0, None
        self.rotated_by, self.sequence_length, self.is_counted = None, None, True
        self.keys, self.values = self.keys.detach(), self.values.detach()
        self.offsets.clear()
        self._tables.clear()

    def evict(self, count: int, *, sinks: int = 0) -> None:
        """Forget ``count`` tokens behind the first ``sinks``, and move the rest up, positions and all (attention sinks,
        Xiao et al. 2023). Keys that were rotated are rotated on to their new positions."""
        require_count("count", count, "it counts tokens")
        require_count("sinks", sinks, "it counts tokens", least=0)
        if not self.is_counted:
            raise ValueError(
                "positions must count the tokens in the cache to be evicted, since the rest moves up by as many; got "
                "tokens that were given others."
            )
        length = self._shared_length()
        if not 0 <= count <= length - sinks:
            raise ValueError(
                f"count must lie in 0 .. {max(0, length - sinks)}, since {length} tokens are cached and {sinks} stay; "
                f"got {count}."
            )
        left = length - sinks - count
        old, new = slice(sinks + count, length), slice(sinks, sinks + left)
        keys = self.keys[:, :, old].clone()
        before, after = (
            replace(Positions.range(left, start=start, device=keys.device), sequence_length=self.sequence_length)
            for start in (sinks + count, sinks)
        )
        self.keys[:, :, new] = self._moved(keys, before, after)
        self.values[:, :, new] = self.values[:, :, old].clone()
        self.length, self.lengths = length - count, None

    def _require_same_rotations(self, rotations: Sequence[QueryKeyEncoding]) -> None:
        """Raise if cached keys were rotated otherwise than new ones would be."""
        held = rotations if self.rotated_by is None else self.rotated_by
        if len(rotations) == len(held) and all(map(_rotate_alike, rotations, held)):
            return
        raise ValueError(
            f"encodings must rotate new keys as those in the cache were, since their products would mix two rotations; "
            f"got {_told(rotations)} for keys rotated by {_told(held)}. Use a cache for each layer, or "
            f"reset()."
        )

    def withdraw(self, step: Step) -> None:
        """Forget the tokens of the last step, as after an error in its attention."""
        require_instance("step", step, Step, "it tells what was there before", "a Step that extend() gave")
        self.length, self.lengths, self.rotated_by, self.sequence_length, self.is_counted = step.before

    def _moved(self, keys: Tensor, before: Positions, after: Positions) -> Tensor:
        """Rotate keys on from where they stood to where they stand."""
        rotated_by = self.rotated_by or ()
        rotations = [each for each in rotated_by if isinstance(each, RotationEncoding)]
        others = [each for each in rotated_by if not isinstance(each, RotationEncoding)]
        if others:
            raise TypeError(
                f"keys must be rotated by a RotationEncoding to be moved, since others cannot be rotated on; got "
                f"{type(others[0]).__name__}."
            )
        if len(rotations) == 1:
            return rotations[0].rerotate(keys, before, after)
        moved = keys.to(widest(keys.device))  # of several rotations the last is undone first, since they do not commute
        for each in reversed(rotations):
            moved = each.inverse(moved, before, role="key")
        for each in rotations:
            moved = each(moved, after, role="key")
        return moved.to(keys.dtype)

    def _rotated(
        self, query: Tensor, key: Tensor, positions: Positions, encodings: Sequence[Encoding]
    ) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys before these are cached."""
        for each in encodings:
            if isinstance(each, RotationEncoding):
                if self.length and each.by_length:
                    cached = replace(self.positions(), sequence_length=self.sequence_length)
                    each.require_agreement(positions, cached)
                table = self._table(each, positions, computing_dtype(query.dtype))
                query, key = each.both(query, key, positions if table is None else table)
            elif isinstance(each, QueryKeyEncoding):
                query, key = each(query, positions), each(key, positions, role="key")
        return query, key

    def _table(self, encoding: RotationEncoding, positions: Positions, dtype: torch.dtype) -> RotationTable | None:
        """The cosines and sines of one next token, out of those of many that are made at once; None where queries and
        keys, or lengths, have their own."""
        start = positions.start
        if start is None or positions.length > 1 or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        if encoding.treats_roles_apart or encoding.by_length:
            return None
        name = (encoding.identity, dtype, torch.is_inference_mode_enabled())
        first, tables = self._tables.get(name, (0, []))
        if not first <= start < first + len(tables):
            whole = encoding.table(Positions.range(STEPS, start=start, device=positions.device), dtype=dtype)
            first, tables = start, [whole.at(step) for step in range(STEPS)]
            self._tables[name] = first, tables
        return tables[start - first]

    def _slots_of_next(self, count: int) -> Int[Tensor, "#batch count"]:
        ahead = torch.arange(count, device=self.keys.device)
        return (self.length if self.lengths is None else self.lengths[:, None]) + ahead[None]

    @property
    def longest(self) -> int:
        """Tokens of the longest row, as far as the host may know."""
        return self.length if self.lengths is None or is_deferred(self.lengths) else int(self.lengths.max())

    def _shared_length(self) -> int:
        """The length that all rows have; raise where they differ, or only a device knows."""
        if self.lengths is None:
            return self.length
        lengths = self.lengths.tolist()
        if len(set(lengths)) > 1:
            raise ValueError(
                f"rows must be as long as each other to be evicted, since they move together; got lengths {lengths}."
            )
        return int(lengths[0])

    def _require_room(self, keys: Any, values: Any, *names: str) -> None:
        """Raise unless new keys and values, which the caller may have called otherwise, fit the cache."""
        require_new_keys(keys, values, self.keys, self.values, names or ("keys", "values"))
        length, count = self.longest, keys.shape[2]
        if length + count > self.max_length:
            raise ValueError(
                f"max_length must be at least {length + count} for {count} more tokens, since the cache holds "
                f"{length}; got max_length={self.max_length}. Make a larger cache, or evict()."
            )


def _counts_tokens(given: PositionsLike, admitted: Positions) -> bool:
    """Whether positions are the slots that they were admitted to. Of ids that only a device knows it is taken for
    granted where they were given with slots or as padded rows."""
    if admitted.start is not None:
        return True
    ids, slots, valid = admitted.ids, admitted.given_slots, admitted.valid
    assert slots is not None
    if is_deferred(ids):
        return isinstance(given, Positions) and (given.structure == "padded" or given.given_slots is not None)
    if admitted.axes > 1:
        slots, valid = slots.unsqueeze(-1), None if valid is None else valid.unsqueeze(-1)
    return _agree(ids, slots, valid)


def _rotations_and_others(
    encodings: Sequence[Encoding],
) -> tuple[Sequence[QueryKeyEncoding], Sequence[Encoding]]:
    """Tell what rotates keys before they are cached from what acts in every step. Terms by content meet keys that are
    not rotated: with them, everything is done anew in each step."""
    rotations: list[QueryKeyEncoding] = []
    others: list[Encoding] = []
    for each in encodings:
        if isinstance(each, ScoreEncoding):
            return (), encodings
        if isinstance(each, QueryKeyEncoding):
            rotations.append(each)
        else:
            others.append(each)
    return rotations, others


def _require_counted(positions: Positions, encodings: Sequence[Encoding]) -> None:
    """Raise unless new tokens have the positions that encodings of the scores read off a key's slot in the cache."""
    if not encodings or positions.start is not None:
        return
    assert positions.given_slots is not None
    if positions.axes > 1 or not _agree(positions.ids, positions.given_slots, positions.valid):
        raise ValueError(
            f"positions must count the tokens in the cache, since {type(encodings[0]).__name__} reads a key's position "
            f"off its slot; got {positions!r}."
        )


def is_ahead_of_tokens(valid: Tensor) -> bool:
    """Whether padding stands before real tokens, or may where only a device knows."""
    return is_deferred(valid) or bool((valid[:, 1:] & ~valid[:, :-1]).any())


def _without_padding(slots: Tensor, valid: Tensor, next_slots: Tensor | None) -> Tensor:
    """Slots as a cache gives them, where padding takes none. ``next_slots`` are those behind tokens that came before:
    how much padding stood among these is told by nobody, so that rows may lie farther along by it."""
    counted = slots - (~valid).cumsum(-1)
    if next_slots is None:
        return counted
    ahead = (counted - next_slots).masked_fill(~valid, torch.iinfo(torch.int64).max).amin(-1, keepdim=True)
    return counted - ahead.clamp(min=0)


def _rotate_alike(one: QueryKeyEncoding, other: QueryKeyEncoding) -> bool:
    """Whether two encodings of rotation have the same options."""
    both = isinstance(one, RotationEncoding) and isinstance(other, RotationEncoding)
    return one is other or (both and one.identity == other.identity)


def _told(rotations: Sequence[QueryKeyEncoding]) -> str:
    return " and ".join(f"{type(each).__name__}({each.extra_repr()})" for each in rotations) or "none"


def _agree(given: Tensor, slots: Tensor, valid: Tensor | None) -> bool:
    """Whether real tokens have these slots, as far as can be told without a wait."""
    if is_deferred(given) or is_deferred(slots):
        return True
    same = given == slots
    return bool((same if valid is None else same | ~valid).all())
