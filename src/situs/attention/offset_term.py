"""The term of encodings by offset: one more product of a block's queries, read along a slant.

    term[i, j] = n[j - i] + scale (q_i . A[j - i] + k_j . B[j - i] + u . k_j)

The numbers n, which hold plain biases and -inf where a query may not see a key, are what the product begins from, so
they cost nothing. Vectors of all offsets are made once; a block reads its window of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from situs.attention.request import Request
from situs.attention.scratch import Scratch
from situs.attention.segments import Segment
from situs.attention.tails import Stretch, Tail
from situs.attention.task import Task
from situs.attention.term import GatheringTerm, Gradients, Part, Pull, with_tails
from situs.encodings.base import QueryKeyEncoding, computing_dtype
from situs.encodings.score import OffsetScore, ValueEncoding
from situs.functional.offsets import skew, skew_keys, toeplitz, unskew

TAIL = 64  # keys at least, below which a kernel call of their own costs more than forming their terms
NAMES = ("numbers", "for_query", "for_key", "for_every_key", "for_value")


def offset_term(request: Request, task: Task) -> tuple[OffsetTerm, list[Tensor], Tensor | None]:
    """The term of a request's encodings, and the tensors that it takes and its gradients reach. Last, a vector that
    may be added to all queries instead of meeting every key, which it may where nothing is turned."""
    dtype, device = computing_dtype(request.query.dtype), request.query.device
    offsets = torch.arange(task.lowest, task.highest + 1, device=device)
    sums: dict[str, Any] = {"numbers": request.numbers(task.lowest, task.highest)}

    def add(name: str, vectors: Tensor | None) -> None:
        if vectors is not None:  # encodings that meet the same thing meet it with the sum of theirs
            sums[name] = sums[name] + vectors if name in sums else vectors

    for each in request.contents:
        assert isinstance(each, OffsetScore)
        vectors = request.vectors(each, task.lowest, task.highest)
        add("for_query", vectors.for_query)
        add("for_key", vectors.for_key)
        add("for_every_key", vectors.for_every_key)
        add("numbers", None if vectors.alone is None else task.scale * vectors.alone)
    for value in request.values:
        add("for_value", value.value_vectors(offsets, dtype))
    turns = any(isinstance(each, QueryKeyEncoding) for each in request.encodings)
    for_every_key = None if turns else sums.pop("for_every_key", None)
    names = [name for name in NAMES if name in sums]
    return OffsetTerm(task, names, _span(request)), [sums[name] for name in names], for_every_key


def _span(request: Request) -> int | None:
    """The distance from which on all that positions add stays as it is; None where they never do, or where tails gain
    nothing: a window has none, and without the flash kernel they are not faster."""
    spans = [
        each.span for each in (*request.contents, *request.values) if isinstance(each, OffsetScore | ValueEncoding)
    ]
    if request.biases or request.window is not None or None in spans or not spans:
        return None
    return max(span for span in spans if span is not None) if request.by_flash else None


class OffsetTerm(GatheringTerm):
    """Numbers of offsets, and products of queries and keys with their vectors."""

    def __init__(self, task: Task, names: Sequence[str], span: int | None = None) -> None:
        self.task = task
        self.span = span
        self.index = {name: number for number, name in enumerate(names)}
        self.adds_to_output = "for_value" in self.index
        self._masked: tuple[Tensor, Callable[[Segment], Tensor]] | None = None

    def pieces(self, block: Segment, whole: Stretch, tensors: Sequence[Tensor]) -> list[tuple[Segment, int]]:
        """Keys before and behind the span are tails, where all queries of the block see them."""
        if self.span is None:
            return [(block, 0)]
        before = 1 - self.span - block.offset
        behind = self.span - block.offset + block.queries - 1
        return with_tails(block, before, behind, causal=self.task.causal, least=TAIL)

    def tail(self, side: int, tensors: Sequence[Tensor]) -> Tail:
        """The vectors of the farthest offset on that side, which are those of all in the tail."""
        end = 0 if side < 0 else tensors[0].shape[-1] - 1
        of_queries, of_keys, every, of_values = (
            tensors[self.index[name]] if name in self.index else None for name in NAMES[1:]
        )
        for_key = None if of_keys is None else of_keys[:, end]
        if every is not None:
            for_key = every if for_key is None else for_key + every
        return Tail(
            None if of_queries is None else of_queries[:, end],
            for_key,
            tensors[0][:, end],
            None if of_values is None else of_values[:, end],
        )

    def form(self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch) -> Tensor:
        scale, shape = self.task.scale, (*q.shape[:3], part.block.keys)
        numbers = _of_heads(self._numbers(tensors[0], part.block), part.heads)
        vectors = self._window("for_query", part, tensors)
        if vectors is not None:
            products = scratch.take("products", (*q.shape[:3], numbers.shape[-1]))
            _multiply_and_add(numbers, q.to(scratch.dtype), vectors, scale, products)
            term = skew(products, part.block.keys)
        else:
            term = toeplitz(numbers, part.block.keys).expand(shape)
        of_keys, every = self._window("for_key", part, tensors), self._own("for_every_key", part, tensors)
        if vectors is None and (of_keys is not None or every is not None):
            term = term.clone()
        if of_keys is not None and part.block.queries == 1:  # every key has one offset
            term.add_((k.to(scratch.dtype) * of_keys).sum(-1).unsqueeze(-2), alpha=scale)
        elif of_keys is not None:
            for keys, some, near in _stretches(part.block, k.to(scratch.dtype), of_keys):
                products = _times(some, near.transpose(-2, -1))
                term[..., keys].add_(skew_keys(products, part.block.queries), alpha=scale)
        if every is not None:
            term.add_((k.to(scratch.dtype) @ every.unsqueeze(-1)).transpose(-2, -1), alpha=scale)
        return term

    def form_again(
        self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch
    ) -> tuple[Tensor, Pull]:
        term = self.form(part, q, k, tensors, scratch)
        window, scale, queries = self.task.offsets_of(part.block), self.task.scale, part.block.queries

        def pull(change: Tensor, dq: Tensor, dk: Tensor, found: Gradients) -> None:
            unslanted = scratch.take("products", (*change.shape[:3], window.stop - window.start)).zero_()
            skew(unslanted, part.block.keys).copy_(change)
            _add_to(found[0], part, unslanted.sum(-2), window)
            vectors = self._window("for_query", part, tensors)
            if vectors is not None:
                dq.add_(_times(unslanted, vectors), alpha=scale)
                _add_products(found[self.index["for_query"]], part, unslanted, q.to(scratch.dtype), scale, window)
            vectors = self._window("for_key", part, tensors)
            if vectors is not None:
                for keys, some, near in _stretches(part.block, k.to(scratch.dtype), vectors):
                    slanted = _unskew_keys(change[..., keys])
                    dk[:, :, keys].add_(_times(slanted, near), alpha=scale)
                    here = slice(window.start + keys.start, window.start + keys.start + queries + some.shape[2] - 1)
                    _add_products(found[self.index["for_key"]], part, slanted, some, scale, here)
            every = self._own("for_every_key", part, tensors)
            if every is not None:
                columns = change.sum(-2, keepdim=True)
                dk.add_(columns.transpose(-2, -1) * every.unsqueeze(-2), alpha=scale)
                total = found[self.index["for_every_key"]]
                if total is not None:
                    total[part.heads].add_((columns @ k.to(scratch.dtype)).sum(0).squeeze(-2), alpha=scale)

        return term, pull

    def gathered(self, part: Part, weights: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        vectors = self._window("for_value", part, tensors)
        assert vectors is not None
        return _times(unskew(weights), vectors)

    def _numbers(self, vector: Tensor, block: Segment) -> Tensor:
        if self._masked is None or self._masked[0] is not vector:
            self._masked = vector, self.task.masked(vector)
        return self._masked[1](block)

    def _own(self, name: str, part: Part, tensors: Sequence[Tensor]) -> Tensor | None:
        return _of_heads(tensors[self.index[name]], part.heads) if name in self.index else None

    def _window(self, name: str, part: Part, tensors: Sequence[Tensor]) -> Tensor | None:
        own = self._own(name, part, tensors)
        return None if own is None else own[:, self.task.offsets_of(part.block)]


def _stretches(block: Segment, k: Tensor, vectors: Tensor) -> list[tuple[slice, Tensor, Tensor]]:
    """Keys, a stretch of them at a time, with the vectors of their offsets: each key meets only as many offsets as
    there are queries, so that one product with all would be mostly waste."""
    found = []
    for first in range(0, block.keys, block.queries):
        some = k[:, :, first : first + block.queries]
        count = some.shape[2]
        found.append((slice(first, first + count), some, vectors[:, first : first + block.queries + count - 1]))
    return found


def _unskew_keys(change: Tensor) -> Tensor:
    """The inverse of ``skew_keys``: each key's changes laid out by offset."""
    queries, keys = change.shape[-2:]
    offsets = queries + keys - 1
    wide = pad(change.transpose(-2, -1).flip(-1), (0, offsets + 1 - queries))
    return wide.flatten(-2)[..., : keys * offsets].view(*change.shape[:-2], keys, offsets)


def _of_heads(tensor: Tensor, heads: slice) -> Tensor:
    return tensor if tensor.shape[0] == 1 else tensor[heads]


def _times(x: Tensor, vectors: Tensor) -> Tensor:
    """A product with each head's own matrix; one that all share makes it one large product."""
    return x @ (vectors[0] if vectors.shape[0] == 1 else vectors)


def _multiply_and_add(numbers: Tensor, queries: Tensor, vectors: Tensor, scale: float, out: Tensor) -> None:
    """``numbers + scale queries . vectors``, with each offset's vector."""
    if numbers.shape[0] == vectors.shape[0] == 1:
        torch.addmm(numbers, queries.flatten(0, 2), vectors[0].T, alpha=scale, out=out.flatten(0, 2))
        return
    for row, of_row in zip(out, queries, strict=True):
        start, own = (each.expand(len(row), -1, -1) for each in (numbers.unsqueeze(-2), vectors))
        torch.baddbmm(start, of_row, own.transpose(-2, -1), alpha=scale, out=row)


def _add_products(
    total: Tensor | None, part: Part, change: Tensor, vectors: Tensor, scale: float, window: slice
) -> None:
    """Add to the gradient of vectors of offsets, which met these vectors and whose products changed so."""
    if total is None:
        return
    if total.shape[0] == 1:
        total[0, window].addmm_(change.flatten(0, 2).T, vectors.flatten(0, 2), alpha=scale)
    else:
        _add_to(total, part, (change.transpose(-2, -1) @ vectors).mul_(scale), window)


def _add_to(total: Tensor | None, part: Part, found: Tensor, window: slice) -> None:
    """Add to a gradient what a part's rows found for its offsets; heads may share one."""
    if total is not None:
        own = _of_heads(total, part.heads)[:, window]
        own += found.sum(0).sum_to_size(own.shape)
