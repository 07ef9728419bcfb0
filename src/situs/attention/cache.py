"""The cache of keys and values, allocated once: prefill, chunks, single tokens, rows of unequal length, eviction.

Keys are kept as the attention needs them: turned already, where an encoding turns them, and the cache knows by which.
Each row has its own length, so that a batch of unequal prompts decodes without padding between: a new token goes right
behind its row's last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from situs.encodings.base import QueryKeyEncoding
from situs.encodings.rotation import RotationEncoding
from situs.functional.rotation import RotationTable
from situs.positions import Positions, is_deferred

STEPS = 64  # of a generation, whose angles are made at once


@final
class KVCache:
    """Keys and values of the tokens so far."""

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
        max_length: tokens a row can hold.
        value_dim: channels of a value; head_dim if left out.
        dtype: of keys and values.
        device: where they live.
        """
        if min(batch, num_heads, head_dim, max_length) < 1:
            raise ValueError(
                f"batch, num_heads, head_dim and max_length must be 1 or more, since they size the cache; got {batch}, "
                f"{num_heads}, {head_dim} and {max_length}."
            )
        shape = batch, num_heads, max_length
        self.keys = torch.zeros(*shape, head_dim, dtype=dtype, device=device)
        self.values = torch.zeros(*shape, value_dim or head_dim, dtype=dtype, device=device)
        self.max_length = max_length
        self.length = 0
        """Places in use: tokens of the longest row, and what padding came with the last; where reading the rows'
        lengths would make the host wait, all padding so far."""
        self.lengths: Int[Tensor, "batch"] | None = None
        """Tokens of each row, where they differ."""
        self.turned_by: list[QueryKeyEncoding] = []
        """What turned the keys before they were appended: `Attention` notes it."""
        self.sequence_length: int | Tensor | None = None
        """How long the sequence is for which they were turned, where that was told."""
        self.vectors: dict[Any, Any] = {}
        """Biases over offsets and the like, kept for the steps of one generation; parameters must not change
        meanwhile."""

    def positions_of_next(self, count: int, *, sequence_length: int | None = None) -> Positions:
        """Where the next tokens stand: right behind each row's last."""
        start: Any = self.length if self.lengths is None else self.lengths
        return Positions.range(count, start=start, sequence_length=sequence_length, device=self.keys.device)

    def slots_of_next(self, count: int) -> Int[Tensor, "#batch count"]:
        """The same as a tensor."""
        ahead = torch.arange(count, device=self.keys.device)
        return (self.length if self.lengths is None else self.lengths[:, None]) + ahead[None]

    def positions(self) -> Positions:
        """Where the cached tokens stand."""
        if self.lengths is None:
            return Positions.range(self.length, device=self.keys.device)
        places = torch.arange(self.length, device=self.keys.device)
        return Positions.from_mask(places < self.lengths[:, None], side="right")

    def table_of(self, encoding: RotationEncoding, places: Positions, dtype: torch.dtype) -> RotationTable | None:
        """The cosines and sines of one next token, out of those of many that are made at once; None where queries and
        keys, or lengths, have their own."""
        start = places.start
        if start is None or places.length > 1 or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        if encoding.treats_roles_apart or encoding.by_length:
            return None
        name = ("angles", encoding.identity, dtype)
        first, tables = self.vectors.get(name, (0, ()))
        if not first <= start < first + len(tables):
            whole = encoding.table(Positions.range(STEPS, start=start, device=places.device), dtype=dtype)
            first, tables = start, [whole.at(step) for step in range(STEPS)]
            self.vectors[name] = first, tables
        found: RotationTable = tables[start - first]
        return found

    def append(
        self,
        keys: Float[Tensor, "batch heads new head_dim"],
        values: Float[Tensor, "batch heads new value_dim"],
        valid: Bool[Tensor, "batch new"] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Add tokens behind each row's last, and return all keys and values so far. ``valid`` tells real tokens of
        right-padded rows: the next ones of a row go where its padding was."""
        count = keys.shape[2]
        if self.lengths is not None and not is_deferred(self.lengths):
            self.length = int(self.lengths.max())
        if self.length + count > self.max_length:
            raise ValueError(
                f"max_length must be at least {self.length + count} for {count} more tokens, since the cache holds "
                f"{self.length}; got max_length={self.max_length}. Make a larger cache, or evict()."
            )
        if self.lengths is None:
            here = slice(self.length, self.length + count)
            self.keys[:, :, here], self.values[:, :, here] = keys, values
            if valid is not None:
                self.lengths = self.length + valid.sum(-1)
        else:
            rows, places = torch.arange(len(self.lengths), device=self.keys.device)[:, None], self.slots_of_next(count)
            self.keys[rows, :, places] = keys.transpose(1, 2).to(self.keys.dtype)
            self.values[rows, :, places] = values.transpose(1, 2).to(self.values.dtype)
            self.lengths = self.lengths + (count if valid is None else valid.sum(-1))
        self.length += count
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def evict(self, count: int, *, sinks: int = 0) -> None:
        """Forget ``count`` tokens behind the first ``sinks``, and move the rest up, positions and all (attention sinks,
        Xiao et al. 2023). Keys that were turned are turned on to their new positions."""
        if self.lengths is not None:
            raise ValueError("rows must be as long as each other to be evicted, since they move together; got others.")
        if not 0 <= count <= self.length - sinks or sinks < 0:
            raise ValueError(
                f"count must lie in 0 .. {self.length - sinks}, since {self.length} tokens are cached and {sinks} "
                f"stay; got {count}."
            )
        kept = self.length - sinks - count
        old, new = slice(sinks + count, self.length), slice(sinks, sinks + kept)
        keys = self.keys[:, :, old].clone()
        before, after = (
            replace(Positions.range(kept, start=start, device=keys.device), sequence_length=self.sequence_length)
            for start in (sinks + count, sinks)
        )
        for each in self.turned_by:
            if not isinstance(each, RotationEncoding):
                raise TypeError(
                    f"keys must be turned by rotations to be moved, since others cannot be turned on; got "
                    f"{type(each).__name__}."
                )
            keys = each.rerotate(keys, before, after)
        self.keys[:, :, new] = keys
        self.values[:, :, new] = self.values[:, :, old].clone()
        self.length -= count
