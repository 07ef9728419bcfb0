"""Where tokens stand and who sees whom, written out from what `situs.Positions` promises.

    a query sees a key    if both are real tokens of one document,
                          the key's slot is not past the query's (causal),
                          the two slots are less than ``window`` apart,
                          and both positions lie in one chunk of so many

Slots tell the order of tokens, ids what encodings compute with. Bare ids have no slots: keys then count from 0, each
document for itself, and queries are the last of the keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from situs import Positions


@dataclass(frozen=True)
class Tokens:
    """The tokens of every row, one field a question.

    Shapes: ids (rows, n) or (rows, n, axes); slots, documents and valid (rows, n); whole (rows, n) or one number.
    """

    ids: Tensor
    slots: Tensor | None = None
    documents: Tensor | None = None
    valid: Tensor | None = None
    whole: Tensor | int | None = None
    """How long the whole sequence is."""

    @property
    def count(self) -> int:
        return self.ids.shape[1]

    def last(self, count: int) -> Tokens:
        """The last ``count`` tokens of every row."""
        return self.at(torch.arange(self.count - count, self.count))

    def at(self, chosen: Tensor) -> Tokens:
        """Some tokens of every row, in any order."""
        slots = own_slots(self)
        ids, documents, valid = (
            None if each is None else each[:, chosen] for each in (self.ids, self.documents, self.valid)
        )
        assert ids is not None
        whole = self.whole
        if isinstance(whole, Tensor) and whole.shape[1] > 1:
            whole = whole[:, chosen]
        return Tokens(ids, slots[:, chosen], documents, valid, whole)


def tokens_of(positions: Positions) -> Tokens:
    """The public fields of positions."""
    return Tokens(positions.ids, positions.slots, positions.documents, positions.valid, positions.sequence_length)


def counted(count: int) -> Tokens:
    """The range from 0."""
    ids = torch.arange(count)[None]
    return Tokens(ids, ids, whole=count)


def own_slots(tokens: Tokens) -> Tensor:
    """Slots as told, or counted from 0 in each document. Shape: (rows, n)."""
    if tokens.slots is not None:
        return tokens.slots
    memory = torch.arange(tokens.count)[None]
    if tokens.documents is None:
        return memory
    same = tokens.documents[:, :, None] == tokens.documents[:, None, :]
    return (same & (memory[:, None, :] < memory[:, :, None])).sum(-1)


def query_slots(query: Tokens, key: Tokens) -> Tensor:
    """Slots of queries as told, or as the last of the keys. Shape: (rows, n)."""
    if query.slots is None and query.count <= key.count:
        return own_slots(key)[:, key.count - query.count :]
    return own_slots(query)


def visible(query: Tokens, key: Tokens, *, causal: bool, window: int | None, chunk: int | None = None) -> Tensor:
    """True where a query may see a key. Shape: (rows, n, m)."""
    allowed = torch.ones(1, query.count, key.count, dtype=torch.bool)
    if query.valid is not None:
        allowed = allowed & query.valid[:, :, None]
    if key.valid is not None:
        allowed = allowed & key.valid[:, None, :]
    if query.documents is not None and key.documents is not None:
        allowed = allowed & (query.documents[:, :, None] == key.documents[:, None, :])
    behind = query_slots(query, key)[:, :, None] - own_slots(key)[:, None, :]
    if causal:
        allowed = allowed & (behind >= 0)
    if window is not None:
        allowed = allowed & (behind.abs() < window)
    if chunk is not None:
        allowed = allowed & ((query.ids // chunk)[:, :, None] == (key.ids // chunk)[:, None, :])
    return allowed


@dataclass(frozen=True)
class Pairs:
    """Every query with every key."""

    query: Tokens
    key: Tokens

    @property
    def offsets(self) -> Tensor:
        """Key minus query. Shape: (rows, n, m), and axes last where positions have several."""
        query, key = self.query.ids, self.key.ids
        if query.is_floating_point() or key.is_floating_point():
            query, key = query.double(), key.double()
        return key[:, None] - query[:, :, None]
