"""Segments: stretches of queries and keys whose positions both go up by one.

Inside a segment the offset of a pair is its place in memory plus a constant, so that a bias over offsets is a strided
view and nothing has to be looked up. A range is one segment, a padded row one, a packed row one a document; a zigzag
shard has two key stretches for each of its query stretches. Pairs in no segment never see each other.

A segment is worked through in blocks of queries, each with the keys that some of them may see.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from situs.attention.visibility import query_slots
from situs.positions import Positions, is_deferred, own_slots


@dataclass(frozen=True)
class Segment:
    """A stretch of queries and a stretch of keys, in one row of the batch or in all."""

    row: int | None
    first_query: int
    queries: int
    first_key: int
    keys: int
    offset: int
    """The first key's position minus the first query's."""
    slot_offset: int
    """The same for slots, by which "later" is judged."""

    def part(self, query: int, queries: int, key: int, keys: int) -> Segment:
        """Some queries and keys of it, counted from its first."""
        moved = key - query
        return Segment(
            self.row,
            self.first_query + query,
            queries,
            self.first_key + key,
            keys,
            self.offset + moved,
            self.slot_offset + moved,
        )


def cut(segment: Segment, size: int, *, causal: bool, window: int | None) -> Iterator[Segment]:
    """Blocks of at most ``size`` queries with the keys that they may see; queries that see none are left out."""
    ahead = segment.slot_offset
    begin = max(0, ahead if causal else 0 if window is None else ahead - window + 1)
    end = segment.queries if window is None else min(segment.queries, ahead + segment.keys - 1 + window)
    for query in range(begin, end, size):
        queries = min(size, end - query)
        last = query + queries - 1
        key = 0 if window is None else max(0, query - ahead - window + 1)
        past = segment.keys
        if causal:
            past = min(past, last - ahead + 1)
        elif window is not None:
            past = min(past, last - ahead + window)
        if past > key:
            yield segment.part(query, queries, key, past - key)


def segments(query: Positions, key: Positions, most: int = 64) -> list[Segment] | None:
    """The segments of all pairs that may see each other, before any causal mask. None where positions are not such
    stretches, where there would be more than ``most`` a row, or where a device would have to be waited for."""
    if query.axes > 1 or key.axes > 1:
        return None
    if query.start is not None and key.start is not None:
        apart = key.start - query.start
        return [Segment(None, 0, query.length, 0, key.length, apart, apart)] if query.length and key.length else []
    rows = max(query.rows, key.rows)
    found: list[Segment] = []
    for row in range(rows):
        of_queries, of_keys = _runs(query, query_slots(query, key), row, most), _runs(key, own_slots(key), row, most)
        if of_queries is None or of_keys is None:
            return None
        pairs = [pair for pair in itertools.product(of_queries, of_keys) if pair[0].document == pair[1].document]
        if len(pairs) > most:
            return None
        where = row if rows > 1 else None
        found += [_between(where, one, other) for one, other in pairs]
    return found


@dataclass(frozen=True)
class _Run:
    """Neighbouring places of one row: where they begin, how many they are, and what their first has."""

    first: int
    count: int
    position: int
    slot: int
    document: int


def _between(row: int | None, one: _Run, other: _Run) -> Segment:
    offset, slot_offset = other.position - one.position, other.slot - one.slot
    return Segment(row, one.first, one.count, other.first, other.count, offset, slot_offset)


def _runs(places: Positions, slots: Tensor, row: int, most: int) -> list[_Run] | None:
    """The runs of one row, padding left out; None if there are too many to gain by them."""
    if places.start is not None:
        return [_Run(0, places.length, places.start, places.start, 0)]
    if places.document_starts is not None and places.document_lengths is not None and places.valid is None:
        ends = list(itertools.accumulate(places.document_lengths, initial=0))
        each = zip(ends, places.document_lengths, places.document_starts, strict=False)
        return [_Run(end, count, start, start, number) for number, (end, count, start) in enumerate(each) if count]
    ids = places.ids
    if is_deferred(ids) or ids.is_floating_point():
        return None
    own, slot, document, valid = (
        None if field is None else field[row if field.shape[0] > 1 else 0]
        for field in (ids, slots, places.documents, places.valid)
    )
    assert own is not None
    assert slot is not None
    breaks = (own.diff() != 1) | (slot.diff() != 1)
    for field in (document, valid):
        if field is not None:
            breaks = breaks | (field[1:] != field[:-1])
    ends = (breaks.nonzero()[:, 0] + 1).tolist()
    if len(ends) > most:
        return None
    return [
        _Run(first, last - first, int(own[first]), int(slot[first]), 0 if document is None else int(document[first]))
        for first, last in itertools.pairwise([0, *ends, places.length])
        if last > first and (valid is None or bool(valid[first]))
    ]
