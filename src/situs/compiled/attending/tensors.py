"""Tensors as compiled loops are given them: where they lie, what is added to scores, and where gradients go to."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from situs.compiled.watching import is_in_memory


class Lie(NamedTuple):
    """Where a tensor's first row lies in memory, and how many bytes further the next is along each axis."""

    first: int
    batch: int
    head: int
    row: int

    @staticmethod
    def of(tensor: Float[Tensor, "batch heads row *_"]) -> Lie:
        """Tell where a tensor lies; along an axis of one there is no step."""
        steps = (step if size > 1 else 0 for step, size in zip(tensor.stride()[:3], tensor.shape, strict=False))
        return Lie(tensor.data_ptr(), *(step * tensor.itemsize for step in steps))


NOWHERE = Lie(0, 0, 0, 0)


class Added(NamedTuple):
    """What is added to scores."""

    numbers: Float[Tensor, "#batch #heads *_"]
    """For each pair, (..., query, key), where one may stand for all queries or keys; or for each offset, ascending."""

    by_offset: bool = False

    def lie(self, queries: int) -> Lie:
        """Tell where the numbers of each query begin."""
        if not self.by_offset:
            return Lie.of(self.numbers)
        size = self.numbers.itemsize  # the last query's come first
        whole = Lie.of(self.numbers.unsqueeze(2))
        return whole._replace(first=whole.first + (queries - 1) * size, row=-size)

    def readable(self, keys: int) -> Added:
        """The same in float32, with neighbours side by side."""
        numbers = self.numbers
        if not self.by_offset and numbers.shape[-1] != keys:  # one number for all keys
            numbers = numbers.expand(*numbers.shape[:-1], keys)
        return self._replace(numbers=readable(numbers, torch.float32))


class Gradients(NamedTuple):
    """Where gradients go to, in float32."""

    query: Float[Tensor, "*parts batch heads query head_dim"]
    key: Float[Tensor, "*parts batch heads key head_dim"]
    value: Float[Tensor, "*parts batch heads key value_dim"]
    added: Added | None = None
    """Those of pairs, or of offsets; each row and head has its own."""

    def in_parts(self, parts: int) -> Gradients:
        """Gradients of parts of the queries, all 0; what belongs to one query alone is shared."""

        def apart(tensor: Tensor) -> Tensor:
            return tensor.new_zeros(parts, *tensor.shape)

        added = self.added
        if added is not None and added.by_offset:
            added = Added(apart(added.numbers), by_offset=True)
        return Gradients(self.query, apart(self.key), apart(self.value), added)

    def lies(self, queries: int, parts: int) -> dict[str, tuple[Lie, int]]:
        """Tell by name where each lies, and how many bytes further that of the next part."""

        def lie(tensor: Tensor) -> tuple[Lie, int]:
            return (Lie.of(tensor), 0) if parts == 1 else (Lie.of(tensor[0]), tensor.stride(0) * tensor.itemsize)

        found = {"of_query": (Lie.of(self.query), 0), "of_key": lie(self.key), "of_value": lie(self.value)}
        if self.added is None:
            return found | {"of_mask": (NOWHERE, 0)}
        numbers, by_offset = self.added
        if parts == 1 or not by_offset:
            return found | {"of_mask": (self.added.lie(queries), 0)}
        own = Added(numbers[0], by_offset=True)
        return found | {"of_mask": (own.lie(queries), numbers.stride(0) * numbers.itemsize)}

    def add(self, parted: Gradients) -> None:
        """Add what was found in parts."""
        self.key.add_(parted.key.sum(0))
        self.value.add_(parted.value.sum(0))
        if self.added is not None and parted.added is not None and self.added.by_offset:
            self.added.numbers.add_(parted.added.numbers.sum(0))


class Band(NamedTuple):
    """Which keys queries see: the lowest and the highest number of a key minus that of a query, both counted from the
    first."""

    first: int
    last: int


EVERYTHING = Band(-(2**30), 2**30)
CAUSAL = Band(-(2**30), 0)


def is_readable(tensor: Tensor) -> bool:
    """Whether a loop can read a tensor where it lies, and write a gradient that torch lays out like it. Rows that begin
    at neighbouring numbers overlap, and gradients like them would lie the other way round."""
    apart = all(step != 1 or size == 1 for step, size in zip(tensor.stride()[:-1], tensor.shape[:-1], strict=True))
    return is_in_memory(tensor) and tensor.stride(-1) == 1 and apart


def readable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers in that dtype, in memory, with neighbours side by side."""
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=dtype, device=tensor.device)
    tensor = tensor.to(dtype).resolve_neg()
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
