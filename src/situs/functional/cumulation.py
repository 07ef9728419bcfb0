"""Cumulated numbers: what tokens add up to from the first of their document on.

    c_j = sum of s_l over the keys l of one document, up to key j

so that the sum over the keys behind j, up to a query at i, is c_i - c_j. Numbers are cumulated in float64 by those who
call: c grows with the length, and what is wanted are differences of neighbours.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad


def cumulated_over_range(
    steps: Float[Tensor, "batch heads key"], first: int, queries: int
) -> tuple[Float[Tensor, "batch heads query"], Float[Tensor, "batch heads key"]]:
    """Cumulate over keys that follow one another; the first query stands where key number ``first`` does."""
    sums, keys = steps.cumsum(-1), steps.shape[-1]
    if first >= 0 and first + queries <= keys:
        return sums[..., first : first + queries], sums
    index = torch.arange(first, first + queries, device=steps.device).clamp(-1, keys - 1) + 1
    return pad(sums, (1, 0))[..., index], sums


def cumulated_over_tokens(
    steps: Float[Tensor, "batch heads key"],
    query_slots: Int[Tensor, "#batch query"],
    key_slots: Int[Tensor, "#batch key"],
    query_documents: Int[Tensor, "#batch query"] | None,
    key_documents: Int[Tensor, "#batch key"] | None,
) -> tuple[Float[Tensor, "batch heads query"], Float[Tensor, "batch heads key"]]:
    """Cumulate over keys in the order of their slots, document by document; a query has the sum of all keys up to its
    own slot."""
    queries = query_slots.shape[-1]
    slots = _behind_one_another(key_slots, query_slots)
    order = slots.argsort(dim=-1, stable=True)  # of one slot, the key stands before the query
    if query_documents is not None and key_documents is not None:
        documents = _behind_one_another(key_documents, query_documents)
        rows = max(len(order), len(documents))
        order, documents = order.expand(rows, -1), documents.expand(rows, -1)
        order = order.gather(-1, documents.gather(-1, order).argsort(dim=-1, stable=True))
    order = order[:, None].expand(*steps.shape[:2], -1)
    in_order = pad(steps, (0, queries)).gather(-1, order).cumsum(-1)
    sums = torch.zeros_like(in_order).scatter(-1, order, in_order)
    return sums[..., steps.shape[-1] :], sums[..., : steps.shape[-1]]


def _behind_one_another(keys: Int[Tensor, "#batch key"], queries: Int[Tensor, "#batch query"]) -> Tensor:
    rows = max(len(keys), len(queries))
    return torch.cat((keys.expand(rows, -1), queries.expand(rows, -1)), -1)
