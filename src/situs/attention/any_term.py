"""The term of encodings and positions of any kind: every encoding is asked for its part, block by block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from situs.attention.request import Request
from situs.attention.scratch import Scratch
from situs.attention.segments import Segment
from situs.attention.task import Task
from situs.attention.term import GatheringTerm, Gradients, Part, Pull, accumulate
from situs.attention.visibility import query_slots, shown, visibility
from situs.encodings.base import Encoding, computing_dtype
from situs.encodings.score import ScoreEncoding
from situs.positions import Positions

FEW_QUERIES = 64  # of a block, where a term by content passes through many tensors of its size on the way


def any_task(request: Request) -> Task:
    """Blocks of queries; with all keys, unless ranges tell which they may see."""
    query, key = request.query_positions, request.key_positions
    if query.start is not None and key.start is not None and request.segments:
        return request.task
    whole = Segment(None, 0, query.length, 0, key.length, 0, 0)
    return Task([whole] if query.length and key.length else [], request.scale)


class AnyTerm(GatheringTerm):
    """Asks encodings as they are; their parameters are handed to them, so that gradients reach those of the call."""

    heads_apart = False
    may_be_kept = True

    def __init__(self, request: Request) -> None:
        self.request = request
        self.asked = [_Asked(each) for each in (*request.biases, *request.contents, *request.values)]
        held = [_held(each) for each in self.asked]
        self.names = [list(each) for each in held]
        # a parameter that is held twice, or of an encoding that is asked twice, is handed over as often
        self.parameters: list[Tensor] = [parameter for each in held for parameter in each.values()]
        if request.mask is not None and request.mask.is_floating_point():
            self.parameters.append(request.mask)
        self.adds_to_output = bool(request.values)
        if request.contents:
            self.queries = FEW_QUERIES
        # bare ids of queries take the slots of the last keys, which no slice of them could know
        self.query_positions = request.query_positions
        if self.query_positions.slots is None:
            slots = query_slots(request.query_positions, request.key_positions)
            self.query_positions = replace(request.query_positions, given_slots=slots, tables={})

    def form(self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch) -> Tensor | None:
        request = self.request
        query, key = self._places(part)
        allowed = visibility(query, key, causal=request.causal, window=request.window)
        allowed = None if allowed is None else allowed[:, None]
        mask = self._mask(part, tensors)
        if mask is not None:
            allowed = shown(allowed, mask, key.length)
        wide = computing_dtype(q.dtype)
        term: Tensor | None = None if mask is None or mask.dtype == torch.bool else mask.to(wide)
        for number in range(len(request.biases) + len(request.contents)):
            if number < len(request.biases):
                added = self._ask(number, tensors, "forward", query, key, dtype=wide)
            else:
                added = self._ask(number, tensors, "forward", q, k, query, key, scale=request.scale, visible=allowed)
            term = added if term is None else term + added
        if allowed is not None:
            term = q.new_zeros((), dtype=wide) if term is None else term
            term = torch.where(allowed, term, -math.inf)
        return term

    def form_again(
        self, part: Part, q: Tensor, k: Tensor, tensors: Sequence[Tensor], scratch: Scratch
    ) -> tuple[Tensor | None, Pull]:
        leaves = [each.detach().requires_grad_() for each in (q, k, *tensors)]
        with torch.enable_grad():
            term = self.form(part, leaves[0], leaves[1], leaves[2:], scratch)

        def pull(change: Tensor, dq: Tensor, dk: Tensor, found: Gradients) -> None:
            if term is not None and term.requires_grad:
                parts = torch.autograd.grad(
                    term, leaves, change.to(term.dtype).sum_to_size(term.shape), allow_unused=True
                )
                accumulate([dq, dk, *found], parts)

        return None if term is None else term.detach(), pull

    def gathered(self, part: Part, weights: Tensor, tensors: Sequence[Tensor]) -> Tensor:
        first = len(self.request.biases) + len(self.request.contents)
        parts = [
            self._ask(first + number, tensors, "gathered", weights, *self._places(part))
            for number in range(len(self.request.values))
        ]
        return sum(parts[1:], parts[0])

    def _places(self, part: Part) -> tuple[Positions, Positions]:
        return self.query_positions[part.queries], self.request.key_positions[part.keys]

    def _mask(self, part: Part, tensors: Sequence[Tensor]) -> Tensor | None:
        mask = self.request.mask
        if mask is None:
            return None
        mask = tensors[-1] if mask.is_floating_point() else mask
        mask = mask[(None,) * (4 - mask.ndim)]
        mask = mask[..., part.queries, :] if mask.shape[-2] > 1 else mask
        return mask[..., part.keys] if mask.shape[-1] > 1 else mask

    def _ask(self, number: int, tensors: Sequence[Tensor], method: str, *args: Any, **kwargs: Any) -> Tensor:
        names, first = self.names[number], sum(map(len, self.names[:number]))
        own = dict(zip(names, tensors[first : first + len(names)], strict=True))
        asked = self.asked[number]
        result: Tensor = torch.func.functional_call(asked, own, (method, *args), kwargs, tie_weights=False)
        return result


class _Asked(nn.Module):
    """An encoding whose methods can be called with other parameters than its own, and than those it borrows."""

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self.encoding = encoding
        self.borrowed = nn.ModuleList(encoding.borrowed if isinstance(encoding, ScoreEncoding) else ())

    def forward(self, method: str, *args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = getattr(self.encoding, method)(*args, **kwargs)
        return result


def _held(module: nn.Module) -> dict[str, Tensor]:
    """All parameters by the name of where they are held. A place that several names lead to, as in a module that is
    there twice, has one of them: handed over under two, what it held before would not be put back."""
    return {
        name: parameter
        for prefix, part in module.named_modules()
        for name, parameter in part.named_parameters(prefix, recurse=False, remove_duplicate=False)
    }
