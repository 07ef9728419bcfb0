"""Visibility: which key each query may see.

Positions say what an encoding computes with; slots, documents and padding say who sees whom. A query sees a
key if both are real tokens of one document, and the key is not later (``causal``) and lies within the window.
"Later" compares slots, never positions: image patches share a position, and random positions skip.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from situs.attention.require import require_documents, require_window
from situs.positions import Positions, own_slots


def visibility(
    query: Positions, key: Positions, *, causal: bool = False, window: int | None = None
) -> Bool[Tensor, "#batch query key"] | None:
    """True where a query may see a key; None where every one sees all."""
    require_window(window)
    require_documents(query, key)
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


def shown(
    allowed: Bool[Tensor, "#batch 1 query key"] | None, mask: Shaped[Tensor, "#batch #heads #query #key"], keys: int
) -> Bool[Tensor, "#batch #heads #query key"]:
    """Who is allowed and not hidden by a mask, which is true where a query may see a key, or -inf where not."""
    seen = mask if mask.dtype == torch.bool else mask != -math.inf
    return (seen if allowed is None else allowed & seen).expand(-1, -1, -1, keys)


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one & other


def query_slots(query: Positions, key: Positions) -> Int[Tensor, "batch query"]:
    """Where queries lie; bare ids do not say it: they take the place of the last keys."""
    slots = query.slots
    if slots is None and query.length <= key.length:
        return own_slots(key)[:, key.length - query.length :]
    return own_slots(query) if slots is None else slots
