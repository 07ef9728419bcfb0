"""T5's rows against exact arithmetic, against rows written down, and at their limits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from situs import T5Bias
from situs.functional.buckets import clipped_rows, t5_rows
from tests.references import t5 as reference

FARTHEST = 4096

# where each of the 32 rows begins with max_distance 128; row n of a bidirectional table is 16 + n for keys ahead
FIRST_DISTANCES_BIDIRECTIONAL = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]
FIRST_DISTANCES_CAUSAL = [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]

both_directions = pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "causal"])


def rows_of(offsets: Tensor, **options: object) -> Tensor:
    return T5Bias(num_heads=1, **options).rows_of(offsets)  # type: ignore[arg-type]


@both_directions
@pytest.mark.parametrize("num_buckets", [8, 16, 32, 64])
@pytest.mark.parametrize("max_distance", [64, 128, 256, 800, 1024])
def test_rows_are_those_of_exact_arithmetic(bidirectional: bool, num_buckets: int, max_distance: int) -> None:
    near = torch.arange(-1030, 1031)  # past every boundary, the last of which is below max_distance
    offsets = torch.cat((torch.tensor([-FARTHEST, -2048]), near, torch.tensor([2048, FARTHEST])))
    exact = [reference.bucket(offset, bidirectional, num_buckets, max_distance) for offset in offsets.tolist()]
    ours = rows_of(offsets, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance)
    assert ours.tolist() == exact


@both_directions
@pytest.mark.parametrize("num_buckets", [8, 16, 32, 64])
@pytest.mark.parametrize("max_distance", [64, 128, 256, 800, 1024])
def test_beyond_max_distance_all_share_the_last_row(bidirectional: bool, num_buckets: int, max_distance: int) -> None:
    distances = torch.arange(max_distance, FARTHEST + 1)
    options = {"bidirectional": bidirectional, "num_buckets": num_buckets, "max_distance": max_distance}
    behind, ahead = rows_of(-distances, **options), rows_of(distances, **options)
    last = num_buckets // 2 - 1 if bidirectional else num_buckets - 1
    assert behind.unique().tolist() == [last]
    assert ahead.unique().tolist() == ([num_buckets - 1] if bidirectional else [0])


@pytest.mark.parametrize(
    ("offset", "row"),
    [
        (0, 0), (-1, 1), (-7, 7), (-8, 8), (-11, 8), (-12, 9), (-15, 9), (-16, 10), (-22, 10), (-23, 11), (-31, 11),
        (-32, 12), (-45, 12), (-46, 13), (-63, 13), (-64, 14), (-90, 14), (-91, 15), (-127, 15), (-128, 15),
        (-4096, 15), (1, 17), (7, 23), (8, 24), (11, 24), (12, 25), (16, 26), (32, 28), (64, 30), (90, 30), (91, 31),
        (128, 31), (4096, 31),
    ],
)  # fmt: skip
def test_a_bidirectional_offset_takes_the_row_written_down(offset: int, row: int) -> None:
    assert rows_of(torch.tensor([offset])).tolist() == [row]


@pytest.mark.parametrize(
    ("offset", "row"),
    [
        (4096, 0), (128, 0), (1, 0), (0, 0), (-1, 1), (-15, 15), (-16, 16), (-18, 16), (-19, 17), (-20, 17), (-21, 18),
        (-30, 20), (-31, 21), (-34, 21), (-35, 22), (-45, 23), (-46, 24), (-51, 24), (-52, 25), (-66, 26), (-67, 27),
        (-98, 29), (-99, 30), (-112, 30), (-113, 31), (-127, 31), (-128, 31), (-4096, 31),
    ],
)  # fmt: skip
def test_a_causal_offset_takes_the_row_written_down(offset: int, row: int) -> None:
    assert rows_of(torch.tensor([offset]), bidirectional=False).tolist() == [row]


def test_rows_begin_at_the_distances_written_down() -> None:
    distances = torch.arange(129)
    behind = torch.bucketize(distances, torch.tensor(FIRST_DISTANCES_BIDIRECTIONAL), right=True) - 1
    assert torch.equal(rows_of(-distances), behind)
    assert torch.equal(rows_of(distances[1:]), behind[1:] + 16)
    causal = torch.bucketize(distances, torch.tensor(FIRST_DISTANCES_CAUSAL), right=True) - 1
    assert torch.equal(rows_of(-distances, bidirectional=False), causal)


@both_directions
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(4, 3), (8, 5), (32, 17), (32, 128), (128, 441)])
def test_rows_grow_with_distance_and_fit_the_table(bidirectional: bool, num_buckets: int, max_distance: int) -> None:
    rows = t5_rows(num_buckets, max_distance, bidirectional)
    behind, ahead = rows[: max_distance + 1].flip(0), rows[max_distance + 1 :]
    assert rows.shape == (2 * max_distance + 1,)
    assert int(behind[0]) == 0
    assert bool((behind.diff() >= 0).all())
    assert bool((ahead.diff() >= 0).all())
    assert 0 <= int(rows.min()) <= int(rows.max()) == num_buckets - 1
    if bidirectional:
        assert torch.equal(ahead, behind[1:] + num_buckets // 2)
    else:
        assert not bool(ahead.any())


@both_directions
@pytest.mark.parametrize("max_distance", [1, 2, 16])
def test_clipped_rows_are_one_a_distance(bidirectional: bool, max_distance: int) -> None:
    offsets = torch.arange(-3 * max_distance, 3 * max_distance + 1)
    expected = [reference.clipped_row(offset, max_distance, bidirectional) for offset in offsets.tolist()]
    ours = rows_of(offsets, buckets="clipped", max_distance=max_distance, bidirectional=bidirectional)
    assert ours.tolist() == expected
    own = clipped_rows(max_distance, bidirectional)
    assert own.tolist() == expected[2 * max_distance : 4 * max_distance + 1]
    assert own.unique().tolist() == list(range(2 * max_distance + 1 if bidirectional else max_distance + 1))
