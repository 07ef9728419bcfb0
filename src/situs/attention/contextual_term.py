"""CoPE's term between ranges: keys are counted back from the last, until every query has counted as far as it can.

Counts never fall from one key to the one before, and the table's last row stands for all beyond. So where all queries
of a block have reached it, the keys before are a tail; how many there are depends on the content.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from situs.attention.any_term import AnyTerm
from situs.attention.request import Request
from situs.attention.segments import Segment
from situs.attention.tails import Stretch, Tail
from situs.attention.term import with_tails
from situs.encodings.base import computing_dtype
from situs.encodings.cope import CoPE
from situs.functional.offsets import toeplitz

CHUNK = 128  # keys that are counted at once


def serves(request: Request) -> bool:
    """Whether a request is CoPE alone between ranges, where tails gain something."""
    query, key = request.query_positions, request.key_positions
    alone = len(request.contents) == 1 and not (request.biases or request.values)
    unmasked = request.window is None and request.mask is None
    ranges = query.start is not None and key.start is not None and bool(request.segments)
    long = key.length > 2 * CHUNK  # or counting first costs more than it spares
    return alone and isinstance(request.contents[0], CoPE) and ranges and unmasked and long and request.by_flash


class ContextualTerm(AnyTerm):
    """The term near the queries as the encoding forms it, and tails. Few queries a block have few keys near them."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        encoding = request.contents[0]
        assert isinstance(encoding, CoPE)
        self.last = encoding.max_position - 1
        self.factor = 1.0 if encoding.scaled else 1 / request.scale

    def pieces(self, block: Segment, whole: Stretch, tensors: Sequence[Tensor]) -> list[tuple[Segment, int]]:
        """Keys before those that have to be counted are a tail."""
        rows, queries, keys = self.request.task.where(block)
        q, k = whole.plain_query[rows, :, queries], whole.plain_key[rows, :, keys]
        counts = torch.zeros(q.shape[:3], dtype=(dtype := computing_dtype(q.dtype)), device=q.device)
        first = block.keys
        while first and float(counts.min()) < self.last:
            first, end = max(0, first - CHUNK), first
            gates = torch.sigmoid(self.request.scale * (q @ k[:, :, first:end].transpose(-2, -1)).to(dtype))
            if self.request.causal and block.slot_offset + end > 1:
                slots = block.slot_offset + torch.arange(first - block.queries + 1, end, device=q.device)
                gates = gates * toeplitz((slots <= 0).to(gates.dtype), end - first)
            counts += gates.sum(-1)
        return with_tails(block, first, block.keys, causal=self.request.causal)

    def tail(self, side: int, tensors: Sequence[Tensor]) -> Tail:
        """The table's last row."""
        return Tail(for_query=self.factor * tensors[0][:, -1].to(computing_dtype(tensors[0].dtype)))
