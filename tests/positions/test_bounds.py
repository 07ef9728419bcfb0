"""The bound of positions: a number that no id reaches, known from how they were made, never by reading them."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from situs import Positions, Vision

FAR = 10_000_000
MASK = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])

BOUNDS: list[tuple[Positions, int | None]] = [
    (Positions.range(6), 6),
    (Positions.range(6, start=70_000), 70_006),
    (Positions.range(6, start=FAR, sequence_length=2 * FAR), FAR + 6),
    (Positions.range(0), 0),
    (Positions.range(0, start=9), 9),
    (Positions.range(6, start=-1), None),
    (Positions.range(6, start=-100), None),
    (Positions.range(6, start=torch.tensor([0, 3])), None),
    (Positions.from_mask(MASK), 6),
    (Positions.from_mask(torch.zeros(1, 3, dtype=torch.bool)), 3),
    (Positions.packed([2, 4]), 4),
    (Positions.packed([6, 1, 0]), 6),
    (Positions.packed(cu_seqlens=torch.tensor([0, 2, 6])), 4),
    (Positions.packed(cu_seqlens=torch.tensor([0, 2, 6], device="meta"), length=6), 6),
    (Positions.explicit(torch.arange(6)), None),
    (Positions.explicit(torch.arange(6.0)), None),
    (Positions.grid(6), None),
    (Positions.grid(2, 3), None),
    (Positions.mixed([2, Vision(1, 2, 2)]), None),
    (Positions.of(None, 6), 6),
    (Positions.of(5, 6), 11),
    (Positions.of(-5, 6), None),
    (Positions.of(torch.arange(6), 6), None),
]


@pytest.mark.parametrize(("positions", "below"), BOUNDS, ids=[repr(positions) for positions, _ in BOUNDS])
def test_every_constructor_tells_the_bound_it_knows(positions: Positions, below: int | None) -> None:
    assert positions.below == below


KNOWN = [Positions.range(8, start=3), Positions.from_mask(torch.ones(2, 8).bool()), Positions.packed([3, 5])]


@pytest.mark.parametrize("whole", KNOWN, ids=repr)
def test_parts_copies_and_plans_keep_it(whole: Positions) -> None:
    parts = [
        whole[2:5],
        whole[:0],
        whole[2:][1:],
        whole.row(-1),
        whole.shard(1, 2),
        whole.shard(0, 2, layout="zigzag"),
        whole.shard(0, 2, layout="zigzag")[1:3],
        whole.to("meta"),
        whole.with_sequence_length(99),
    ]
    assert {part.below for part in parts} == {whole.below}


@pytest.mark.parametrize("whole", [Positions.range(8, start=-2), Positions.explicit(torch.arange(8))], ids=repr)
def test_what_is_not_known_is_not_known_of_parts_either(whole: Positions) -> None:
    for part in (whole[4:], whole.shard(1, 2), whole.shard(0, 2, layout="zigzag"), whole.row(0), whole.to("cpu")):
        assert part.below is None


def test_joined_rows_have_the_highest_bound_where_each_has_one() -> None:
    near, far, bare = Positions.range(3), Positions.range(3, start=70_000), Positions.explicit(torch.arange(3))
    longer = Positions.range(5, start=1)
    for join in (Positions.batch, Positions.pack):
        assert join([near, far]).below == 70_003
        assert join([near, longer]).below == 6
        assert join([near]).below == 3
        assert join([near, bare]).below is None
        assert join([bare, far, longer]).below is None
        assert join([near, Positions.range(3, start=-1)]).below is None
        assert join([near.randomised(50, seed=0), longer]).below == 50
        assert join([near, far])[1:2].below == 70_003
    assert Positions.batch([near, longer], side="left").below == 6
    assert Positions.batch([Positions.range(0), longer]).below == 6


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("empty", [Positions.packed([0]), Positions.from_mask(torch.ones(1, 1).bool())[:0]], ids=repr)
def test_an_empty_row_whose_lengths_are_told_place_by_place_can_be_padded(empty: Positions, side: Any) -> None:
    batch = Positions.batch([empty, Positions.range(3)], side=side)
    assert batch.ids.tolist() == [[0, 0, 0], [0, 1, 2]]
    assert batch.below == 3


@pytest.mark.parametrize("name", ["randomised", "skipped"])
def test_drawn_positions_lie_below_what_they_were_drawn_from(name: str) -> None:
    for whole in (Positions.range(6), Positions.from_mask(MASK), Positions.packed([2, 4]), Positions.grid(2, 3)):
        drawn = getattr(whole, name)(500, seed=1)
        assert drawn.below == 500
        assert drawn[2:4].below == 500
    bare = Positions.explicit(torch.tensor([4, 0, 1]))
    assert getattr(bare, name)(40, seed=1, count=5).below == 40


def test_continued_ranges_end_higher() -> None:
    assert Positions.range(5).continued(3).below == 8
    assert Positions.range(8)[2:5].continued(2).below == 7
    assert Positions.range(5, start=-9).continued(2).below is None
    assert Positions.mixed([2, Vision(1, 2, 2)]).continued(2).below is None


def assert_bounded(positions: Positions) -> None:
    """All ids, those of padded places included, lie in 0 .. below - 1 where there is a bound."""
    if positions.below is not None:
        assert not positions.ids.is_floating_point()
        assert bool(((positions.ids >= 0) & (positions.ids < positions.below)).all()), positions


starts = st.sampled_from([0, 0, 1, 9, 70_000, FAR, -1, -5])
lengths = st.integers(0, 12)


def one_row(data: st.DataObject) -> Positions:
    """One sequence, by any constructor."""
    draw = data.draw
    length, kind = draw(lengths), draw(st.integers(0, 6))
    if kind == 0:
        return Positions.range(length, start=draw(starts))
    if kind == 1:
        return Positions.from_mask(torch.tensor([[draw(st.booleans()) for _ in range(length)]], dtype=torch.bool))
    if kind == 2:
        return Positions.range(length, start=torch.tensor([draw(starts)]))
    if kind == 3:
        ids = torch.tensor([[draw(st.integers(-9, FAR)) for _ in range(length)]], dtype=torch.int64)
        return Positions.explicit(ids)
    if kind == 4:
        return Positions.of(draw(starts), length)
    if kind == 5:
        return Positions.range(length).continued(draw(lengths))
    return Positions.grid(length + 1)


def several_rows(data: st.DataObject) -> Positions:
    """A batch, or documents in a row, or rows padded by a mask."""
    draw = data.draw
    kind = draw(st.integers(0, 4))
    if kind == 0:
        rows, length = draw(st.integers(1, 3)), draw(lengths)
        mask = [[draw(st.booleans()) for _ in range(length)] for _ in range(rows)]
        return Positions.from_mask(torch.tensor(mask, dtype=torch.bool).view(rows, length))
    if kind == 1:
        return Positions.packed(draw(st.lists(st.integers(0, 5), max_size=4)))
    rows_of = [changed(one_row(data), data) for _ in range(draw(st.integers(1, 3)))]
    if kind == 2 and all(row.documents is None for row in rows_of):
        return Positions.pack(rows_of)
    return Positions.batch(rows_of, side=draw(st.sampled_from(["left", "right"])))


def changed(positions: Positions, data: st.DataObject) -> Positions:
    """Positions after any few of slices, shards, rows and drawing."""
    draw = data.draw
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.integers(0, 4))
        if kind == 0:
            positions = positions[draw(st.integers(-13, 13)) : draw(st.integers(-13, 13))]
        elif kind == 1:
            layout: Any = draw(st.sampled_from(["contiguous", "zigzag"]))
            world_size = draw(st.integers(1, 3))
            if positions.length % (2 * world_size) == 0:
                positions = positions.shard(draw(st.integers(0, world_size - 1)), world_size, layout=layout)
        elif kind == 2:
            positions = positions.row(draw(st.integers(0, positions.rows - 1)))
        else:
            most = int(positions.ids.max()) + 1 if positions.ids.numel() else 0
            if most <= 100 and not (positions.ids < 0).any():
                count = most + draw(st.integers(0, 5))
                high, seed = count + draw(st.integers(0, 50)), draw(st.integers(0, 99))
                drawn = positions.randomised if kind == 3 else positions.skipped
                positions = drawn(high, seed=seed, count=count)
    return positions if positions.length else positions.with_sequence_length(0)


@settings(max_examples=200)
@given(st.data())
def test_no_id_reaches_the_bound_however_one_row_was_made(data: st.DataObject) -> None:
    assert_bounded(changed(one_row(data), data))


@settings(max_examples=200)
@given(st.data())
def test_no_id_reaches_the_bound_however_several_rows_were_made(data: st.DataObject) -> None:
    assert_bounded(changed(several_rows(data), data))


@settings(max_examples=100)
@given(st.data(), st.integers(1, 4), st.sampled_from(["left", "right"]))
def test_no_id_of_joined_rows_reaches_the_bound(data: st.DataObject, count: int, side: Any) -> None:
    rows = [changed(one_row(data), data) for _ in range(count)]
    batch, packed = Positions.batch(rows, side=side), Positions.pack(rows)
    assert_bounded(batch)
    assert_bounded(packed)
    assert packed.below == batch.below
    for number in range(batch.rows):
        assert_bounded(batch.row(number))


@settings(max_examples=100)
@given(st.data(), st.integers(-13, 13), st.integers(-13, 13))
def test_a_slice_knows_as_much_as_the_whole(data: st.DataObject, first: int, last: int) -> None:
    for positions in (one_row(data), several_rows(data)):
        assert positions[first:last].below == positions.below
