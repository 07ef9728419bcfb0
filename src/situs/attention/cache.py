"""The cache of keys and values, which owns decoding: prefill, chunks, single tokens, rows of unequal length, eviction.

Keys are cached as attention needs them: rotated already, where an encoding rotates them, and the cache knows by which.
Each row has its own length, so that a batch of unequal prompts decodes without padding between: padding takes no slot,
whichever side it stands on, and a new token goes right behind its row's last. Memory is allocated once, in the cache's
own dtype; attention with it is computed in that dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from situs.attention.features import features_of, require_features, require_key_features
from situs.attention.fitting import require_new_keys, require_queries, require_valid
from situs.attention.offsets import OffsetCache
from situs.attention.request import softmax_scale
from situs.attention.rotated_keys import moved_keys, require_same_rotations, rotations_and_others
from situs.attention.slots import agree, counts_tokens, is_ahead_of_tokens, require_counted, slots_without_padding
from situs.encodings.base import Encoding, Encodings, QueryKeyEncoding, as_encodings, computing_dtype
from situs.encodings.rotation import RotationEncoding
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
    features: Mapping[str, Tensor]
    """Those of the new queries, and those of all keys."""


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
        self.features: dict[str, Tensor] = {}
        """Features of keys, which lie as these do; allocated when the first come."""
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
        features: Mapping[str, Float[Tensor, "batch heads new width"]] | None = None,
    ) -> Step:
        """Take new tokens in, and give what their attention computes with. What is refused changes nothing."""
        self._require_room(key, value, "key", "value")
        count, dtype = key.shape[2], self.dtype
        require_queries(query, self.keys, count)
        listed = as_encodings(encodings, "encodings")
        given = {name: each.to(dtype) for name, each in require_features(listed, features, query, count).items()}
        of_new_keys = {name: given[name] for name in features_of(listed, "key")}
        self._require_held(of_new_keys)
        if not query.dtype == key.dtype == value.dtype == dtype:
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        admitted = self.admit(positions, count)
        is_counted = self.is_counted and (positions is None or counts_tokens(positions, admitted))
        scale = softmax_scale(listed, query.shape[-1])
        rotations, left = rotations_and_others(listed)
        require_counted(admitted, left)
        before = self.length, self.lengths, self.rotated_by, self.sequence_length, self.is_counted
        if self.length:
            require_same_rotations(rotations, self.rotated_by)
        query, key = self._rotated(query, key, admitted, rotations)
        if not self.length:
            self.rotated_by, self.sequence_length = tuple(rotations), admitted.sequence_length
        self.is_counted = is_counted
        keys, values, *of_held_keys = self._append([key, value, *of_new_keys.values()], admitted.valid, of_new_keys)
        given |= dict(zip(of_new_keys, of_held_keys, strict=True))
        of_keys = self.positions()
        if not rotations and any(isinstance(each, RotationEncoding) for each in left):  # keys are rotated in each step
            of_keys = replace(of_keys, sequence_length=admitted.sequence_length)
        return Step(query, keys, values, left, admitted, of_keys, scale, before, given)

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
        if admitted.documents is not None:
            raise ValueError(
                f"positions must be of one document per row with a cache, since a row goes on where it ended; got "
                f"{admitted!r}. Give each document a row: Positions.batch([...])."
            )
        valid, told, slots = admitted.valid, admitted.slots, self._slots_of_next(count)
        if valid is not None and count:
            slots = slots[:, :1] + (valid.cumsum(-1) - 1).clamp(min=0)
            if told is not None and admitted.given_slots is None:
                told = slots_without_padding(told, valid, slots if self.length else None)
        if told is not None and not agree(told, slots, valid):
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
        features: Mapping[str, Float[Tensor, "batch query_heads new width"]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add tokens behind each row's last, and give all keys and values so far. ``valid`` tells real tokens of padded
        rows: those are stored one after another, and the next ones of a row go right behind them. ``features`` are
        those of the keys, by name, which encodings declare."""
        self._require_room(keys, values)
        if valid is not None:
            require_valid(valid, self.keys, keys.shape[2])
        given = require_key_features(features, self.features if self.length else None, keys)
        self._require_held(given)
        held = self._append([each.to(self.dtype) for each in (keys, values, *given.values())], valid, given)
        return held[0], held[1]

    def _append(self, new: list[Tensor], valid: Tensor | None, features: Iterable[str] = ()) -> list[Tensor]:
        """Write keys, values and features of those names, which fit, in the cache's dtype; give all so far."""
        count = new[0].shape[2]
        if valid is not None:
            new = [each.masked_fill(~valid[:, None, :, None], 0) for each in new]
            if is_ahead_of_tokens(valid):
                order = (~valid).int().argsort(dim=-1, stable=True)[:, None, :, None]
                new = [each.gather(2, order.expand(each.shape)) for each in new]
        if not self.length:
            self.features = {}
        for name, each in zip(features, new[2:], strict=True):
            if name not in self.features:
                with torch.inference_mode(False):
                    room = self.batch, each.shape[1], self.max_length, each.shape[3]
                    self.features[name] = torch.zeros(room, dtype=self.dtype, device=self.keys.device)
        held = [self.keys, self.values, *(self.features[name] for name in features)]
        if self.lengths is None:
            here = slice(self.length, self.length + count)
            for stored, each in zip(held, new, strict=True):
                stored[:, :, here] = each
            if valid is not None:
                self.lengths = self.length + valid.sum(-1).expand(self.batch)
        else:
            self.length = self.longest
            rows, slots = torch.arange(self.batch, device=self.keys.device)[:, None], self._slots_of_next(count)
            for stored, each in zip(held, new, strict=True):
                stored[rows, :, slots] = each.transpose(1, 2)
            self.lengths = self.lengths + (count if valid is None else valid.sum(-1))
        self.length += count
        return [each[:, :, : self.length] for each in held]

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
        self.keys, self.values, self.features = self.keys.detach(), self.values.detach(), {}
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
        self.keys[:, :, new] = moved_keys(keys, self.rotated_by or (), before, after)
        for each in (self.values, *self.features.values()):
            each[:, :, new] = each[:, :, old].clone()
        self.length, self.lengths = length - count, None

    def withdraw(self, step: Step) -> None:
        """Forget the tokens of the last step, as after an error in its attention."""
        require_instance("step", step, Step, "it tells what was there before", "a Step that extend() gave")
        self.length, self.lengths, self.rotated_by, self.sequence_length, self.is_counted = step.before

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
        if start is None or positions.length != 1 or torch.is_grad_enabled() or torch.compiler.is_compiling():
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

    def _require_held(self, features: Iterable[str]) -> None:
        """Raise if features of new keys are others than those of the keys in the cache."""
        if self.length and set(features) != set(self.features):
            held, given = (", ".join(map(repr, each)) or "none" for each in (self.features, features))
            raise ValueError(
                f"features of new keys must be those of the keys in the cache, {held}, since attention needs them of "
                f"all; got {given}. Use a cache for each layer, or reset()."
            )

    def _require_room(self, keys: Any, values: Any, *names: str) -> None:
        """Raise unless new keys and values, which the caller may have called otherwise, fit the cache."""
        require_new_keys(keys, values, self.keys, self.values, names or ("keys", "values"))
        length, count = self.longest, keys.shape[2]
        if length + count > self.max_length:
            raise ValueError(
                f"max_length must be at least {length + count} for {count} more tokens, since the cache holds "
                f"{length}; got max_length={self.max_length}. Make a larger cache{', or evict()' if length else ''}."
            )
