"""Slicing, rows, devices, shards, random positions: what is kept and what changes."""

import itertools
from dataclasses import FrozenInstanceError

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import Positions, Rotary, Vision
from situs.positions import own_slots
from tests.raising import raises_exactly
from tests.references import positions as reference

MASK = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]])

KINDS = {
    "range": Positions.range(8),
    "far range": Positions.range(8, start=1_000_003, sequence_length=2_000_000),
    "range by row": Positions.range(8, start=torch.tensor([3, 70_000]), sequence_length=70_008),
    "padded": Positions.from_mask(MASK),
    "packed": Positions.packed([3, 5]),
    "grid": Positions.grid(2, 4),
    "mixed": Positions.mixed([2, Vision(1, 2, 2), 2]),
    "explicit": Positions.explicit(torch.arange(16).view(2, 8) * 3, documents=torch.arange(8) // 4),
    "batch": Positions.batch([Positions.packed([2, 3]), Positions.range(8)]),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def held_by(positions: Positions) -> dict[str, Tensor]:
    """Every tensor of positions, one value a place."""
    tensors = {name: getattr(positions, name) for name in ("ids", "slots", "documents", "valid", "sequence_length")}
    return {name: value for name, value in tensors.items() if isinstance(value, Tensor)}


def assert_same(one: Positions, other: Positions) -> None:
    ours, theirs = held_by(one), held_by(other)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert one.length == other.length


@every_kind
@pytest.mark.parametrize("cuts", [(0, 3, 8), (0, 1, 2, 7, 8), (0, 0, 8)])
def test_chunks_of_a_prefill_are_parts_of_the_whole(kind: str, cuts: tuple[int, ...]) -> None:
    whole = KINDS[kind]
    for first, last in itertools.pairwise(cuts):
        part = whole[first:last]
        assert part.length == last - first
        expected = held_by(whole) | ({} if whole.slots is not None else {"slots": own_slots(whole)})
        for name, value in held_by(part).items():
            same_for_all = name == "sequence_length" and expected[name].shape[1] == 1
            assert torch.equal(value, expected[name] if same_for_all else expected[name][:, first:last])
        assert expected.keys() == held_by(part).keys()
        if not isinstance(whole.sequence_length, Tensor):
            assert part.sequence_length == whole.sequence_length


@given(st.integers(-10, 10), st.integers(-10, 10), st.integers(-5, 5), st.integers(-5, 5))
def test_slices_follow_the_rules_of_lists_even_when_repeated(a: int, b: int, c: int, d: int) -> None:
    listed = list(range(100, 108))
    sliced = Positions.range(8, start=100)[a:b][c:d]
    assert sliced.ids[0].tolist() == sliced.ids.tolist()[0] == listed[a:b][c:d]
    assert sliced.start is not None


def test_a_slice_of_a_range_is_a_range_that_knows_its_start() -> None:
    assert Positions.range(10)[4:].start == 4
    assert Positions.range(10)[4:].sequence_length == 10
    assert Positions.range(10, start=5)[2:6][1:].start == 8


@every_kind
def test_each_row_stands_alone(kind: str) -> None:
    whole = KINDS[kind]
    for number in range(whole.rows):
        row = whole.row(number)
        assert row.rows == 1
        for name, value in held_by(whole).items():
            assert torch.equal(held_by(row)[name], value[number : number + 1] if value.shape[0] > 1 else value)
        assert_same(whole.row(number - whole.rows), row)


@every_kind
def test_moving_to_a_device_moves_everything_and_forgets_tables(kind: str) -> None:
    whole = KINDS[kind]
    whole.tables["some key"] = "some table"
    moved = whole.to("meta")
    assert moved.device.type == "meta"
    assert all(value.device.type == "meta" for value in held_by(moved).values())
    assert {name: value.shape for name, value in held_by(moved).items()} == {
        name: value.shape for name, value in held_by(whole).items()
    }
    assert moved.tables == {}
    assert whole.to("cpu") is whole
    del whole.tables["some key"]


@given(st.integers(1, 5), st.integers(1, 4), st.sampled_from(["contiguous", "zigzag"]))
def test_shards_put_back_in_order_are_the_whole_sequence(world_size: int, size: int, layout: str) -> None:
    length = 2 * world_size * size
    lengths = [length // 3, length - length // 3]
    for whole in (Positions.range(length), Positions.packed(lengths), Positions.explicit(torch.arange(length) * 7)):
        shards = [whole.shard(rank, world_size, layout=layout) for rank in range(world_size)]  # type: ignore[arg-type]
        places = [Positions.range(length).shard(rank, world_size, layout=layout) for rank in range(world_size)]  # type: ignore[arg-type]
        order = torch.cat([held_by(shard)["slots"] for shard in places], 1)[0].argsort()
        assert all("slots" in held_by(shard) for shard in shards)
        for name, expected in held_by(whole).items():
            assert torch.equal(torch.cat([held_by(shard)[name] for shard in shards], 1)[:, order], expected)
        assert whole.gathered(world_size, layout=layout).in_order == (layout == "contiguous" or world_size == 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("length", "world_size"), [(8, 2), (24, 3), (1024, 8)])
def test_zigzag_gives_each_rank_the_slots_of_the_reference(length: int, world_size: int) -> None:
    for rank in range(world_size):
        shard = Positions.range(length).shard(rank, world_size, layout="zigzag")
        assert shard.ids[0].tolist() == held_by(shard)["slots"][0].tolist()
        assert shard.ids[0].tolist() == reference.zigzag(length, world_size, rank).tolist()
        assert shard.start is None


def test_a_shard_knows_the_length_of_the_whole_and_a_contiguous_one_is_a_range() -> None:
    assert Positions.range(12).shard(1, 3).start == 4
    for layout in ("contiguous", "zigzag"):
        assert Positions.range(12).shard(1, 3, layout=layout).sequence_length == 12


def test_a_slice_of_a_zigzag_shard_keeps_its_two_pieces() -> None:
    shard = Positions.range(16).shard(0, 2, layout="zigzag")
    assert [shard[first : first + 2].ids[0].tolist() for first in (0, 2, 3, 6, 8)] == [
        [0, 1],
        [2, 3],
        [3, 12],
        [14, 15],
        [],
    ]


@given(st.integers(0, 30), st.integers(0, 1000), st.integers(0, 2**32))
def test_randomised_positions_are_sorted_distinct_and_below_the_bound(length: int, more: int, seed: int) -> None:
    high = length + more
    drawn = Positions.range(length).randomised(high, seed=seed)
    ids = drawn.ids[0].tolist()
    assert ids == sorted(set(ids))
    assert len(ids) == length
    assert all(0 <= position < high for position in ids)
    assert_same(drawn, Positions.range(length).randomised(high, seed=seed))
    assert held_by(drawn)["slots"].tolist() == [list(range(length))]
    assert drawn.start is None


def test_another_seed_draws_other_positions() -> None:
    one, other = (Positions.range(16).randomised(10_000, seed=seed).ids for seed in (1, 2))
    assert not torch.equal(one, other)


@pytest.mark.parametrize("kind", ["padded", "packed", "grid", "mixed"])
def test_randomising_replaces_each_position_by_that_of_its_rank(kind: str) -> None:
    whole = KINDS[kind]
    sample = Positions.range(whole.below or 8).randomised(5000, seed=3).ids[0]
    drawn = whole.randomised(5000, seed=3)
    real = slice(None) if whole.valid is None else whole.valid
    assert torch.equal(drawn.ids[real], sample[whole.ids][real])
    kept = held_by(whole).keys() - {"ids"}
    assert all(torch.equal(held_by(drawn)[name], held_by(whole)[name]) for name in kept)
    assert (drawn.axes, drawn.rows) == (whole.axes, whole.rows)


def test_padded_places_still_have_position_zero_when_randomised() -> None:
    positions = Positions.from_mask(MASK)
    for drawn in (positions.randomised(5000, seed=3), positions.skipped(5000, seed=3)):
        assert drawn.ids[MASK == 0].tolist() == [0, 0]


def test_a_chunk_is_randomised_like_the_whole_if_told_its_count() -> None:
    whole = Positions.range(12)
    drawn = whole.randomised(500, seed=9)
    assert torch.equal(whole[3:7].randomised(500, seed=9, count=12).ids, drawn.ids[:, 3:7])
    bare = Positions.explicit(torch.tensor([11, 0, 4]))
    assert torch.equal(bare.randomised(500, seed=9, count=12).ids, drawn.ids[:, [11, 0, 4]])


@given(st.integers(1, 40), st.integers(0, 500), st.integers(1, 6), st.integers(0, 2**32))
def test_skipped_positions_are_runs_of_neighbours_with_few_gaps(length: int, more: int, chunks: int, seed: int) -> None:
    drawn = Positions.range(length).skipped(length + more, seed=seed, chunks=chunks)
    steps = drawn.ids[0].diff()
    assert int(drawn.ids[0, 0]) == 0
    assert int(drawn.ids[0, -1]) < length + more
    assert bool((steps >= 1).all())
    assert int((steps > 1).sum()) <= chunks - 1
    assert torch.equal(drawn.ids, Positions.range(length).skipped(length + more, seed=seed, chunks=chunks).ids)
    assert more > 0 or drawn.ids[0].tolist() == list(range(length))


def test_skipping_leaps_far_in_one_of_many_seeds() -> None:
    last = [int(Positions.range(8).skipped(10_000, seed=seed, chunks=2).ids[0, -1]) for seed in range(20)]
    assert max(last) > 5000
    assert len(set(last)) > 10


def test_an_empty_sequence_can_be_randomised_and_skipped() -> None:
    assert Positions.range(0).randomised(10, seed=0).length == 0
    assert Positions.range(0).skipped(10, seed=0).ids.shape == (1, 0)


REPRS = [
    (Positions.range(4), "Positions(range 0..3, length 4)"),
    (Positions.range(9)[2:5], "Positions(range 2..4, length 3, of a sequence of 9)"),
    (
        Positions.range(8).shard(0, 2, layout="zigzag"),
        "Positions(range 0..1, 6..7, length 4, of a sequence of 8)",
    ),
    (KINDS["range by row"], "Positions(explicit, range by row, length 8, rows 2, of a sequence of 70008)"),
    (Positions.from_mask(MASK, side="left"), "Positions(padded, padded left, length 8, rows 2)"),
    (KINDS["packed"], "Positions(packed, documents of 3, 5, length 8)"),
    (KINDS["grid"], "Positions(grid, 2 x 4, length 8, axes 2)"),
    (KINDS["mixed"], "Positions(mixed, 3 segments, delta -2, length 8, axes 3)"),
    (Positions.range(3).randomised(99, seed=0), "Positions(explicit, randomised below 99, length 3)"),
    (Positions.range(3).skipped(99, seed=0), "Positions(explicit, skipping below 99, length 3)"),
    (Positions.range(3).to("meta"), "Positions(range 0..2, length 3, on meta)"),
]


@pytest.mark.parametrize(("positions", "text"), REPRS, ids=[text for _, text in REPRS])
def test_repr_says_how_the_positions_were_made(positions: Positions, text: str) -> None:
    assert repr(positions) == text


def test_a_planned_length_changes_nothing_else() -> None:
    planned = Positions.range(4, start=2).with_sequence_length(50)
    assert (planned.sequence_length, planned.start) == (50, 2)


def test_positions_are_frozen_and_derived_ones_start_without_tables() -> None:
    positions = Positions.range(8)
    with pytest.raises(FrozenInstanceError, match=r"^cannot assign to field 'length'$"):
        positions.length = 9  # type: ignore[misc]
    Rotary(head_dim=4).table(positions)
    assert len(positions.tables) == 1
    derived = (positions[:4], positions.row(0), positions.shard(0, 2), positions.with_sequence_length(9))
    assert all(other.tables == {} for other in (*derived, positions.randomised(9, seed=0)))


def test_decoding_continues_after_a_range_and_after_images() -> None:
    after = Positions.range(5).continued(2)
    assert (after.ids.tolist(), after.runs) == ([[5, 6]], ((5, 7),))
    prompt = Positions.mixed([2, Vision(1, 2, 2), 1])
    whole = Positions.mixed([2, Vision(1, 2, 2), 3])
    after = prompt.continued(2)
    assert torch.equal(after.ids, whole[7:].ids)
    assert after.runs == whole[7:].runs
    assert torch.equal(after[1:].ids, whole[8:].ids)
    longer = Positions.mixed([2, Vision(1, 2, 2), 4])
    assert torch.equal(after.continued(1).ids, longer[9:].ids)
    part = prompt[:3]
    with raises_exactly(
        ValueError,
        f"positions must reach to the end of text among images to be continued, since the images tell how far "
        f"positions lag behind; got {part!r}. Continue the whole, not a part of it.",
    ):
        part.continued(1)
    assert_same(prompt[3:].continued(2), after)
    with pytest.raises(ValueError, match=r"^positions must be a range or mixed to be continued, .*; got Positions"):
        Positions.packed([2, 2]).continued(1)


def test_shards_of_one_sequence_draw_one_sample() -> None:
    whole = Positions.range(16)
    drawn = whole.randomised(100, seed=5)
    for rank in range(2):
        assert torch.equal(
            whole.shard(rank, 2, layout="zigzag").randomised(100, seed=5).ids,
            drawn.shard(rank, 2, layout="zigzag").ids,
        )
