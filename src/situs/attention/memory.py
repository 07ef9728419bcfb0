"""Memory of keys, values and features: rows of tokens that grow at their end, and what is done to all rows at once.

It is a value. What changes it gives a new one, so that a cache that is refused something, or fails in the middle, still
has the one of before. Tensors are shared between the two wherever nothing is overwritten: new tokens are written behind
those in use. What a backward pass may read is never written to; it is copied first.

With a window, tokens that no later one can see are forgotten, and memory is a little more than the window. Keys stay in
order: they are written one after another, and when memory is full the last ones move to the front of a new one.

    window=4    [ 0  1  2  3  4  5  .  . ]    length 6, held 6, forgotten 0
                [ 3  4  5  6  .  .  .  . ]    length 7, held 4, forgotten 3: 6 is new, and sees 3 to 6
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Int
from torch import Tensor

from situs.attention.admission import is_ahead_of_tokens
from situs.attention.rotated_keys import Rotation
from situs.encodings.base import Encoding
from situs.positions import Positions, is_deferred

SPARE = 32  # tokens that are held beyond the window at least, so that drafts of as many can be cropped

Move: TypeAlias = Callable[[Tensor, Tensor, int, int], tuple[Tensor, Tensor]]


class Memory(NamedTuple):
    """Keys and values, and which tokens they are."""

    keys: Tensor
    values: Tensor
    room: int
    """Slots that are allocated for each row; more for the time of a chunk that is longer than a window."""
    window: int | None = None
    """How many keys a query sees; None where all are held."""
    length: int = 0
    """Tokens of the longest row so far, and what padding came with the last; where reading the rows' lengths would make
    the host wait, all padding so far."""
    held: int = 0
    """Slots in use: one for each token that is not forgotten."""
    lengths: Int[Tensor, "batch"] | None = None
    """Tokens of each row so far, where they may differ."""
    forgotten: int | Int[Tensor, "batch"] = 0
    """Tokens of all rows, or of each, that the window has left behind: the first slot holds the next one."""
    features: Mapping[str, Tensor] = MappingProxyType({})
    """Features of keys by name, which lie as these do; allocated when the first come."""

    @property
    def stored(self) -> list[Tensor]:
        """All tensors that have a slot for each token: keys, values, features."""
        return [self.keys, self.values, *self.features.values()]

    def with_stored(self, tensors: Sequence[Tensor]) -> Memory:
        """Exchange all tensors that have a slot for each token."""
        keys, values, *features = tensors
        return self._replace(keys=keys, values=values, features=dict(zip(self.features, features, strict=True)))

    def longest(self) -> int:
        """Tokens of the longest row, as far as the host may know."""
        return self.length if self.lengths is None or is_deferred(self.lengths) else int(self.lengths.max())

    def shared_length(self) -> int:
        """Tokens of all rows; raise where they differ."""
        lengths = [self.length] if self.lengths is None else self.lengths.tolist()
        if len(set(lengths)) > 1:
            raise ValueError(
                f"rows must be as long as each other to be evicted, since they move together; got lengths {lengths}."
            )
        return int(lengths[0])

    def positions(self) -> Positions:
        """Where the tokens stand that are held."""
        if self.lengths is None:
            return Positions.range(self.held, start=self.length - self.held, device=self.keys.device)
        slots = torch.arange(self.held, device=self.keys.device)
        if not isinstance(self.forgotten, Tensor):
            if not self.forgotten:
                return Positions.from_mask(slots < self.lengths[:, None], side="right")
            slots = (self.forgotten + slots).expand(len(self.lengths), -1)
        else:
            slots = self.forgotten[:, None] + slots
        padded = Positions.from_mask(slots < self.lengths[:, None], side="right")
        return replace(
            padded, runs=None, given_ids=slots.masked_fill(~padded.valid, 0), given_slots=slots,  # type: ignore[operator]
            sequence_length=self.lengths[:, None], below=self.length,
        )  # fmt: skip

    def next_slots(self, count: int) -> Int[Tensor, "#batch count"]:
        """Which tokens of their rows the next ones are."""
        ahead = torch.arange(count, device=self.keys.device)
        return (self.length if self.lengths is None else self.lengths[:, None]) + ahead[None]

    def appended(
        self, keys: Tensor, values: Tensor, valid: Tensor | None, features: Mapping[str, Tensor] = MappingProxyType({})
    ) -> Memory:
        """Write tokens behind each row's last; real ones are stored one after another. ``features`` are those of the
        memory, in its order, or the first."""
        names = self.features if self.length else features
        count, device, new = keys.shape[2], keys.device, [keys, values, *(features[name] for name in names)]
        if valid is not None:
            new = [each.masked_fill(~valid[:, None, :, None], 0) for each in new]
            if is_ahead_of_tokens(valid):
                order = (~valid).int().argsort(dim=-1, stable=True)[:, None, :, None]
                new = [each.gather(2, order.expand(each.shape)) for each in new]
        memory = self if self.length else self._replace(features=self._with_slots(features))
        memory = memory.with_room(count)
        lengths, held = memory.lengths, memory.held
        if lengths is None:
            here = slice(held, held + count)
            for stored, each in zip(memory.stored, new, strict=True):
                stored[:, :, here] = each
            lengths = None if valid is None else memory.length + valid.sum(-1).expand(len(keys))
        else:
            rows = torch.arange(len(keys), device=device)[:, None]
            slots = (lengths - memory.forgotten)[:, None] + torch.arange(count, device=device)
            for stored, each in zip(memory.stored, new, strict=True):
                stored[rows, :, slots] = each.transpose(1, 2)
            lengths = lengths + (count if valid is None else valid.sum(-1))
        return memory._replace(length=memory.length + count, held=held + count, lengths=lengths)

    def _with_slots(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Allocate as many slots for features as there are for keys."""
        return {name: in_new_memory(each[:, :, :0], self.keys.shape[2]) for name, each in features.items()}

    def with_room(self, count: int) -> Memory:
        """Make room for ``count`` tokens behind the longest row; with a window, let go of what they cannot see."""
        memory = self if self.lengths is None else self.without_padding()
        size, learns = memory.held + count, any(each.requires_grad for each in memory.stored)
        if size <= memory.keys.shape[2] and not learns and (memory.window is None or _is_writable(memory.keys)):
            return memory
        if size <= memory.room or memory.window is None:
            return memory.last(memory.held, size if learns and torch.is_grad_enabled() else memory.room)
        seen = memory.window - 1
        most = max(seen, min(seen + SPARE, memory.room - count))
        return memory.last(most, max(memory.room, min(memory.held, most) + count))

    def without_padding(self) -> Memory:
        """Count the slots that rows take, as far as the host may know: padding came with the last tokens."""
        if self.lengths is None or is_deferred(self.lengths):
            return self
        return self._replace(length=int(self.lengths.max()), held=int((self.lengths - self.forgotten).max()))

    def last(self, most: int, size: int) -> Memory:
        """Hold the last tokens of each row, ``most`` of them at most, in new memory of ``size`` slots."""
        left = min(self.held, most)
        gone: int | Tensor = self.held - left
        kept = [each[:, :, gone : self.held] for each in self.stored]
        if gone and self.lengths is not None:  # each row lets go of its own first ones
            device = self.keys.device
            gone = (self.lengths - self.forgotten - most).clamp(min=0)
            rows, slots = torch.arange(len(gone), device=device)[:, None], torch.arange(left, device=device)
            slots = gone[:, None] + slots
            kept = [each[rows, :, slots].transpose(1, 2) for each in self.stored]
        memory = self.with_stored([in_new_memory(each, size) for each in kept])
        return memory._replace(held=left, forgotten=self.forgotten + gone)

    def fitted(self) -> Memory:
        """Give memory back that a chunk longer than the window took, with all that no later token sees."""
        if self.window is None or self.keys.shape[2] <= self.room:
            return self
        return self.last(self.window - 1 + SPARE, self.room)

    def shortest(self) -> int | Int[Tensor, "batch"]:
        """Tokens that rows must keep, so that what the next one sees is held."""
        seen = 0 if self.window is None else self.window - 1
        if isinstance(self.forgotten, Tensor):
            return torch.where(self.forgotten > 0, self.forgotten + seen, 0)
        return self.forgotten + seen if self.forgotten else 0

    def shortened(self, lengths: int | Int[Tensor, "batch"]) -> Memory:
        """Let go of all tokens behind the first ones of each row."""
        most = self.length if isinstance(lengths, Tensor) else lengths
        if not isinstance(lengths, Tensor) and self.lengths is not None:
            lengths = self.lengths.clamp(max=lengths)
        if isinstance(lengths, Tensor) and not isinstance(self.forgotten, Tensor) and not is_deferred(lengths):
            lengths = int(lengths[0]) if bool((lengths == lengths[0]).all()) else lengths
        if isinstance(lengths, Tensor):
            held = self.held if isinstance(self.forgotten, Tensor) else min(self.held, most - self.forgotten)
            return self._replace(length=most, held=held, lengths=lengths).without_padding()
        assert not isinstance(self.forgotten, Tensor)
        return self._replace(length=lengths, held=lengths - self.forgotten, lengths=None)

    def with_rows(self, rows: Int[Tensor, "rows"]) -> Memory:
        """Take rows, in new memory."""
        taken = [in_new_memory(each[:, :, : self.held].index_select(0, rows), self.room) for each in self.stored]
        lengths = None if self.lengths is None else self.lengths[rows]
        forgotten = self.forgotten[rows] if isinstance(self.forgotten, Tensor) else self.forgotten
        return self.with_stored(taken)._replace(lengths=lengths, forgotten=forgotten)

    def evicted(self, count: int, sinks: int, move: Move) -> Memory:
        """Let go of ``count`` tokens behind the first ``sinks`` of rows that are as long as each other; the rest moves
        up, and ``move`` makes keys and values of tokens from one number on those of tokens from another on."""
        memory = self.without_padding()
        length, gone = memory.length, memory.forgotten
        gone = int(gone.max()) if isinstance(gone, Tensor) else gone
        stay, begin = max(0, sinks - gone), max(0, sinks + count - gone)
        first = gone if stay else gone + begin - count
        if memory.window is not None and first > max(0, length - count - memory.window + 1):
            raise ValueError(
                f"count must leave the {memory.window - 1} tokens that the next one sees, since {gone} before them are "
                f"no longer held; got {count} of {length} tokens with sinks={sinks}."
            )
        stored = memory.last(length - gone, length - gone).stored  # rows may have forgotten unlike numbers
        rests = [each[:, :, begin:] for each in stored]
        rests[:2] = move(rests[0], rests[1], gone + begin, gone + begin - count)
        joined = [torch.cat((each[:, :, :stay], rest), 2) for each, rest in zip(stored, rests, strict=True)]
        left, memory = length - count, memory.with_stored([in_new_memory(each, memory.room) for each in joined])
        return memory._replace(length=left, held=left - first, lengths=None, forgotten=first)

    def emptied(self) -> Memory:
        """Begin anew in the same memory, or in new memory where a backward pass may read this one."""
        keys, values = self.keys, self.values
        if keys.requires_grad or values.requires_grad:
            keys, values = (in_new_memory(each.detach()[:, :, :0], self.room) for each in (keys, values))
        return Memory(keys, values, self.room, self.window, features={})


class Step(NamedTuple):
    """What attention computes with: queries, keys and values, their positions, and what is left to do."""

    query: Tensor
    key: Tensor
    value: Tensor
    encodings: Sequence[Encoding]
    """Encodings that have not acted yet."""
    query_positions: Positions
    key_positions: Positions
    scale: float
    before: tuple[Memory, tuple[Rotation, ...] | None, int | Tensor | None, bool]
    """What a cache held before this step."""
    features: Mapping[str, Tensor] = MappingProxyType({})
    """Features of the new queries and of all keys."""


def in_new_memory(tensor: Tensor, size: int) -> Tensor:
    """Copy slots to the front of new memory. What is allocated in inference mode could not be written to outside."""
    if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():
        with torch.inference_mode(False), torch.no_grad():
            return _copied(tensor, size)
    return _copied(tensor, size)


def _is_writable(tensor: Tensor) -> bool:
    """Whether a tensor was not allocated in inference mode, which graphs cannot leave, or that mode is on."""
    return torch.compiler.is_compiling() or not tensor.is_inference() or torch.is_inference_mode_enabled()


def _copied(tensor: Tensor, size: int) -> Tensor:
    batch, heads, slots, width = tensor.shape
    memory = tensor.new_zeros(batch, heads, size, width)
    memory[:, :, :slots] = tensor
    return memory
