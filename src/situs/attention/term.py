"""Terms: what encodings add to the scaled scores of attention, formed for a part of it at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from situs.attention.scratch import Scratch
from situs.attention.segments import Segment
from situs.attention.tails import Stretch, Tail

Gradients = Sequence[Tensor | None]
Pull = Callable[[Tensor, Tensor, Tensor, Gradients], None]


@dataclass(frozen=True)
class Part:
    """A block, the heads of it that are worked on, and where both lie in the tensors."""

    block: Segment
    rows: slice
    heads: slice
    queries: slice
    keys: slice
    side: int = 0
    """-1 or 1 for a tail before or behind the queries."""
    first: bool = True
    """Whether its queries met no keys before."""

    def of_queries(self, tensor: Tensor) -> Tensor:
        """Its part of queries, or of anything that has one for each."""
        return tensor[self.rows, self.heads, self.queries]

    def of_keys(self, tensor: Tensor) -> Tensor:
        """Its part of keys or values."""
        return tensor[self.rows, self.heads, self.keys]

    def of(self, stretch: Stretch) -> Stretch:
        """Its part of all of them."""
        query, key, value, plain_query, plain_key = stretch
        return Stretch(
            self.of_queries(query), self.of_keys(key), self.of_keys(value), self.of_queries(plain_query),
            self.of_keys(plain_key),
        )  # fmt: skip


def with_tails(block: Segment, before: int, behind: int, *, causal: bool, least: int = 1) -> list[tuple[Segment, int]]:
    """A block's keys in stretches: those with an index below ``before``, and from ``behind`` on, are tails, as far as
    all queries see them and there are at least so many."""
    if causal:
        before, behind = min(before, 1 - block.slot_offset), block.keys
    before = min(before, block.keys) if before >= least else 0
    behind = max(behind, 0) if block.keys - behind >= least else block.keys
    ends = (0, before, -1), (before, behind, 0), (behind, block.keys, 1)
    return [(block.part(0, block.queries, first, last - first), side) for first, last, side in ends if last > first]


class Term(ABC):
    """What is added to the scaled scores of a part."""

    heads_apart: bool = True
    """Whether heads can be worked on one after another."""
    queries: int | None = None
    """Queries of a block, where they should be fewer than usual."""
    may_be_kept: bool = False
    """Whether what ``form_again`` gives stays valid while others are formed."""

    def pieces(self, block: Segment, whole: Stretch, tensors: Sequence[Tensor]) -> list[tuple[Segment, int]]:
        """A block's keys in stretches, and the side of those that are tails."""
        return [(block, 0)]

    def tail(self, side: int, tensors: Sequence[Tensor]) -> Tail:
        """What a tail adds to the scores of all heads: nothing, unless positions of such keys still do."""
        return Tail()

    @abstractmethod
    def form(self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch) -> Tensor | None:
        """The term, -inf where a query may not see a key. It may lie in ``scratch``."""

    @abstractmethod
    def form_again(
        self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch
    ) -> tuple[Tensor | None, Pull]:
        """The term, and a function that takes its gradient and adds to those of q, k and the tensors."""


class GatheringTerm(Term):
    """A term that may add to the output too."""

    adds_to_output: bool = False

    @abstractmethod
    def gathered(self, part: Part, weights: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """What weights gather besides values, where ``adds_to_output``."""


def accumulate(totals: Gradients, found: Gradients) -> None:
    """Add to each total what was found for it."""
    for total, each in zip(totals, found, strict=True):
        if total is not None and each is not None:
            total += each
