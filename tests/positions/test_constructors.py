"""Every way to make positions, against golden values and the reference."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import Positions, Vision
from situs.positions import own_slots, require
from tests.references import positions as reference


def as_list(tensor: Tensor | int | None) -> list:
    assert isinstance(tensor, Tensor)
    values: list = tensor.tolist()
    return values


def test_a_range_from_zero_knows_everything_about_itself() -> None:
    positions = Positions.range(4)
    assert as_list(positions.ids) == as_list(positions.slots) == [[0, 1, 2, 3]]
    assert (positions.start, positions.length, len(positions), positions.sequence_length) == (0, 4, 4, 4)
    assert (positions.rows, positions.axes, positions.structure) == (1, 1, "range")
    assert positions.documents is None
    assert positions.valid is None


@pytest.mark.parametrize("start", [1, 257, 10_000_000, -3])
def test_a_range_from_elsewhere_does_not_claim_to_know_the_whole_sequence(start: int) -> None:
    positions = Positions.range(3, start=start)
    assert as_list(positions.ids) == as_list(positions.slots) == [[start, start + 1, start + 2]]
    assert positions.start == start
    assert positions.sequence_length is None
    assert Positions.range(3, start=start, sequence_length=20_000_000).sequence_length == 20_000_000


def test_a_range_with_one_start_a_row_gives_each_row_its_own_ids_and_slots() -> None:
    positions = Positions.range(3, start=torch.tensor([5, 70_000], dtype=torch.int32), sequence_length=80_000)
    assert as_list(positions.ids) == as_list(positions.slots) == [[5, 6, 7], [70_000, 70_001, 70_002]]
    assert positions.ids.dtype == torch.int64
    assert (positions.start, positions.rows, positions.sequence_length) == (None, 2, 80_000)


def test_a_range_of_nothing_is_empty() -> None:
    positions = Positions.range(0)
    assert positions.ids.shape == (1, 0)
    assert positions.sequence_length == 0


MASKS = {
    "left": ([0, 0, 1, 1], [0, 0, 0, 1]),
    "right": ([1, 1, 1, 0], [0, 1, 2, 0]),
    "holes": ([1, 0, 1, 1], [0, 0, 1, 2]),
    "none": ([1, 1, 1, 1], [0, 1, 2, 3]),
    "all": ([0, 0, 0, 0], [0, 0, 0, 0]),
}


@pytest.mark.parametrize("where", MASKS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.uint8])
def test_a_mask_counts_real_tokens_and_padded_places_have_position_zero(where: str, dtype: torch.dtype) -> None:
    mask, ids = MASKS[where]
    positions = Positions.from_mask(torch.tensor([mask], dtype=dtype))
    assert as_list(positions.ids) == [ids]
    assert as_list(positions.slots) == [[0, 1, 2, 3]]
    assert as_list(positions.valid) == [[bool(real) for real in mask]]
    assert as_list(positions.sequence_length) == [[sum(mask)]]
    assert (positions.structure, positions.start) == ("padded", None)


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=4))
def test_any_mask_gives_the_positions_of_the_reference(rows: list[list[bool]]) -> None:
    expected = reference.from_mask(np.array(rows))
    assert as_list(Positions.from_mask(torch.tensor(rows)).ids) == expected.tolist()


def test_a_declared_side_is_remembered() -> None:
    mask = torch.tensor([[0, 1, 1], [1, 1, 1]])
    assert Positions.from_mask(mask, side="left").side == "left"
    assert Positions.from_mask(mask.flip(1), side="right").side == "right"


@given(st.lists(st.integers(0, 6), max_size=5))
def test_packed_documents_restart_and_know_their_own_lengths(lengths: list[int]) -> None:
    ids, documents = reference.packed(lengths)
    positions = Positions.packed(lengths)
    assert as_list(positions.ids) == [ids.tolist()]
    assert as_list(positions.documents) == [documents.tolist()]
    assert as_list(positions.slots) == [ids.tolist()]
    assert as_list(positions.sequence_length) == [[count for count in lengths for _ in range(count)]]
    assert positions.length == sum(lengths)


@pytest.mark.parametrize("lengths", [[3, 2], [0, 4, 0, 1], [5]])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_cu_seqlens_give_what_lengths_give(lengths: list[int], dtype: torch.dtype) -> None:
    bounds = torch.tensor(np.cumsum([0, *lengths]), dtype=dtype)
    expected = Positions.packed(lengths)
    for positions in (Positions.packed(cu_seqlens=bounds), Positions.packed(cu_seqlens=bounds, length=sum(lengths))):
        assert torch.equal(positions.ids, expected.ids)
        assert as_list(positions.documents) == as_list(expected.documents)
        assert as_list(positions.sequence_length) == as_list(expected.sequence_length)


def test_cu_seqlens_that_cannot_be_read_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = torch.tensor([0, 3, 3, 7], dtype=torch.int32)
    expected = Positions.packed([3, 0, 4, 2])
    monkeypatch.setattr(require, "is_deferred", lambda tensor: True)
    positions = Positions.packed(cu_seqlens=bounds, length=9)  # two places more: padding, a document of its own
    assert torch.equal(positions.ids, expected.ids)
    assert as_list(positions.documents) == as_list(expected.documents)
    assert as_list(positions.sequence_length) == as_list(expected.sequence_length)


@pytest.mark.parametrize("lengths", [[], [2, 1]])
def test_packed_positions_lie_on_the_device_asked_for(lengths: list[int]) -> None:
    assert Positions.packed(lengths, device="meta").device.type == "meta"


def test_explicit_ids_are_kept_as_they_are() -> None:
    assert as_list(Positions.explicit(torch.tensor([5, 3, 10_000_000])).ids) == [[5, 3, 10_000_000]]
    assert Positions.explicit(torch.tensor([1, 2], dtype=torch.int16)).ids.dtype == torch.int64
    real = torch.tensor([[0.5, -1.25]], dtype=torch.float64)
    assert Positions.explicit(real).ids is real
    assert Positions.explicit(torch.zeros(2, 5, 3, dtype=torch.int64)).axes == 3
    assert Positions.explicit(torch.arange(3)).slots is None


def test_explicit_ids_take_documents_and_padding_place_by_place() -> None:
    positions = Positions.explicit(
        torch.tensor([7, 8, 0]),
        documents=torch.tensor([0, 0, 1]),
        valid=torch.tensor([True, True, False]),
        sequence_length=9,
    )
    assert as_list(positions.documents) == [[0, 0, 1]]
    assert as_list(positions.valid) == [[True, True, False]]
    assert positions.sequence_length == 9
    shared = Positions.explicit(torch.arange(3), documents=torch.tensor([[0, 0, 1], [0, 1, 1]]))
    assert shared.rows == 2


def test_grids_run_row_by_row() -> None:
    image = Positions.grid(2, 3)
    assert as_list(image.ids) == [[[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]]
    assert as_list(image.slots) == [[0, 1, 2, 3, 4, 5]]
    assert (image.axes, image.sequence_length, image.structure) == (2, 6, "grid")
    video = Positions.grid(2, 1, 2)
    assert as_list(video.ids) == [[[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]]


def test_mixed_positions_hold_three_coordinates_and_slots_in_order() -> None:
    positions = Positions.mixed([2, Vision(1, 2, 2), 1])
    assert as_list(positions.ids) == [[[0] * 3, [1] * 3, [2, 2, 2], [2, 2, 3], [2, 3, 2], [2, 3, 3], [4] * 3]]
    assert as_list(positions.slots) == [list(range(7))]
    assert (positions.axes, positions.sequence_length, positions.structure) == (3, 7, "mixed")


@pytest.mark.parametrize(("side", "ids"), [("left", [0, 0, 0, 1]), ("right", [0, 1, 0, 0])])
def test_a_batch_pads_shorter_rows_on_one_side(side: str, ids: list[int]) -> None:
    positions = Positions.batch([Positions.range(2), Positions.range(4)], side=side)  # type: ignore[arg-type]
    assert as_list(positions.ids) == [ids, [0, 1, 2, 3]]
    real = [False, False, True, True]
    assert as_list(positions.valid) == [real if side == "left" else real[::-1], [True] * 4]
    assert as_list(positions.sequence_length) == [[2], [4]]
    assert (positions.side, positions.rows, positions.structure) == (side, 2, "padded")


def test_a_batch_of_equal_rows_needs_no_padding() -> None:
    positions = Positions.batch([Positions.range(3), Positions.explicit(torch.tensor([7, 9, 11]), sequence_length=12)])
    assert as_list(positions.ids) == [[0, 1, 2], [7, 9, 11]]
    assert positions.valid is None
    assert as_list(positions.sequence_length) == [[3], [12]]
    assert Positions.batch([Positions.range(2, start=5)] * 2).sequence_length is None


def test_a_batch_joins_grids_documents_and_padding() -> None:
    grids = Positions.batch([Positions.grid(1, 2), Positions.grid(2, 2)])
    assert as_list(grids.ids)[0] == [[0, 0], [0, 1], [0, 0], [0, 0]]
    packed = Positions.batch([Positions.packed([1, 2]), Positions.range(4)], side="left")
    assert as_list(packed.ids) == [[0, 0, 0, 1], [0, 1, 2, 3]]
    assert as_list(packed.documents)[0][1:] == [0, 1, 1]
    assert as_list(packed.valid) == [[False, True, True, True], [True] * 4]


@pytest.mark.parametrize("second", [[4, 4], [6]])
def test_a_batch_of_packed_rows_keeps_the_length_of_each_document(second: list[int]) -> None:
    positions = Positions.batch([Positions.packed([3, 5]), Positions.packed(second)])
    assert isinstance(positions.sequence_length, Tensor)
    lengths = positions.sequence_length.expand(2, 8)
    assert as_list(lengths)[0] == [3] * 3 + [5] * 5
    assert as_list(lengths)[1][: sum(second)] == [count for count in second for _ in range(count)]


def test_a_batch_of_ranges_gives_each_row_the_slots_it_had() -> None:
    expected = Positions.range(2, start=torch.tensor([4, 7]))
    positions = Positions.batch([Positions.range(2, start=4), Positions.range(2, start=7)])
    assert torch.equal(positions.ids, expected.ids)
    assert as_list(positions.slots) == as_list(expected.slots)


def test_parts_of_longer_rows_keep_the_slots_they_had_when_they_are_batched_and_packed() -> None:
    parts = [Positions.range(13)[10:], Positions.range(6)[4:]]
    assert as_list(Positions.batch(parts).slots) == [[10, 11, 12], [4, 5, 0]]
    assert as_list(Positions.pack(parts).slots) == [[10, 11, 12, 4, 5]]
    from_left = Positions.batch(parts, side="left")
    assert as_list(from_left.slots) == [[10, 11, 12], [0, 11, 12]]  # rows padded on the left end together
    keys = Positions.batch([Positions.range(13), Positions.range(6)], side="left")
    assert as_list(from_left.slots)[1][1:] == as_list(keys.slots)[-1][-2:]


def test_bare_ids_with_documents_are_counted_within_each_wherever_its_places_lie() -> None:
    documents = torch.tensor([[7, 2, 2, 7, 7, 2]])
    bare = Positions.explicit(torch.arange(6), documents=documents)
    assert bare.slots is None
    assert as_list(own_slots(bare)) == [[0, 0, 1, 1, 2, 2]]
    assert as_list(bare[2:5].slots) == [[1, 1, 2]]


def test_pack_numbers_its_rows_as_documents() -> None:
    padded = Positions.from_mask(torch.tensor([[1, 1, 0]]))
    positions = Positions.pack([Positions.range(2, start=8, sequence_length=10), padded])
    assert as_list(positions.ids) == [[8, 9, 0, 1, 0]]
    assert as_list(positions.documents) == [[0, 0, 1, 1, 1]]
    assert as_list(positions.valid) == [[True, True, True, True, False]]
    assert as_list(positions.sequence_length) == [[10, 10, 2, 2, 2]]
    assert Positions.pack([Positions.range(2, start=8), padded]).sequence_length is None


def test_of_takes_nothing_a_start_a_tensor_or_positions() -> None:
    assert as_list(Positions.of(None, 3).ids) == [[0, 1, 2]]
    assert Positions.of(7, 3).start == 7
    assert as_list(Positions.of(torch.tensor([4, 2]), 2).ids) == [[4, 2]]
    given = Positions.range(3)
    assert Positions.of(given, 3, batch=5) is given
    assert Positions.of(given, 3, device="meta").device.type == "meta"


def test_whole_and_real_positions_are_joined_without_losing_either() -> None:
    far, real = torch.tensor([2**24 + 1]), torch.tensor([0.5])
    for joined in (Positions.batch, Positions.pack):
        ids = joined([Positions.explicit(far), Positions.explicit(real)]).ids
        assert ids.flatten().tolist() == [2**24 + 1, 0.5]


def test_lengths_of_rows_make_rows() -> None:
    places = Positions.range(4).with_sequence_length(torch.tensor([[4], [9]]))
    assert places.rows == 2
    assert places.row(1).sequence_length.tolist() == [[9]]  # type: ignore[union-attr]


@pytest.mark.parametrize("start", [0, torch.tensor([4, 7])], ids=["one start", "starts"])
def test_ranges_live_where_they_are_told_to(start: int | Tensor) -> None:
    assert Positions.range(3, start=start, device="meta").ids.device.type == "meta"


def test_packed_documents_live_where_they_are_told_to() -> None:
    bounds = torch.tensor([0, 2, 5])
    assert Positions.packed(cu_seqlens=bounds, device="meta").ids.device.type == "meta"
    assert Positions.packed(cu_seqlens=bounds).ids.device.type == "cpu"
