"""Rankings: in order, paired with the first, and with ties where intervals include 0."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from situs.lab.comparing.ranking import rank
from situs.lab.comparing.summary import Row
from situs.lab.scores import Ranking
from tests.plots.comparison.sample import Losses, make_records, view_of, view_of_losses

pytestmark = pytest.mark.once

HARD = [1.0, 5.0, 3.0, 2.0, 4.0, 2.5]
"""Windows that differ far more than methods do."""


def plus(*by: float) -> list[list[float]]:
    """The losses of two seeds, each window higher by a little that alternates."""
    return [[hard + each + 0.01 * (-1) ** number for number, hard in enumerate(HARD)] for each in by]


def ranked(losses: Losses, key: str = "level") -> Ranking[Row]:
    view = view_of_losses(losses)
    return rank(view.records, view.rows, "text", view.longest, "change" if key == "change" else "level")


def names(ranking: Ranking[Row]) -> list[str]:
    return [entry.row.name for entry in ranking.entries]


def test_the_lowest_loss_comes_first_and_pairs_tell_what_intervals_of_losses_do_not() -> None:
    found = ranked({"t5": {8: plus(0, 0), 16: plus(0.3, 0.35)}, "alibi": {8: plus(0, 0), 16: plus(0.1, 0.12)}})
    assert names(found) == ["alibi", "t5"]
    alibi, t5 = found.entries
    assert alibi.point.high > t5.point.low  # windows differ by more
    assert (alibi.behind.mean, alibi.ties) == (0.0, True)
    assert t5.behind.mean == pytest.approx(0.215)
    assert not t5.ties
    assert [entry.row.name for entry in found.first] == ["alibi"]


def test_seeds_that_disagree_are_a_tie() -> None:
    found = ranked({"t5": {8: plus(0, 0), 16: plus(0.1, 0.3)}, "alibi": {8: plus(0, 0), 16: plus(0.2, 0.15)}})
    assert names(found) == ["alibi", "t5"]
    assert [entry.row.name for entry in found.first] == ["alibi", "t5"]


def test_changes_are_ranked_apart_from_losses() -> None:
    losses = {"t5": {8: plus(0, 0), 16: plus(0.2, 0.2)}, "alibi": {8: plus(1, 1), 16: plus(1.1, 1.1)}}
    assert names(ranked(losses)) == ["t5", "alibi"]
    assert names(ranked(losses, "change")) == ["alibi", "t5"]


def test_methods_without_a_finite_number_come_last_and_have_no_place() -> None:
    endless = [[math.inf] * 6] * 2
    found = ranked(
        {
            "t5": {8: plus(0, 0)},
            "kerple": {8: plus(0, 0), 16: endless},
            "alibi": {8: plus(0, 0), 16: plus(0, 0)},
        }
    )
    assert names(found) == ["alibi"]
    assert [row.name for row in found.rows] == ["alibi", "t5", "kerple"]
    assert found.entry(found.rest[0]) is None


def test_methods_that_share_no_seed_are_compared_by_their_intervals() -> None:
    records = make_records(tasks=("text",), methods=("alibi", "rotary"), failures=False)
    records["trials"] = [
        trial for trial in records["trials"] if (trial["trial"]["method"] == "alibi") == (trial["trial"]["seed"] == 0)
    ]
    view = view_of(records)
    first, second = rank(view.records, view.rows, "text", 1024).entries
    assert second.behind.low == pytest.approx(second.point.low - first.point.high)
    assert second.behind.high == pytest.approx(second.point.high - first.point.low)


def test_answers_are_ranked_by_how_many_are_right() -> None:
    view = view_of(make_records(tasks=("passkey",), methods=("rotary", "none", "alibi"), failures=False))
    found = rank(view.records, view.rows, "passkey", 1024)
    shares = [entry.point.mean for entry in found.entries]
    assert shares == sorted(shares, reverse=True)
    assert names(found)[0] == "none"
    assert found.entries[-1].behind.mean == pytest.approx(shares[0] - shares[-1])


SCORES = st.lists(
    st.lists(st.integers(0, 30).map(lambda tenths: tenths / 10), min_size=4, max_size=4), min_size=2, max_size=2
)


@given(st.dictionaries(st.sampled_from(["alibi", "t5", "none", "rotary", "kerple"]), SCORES, min_size=1))
def test_places_are_in_order_and_the_first_ties_with_itself(losses: dict[str, list[list[float]]]) -> None:
    found = ranked({name: {8: scores, 16: scores[::-1]} for name, scores in losses.items()})
    means = [entry.point.mean for entry in found.entries]
    assert means == sorted(means)
    assert found.entries[0].ties
    assert sorted(row.name for row in found.rows) == sorted(losses)
    for entry in found.entries:
        assert entry.behind.mean == pytest.approx(entry.point.mean - means[0])
