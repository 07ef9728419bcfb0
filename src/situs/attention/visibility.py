"""Visibility: which key each query may see.

Positions say what an encoding computes with; slots, documents and padding say which tokens see each other. A query sees
a key if both are real tokens of one document, and the key is not later (``causal``) and lies within the window.
"Later" compares slots, never positions: image patches share a position, and random positions skip.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from situs.arguments import require_flag
from situs.attention.fitting import require_documents, require_window
from situs.encodings.fitting import require_positions
from situs.positions import Positions, own_slots, query_slots

MANY = 1 << 32  # chunks of a document, at most


def visibility(
    query_positions: Positions, key_positions: Positions, *, causal: bool = False, window: int | None = None
) -> Bool[Tensor, "#batch query key"] | None:
    """True where a query may see a key; None where every query sees all.

    >>> from situs import Positions
    >>> visibility(Positions.range(3), Positions.range(3), causal=True).int().tolist()
    [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
    """
    for name, positions in (("query_positions", query_positions), ("key_positions", key_positions)):
        require_positions(positions, "it tells which tokens see each other", name)
    require_flag("causal", causal, "later keys are hidden or not")
    if window is not None:
        require_window(window)
    require_documents(query_positions, key_positions)
    query, key = query_positions, key_positions
    allowed: Tensor | None = None
    if key.valid is not None:
        allowed = key.valid[:, None, :]
    if query.valid is not None:
        allowed = _both(allowed, query.valid[:, :, None])
    if query.documents is not None and key.documents is not None:
        allowed = _both(allowed, query.documents[:, :, None] == key.documents[:, None, :])
    if causal or window is not None:
        ahead = query_slots(query, key)[:, :, None] - own_slots(key)[:, None, :]
        if causal:
            allowed = _both(allowed, ahead >= 0)
        if window is not None:
            allowed = _both(allowed, ahead.abs() < window)
    return None if allowed is None else allowed.expand(-1, query.length, key.length)


def visible_with_mask(
    allowed: Bool[Tensor, "#batch query key"] | None,
    mask: Shaped[Tensor, "#batch #heads #query #key"] | None,
    keys: int,
) -> Bool[Tensor, "#batch #heads #query key"] | None:
    """Join what is allowed with a mask, which is true where a query may see a key, or -inf where not."""
    seen = None if allowed is None else allowed[:, None]
    if mask is not None:
        shown = mask if mask.dtype == torch.bool else mask != -math.inf
        seen = _both(seen, shown).expand(-1, -1, -1, keys)
    return seen


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one & other


def in_chunks(query_positions: Positions, key_positions: Positions, chunk: int) -> tuple[Positions, Positions]:
    """Make every chunk of so many positions a document of its own, which sees no other."""
    query, key = query_positions, key_positions
    of_keys = _in_chunks(key, own_slots(key), chunk)
    return of_keys if query is key else _in_chunks(query, query_slots(query, key), chunk), of_keys


def _in_chunks(positions: Positions, slots: Tensor, chunk: int) -> Positions:
    ids = positions.ids
    documents = ids.div(chunk, rounding_mode="floor")
    if positions.documents is not None:
        documents = documents + positions.documents * MANY
    return replace(
        positions, structure="packed", runs=None, given_ids=ids, given_slots=slots, documents=documents, tables={}
    )


def keys_of_chunk(query_positions: Positions, key_positions: Positions, chunk: int) -> slice | None:
    """The keys that queries may see which all stand in one chunk, as in a decode step; None where they do not, or where
    nothing but tensors tells."""
    start, key_start = query_positions.start, key_positions.start
    if start is None or key_start is None or not query_positions.length:
        return None
    number = start // chunk
    if (start + query_positions.length - 1) // chunk != number:
        return None
    first, past = number * chunk - key_start, (number + 1) * chunk - key_start
    return slice(max(0, first), max(0, min(past, key_positions.length)))


def tokens_of(
    query_positions: Positions, key_positions: Positions, *, by_slot: bool = False
) -> tuple[Int[Tensor, "query_rows 4 query"], Int[Tensor, "key_rows 4 key"]]:
    """All that attention must know of each query and of each key: position, slot, document, and 1 for a real token or 0
    for padding. ``by_slot`` puts the slot for the position, where nothing is computed with positions."""
    of_queries = _tokens(query_positions, query_slots(query_positions, key_positions), by_slot)
    return of_queries, _tokens(key_positions, own_slots(key_positions), by_slot)


def _tokens(positions: Positions, slots: Tensor, by_slot: bool) -> Int[Tensor, "rows 4 sequence"]:
    zero, one = (torch.full((1, 1), number, dtype=torch.int64, device=positions.device) for number in (0, 1))
    fields = (
        slots if by_slot else positions.ids,
        slots,
        zero if positions.documents is None else positions.documents,
        one if positions.valid is None else positions.valid,
    )
    rows = max(field.shape[0] for field in fields)
    return torch.stack([field.expand(rows, positions.length).long() for field in fields], 1)
