"""What encodings add to the scores of one block, as functions that ``blockwise`` runs and differentiates.

Where all encodings know positions by offset and positions are stretches of neighbours, the vectors of all offsets are
made once and each block reads its window of them. Elsewhere encodings are asked block by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from situs.attention.blockwise import Work
from situs.attention.request import Request
from situs.attention.segments import Segment
from situs.attention.task import Task
from situs.attention.visibility import visibility
from situs.encodings.base import computing_dtype
from situs.encodings.bias import OffsetBias
from situs.encodings.score import OffsetScore
from situs.functional.offsets import skew, skew_keys, toeplitz, unskew


def by_offset(request: Request, task: Task) -> tuple[Work, list[Tensor]]:
    """The work for encodings by offset, and the tensors that its gradients reach."""
    dtype, device = computing_dtype(request.query.dtype), request.query.device
    offsets = torch.arange(task.lowest, task.highest + 1, device=device)
    numbers = torch.zeros(1, len(offsets), dtype=dtype, device=device)
    for_query: list[Tensor] = []
    for_key: list[Tensor] = []
    for_every_key: list[Tensor] = []
    for bias in request.biases:
        assert isinstance(bias, OffsetBias)
        numbers = numbers + bias.by_offset(offsets, dtype=dtype)
    for each in request.contents:
        assert isinstance(each, OffsetScore)
        vectors = each.vectors(offsets, dtype)
        for_query += [] if vectors.for_query is None else [vectors.for_query]
        for_key += [] if vectors.for_key is None else [vectors.for_key]
        for_every_key += [] if vectors.for_every_key is None else [vectors.for_every_key]
        numbers = numbers if vectors.alone is None else numbers + task.scale * vectors.alone
    values = [value.value_vectors(offsets, dtype) for value in request.values]
    # encodings that meet the same vector meet the sum of theirs
    groups = [[sum(same[1:], same[0])] if same else [] for same in (for_query, for_key, for_every_key, values)]
    term = _OffsetTerm(task, *(bool(group) for group in groups[:3]))
    work = Work(task, term, _OffsetValues(task) if values else None)
    return work, [numbers, *(tensor for group in groups for tensor in group)]


class _OffsetTerm:
    """Numbers of offsets, and products of queries and keys with their vectors."""

    def __init__(self, task: Task, for_query: bool, for_key: bool, for_every_key: bool) -> None:
        self.task, self.has = task, (for_query, for_key, for_every_key)

    def __call__(self, block: Segment, q: Tensor, k: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        dtype, scale = tensors[0].dtype, self.task.scale
        q, k, rest = q.to(dtype), k.to(dtype), iter(tensors[1:])
        numbers = self.task.masked(tensors[0])(block)
        window = self.task.offsets_of(block)
        if self.has[0]:
            products = _products(q, next(rest)[:, window], numbers, scale)
            term = skew(products, block.keys)
        else:
            term = toeplitz(numbers, block.keys)
        if self.has[1]:
            term = term + scale * self._of_keys(block, k, next(rest)[:, window])
        if self.has[2]:
            term = term + scale * (k @ next(rest).unsqueeze(-1)).transpose(-2, -1)
        return term

    def _of_keys(self, block: Segment, k: Tensor, vectors: Tensor) -> Tensor:
        """Products of keys, a stretch of them at a time: each meets only as many offsets as there are queries."""
        size = block.queries
        parts = []
        for first in range(0, block.keys, size):
            some = k[:, :, first : first + size]
            near = vectors[:, first : first + size + some.shape[2] - 1]
            parts.append(skew_keys(some @ near.transpose(-2, -1), size))
        return torch.cat(parts, -1)


def _products(q: Tensor, vectors: Tensor, numbers: Tensor, scale: float) -> Tensor:
    """``numbers + scale q . vectors``, in one matrix product."""
    batch, heads, queries, width = q.shape
    offsets = vectors.shape[1]
    flat = torch.baddbmm(
        numbers.unsqueeze(-2).expand(heads, 1, offsets).repeat(batch, 1, 1),
        q.reshape(batch * heads, queries, width),
        vectors.transpose(-2, -1).expand(batch, heads, width, offsets).reshape(batch * heads, width, offsets),
        alpha=scale,
    )
    return flat.view(batch, heads, queries, offsets)


class _OffsetValues:
    """What weights gather from the vectors of offsets."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, block: Segment, weights: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        return unskew(weights) @ tensors[-1][:, self.task.offsets_of(block)]


def of_any_kind(request: Request) -> tuple[Work, list[Tensor]]:
    """The work for encodings and positions of any kind, and the parameters that its gradients reach."""
    segments = request.segments
    ranges = request.query_positions.start is not None and request.key_positions.start is not None
    whole = Segment(None, 0, request.query.shape[2], 0, request.key.shape[2], 0, 0)
    bounded = request.causal or request.window is not None
    if ranges and segments and bounded:
        task = Task(segments, request.scale, request.causal, request.window)
    else:
        task = Task([whole] if whole.queries and whole.keys else [], request.scale)
    term = _AnyTerm(request)
    return Work(task, term, term.gathered if request.values else None), term.parameters


class _AnyTerm:
    """Asks every encoding for its term of a block."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.asked = nn.ModuleList(_Asked(each) for each in (*request.biases, *request.contents, *request.values))
        named = dict(self.asked.named_parameters())
        self.names = list(named)
        self.parameters: list[Tensor] = list(named.values())

    def __call__(self, block: Segment, q: Tensor, k: Tensor, tensors: Sequence[Tensor]) -> Tensor | None:
        request, wide = self.request, computing_dtype(q.dtype)
        query, key = self._places(block)
        allowed = visibility(query, key, causal=request.causal, window=request.window)
        allowed = None if allowed is None else allowed[:, None]
        mask = self._mask(block)
        if mask is not None:
            shown = mask if mask.dtype == torch.bool else mask != -math.inf
            allowed = shown if allowed is None else allowed & shown
        term: Tensor | None = None if mask is None or mask.dtype == torch.bool else mask.to(wide)
        count = len(request.biases)
        for number, _ in enumerate((*request.biases, *request.contents)):
            if number < count:
                added = self._ask(number, tensors, "forward", query, key, dtype=wide)
            else:
                added = self._ask(number, tensors, "forward", q, k, query, key, scale=request.scale, visible=allowed)
            term = added if term is None else term + added
        if allowed is not None:
            term = q.new_zeros((), dtype=wide) if term is None else term
            term = torch.where(allowed, term, -math.inf)
        return term

    def gathered(self, block: Segment, weights: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        """What the weights of a block gather besides values."""
        first = len(self.request.biases) + len(self.request.contents)
        parts = [
            self._ask(first + number, tensors, "gathered", weights, *self._places(block))
            for number in range(len(self.request.values))
        ]
        return sum(parts[1:], parts[0])

    def _places(self, block: Segment) -> tuple[Any, Any]:
        return (
            self.request.query_positions[block.first_query : block.first_query + block.queries],
            self.request.key_positions[block.first_key : block.first_key + block.keys],
        )

    def _mask(self, block: Segment) -> Tensor | None:
        mask = self.request.mask
        if mask is None:
            return None
        mask = mask[(None,) * (4 - mask.ndim)]
        if mask.shape[-2] > 1:
            mask = mask[..., block.first_query : block.first_query + block.queries, :]
        return mask[..., block.first_key : block.first_key + block.keys] if mask.shape[-1] > 1 else mask

    def _ask(self, number: int, tensors: Sequence[Tensor], method: str, *args: Any, **kwargs: Any) -> Tensor:
        prefix = f"{number}."
        own = {
            name.removeprefix(prefix): tensor
            for name, tensor in zip(self.names, tensors, strict=True)
            if name.startswith(prefix)
        }
        result: Tensor = torch.func.functional_call(self.asked[number], own, (method, *args), kwargs)
        return result


class _Asked(nn.Module):
    """An encoding whose methods can be called with other parameters than its own."""

    def __init__(self, encoding: nn.Module) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, method: str, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = getattr(self.encoding, method)(*args, **kwargs)
        return result
