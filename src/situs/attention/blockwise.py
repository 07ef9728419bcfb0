"""Attention with terms that depend on content, or on positions of any kind, one block of scores at a time.

What encodings add to the scores of a block is formed and handed to the kernel as its mask; nothing of the size of all
scores exists. Blocks are some queries of some heads, small enough to stay in the cache between the product that forms
the term and the kernel that reads it. Keys that are so far that positions no longer tell them apart need no term
(``tails``). Backward, each block's scores are formed again. Memory is O(length x block).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from situs.attention.any_term import AnyTerm, any_task
from situs.attention.contextual_term import ContextualTerm
from situs.attention.contextual_term import serves as contextual_serves
from situs.attention.offset_term import offset_term
from situs.attention.partial import merge, partial
from situs.attention.request import Request
from situs.attention.scratch import Scratch
from situs.attention.tails import Stretch, Tail, attend_tail, tail_backward
from situs.attention.task import Task, each_query_once
from situs.attention.term import GatheringTerm, Gradients, Part, Pull, Term, accumulate
from situs.encodings.base import computing_dtype

BLOCK = 256
SCORES = 1 << 18  # of one block, for each thread: a megabyte in float32
KEPT = 1 << 18  # so few scores in all are not formed again


def cannot(request: Request) -> str | None:
    """Why blocks do not serve; None if they do."""
    return "dropout needs every weight" if request.dropout else None


def run(request: Request) -> Tensor:
    """Terms by offset where that can be, else encodings asked block by block."""
    query, key = request.turned()
    key, value = request.shared(key), request.shared(request.value)
    plain_key = key if request.key is key else request.shared(request.key)
    if request.segments_cannot is None and request.by_offset:
        by_offset, tensors, content_bias = offset_term(request, request.task)
        work = Work(request.task, by_offset)
        query = query if content_bias is None else query + content_bias.to(query.dtype).unsqueeze(-2)
    else:
        anything = ContextualTerm(request) if contextual_serves(request) else AnyTerm(request)
        work, tensors = Work(any_task(request), anything), anything.parameters
    return attend_blockwise(query, key, value, request.query, plain_key, work, tensors)


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
        others = [
            torch.zeros_like(each, dtype=computing_dtype(each.dtype)) if wanted else None
            for each, wanted in zip(tensors, ctx.needs_input_grad[7:], strict=True)
        ]
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
        found = zip((*totals, *others), (*whole, *tensors), strict=True)
        return None, None, *(None if total is None else total.to(source.dtype) for total, source in found)


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
