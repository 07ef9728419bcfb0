"""Attention with a bias over offsets, at the cost of attention without.

``b(j - i)`` is a Toeplitz matrix, known by one number an offset. With the queries in reverse order it becomes a Hankel
matrix, ``b[i' + j]``, and that is a *view* of those numbers with both strides 1. The kernel reads it as a mask: no
matrix of biases exists anywhere. Causal and window masks are -inf in the same numbers.

Backward, the gradient of an offset is the sum along a diagonal of the scores' gradient. Written into rows that are one
number longer than they are read, diagonals become columns. Memory is O(length x block).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from situs.attention.partial import merge, partial, partial_backward, serves_flash
from situs.attention.request import Request
from situs.attention.scratch import Scratch
from situs.attention.segments import Segment
from situs.attention.step import is_step, run_step
from situs.attention.task import Task, each_query_once, of_rows
from situs.encodings.bias import OffsetBias
from situs.encodings.score import PlaceScore

# Blocks of queries: small ones waste less above the diagonal, large ones let the kernel work in larger tiles.
BLOCK, LARGE_BLOCK, LONG = 256, 768, 6144
GRADIENT_BLOCK = 128


def cannot(request: Request) -> str | None:
    """Why strided views do not serve; None if they do."""
    others = [each for each in request.contents if not isinstance(each, PlaceScore)]
    if others or request.values:
        return f"{type((*others, *request.values)[0]).__name__} depends on the content"
    for bias in request.biases:
        if not isinstance(bias, OffsetBias) or bias.axes > 1:
            return f"{type(bias).__name__} is no function of one offset"
    return request.segments_cannot


def run(request: Request) -> Tensor:
    """All biases as one vector over offsets."""
    return run_step(request) if is_step(request) else in_segments(request)


def in_segments(request: Request) -> Tensor:
    """Attention segment by segment."""
    task = request.task
    query, key, value = request.widened()
    vector = request.numbers(task.lowest, task.highest)
    q, k, v = grouped(query, key, value)
    batch, kv_heads = key.shape[:2]
    if q.shape[:2] != query.shape[:2] and len(vector) > 1:
        vector = vector.view(kv_heads, -1, vector.shape[-1]).repeat(batch, 1, 1)
    else:
        vector = vector.unsqueeze(0)
    rows = 1 if kv_heads == query.shape[1] else kv_heads
    return request.narrowed(attend_toeplitz(q, k, v, vector, replace(task, rows_each=rows)))


def grouped(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Query heads that share a key head as heads of their own row, so that keys are shared without a copy."""
    batch, heads = query.shape[:2]
    kv_heads = key.shape[1]
    if heads == kv_heads:
        return query, key, value
    group = heads // kv_heads
    query = query.reshape(batch * kv_heads, group, *query.shape[2:])
    key, value = (each.reshape(batch * kv_heads, 1, *each.shape[2:]).expand(-1, group, -1, -1) for each in (key, value))
    return query, key, value


def attend_toeplitz(
    query: Float[Tensor, "batch heads query head_dim"],
    key: Float[Tensor, "batch heads key head_dim"],
    value: Float[Tensor, "batch heads key value_dim"],
    vector: Float[Tensor, "batch_or_1 heads_or_1 offsets"],
    task: Task,
) -> Float[Tensor, "batch heads query value_dim"]:
    """Attention where ``vector`` holds the bias of each offset from ``task.lowest`` on."""
    out: Tensor = _Toeplitz.apply(query, key, value, vector, task)  # type: ignore[no-untyped-call]
    return out


class _Toeplitz(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, vector: Tensor, task: Task) -> Tensor:
        out, logsumexp = _forward(query, key, value, vector, task)
        ctx.save_for_backward(query, key, value, vector, out, logsumexp)
        ctx.task = task
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, vector, out, logsumexp = ctx.saved_tensors
        learned = ctx.needs_input_grad[3]
        program = _backward if learned or not serves_flash(query, key, value) else _flash_backward
        dq, dk, dv, dvector = program(gradient, query, key, value, vector, out, logsumexp, ctx.task)
        return dq, dk, dv, dvector if learned else None, None


def _forward_blocks(task: Task) -> list[Segment]:
    """Whole segments, unless rows see different keys."""
    longest = max((each.queries for each in task.segments), default=1)
    if not task.causal and task.window is None:
        return task.blocks(longest)
    return task.blocks(BLOCK if longest < LONG else LARGE_BLOCK)


def _forward(query: Tensor, key: Tensor, value: Tensor, vector: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp. Queries are turned about a block at a time, here and below, which stays in the cache."""
    blocks, numbers = _forward_blocks(task), task.masked(vector)

    def attend_block(block: Segment) -> tuple[Tensor, Tensor]:
        rows, here, there = task.where(block)
        mask = of_rows(numbers(block), rows).unfold(-1, block.keys, 1)
        found = partial(query[rows, :, here].flip(2), key[rows, :, there], value[rows, :, there], mask, task.scale)
        return found[0].flip(2), found[1].flip(2)

    if len(blocks) == 1 and blocks[0].row is None and blocks[0].queries == query.shape[2]:
        return attend_block(blocks[0])
    out = query.new_zeros(*query.shape[:3], value.shape[-1])
    logsumexp = torch.full(query.shape[:3], -math.inf, dtype=vector.dtype, device=query.device)
    once = each_query_once(blocks)
    for block in blocks:
        rows, here, _ = task.where(block)
        parts = attend_block(block)
        if not once:
            parts = merge(out[rows, :, here], logsumexp[rows, :, here], *parts)
        out[rows, :, here], logsumexp[rows, :, here] = parts
    return out, logsumexp


def _flash_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    vector: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    task: Task,
) -> tuple[Tensor, Tensor, Tensor, None]:
    """Gradients of queries, keys and values by torch's kernel, which reads the same view."""
    blocks, numbers = _forward_blocks(task), task.masked(vector)
    gradients = [torch.zeros_like(tensor) for tensor in (query, key, value)]
    for block in blocks:
        rows, here, there = task.where(block)
        mask = of_rows(numbers(block), rows).unfold(-1, block.keys, 1)
        g, q, o, total = (tensor[rows, :, here].flip(2) for tensor in (gradient, query, out, logsumexp))
        dq, dk, dv = partial_backward(g, q, key[rows, :, there], value[rows, :, there], mask, o, total, task.scale)
        for sum_of, part, where in zip(gradients, (dq.flip(2), dk, dv), (here, there, there), strict=True):
            sum_of[rows, :, where] += part
    return gradients[0], gradients[1], gradients[2], None


def _backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    vector: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    task: Task,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """All gradients, with the scores of one block of queries formed again at a time.

    A column of ones beside keys and values, and -logsumexp and -delta beside queries and gradients, let one matrix
    product subtract what would be another pass over the scores.
    """
    wide = vector.dtype
    delta = (gradient.to(wide) * out.to(wide)).sum(-1, keepdim=True)
    ones = torch.ones((), dtype=wide, device=key.device).expand(*key.shape[:3], 1)
    q = torch.cat((query.to(wide) * task.scale, -logsumexp.unsqueeze(-1)), -1)
    g = torch.cat((gradient.to(wide), -delta), -1)
    k, v = torch.cat((key.to(wide), ones), -1), torch.cat((value.to(wide), ones), -1)
    dq, dk, dv = (torch.zeros_like(tensor, dtype=wide) for tensor in (query, key, value))
    dvector = torch.zeros_like(vector, memory_format=torch.contiguous_format)
    numbers, scratch = task.masked(vector), Scratch(wide, query.device)
    for block in task.blocks(GRADIENT_BLOCK):
        rows, here, there = task.where(block)
        q_block, g_block = q[rows, :, here].flip(2), g[rows, :, here].flip(2)
        k_block, v_block = k[rows, :, there], v[rows, :, there]
        shape = (*q_block.shape[:3], block.keys)
        weights, change = scratch.take("weights", shape), scratch.take("change", shape)
        torch.matmul(q_block, k_block.transpose(-2, -1), out=weights)
        weights.add_(of_rows(numbers(block), rows).unfold(-1, block.keys, 1)).exp_()
        torch.matmul(g_block, v_block.transpose(-2, -1), out=change)
        dv[rows, :, there] += weights.transpose(-2, -1) @ g_block[..., :-1]
        # rows one longer than needed, read as if one shorter: pairs of one offset stand below each other
        length = block.queries + block.keys
        slanted = scratch.take("slanted", (*shape[:3], length))
        slanted[..., block.keys :] = 0
        change = torch.mul(weights, change, out=slanted[..., : block.keys])
        dq[rows, :, here] += (change @ k_block[..., :-1]).flip(2)
        dk[rows, :, there] += change.transpose(-2, -1) @ q_block[..., :-1]
        diagonals = slanted.flatten(2)[..., : block.queries * (length - 1)].view(*shape[:3], length - 1).sum(2)
        total = of_rows(dvector, rows)[..., task.offsets_of(block)]
        total += diagonals.sum_to_size(total.shape)
    return dq.mul_(task.scale).to(query.dtype), dk.to(key.dtype), dv.to(value.dtype), dvector
