"""Attention with terms that depend on content, or on positions of any kind, one block of scores at a time.

What encodings add to the scores of a block is formed and handed to the kernel as its mask; nothing of the size of all
scores exists. Blocks are some queries of some heads, small enough to stay in the cache between the product that forms
the term and the kernel that reads it. Backward, each block's scores are formed again. Memory is O(length x block).
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
from situs.attention.task import Task, each_query_once
from situs.encodings.base import computing_dtype

BLOCK = 256
SCORES = 1 << 18  # of one block, for each thread: a megabyte in float32


@dataclass(frozen=True)
class Part:
    """A block, the heads of it that are worked on, and where both lie in the tensors."""

    block: Segment
    rows: slice
    heads: slice
    queries: slice
    keys: slice

    def of_queries(self, tensor: Tensor) -> Tensor:
        """Its part of queries, or of anything that has one for each."""
        return tensor[self.rows, self.heads, self.queries]

    def of_keys(self, tensor: Tensor) -> Tensor:
        """Its part of keys or values."""
        return tensor[self.rows, self.heads, self.keys]


Gradients = Sequence[Tensor | None]
Pull = Callable[[Tensor, Tensor, Tensor, Gradients], None]


class Term(ABC):
    """What is added to the scaled scores of a part."""

    heads_apart: bool = True
    """Whether heads can be worked on one after another."""

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

    def parts(self, heads: int, batch: int) -> Iterator[Part]:
        """All blocks, in groups of heads whose scores fit the cache."""
        for block in self.task.blocks(BLOCK):
            rows, queries, keys = self.task.where(block)
            count = batch if block.row is None else self.task.rows_each
            most = SCORES * torch.get_num_threads() // max(1, count * block.queries * block.keys)
            size = max(1, min(heads, most)) if self.term.heads_apart else heads
            for first in range(0, heads, size):
                yield Part(block, rows, slice(first, min(first + size, heads)), queries, keys)


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
    out: Tensor = _Blockwise.apply(work, query, key, value, plain_query, plain_key, *tensors)  # type: ignore[no-untyped-call]
    return out


class _Blockwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        work: Work,
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
        once = each_query_once(work.task.blocks(BLOCK))
        for part in work.parts(query.shape[1], query.shape[0]):
            q, k, v = part.of_queries(query), part.of_keys(key), part.of_keys(value)
            term = work.term.form(part, part.of_queries(plain_query), part.of_keys(plain_key), tensors, scratch)
            if work.gathering is not None:
                found = _with_gathered(work, work.gathering, part, q, k, v, term, tensors)
            else:
                found = partial(q, k, v, term, work.task.scale)
            if not once:
                found = merge(part.of_queries(out), part.of_queries(logsumexp), *found)
            part.of_queries(out).copy_(found[0])
            part.of_queries(logsumexp).copy_(found[1])
        ctx.save_for_backward(query, key, value, plain_query, plain_key, out, logsumexp, *tensors)
        ctx.work = work
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, plain_query, plain_key, out, logsumexp, *tensors = ctx.saved_tensors
        work, wide = ctx.work, logsumexp.dtype
        gradient = gradient.to(wide)
        delta = (gradient * out.to(wide)).sum(-1, keepdim=True)
        sources = (query, key, value, plain_query, plain_key)
        dq, dk, dv, dpq, dpk = (torch.zeros_like(source, dtype=wide) for source in sources)
        wanted = ctx.needs_input_grad[6:]
        others = [torch.zeros_like(each) if need else None for each, need in zip(tensors, wanted, strict=True)]
        scratch = Scratch(wide, query.device)
        for part in work.parts(query.shape[1], query.shape[0]):
            q, k, v = part.of_queries(query).to(wide), part.of_keys(key).to(wide), part.of_keys(value).to(wide)
            g = part.of_queries(gradient)
            term, pull = work.term.form_again(
                part, part.of_queries(plain_query), part.of_keys(plain_key), tensors, scratch
            )
            shape = (*q.shape[:3], k.shape[2])
            weights = torch.matmul(q, k.transpose(-2, -1), out=scratch.take("weights", shape)).mul_(work.task.scale)
            if term is not None:
                weights.add_(term)
            weights.sub_(part.of_queries(logsumexp).unsqueeze(-1)).exp_()
            change = torch.matmul(g, v.transpose(-2, -1), out=scratch.take("change", shape))
            part.of_keys(dv).add_(weights.transpose(-2, -1) @ g)
            if work.gathering is not None:
                change.add_(_through_gathered(work.gathering, part, weights, tensors, g, others))
            change.sub_(part.of_queries(delta)).mul_(weights)
            part.of_queries(dq).add_(change @ k)
            part.of_keys(dk).add_(change.transpose(-2, -1) @ q)
            pull(change, part.of_queries(dpq), part.of_keys(dpk), others)
        grads = (dq.mul_(work.task.scale), dk.mul_(work.task.scale), dv, dpq, dpk)
        return None, *(grad.to(source.dtype) for grad, source in zip(grads, sources, strict=True)), *others


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
