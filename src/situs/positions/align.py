"""Aligning queries with keys, where the caller may have told the positions of neither, one or both."""

from __future__ import annotations

import torch

from situs.positions import require
from situs.positions.positions import Positions, PositionsLike


def align(
    query: PositionsLike,
    key: PositionsLike,
    query_length: int,
    key_length: int,
    device: torch.device | str = "cpu",
    names: tuple[str, str] = ("positions", "key_positions"),
) -> tuple[Positions, Positions]:
    """Give positions to queries and keys: queries are the last rows of the keys unless told otherwise, as in decoding
    with a cache. ``names`` are what errors call the two."""
    for name, given, length in zip(names, (query, key), (query_length, key_length), strict=True):
        if given is not None and not (isinstance(given, Positions) and given.length == length):
            require.like(name, given, length, Positions)
    if key is None and query is not None:
        return _keys_around(Positions.of(query, query_length, device=device), key_length)
    keys = Positions.of(key, key_length, device=device)
    if query is None and query_length <= key_length:
        return (keys if query_length == key_length else keys[key_length - query_length :]), keys
    return Positions.of(query, query_length, device=device), keys


def _keys_around(query: Positions, key_length: int) -> tuple[Positions, Positions]:
    """Give keys the positions of known queries, or everything up to them."""
    if query.length == key_length:
        return query, query
    if query.start is None or query.start + query.length != key_length:
        raise ValueError(
            f"key_positions must be given, since {key_length} keys cannot be placed from the positions of "
            f"{query.length} queries; got {query!r} for the queries."
        )
    known = query.sequence_length if isinstance(query.sequence_length, int) else None
    keys = Positions.range(key_length, sequence_length=known, device=query.device)
    return query.with_sequence_length(key_length) if known is None else query, keys
