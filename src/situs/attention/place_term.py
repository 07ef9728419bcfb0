"""TUPE's term between ranges: the product of projected positions, which are projected once for all blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from situs.attention.blockwise import Gradients, Part, Pull, Term
from situs.attention.request import Request
from situs.attention.scratch import Scratch
from situs.attention.task import Task
from situs.encodings.base import computing_dtype
from situs.encodings.tupe import Tupe
from situs.functional.offsets import skew, toeplitz


def serves(request: Request) -> bool:
    """Whether a request is TUPE alone between ranges."""
    query, key = request.query_positions, request.key_positions
    alone = len(request.contents) == 1 and not (request.biases or request.values)
    return alone and isinstance(request.contents[0], Tupe) and query.start is not None and key.start is not None


def place_term(request: Request, task: Task) -> tuple[PlaceTerm, list[Tensor]]:
    """The term, and the tensors that it takes and its gradients reach."""
    tupe, dtype = request.contents[0], computing_dtype(request.query.dtype)
    assert isinstance(tupe, Tupe)
    tensors = [
        tupe.projected(request.query_positions, tupe.query_projection, dtype),
        tupe.projected(request.key_positions, tupe.key_projection, dtype),
    ]
    offsets = torch.arange(task.lowest, task.highest + 1, device=request.query.device)
    relative = tupe.relative_by_offset(offsets, dtype)
    tensors += [] if relative is None else [relative]
    tensors += [] if tupe.to_cls is None else [tupe.to_cls.to(dtype)]
    starts = request.query_positions.start, request.key_positions.start
    return PlaceTerm(task, starts, relative is not None, tupe.to_cls is not None), tensors


class PlaceTerm(Term):
    """Products of places, with the numbers of offsets and of [CLS]."""

    def __init__(self, task: Task, starts: tuple[int | None, int | None], relative: bool, cls: bool) -> None:
        self.task, self.starts, self.relative, self.cls = task, starts, relative, cls

    def form(self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch) -> Tensor:
        block, shape = part.block, (1, q.shape[1], part.block.queries, part.block.keys)
        of_queries, of_keys = self._own(part, tensors)
        term = torch.matmul(of_queries, of_keys.transpose(-2, -1), out=scratch.take("products", shape))
        term.mul_(self.task.scale)
        if self.relative:
            term.add_(toeplitz(tensors[2][part.heads, self.task.offsets_of(block)], block.keys))
        if self.cls:
            row, column = self._cls(part)
            term[..., column] = tensors[-1][part.heads, None, None]
            term[..., row, :] = 0
        return self._hide(part, term)

    def form_again(
        self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch
    ) -> tuple[Tensor, Pull]:
        term = self.form(part, q, k, tensors, scratch)

        def pull(change: Tensor, dq: Tensor, dk: Tensor, found: Gradients) -> None:
            change = change.sum(0, keepdim=True)  # all rows have the same positions
            if self.cls:
                row, column = self._cls(part)
                change[..., row, :] = 0
                if found[-1] is not None:
                    found[-1][part.heads] += change[0, :, :, column].sum((-2, -1))
                change[..., column] = 0
            window = self.task.offsets_of(part.block)
            if self.relative and found[2] is not None:
                unslanted = change.new_zeros(*change.shape[:3], window.stop - window.start)
                skew(unslanted, part.block.keys).copy_(change)
                found[2][part.heads, window] += unslanted.sum((0, 2))
            of_queries, of_keys = self._own(part, tensors)
            if found[0] is not None:
                found[0][:, part.heads, part.queries].add_(change @ of_keys, alpha=self.task.scale)
            if found[1] is not None:
                found[1][:, part.heads, part.keys].add_(change.transpose(-2, -1) @ of_queries, alpha=self.task.scale)

        return term, pull

    def _own(self, part: Part, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        return tensors[0][:, part.heads, part.queries], tensors[1][:, part.heads, part.keys]

    def _cls(self, part: Part) -> tuple[slice, slice]:
        """Where position 0 is among the part's queries and keys, as slices that may be empty."""
        first = [
            (start or 0) + part_of.start for start, part_of in zip(self.starts, (part.queries, part.keys), strict=True)
        ]
        return (
            slice(0, 1) if first[0] == 0 else slice(0, 0),
            slice(0, 1) if first[1] == 0 else slice(0, 0),
        )

    def _hide(self, part: Part, term: Tensor) -> Tensor:
        """-inf where a query may not see a key: only where some may not."""
        block, task = part.block, self.task
        if not task.causal and task.window is None:
            return term
        nothing = term.new_zeros(1, task.highest - task.lowest + 1)
        first = 0 if task.window is not None else max(0, 1 - block.slot_offset)
        if first < block.keys:
            hidden = toeplitz(task.masked(nothing)(block), block.keys)[..., first:] == -math.inf
            term[..., first:].masked_fill_(hidden, -math.inf)
        return term
