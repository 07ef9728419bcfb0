"""The cache of keys and values, which owns decoding: prefill, chunks, single tokens, drafts, beams, sliding windows.

Keys are cached as attention needs them: rotated already, where an encoding rotates them, and the cache knows by which.
Each row has its own length, so that a batch of unequal prompts decodes without padding between: padding takes no slot,
whichever side it stands on, and a new token goes right behind its row's last. Memory is in the cache's own dtype;
attention with it is computed in that dtype.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from situs.arguments import refuse, require_count, require_device, require_dtype, require_instance
from situs.attention.admission import (
    counts_tokens,
    following,
    require_counted,
    require_lengths,
    require_new_keys,
    require_queries,
    require_room,
    require_row_numbers,
    require_valid,
)
from situs.attention.features import (
    features_of,
    require_features,
    require_held_features,
    require_key_features,
)
from situs.attention.fitting import require_window
from situs.attention.memory import SPARE, Memory, Step
from situs.attention.offsets import OffsetCache
from situs.attention.request import softmax_scale
from situs.attention.rotated_keys import (
    Rotation,
    StepTables,
    moved_keys,
    moved_values,
    of_cached,
    require_same_rotations,
    rotations_and_others,
)
from situs.encodings.base import Encodings, QueryKeyEncoding, as_encodings, computing_dtype
from situs.encodings.rotation import RotationEncoding
from situs.encodings.value_map import OutputMap, ValueMap
from situs.positions import Positions, PositionsLike


@final
class KVCache:
    """Keys and values of the tokens so far.

    With a window it holds those that later tokens can see, in memory that does not grow: about the window and an eighth
    of it. ``Attention.make_cache`` asks for that where the layer has a window.

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
        max_length: int | None = None,
        window: int | None = None,
        value_dim: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """
        batch: rows.
        num_heads: key heads.
        head_dim: channels of a key.
        max_length: tokens that a row can have; with a window it may be left out, and rows never end.
        window: how many keys a query sees, itself included, where no more need be held.
        value_dim: channels of a value; head_dim if left out.
        dtype: of keys and values, and of attention with them.
        device: where they live.
        """
        value_dim = head_dim if value_dim is None else value_dim
        for name, size in (
            ("batch", batch), ("num_heads", num_heads), ("head_dim", head_dim), ("value_dim", value_dim),
        ):  # fmt: skip
            require_count(name, size, "it sizes the cache", least=1)
        if max_length is not None:
            require_count("max_length", max_length, "it sizes the cache", least=1)
        if window is not None:
            require_window(window)
        require_dtype(dtype, "keys and values hold fractions")
        rooms, device = [] if max_length is None else [max_length], require_device(device)
        if window is not None:  # so many tokens come before the last ones are moved that it costs little
            rooms.append(window - 1 + SPARE + max(SPARE, window // 8))
        elif not rooms:
            refuse(ValueError, "max_length", "be given without a window", "memory for all tokens is allocated", "None")
        room = min(rooms)
        with torch.inference_mode(False):  # what is allocated in inference mode could not be written to outside
            keys = torch.zeros(batch, num_heads, room, head_dim, dtype=dtype, device=device)
            values = torch.zeros(batch, num_heads, room, value_dim, dtype=dtype, device=device)
        self.max_length = max_length
        self.memory = Memory(keys, values, room, window, features={})
        """Keys and values, and which tokens they are."""
        self.rotated_by: tuple[Rotation, ...] | None = None
        """What rotated keys and values before they were cached; None where ``append`` was told only of the keys."""
        self.sequence_length: int | Tensor | None = None
        """How long the sequence is for which they were rotated, where that was told."""
        self.is_counted = True
        """Whether the positions of all tokens count them, 0, 1, 2, ...; if not, only the caller knows the next ones."""
        self.offsets = OffsetCache()
        """Biases and vectors over offsets, for the steps of one generation."""
        self._tables = StepTables()

    @property
    def keys(self) -> Float[Tensor, "batch heads slots head_dim"]:
        """All slots for keys, in use or not."""
        return self.memory.keys

    @property
    def values(self) -> Float[Tensor, "batch heads slots value_dim"]:
        """All slots for values."""
        return self.memory.values

    @property
    def features(self) -> Mapping[str, Float[Tensor, "batch query_heads slots width"]]:
        """All slots for features of keys, by name."""
        return self.memory.features

    @property
    def window(self) -> int | None:
        """How many keys a query sees, where no more are held."""
        return self.memory.window

    @property
    def length(self) -> int:
        """Tokens of the longest row so far, and what padding came with the last; where reading the rows' lengths would
        make the host wait, all padding so far."""
        return self.memory.length

    @property
    def lengths(self) -> Int[Tensor, "batch"] | None:
        """Tokens of each row so far, where they may differ."""
        return self.memory.lengths

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of keys and values, and of attention with them."""
        return self.memory.keys.dtype

    @property
    def batch(self) -> int:
        """Rows."""
        return self.memory.keys.shape[0]

    def __repr__(self) -> str:
        most = "" if self.max_length is None else f" of {self.max_length}"
        window = "" if self.window is None else f"window={self.window}, "
        return (
            f"KVCache(batch={self.batch}, num_heads={self.keys.shape[1]}, head_dim={self.keys.shape[-1]}, "
            f"length={self.length}{most}, {window}dtype={self.dtype})"
        )

    def positions(self) -> Positions:
        """Where the cached tokens stand; with a window, those of them that are held."""
        return self.memory.positions()

    def positions_of_next(self, count: int, *, sequence_length: int | None = None) -> Positions:
        """Where the next tokens stand: right behind each row's last."""
        if type(count) is not int or count < 0:
            count = require_count("count", count, "it counts tokens", least=0)
        length, lengths = self.memory.length, self.memory.lengths
        if lengths is None:
            return Positions.range(count, start=length, sequence_length=sequence_length, device=self.memory.keys.device)
        next_ones = Positions.range(count, start=lengths, sequence_length=sequence_length)
        return replace(next_ones, below=length + count)

    def extend(
        self,
        query: Float[Tensor, "batch heads new head_dim"],
        key: Float[Tensor, "batch kv_heads new head_dim"],
        value: Float[Tensor, "batch kv_heads new value_dim"],
        positions: PositionsLike,
        encodings: Encodings,
        features: Mapping[str, Float[Tensor, "batch heads new width"]] | None = None,
    ) -> Step:
        """Take new tokens in, and give what their attention computes with; what is refused changes nothing. This is
        for attention with projections of one's own: fields of the step are arguments of ``attend``, see the guide."""
        memory, count = self._with_room(key, value, "key", "value"), key.shape[2]
        dtype = memory.keys.dtype
        require_queries(query, memory.keys, count)
        listed = as_encodings(encodings, "encodings")
        given: dict[str, Tensor] = {}
        of_new_keys: dict[str, Tensor] = {}
        if features is not None or memory.features or any(each.features for each in listed):
            given = {name: each.to(dtype) for name, each in require_features(listed, features, query, count).items()}
            of_new_keys = {name: given[name] for name in features_of(listed, "key")}
            require_held_features(of_new_keys, memory.features if memory.length else None)
        if not query.dtype == key.dtype == value.dtype == dtype:
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        admitted = self.admit(positions, count)
        is_counted = self.is_counted and (positions is None or counts_tokens(positions, admitted))
        scale = softmax_scale(listed, query.shape[-1])
        rotations, left = rotations_and_others(listed)
        if left:
            require_counted(admitted, [each for each in left if not isinstance(each, OutputMap)])
        if memory.length:
            require_same_rotations(rotations, self.rotated_by)
        query, key, value = self._rotated(query, key, value, admitted, rotations)
        after = memory.appended(key, value, admitted.valid, of_new_keys)
        of_keys = after.positions()
        if not rotations and any(isinstance(each, RotationEncoding) for each in left):  # keys are rotated in each step
            of_keys = replace(of_keys, sequence_length=admitted.sequence_length)
        before = memory, self.rotated_by, self.sequence_length, self.is_counted
        keys, values = after.keys[:, :, : after.held], after.values[:, :, : after.held]
        if after.features:
            given |= {name: each[:, :, : after.held] for name, each in after.features.items()}
        self.memory, self.is_counted = after if memory.window is None else after.fitted(), is_counted
        if not memory.length:
            self.rotated_by, self.sequence_length = of_cached(rotations), admitted.sequence_length
        return Step(query, keys, values, left, admitted, of_keys, scale, before, given)

    def withdraw(self, step: Step) -> None:
        """Forget the tokens of the last step, as after an error in its attention."""
        require_instance("step", step, Step, "it tells what was there before", "a Step that extend() gave")
        self.memory, self.rotated_by, self.sequence_length, self.is_counted = step.before

    def admit(self, positions: PositionsLike, count: int) -> Positions:
        """Give positions the slots behind those in the cache, of which padding takes none; raise where they tell other
        ones."""
        memory = self.memory
        if type(count) is not int or count < 0:
            count = require_count("count", count, "it counts tokens", least=0)
        if positions is None:
            if not self.is_counted:
                raise ValueError(
                    f"positions must be given, since those of the {memory.length} tokens in the cache do not count "
                    f"them, and nothing tells which come next; got None."
                )
            positions = self.positions_of_next(count)
            if memory.lengths is None:
                return positions
        admitted = Positions.of(positions, count, batch=self.batch, device=memory.keys.device)
        if admitted.start is not None and memory.lengths is None and admitted.start == memory.length:
            return admitted
        return following(admitted, memory.next_slots(count), memory.length)

    def append(
        self,
        keys: Float[Tensor, "batch heads new head_dim"],
        values: Float[Tensor, "batch heads new value_dim"],
        valid: Bool[Tensor, "#batch new"] | None = None,
        features: Mapping[str, Float[Tensor, "batch query_heads new width"]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add tokens behind each row's last, and give all keys and values so far; with a window, those that the new
        tokens see, and perhaps some before. ``valid`` tells real tokens of padded rows: those are stored one after
        another, and the next ones of a row go right behind them. ``features`` are those of the keys, by name."""
        memory = self._with_room(keys, values, "keys", "values")
        if valid is not None:
            require_valid(valid, memory.keys, keys.shape[2])
        given, dtype = require_key_features(features, memory.features if memory.length else None, keys), self.dtype
        given = {name: each.to(dtype) for name, each in given.items()}
        after = memory.appended(keys.to(dtype), values.to(dtype), valid, given)
        self.memory = after.fitted()
        return after.keys[:, :, : after.held], after.values[:, :, : after.held]

    def crop(self, length: int | Sequence[int] | Int[Tensor, "batch"]) -> None:
        """Forget all tokens behind the first ``length`` of each row, as after a rejected draft; a list or a tensor has
        one for each row. With a window, 32 tokens at least can be forgotten so.

        >>> import torch, situs
        >>> cache = situs.KVCache(batch=2, num_heads=1, head_dim=4, max_length=16)
        >>> _ = cache.append(torch.randn(2, 1, 6, 4), torch.randn(2, 1, 6, 4))
        >>> cache.crop([3, 5])  # of six tokens, three of the first row are rejected, one of the second
        >>> cache.positions_of_next(1).ids.tolist()
        [[3], [5]]
        """
        wanted: int | Tensor
        if isinstance(length, (list, tuple)) or (isinstance(length, Tensor) and length.ndim):
            wanted = require_row_numbers("length", length, "it counts tokens", self.keys, count=self.batch)
        else:
            wanted = require_count("length", length, "it counts tokens", least=0)
        cropped = self.memory.shortened(wanted)
        own = self.length if self.lengths is None or not isinstance(wanted, Tensor) else self.lengths
        left = cropped.length if cropped.lengths is None else cropped.lengths
        require_lengths(wanted, own, left, self.memory.shortest())
        if cropped.length:
            self.memory = cropped
        else:
            self.reset()

    def reorder(self, rows: Sequence[int] | Int[Tensor, "rows"]) -> None:
        """Put old row ``rows[i]`` in row i, as beam search does. A row may be taken several times, or not at all, and
        there may be more or fewer of them than before.

        >>> import torch, situs
        >>> cache = situs.KVCache(batch=3, num_heads=1, head_dim=4, max_length=16)
        >>> _ = cache.append(torch.randn(3, 1, 6, 4), torch.randn(3, 1, 6, 4))
        >>> cache.reorder([2, 0, 0])  # the third beam goes on, and the first twice
        """
        self._take_rows(require_row_numbers("rows", rows, "each is one of the cache", self.keys, most=self.batch - 1))

    def repeat(self, n: int) -> None:
        """Make each row ``n`` rows, one after another, for as many beams of each prompt.

        >>> import torch, situs
        >>> cache = situs.KVCache(batch=2, num_heads=1, head_dim=4, max_length=16)
        >>> _ = cache.append(torch.randn(2, 1, 6, 4), torch.randn(2, 1, 6, 4))
        >>> cache.repeat(3)  # rows 0, 0, 0, 1, 1, 1
        >>> cache.batch
        6
        """
        n = require_count("n", n, "each row becomes as many", least=1)
        self._take_rows(torch.arange(self.batch, device=self.keys.device).repeat_interleave(n))

    def _take_rows(self, rows: Tensor) -> None:
        whole = self.sequence_length
        whole = whole[rows] if isinstance(whole, Tensor) and len(whole) > 1 else whole
        self.memory, self.sequence_length = self.memory.with_rows(rows), whole

    def reset(self) -> None:
        """Forget everything, and begin anew in the same memory."""
        self.memory = self.memory.emptied()
        self.rotated_by, self.sequence_length, self.is_counted = None, None, True
        self.offsets.clear()
        self._tables.clear()

    def evict(self, count: int, *, sinks: int = 0) -> None:
        """Forget ``count`` tokens behind the first ``sinks``, and move the rest up, positions and all (attention sinks,
        Xiao et al. 2023). Keys and values that were rotated are rotated on to their new positions."""
        require_count("count", count, "it counts tokens")
        require_count("sinks", sinks, "it counts tokens", least=0)
        if not self.is_counted:
            raise ValueError(
                "positions must count the tokens in the cache to be evicted, since the rest moves up by as many; got "
                "tokens that were given others."
            )
        length = self.memory.shared_length()
        if sinks > length:
            refuse(ValueError, "sinks", f"be at most {length}", "so many tokens are cached", str(sinks))
        if not 0 <= count <= length - sinks:
            raise ValueError(
                f"count must lie in 0 .. {length - sinks}, since {length} tokens are cached and {sinks} stay; "
                f"got {count}."
            )

        def move(keys: Tensor, values: Tensor, old: int, new: int) -> tuple[Tensor, Tensor]:
            before, after = (
                replace(
                    Positions.range(keys.shape[2], start=start, device=keys.device),
                    sequence_length=self.sequence_length,
                )
                for start in (old, new)
            )
            rotated_by = self.rotated_by or ()
            return moved_keys(keys, rotated_by, before, after), moved_values(values, rotated_by, before, after)

        self.memory = self.memory.evicted(count, sinks, move)

    def _rotated(
        self, query: Tensor, key: Tensor, value: Tensor, positions: Positions, rotations: Sequence[Rotation]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Rotate queries, keys and values before the latter are cached."""
        for each in rotations:
            if isinstance(each, (RotationEncoding, ValueMap)) and self.memory.length and each.by_length:
                cached = replace(self.memory.positions(), sequence_length=self.sequence_length)
                each.require_agreement(positions, cached)
            if isinstance(each, RotationEncoding):
                table = self._tables.find(each, positions, computing_dtype(query.dtype))
                query, key = each.both(query, key, positions if table is None else table)
            elif isinstance(each, QueryKeyEncoding):
                query, key = each(query, positions), each(key, positions, role="key")
            else:
                value = each(value, positions)
        return query, key, value

    def _with_room(self, keys: Any, values: Any, *names: str) -> Memory:
        """The memory that new keys and values fit, which the caller may have called otherwise."""
        memory = self.memory
        require_new_keys(keys, values, memory.keys, memory.values, names)
        length, count = memory.length if memory.lengths is None else memory.longest(), keys.shape[2]
        require_room(self.max_length, length, count)
        return memory
