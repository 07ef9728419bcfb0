"""Tiles cover exactly the pairs that may see each other, and say where each pair stands."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from situs import Positions
from situs.attention import visibility
from situs.attention.kernels.tiling import EVERY, Tile, Tiling, tiles_between_tokens
from situs.attention.visibility import tokens_of
from situs.positions import own_slots, query_slots
from situs.positions.positions import Side

# executed annotations draw random numbers of their own while positions are made
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")

Pair = tuple[Positions, Positions]

sizes = st.integers(1, 4)
starts = st.integers(-3, 20)


def _mask(rows: list[list[bool]]) -> Positions:
    return Positions.from_mask(torch.tensor(rows))


masks = st.integers(1, 8).flatmap(
    lambda length: st.lists(st.lists(st.booleans(), min_size=length, max_size=length), min_size=1, max_size=3)
)
ranges = st.builds(lambda length, start: Positions.range(length, start=start), st.integers(0, 8), starts)
by_row = st.builds(
    lambda length, first: Positions.range(length, start=torch.tensor(first)),
    st.integers(1, 5),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
)
packed = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(Positions.packed)
from_starts = st.lists(st.tuples(sizes, st.integers(0, 9)), min_size=1, max_size=3).map(
    lambda rows: Positions.pack([Positions.range(length, start=start) for length, start in rows])
)
padded_documents = st.lists(masks.map(lambda rows: rows[:1]), min_size=1, max_size=3).map(
    lambda rows: Positions.pack([_mask(row) for row in rows])
)
explicit = st.lists(st.integers(0, 6), min_size=1, max_size=8).map(lambda ids: Positions.explicit(torch.tensor(ids)))
sampled = st.builds(
    lambda length, seed: Positions.range(length).skipped(20, seed=seed, chunks=2), st.integers(2, 8), st.integers(0, 99)
)
shared_out = st.builds(
    lambda pieces, rank, layout: Positions.range(4 * pieces).shard(rank, 2, layout=layout),
    sizes,
    st.integers(0, 1),
    st.sampled_from(["contiguous", "zigzag"]),
)
without_documents = st.one_of(ranges, masks.map(_mask), explicit, sampled, shared_out, by_row)
with_documents = st.one_of(packed, from_starts, padded_documents)
batches = st.builds(
    lambda rows, side: Positions.batch(rows, side=side),
    st.lists(packed, min_size=2, max_size=3) | st.lists(ranges, min_size=2, max_size=3),
    st.sampled_from(["left", "right"]),
)


@st.composite
def part_of(draw: st.DrawFn, whole: Positions) -> Positions:
    """The whole, a slice or a shard of it."""
    kind = draw(st.sampled_from(["whole", "slice", "contiguous", "zigzag"]))
    if kind == "slice":
        first = draw(st.integers(0, whole.length))
        return whole[first : draw(st.integers(first, whole.length))]
    if kind == "contiguous" and whole.length % 2 == 0:
        return whole.shard(draw(st.integers(0, 1)), 2)
    if kind == "zigzag" and whole.length % 4 == 0:
        return whole.shard(draw(st.integers(0, 1)), 2, layout="zigzag")
    return whole


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Queries and keys of one sequence, or of two that have nothing to do with each other."""
    if draw(st.booleans()):
        whole = draw(st.one_of(without_documents, with_documents, batches))
        return draw(part_of(whole)), draw(part_of(whole))
    query, key = draw(without_documents), draw(without_documents)
    return query, key if 1 in (query.rows, key.rows) or query.rows == key.rows else query


def tiles(query: Positions, key: Positions) -> list[Tile] | None:
    return tiles_between_tokens(*tokens_of(query, key))


def _rows(tensor: Tensor, rows: int) -> Tensor:
    return tensor.expand(rows, *tensor.shape[1:])


@settings(max_examples=400)
@given(pairs())
def test_tiles_cover_every_visible_pair_once_and_no_other(pair: Pair) -> None:
    query, key = pair
    found = tiles(query, key)
    if found is None:
        return
    rows = max(query.rows, key.rows)
    seen = visibility(query, key)
    allowed = torch.ones(rows, query.length, key.length, dtype=torch.bool) if seen is None else _rows(seen, rows)
    if query.valid is not None:
        allowed = allowed & _rows(query.valid, rows)[:, :, None]
    apart = _rows(key.ids, rows)[:, None, :] - _rows(query.ids, rows)[:, :, None]
    slots_apart = _rows(own_slots(key), rows)[:, None, :] - _rows(query_slots(query, key), rows)[:, :, None]
    times = torch.zeros(rows, query.length, key.length, dtype=torch.long)
    for each in found:
        where = (
            each.rows,
            slice(each.first_query, each.first_query + each.queries),
            slice(each.first_key, each.first_key + each.keys),
        )
        times[where] += 1
        steps = torch.arange(each.keys) - torch.arange(each.queries)[:, None]
        assert bool((apart[where] == each.offset + steps).all())
        assert bool((slots_apart[where] == each.slot_offset + steps).all())
    assert torch.equal(times, allowed.long())


@given(st.one_of(ranges, packed, masks.map(_mask), shared_out, by_row))
def test_whatever_is_made_of_ranges_has_tiles(places: Positions) -> None:
    assert tiles(places, places) is not None


@given(
    st.builds(
        Tile, st.just(EVERY), starts, sizes | st.just(9), starts, sizes | st.just(9), starts, st.integers(-12, 12)
    ),
    st.integers(1, 10),
    st.booleans(),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(-12, 20),
    st.none() | st.integers(-12, 20),
)
def test_blocks_hold_exactly_the_queries_that_see_a_key_and_every_key_that_they_see(
    tile: Tile, size: int, causal: bool, window: int | None, lowest: int | None, highest: int | None
) -> None:
    slots = tile.slot_offset + torch.arange(tile.keys) - torch.arange(tile.queries)[:, None]
    seen = torch.ones_like(slots, dtype=torch.bool)
    if causal:
        seen = seen & (slots <= 0)
    if window is not None:
        seen = seen & (slots.abs() < window)
    offsets = slots - tile.slot_offset + tile.offset
    seen = seen if lowest is None else seen & (offsets >= lowest)
    seen = seen if highest is None else seen & (offsets <= highest)
    tiling = Tiling([tile], causal, window, (lowest, highest))
    assert tiling.hides(tile) == (not bool(seen.all()))
    zeros = torch.zeros(tiling.highest - tiling.lowest + 1)
    read = tiling.masked(zeros, tiling.lowest)(tile).unfold(-1, tile.keys, 1).flip(0)
    assert torch.equal(read == 0, seen)
    assert torch.equal(tiling.visible(tile, torch.device("cpu")).unfold(-1, tile.keys, 1).flip(0), seen)
    times = torch.zeros(tile.queries, dtype=torch.long)
    covered = torch.zeros_like(seen)
    for block in tiling.cut(size):
        query, key = block.first_query - tile.first_query, block.first_key - tile.first_key
        assert 1 <= block.queries <= size
        assert block.rows == tile.rows
        assert block.offset - tile.offset == block.slot_offset - tile.slot_offset == key - query
        times[query : query + block.queries] += 1
        covered[query : query + block.queries, key : key + block.keys] = True
        edges = seen[query : query + block.queries, key : key + block.keys]
        assert bool(edges[:, 0].any())
        assert bool(edges[:, -1].any())
    assert torch.equal(times, seen.any(-1).long())
    assert not bool((seen & ~covered).any())


def test_a_range_is_one_tile_and_a_packed_row_one_per_document() -> None:
    ahead = tiles(Positions.range(3, start=4), Positions.range(7))
    assert ahead == [Tile(EVERY, 0, 3, 0, 7, -4, -4)]
    packed_row = Positions.packed([2, 3])
    assert tiles(packed_row, packed_row) == [Tile(EVERY, 0, 2, 0, 2, 0, 0), Tile(EVERY, 2, 3, 2, 3, 0, 0)]


def test_a_zigzag_shard_has_a_tile_for_each_of_its_pieces() -> None:
    whole = Positions.range(8)
    found = tiles(whole.shard(0, 2, layout="zigzag"), whole)
    assert found == [Tile(EVERY, 0, 2, 0, 8, 0, 0), Tile(EVERY, 2, 2, 0, 8, -6, -6)]


@pytest.mark.parametrize(
    "places",
    [
        Positions.packed([1] * 65),
        Positions.explicit(torch.arange(0, 200, 2)),
        Positions.explicit(torch.arange(0, 4000, 2)),
    ],
    ids=["too many documents", "too many runs", "far too many runs"],
)
def test_positions_without_long_stretches_have_no_tiles(places: Positions) -> None:
    assert tiles(places, places) is None


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_row_has_one_tile_however_much_of_it_is_padding(side: Side) -> None:
    mask = torch.ones(2, 600, dtype=torch.long)
    mask[0, slice(400) if side == "left" else slice(200, None)] = 0
    places = Positions.from_mask(mask, side=side)
    first = 400 if side == "left" else 0
    assert tiles(places, places) == [
        Tile(slice(0, 1), first, 200, first, 200, 0, 0),
        Tile(slice(1, 2), 0, 600, 0, 600, 0, 0),
    ]


def test_nothing_has_no_tiles() -> None:
    assert tiles(Positions.range(0), Positions.range(4)) == []
    assert tiles(Positions.range(4), Positions.range(0)) == []
    nobody = Positions.from_mask(torch.zeros(1, 4, dtype=torch.bool))
    assert tiles(nobody, nobody) == []
