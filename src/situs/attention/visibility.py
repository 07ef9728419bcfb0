"""Visibility: which key each query may see.

Positions say what an encoding computes with; slots, documents and padding say who sees whom. A query sees a
key if the key is a real token, belongs to the same document, is not later (``causal``), and lies within the
window. "Later" compares slots, never positions: image patches share a position, and random positions skip.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from situs.positions import Positions, own_slots


def visibility(
    query: Positions, key: Positions, *, causal: bool = False, window: int | None = None
) -> Bool[Tensor, "#batch query key"] | None:
    """True where a query may see a key; None where every one sees all."""
    require_window(window)
    allowed: Tensor | None = None
    if key.valid is not None:
        allowed = key.valid[:, None, :]
    require_documents(query, key)
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


def require_mask(mask: Tensor, scores: tuple[int, ...]) -> None:
    """Raise unless a mask can be read, for scores of that shape."""
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise TypeError(
            f"mask must be bool, true where a query may see a key, or a float to add to the scores; got dtype "
            f"{mask.dtype}. Use mask.bool()."
        )
    given = tuple(mask.shape)
    from_the_last = zip(reversed(given), reversed(scores), strict=False)
    if len(given) > len(scores) or any(own not in (1, size) for own, size in from_the_last):
        raise ValueError(
            f"mask must broadcast to (batch, heads, query, key) = {scores}, since it tells which query may see which "
            f"key; got shape {given}. For padding, use positions=Positions.from_mask(...)."
        )


def require_window(window: int | None) -> None:
    """Raise unless a query sees at least itself."""
    if window is not None and window < 1:
        raise ValueError(f"window must be 1 or more, since a query sees at least its own place; got {window}.")


def require_documents(query: Positions, key: Positions) -> None:
    """Raise if one side alone is told of documents."""
    if (query.documents is None) != (key.documents is None):
        raise ValueError(
            f"queries and keys must both have documents or neither, since a token sees only its own; "
            f"got {query!r} and {key!r}."
        )


def _both(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one & other


def query_slots(query: Positions, key: Positions) -> Int[Tensor, "batch query"]:
    """Where queries lie; bare ids do not say it: they take the place of the last keys."""
    if query.slots is None and query.length <= key.length:
        return own_slots(key)[:, key.length - query.length :]
    return own_slots(query)
