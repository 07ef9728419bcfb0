"""A task: segments, who sees whom in them, and the numbers that offsets add to the scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from situs.attention.segments import Segment, cut


@dataclass(frozen=True)
class Task:
    """What is to be computed. ``lowest`` is the offset that the first of the numbers belongs to."""

    segments: Sequence[Segment]
    scale: float
    causal: bool = False
    window: int | None = None
    rows_each: int = 1
    """Rows of the tensors' batch that belong to one row of the positions, where grouped heads are among them."""

    @property
    def lowest(self) -> int:
        """The lowest offset of all."""
        return min((each.offset - (each.queries - 1) for each in self.segments), default=0)

    @property
    def highest(self) -> int:
        """The highest offset of all."""
        return max((each.offset + each.keys - 1 for each in self.segments), default=0)

    def blocks(self, size: int) -> list[Segment]:
        """Every segment in blocks of at most ``size`` queries."""
        return [
            block for segment in self.segments for block in cut(segment, size, causal=self.causal, window=self.window)
        ]

    def where(self, block: Segment) -> tuple[slice, slice, slice]:
        """A block's rows of the batch, its queries and its keys."""
        rows = slice(None) if block.row is None else slice(block.row * self.rows_each, (block.row + 1) * self.rows_each)
        queries = slice(block.first_query, block.first_query + block.queries)
        return rows, queries, slice(block.first_key, block.first_key + block.keys)

    def offsets_of(self, block: Segment) -> slice:
        """Where a block's offsets lie among all, ascending."""
        first = block.offset - (block.queries - 1) - self.lowest
        return slice(first, first + block.queries + block.keys - 1)

    def masked(self, vector: Tensor) -> Callable[[Segment], Tensor]:
        """From a block to the numbers of its offsets, -inf where a query may not see a key; slots tell who may."""
        made: dict[int, Tensor] = {}

        def numbers(block: Segment) -> Tensor:
            apart = block.slot_offset - block.offset
            if apart not in made:
                made[apart] = self._hidden(vector, apart)
            return made[apart][..., self.offsets_of(block)]

        return numbers

    def _hidden(self, vector: Tensor, apart: int) -> Tensor:
        hides_later = self.causal and self.highest + apart > 0
        if not hides_later and self.window is None:
            return vector  # as in decoding, where no key is later
        slots = torch.arange(self.lowest, self.lowest + vector.shape[-1], device=vector.device) + apart
        hidden = slots > 0 if self.causal else slots.new_zeros((), dtype=torch.bool)
        if self.window is not None:
            hidden = hidden | (slots.abs() >= self.window)
        return vector.masked_fill(hidden, -math.inf)


def of_rows(tensor: Tensor, rows: slice) -> Tensor:
    """The rows of a tensor that has one for each of the batch, or one for all."""
    return tensor if tensor.shape[0] == 1 else tensor[rows]


def each_query_once(blocks: Sequence[Segment]) -> bool:
    """Whether no query has its keys in several blocks."""
    stretches = sorted((block.row or 0, block.first_query, block.queries) for block in blocks)
    return all(one[0] != other[0] or one[1] + one[2] <= other[1] for one, other in itertools.pairwise(stretches))
