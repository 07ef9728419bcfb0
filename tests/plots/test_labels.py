"""Labels stay near what they name, and apart."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from situs.plots.labels import around, nearest, spread

pytestmark = pytest.mark.once

NUMBERS = st.floats(0, 10).map(lambda number: round(number, 3))


@given(st.lists(NUMBERS, max_size=20))
def test_labels_are_apart_in_order_and_within_bounds(wanted: list[float]) -> None:
    places = spread(wanted, 0.4, 0.0, 10.0)
    ranked = [place for _, place in sorted(zip(wanted, places, strict=True), key=lambda each: each[0])]
    assert all(later - earlier >= 0.4 - 1e-9 for earlier, later in itertools.pairwise(sorted(places)))
    assert ranked == sorted(ranked)
    assert all(-1e-9 <= place <= 10 + 1e-9 for place in places)


def test_labels_that_have_room_stay_where_they_belong() -> None:
    assert spread([3.0, 1.0, 2.0], 0.5, 0.0, 5.0) == [3.0, 1.0, 2.0]


def test_labels_that_crowd_spread_around_their_middle() -> None:
    assert spread([2.0, 2.0, 2.0], 0.5, 0.0, 5.0) == [1.5, 2.0, 2.5]
    assert spread([0.0, 0.0], 0.5, 0.0, 5.0) == [0.0, 0.5]
    assert spread([5.0, 5.0], 0.5, 0.0, 5.0) == [4.5, 5.0]


def test_labels_beyond_all_room_are_still_apart() -> None:
    assert spread([1.0] * 4, 1.0, 0.0, 2.0) == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("seed", range(5))
def test_names_around_points_are_clear_of_each_other_and_inside(seed: int) -> None:
    chance = random.Random(seed)
    points = tuple((chance.uniform(0.3, 5.7), chance.uniform(0.3, 2.7)) for _ in range(16))
    boxes = around(points, ((0.8, 0.15),) * 16, (0.0, 0.0, 6.0, 3.0))
    for one, other in itertools.combinations(boxes, 2):
        assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    for box in boxes:
        assert 0 <= box[0] <= box[2] <= 6.0
        assert 0 <= box[1] <= box[3] <= 3.0
    hidden = [point for point in points for box in boxes if nearest(point, box) == point]
    assert hidden == []
