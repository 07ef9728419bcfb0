"""Positions drawn from a longer range than the sequence needs."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from situs.functional import randomised, skips

seeds = st.integers(0, 2**40)


@given(st.integers(0, 50), st.integers(0, 500), seeds)
def test_a_random_sample_is_sorted_distinct_and_below_the_bound(count: int, more: int, seed: int) -> None:
    drawn = randomised(count, count + more, seed).tolist()
    assert drawn == sorted(set(drawn))
    assert len(drawn) == count
    assert all(0 <= position < count + more for position in drawn)
    assert drawn == randomised(count, count + more, seed).tolist()


def test_drawing_leaves_the_generator_of_everyone_else_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    randomised(10, 100, 1)
    skips(10, 100, 3, 1)
    assert torch.equal(torch.rand(3), expected)


def test_every_position_is_as_likely() -> None:
    """Over 4000 seeds each of 8 positions is drawn about half the time: within five standard deviations of 0.5."""
    drawn = torch.stack([randomised(4, 8, seed) for seed in range(4000)])
    shares = torch.bincount(drawn.flatten(), minlength=8) / 4000
    assert float((shares - 0.5).abs().max()) < 5 * 0.5 / 4000**0.5


@given(st.integers(1, 50), st.integers(0, 500), st.data(), seeds)
def test_skips_are_runs_of_neighbours_from_zero_in_order(count: int, more: int, data: st.DataObject, seed: int) -> None:
    chunks = data.draw(st.integers(1, count))
    drawn = skips(count, count + more, chunks, seed)
    steps = drawn.diff()
    assert int(drawn[0]) == 0
    assert int(drawn[-1]) < count + more
    assert bool((steps >= 1).all())
    assert int((steps > 1).sum()) <= chunks - 1
    assert torch.equal(drawn, skips(count, count + more, chunks, seed))


def test_one_chunk_and_no_room_leave_the_sequence_as_it_is() -> None:
    assert skips(6, 1000, 1, 0).tolist() == skips(6, 6, 3, 0).tolist() == list(range(6))


def test_skips_reach_both_ends_of_their_range() -> None:
    last = [int(skips(4, 12, 2, seed)[-1]) for seed in range(200)]
    assert (min(last), max(last)) == (3, 11)
