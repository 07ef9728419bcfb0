"""Attention with terms that depend on content, or on positions of any kind, one block of queries at a time.

What encodings add to the scores of a block is formed and handed to the kernel as its mask; nothing of the size of all
scores exists. For encodings by offset the term is one more matrix product, with the vectors of the block's offsets,
read along a slant (``functional.offsets.skew``). Backward, each block's term is formed again and differentiated.
Memory is O(length x block).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from situs.attention.partial import merge, partial
from situs.attention.segments import Segment
from situs.attention.task import Task, each_query_once

BLOCK = 256

Term = Callable[[Segment, Tensor, Tensor, Sequence[Tensor]], Tensor | None]
Gathered = Callable[[Segment, Tensor, Sequence[Tensor]], Tensor]


@dataclass(frozen=True)
class Work:
    """A task, and what is done in each of its blocks.

    ``term(block, q, k, tensors)`` is added to the scaled scores, -inf where a query may not see a key.
    ``gathered(block, weights, tensors)``, if there is one, is added to the output.
    """

    task: Task
    term: Term
    gathered: Gathered | None = None

    @property
    def scale(self) -> float:
        """The factor of q . k."""
        return self.task.scale


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
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        out = query.new_zeros(*query.shape[:3], value.shape[-1])
        logsumexp = torch.full(query.shape[:3], -math.inf, dtype=wide, device=query.device)
        blocks = work.task.blocks(BLOCK)
        once = each_query_once(blocks)
        for block in blocks:
            rows, here, there = work.task.where(block)
            q, k, v = query[rows, :, here], key[rows, :, there], value[rows, :, there]
            term = work.term(block, plain_query[rows, :, here], plain_key[rows, :, there], tensors)
            if work.gathered is None:
                parts = partial(q, k, v, term, work.scale)
            else:
                parts = _with_gathered(work, block, q, k, v, term, tensors)
            if not once:
                parts = merge(out[rows, :, here], logsumexp[rows, :, here], *parts)
            out[rows, :, here], logsumexp[rows, :, here] = parts
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
        dq, dk, dv, dpq, dpk = (torch.zeros_like(t, dtype=wide) for t in (query, key, value, plain_query, plain_key))
        others = [
            torch.zeros_like(tensor) if needed else None
            for tensor, needed in zip(tensors, ctx.needs_input_grad[6:], strict=True)
        ]
        for block in work.task.blocks(BLOCK):
            rows, here, there = work.task.where(block)
            q, k, v = query[rows, :, here].to(wide), key[rows, :, there].to(wide), value[rows, :, there].to(wide)
            g = gradient[rows, :, here]
            inputs = [plain_query[rows, :, here], plain_key[rows, :, there], *tensors]
            inputs = [each.detach().requires_grad_(each.is_floating_point()) for each in inputs]
            with torch.enable_grad():
                term = work.term(block, inputs[0], inputs[1], inputs[2:])
            scores = (q @ k.transpose(-2, -1)).mul_(work.scale)
            if term is not None:
                scores.add_(term.detach())
            weights = scores.sub_(logsumexp[rows, :, here].unsqueeze(-1)).exp_()
            change = g @ v.transpose(-2, -1)
            dv[rows, :, there] += weights.transpose(-2, -1) @ g
            if work.gathered is not None:
                change = change + _through_gathered(work, block, weights, inputs[2:], g, others)
            change.sub_(delta[rows, :, here]).mul_(weights)
            dq[rows, :, here] += change @ k
            dk[rows, :, there] += change.transpose(-2, -1) @ q
            if term is None or not term.requires_grad:
                continue
            parts = torch.autograd.grad(term, inputs, change.to(term.dtype).sum_to_size(term.shape), allow_unused=True)
            for total, where, part in ((dpq, here, parts[0]), (dpk, there, parts[1])):
                if part is not None:
                    total[rows, :, where] += part
            _accumulate(others, parts[2:])
        grads = (dq.mul_(work.scale), dk.mul_(work.scale), dv, dpq, dpk)
        sources = (query, key, value, plain_query, plain_key)
        return None, *(grad.to(source.dtype) for grad, source in zip(grads, sources, strict=True)), *others


def _with_gathered(
    work: Work, block: Segment, q: Tensor, k: Tensor, v: Tensor, term: Tensor | None, tensors: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp where the weights themselves are needed."""
    assert work.gathered is not None
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = (q.to(wide) @ k.to(wide).transpose(-2, -1)).mul_(work.scale)
    if term is not None:
        scores.add_(term)
    logsumexp = scores.logsumexp(-1)
    logsumexp = logsumexp.masked_fill(logsumexp == -math.inf, 0)
    weights = scores.sub_(logsumexp.unsqueeze(-1)).exp_()
    return (weights @ v.to(wide) + work.gathered(block, weights, tensors)).to(v.dtype), logsumexp


def _through_gathered(
    work: Work,
    block: Segment,
    weights: Tensor,
    tensors: Sequence[Tensor],
    gradient: Tensor,
    others: list[Tensor | None],
) -> Tensor:
    """The gradient of the weights through what they gather besides values; that of tensors is added to ``others``."""
    assert work.gathered is not None
    with torch.enable_grad():
        leaf = weights.detach().requires_grad_()
        gathered = work.gathered(block, leaf, tensors)
    change, *parts = torch.autograd.grad(gathered, [leaf, *tensors], gradient, allow_unused=True)
    _accumulate(others, parts)
    return change


def _accumulate(totals: list[Tensor | None], parts: Sequence[Tensor | None]) -> None:
    for total, part in zip(totals, parts, strict=True):
        if total is not None and part is not None:
            total += part
