"""Attention with terms that depend on content, or on positions of any kind, one block of scores at a time.

What encodings add to the scores of a block is formed and handed to the kernel as its mask; nothing of the size of all
scores exists. Blocks are some queries of some heads, small enough to stay in the cache between the product that forms
the term and the kernel that reads it. Keys that are so far that positions no longer tell them apart need no term
(``tails``). Backward, each block's scores are formed again. Memory is O(length x block).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from situs.attention.partial import merge, partial
from situs.attention.scratch import Scratch
from situs.attention.segments import Segment
from situs.attention.tails import Stretch, Tail, attend_tail, tail_backward
from situs.attention.task import Task, each_query_once
from situs.encodings.base import computing_dtype

BLOCK = 256
SCORES = 1 << 18  # of one block, for each thread: a megabyte in float32
KEPT = 1 << 18  # so few scores in all are not formed again


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


Gradients = Sequence[Tensor | None]
Pull = Callable[[Tensor, Tensor, Tensor, Gradients], None]


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


@dataclass(frozen=True)
class Work:
    """Segments, and the term that is added in them."""

    task: Task
    term: Term

    @property
    def gathering(self) -> GatheringTerm | None:
        """The term, if it adds to the output."""
        term = self.term
        return term if isinstance(term, GatheringTerm) and term.adds_to_output else None

    def parts(self, whole: Stretch, tensors: Sequence[Tensor]) -> Iterator[Part]:
        """All blocks, in groups of heads whose scores fit the cache; tails with all heads at once."""
        batch, heads = whole.query.shape[:2]
        blocks = self.task.blocks(min(BLOCK, self.term.queries or BLOCK))
        once = each_query_once(blocks)
        for block in blocks:
            for number, (piece, side) in enumerate(self.term.pieces(block, whole, tensors)):
                rows, queries, keys = self.task.where(piece)
                count = batch if piece.row is None else self.task.rows_each
                most = SCORES * torch.get_num_threads() // max(1, count * piece.queries * piece.keys)
                size = heads if side or not self.term.heads_apart else max(1, min(heads, most))
                for first in range(0, heads, size):
                    some = slice(first, min(first + size, heads))
                    yield Part(piece, rows, some, queries, keys, side, once and not number)


def attend_blockwise(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    plain_query: Float[Tensor, "batch heads query head_dim"],
    plain_key: Float[Tensor, "batch heads key head_dim"],
    work: Work,
    tensors: Sequence[Tensor],
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attention with ``work.term`` added; terms meet the plain queries and keys, before any rotation. ``tensors`` are
    what gradients are wanted of besides."""
    given = (query, key, value, plain_query, plain_key, *tensors)
    watched = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    out: Tensor = _Blockwise.apply(work, watched, *given)  # type: ignore[no-untyped-call]
    return out


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        work: Work,
        watched: bool,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        plain_query: Tensor,
        plain_key: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        wide = computing_dtype(query.dtype)
        out = query.new_zeros(*query.shape[:3], value.shape[-1])
        logsumexp = torch.full(query.shape[:3], -math.inf, dtype=wide, device=query.device)
        scratch = Scratch(wide, query.device)
        whole = Stretch(query, key, value, plain_query, plain_key)
        parts = list(work.parts(whole, tensors))
        tails = {side: work.term.tail(side, tensors) for side in {part.side for part in parts} - {0}}
        kept: dict[int, tuple[Tensor | None, Pull]] = {}
        scores = sum(part.of_queries(logsumexp).numel() * part.block.keys for part in parts)
        keeps = watched and work.term.may_be_kept and scores <= KEPT
        for number, part in enumerate(parts):
            own = part.of(whole)
            if part.side:
                found = attend_tail(own, tails[part.side], work.task.scale, wide)
            else:
                asked = part, own.plain_query, own.plain_key, tensors, scratch
                if keeps:
                    kept[number] = work.term.form_again(*asked)
                term = kept[number][0] if keeps else work.term.form(*asked)
                if work.gathering is not None:
                    found = _with_gathered(work, work.gathering, part, *own[:3], term, tensors)
                else:
                    found = partial(*own[:3], term, work.task.scale)
            if not part.first:
                found = merge(part.of_queries(out), part.of_queries(logsumexp), *found)
            part.of_queries(out).copy_(found[0])
            part.of_queries(logsumexp).copy_(found[1])
        ctx.save_for_backward(*whole, out, logsumexp, *tensors)
        ctx.work, ctx.parts, ctx.kept = work, parts, kept
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *sources, out, logsumexp = ctx.saved_tensors[:7]
        tensors = ctx.saved_tensors[7:]
        whole, work, wide = Stretch(*sources), ctx.work, logsumexp.dtype
        gradient = gradient.to(wide)
        delta = (gradient * out.to(wide)).sum(-1, keepdim=True)
        totals = Stretch(*(torch.zeros_like(source, dtype=wide) for source in whole))
        wanted = ctx.needs_input_grad[7:]
        others = [torch.zeros_like(each) if need else None for each, need in zip(tensors, wanted, strict=True)]
        scratch = Scratch(wide, out.device)
        tails = _Tails(work.term, tensors)
        for number, part in enumerate(ctx.parts):
            own, total, g = part.of(whole), part.of(totals), part.of_queries(gradient)
            if part.side:
                of_out, of_sum = part.of_queries(out), part.of_queries(logsumexp)
                accumulate(total, tails.backward(part.side, g, own, of_out, of_sum, work.task.scale))
                continue
            q, k, v = (tensor.to(wide) for tensor in own[:3])
            term, pull = ctx.kept.pop(number, None) or work.term.form_again(
                part, own.plain_query, own.plain_key, tensors, scratch
            )
            shape = (*q.shape[:3], k.shape[2])
            weights = torch.matmul(q, k.transpose(-2, -1), out=scratch.take("weights", shape)).mul_(work.task.scale)
            if term is not None:
                weights.add_(term)
            weights.sub_(part.of_queries(logsumexp).unsqueeze(-1)).exp_()
            change = torch.matmul(g, v.transpose(-2, -1), out=scratch.take("change", shape))
            total.value.add_(weights.transpose(-2, -1) @ g)
            if work.gathering is not None:
                change.add_(_through_gathered(work.gathering, part, weights, tensors, g, others))
            change.sub_(part.of_queries(delta)).mul_(weights)
            total.query.add_(change @ k, alpha=work.task.scale)
            total.key.add_(change.transpose(-2, -1) @ q, alpha=work.task.scale)
            pull(change, total.plain_query, total.plain_key, others)
        tails.reach(others)
        return None, None, *(grad.to(source.dtype) for grad, source in zip(totals, whole, strict=True)), *others


class _Tails:
    """Tails backward: what is found for each is summed up, and reaches the tensors that it was made of once."""

    def __init__(self, term: Term, tensors: Sequence[Tensor]) -> None:
        self.term = term
        self.leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        self.made: dict[int, Tail] = {}
        self.found: dict[int, list[Tensor | None]] = {}

    def backward(
        self, side: int, gradient: Tensor, own: Stretch, out: Tensor, logsumexp: Tensor, scale: float
    ) -> Stretch:
        """Gradients of a stretch; that of the tail is kept."""
        if side not in self.made:
            with torch.enable_grad():
                self.made[side] = self.term.tail(side, self.leaves)
        tail = Tail(*(None if each is None else each.detach() for each in self.made[side]))
        totals, of_tail = tail_backward(gradient, own, tail, out, logsumexp, scale)
        if side in self.found:
            accumulate(self.found[side], of_tail)
        else:
            self.found[side] = list(of_tail)
        return totals

    def reach(self, others: Gradients) -> None:
        """Add the gradients of all tails to those of their tensors."""
        for side, made in self.made.items():
            pairs = [
                (one, other)
                for one, other in zip(made, self.found[side], strict=True)
                if one is not None and other is not None
            ]
            reached = torch.autograd.grad(
                [one for one, _ in pairs], self.leaves, [other for _, other in pairs], allow_unused=True
            )
            accumulate(others, reached)


def _with_gathered(
    work: Work,
    gathering: GatheringTerm,
    part: Part,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    term: Tensor | None,
    tensors: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp where the weights themselves are needed."""
    wide = computing_dtype(q.dtype)
    scores = (q.to(wide) @ k.to(wide).transpose(-2, -1)).mul_(work.task.scale)
    if term is not None:
        scores.add_(term)
    logsumexp = scores.logsumexp(-1)
    logsumexp = logsumexp.masked_fill(logsumexp == -math.inf, 0)
    weights = scores.sub_(logsumexp.unsqueeze(-1)).exp_()
    return (weights @ v.to(wide) + gathering.gathered(part, weights, tensors)).to(v.dtype), logsumexp


def _through_gathered(
    gathering: GatheringTerm,
    part: Part,
    weights: Tensor,
    tensors: Sequence[Tensor],
    gradient: Tensor,
    others: Gradients,
) -> Tensor:
    """The gradient of the weights through what they gather besides values; that of tensors is added to ``others``."""
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in (weights, *tensors)]
        gathered = gathering.gathered(part, leaves[0], leaves[1:])
    change, *found = torch.autograd.grad(gathered, leaves, gradient, allow_unused=True)
    accumulate(others, found)
    return change


def accumulate(totals: Gradients, found: Gradients) -> None:
    """Add to each total what was found for it."""
    for total, each in zip(totals, found, strict=True):
        if total is not None and each is not None:
            total += each
