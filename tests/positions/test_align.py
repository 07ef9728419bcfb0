"""Queries and keys of one attention, where neither, one or both were placed."""

import pytest
import torch
from torch import Tensor

from situs import Positions
from situs.positions import align


def ids(positions: Positions) -> list[list[int]]:
    values: list[list[int]] = positions.ids.tolist()
    return values


def test_as_many_queries_as_keys_share_one_range() -> None:
    query, key = align(None, None, 3, 3)
    assert query is key
    assert ids(key) == [[0, 1, 2]]


def test_fewer_queries_are_the_last_rows_of_the_keys() -> None:
    query, key = align(None, None, 2, 5)
    assert (ids(query), ids(key)) == ([[3, 4]], [[0, 1, 2, 3, 4]])
    assert query.sequence_length == key.sequence_length == 5


def test_more_queries_than_keys_count_from_zero_each() -> None:
    query, key = align(None, None, 4, 2)
    assert (ids(query), ids(key)) == ([[0, 1, 2, 3]], [[0, 1]])


def test_no_queries_at_all_stand_after_the_last_key() -> None:
    query, key = align(None, None, 0, 3)
    assert (query.length, query.start, key.length) == (0, 3, 3)


@pytest.mark.parametrize(
    "key",
    [
        Positions.from_mask(torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]])),
        Positions.packed([1, 3]),
        Positions.range(4, start=70_000, sequence_length=80_000),
    ],
    ids=repr,
)
def test_queries_without_positions_are_cut_from_the_keys(key: Positions) -> None:
    query, same = align(None, key, 2, 4)
    assert same is key
    assert torch.equal(query.ids, key.ids[:, 2:])
    assert isinstance(query.slots, Tensor)
    assert isinstance(key.slots, Tensor)
    assert torch.equal(query.slots, key.slots[:, 2:])
    assert query.documents is None or torch.equal(query.documents, key[2:].documents)  # type: ignore[arg-type]


@pytest.mark.parametrize("start", [5, 10_000_000])
def test_a_decoding_step_given_its_start_sees_every_key_up_to_it(start: int) -> None:
    query, key = align(start, None, 2, start + 2)
    assert (query.start, key.start, key.length) == (start, 0, start + 2)
    assert query.sequence_length == key.sequence_length == start + 2


def test_a_planned_length_is_handed_to_the_keys() -> None:
    query, key = align(Positions.range(1, start=5, sequence_length=100), None, 1, 6)
    assert query.sequence_length == key.sequence_length == 100
    sliced = Positions.range(9)[4:6]
    query, key = align(sliced, None, 2, 6)
    assert query is sliced
    assert key.sequence_length == 9


@pytest.mark.parametrize("query", [Positions.range(3, start=7), torch.tensor([4, 1, 9])])
def test_keys_as_many_as_the_queries_stand_where_they_do(query: Positions | Tensor) -> None:
    ours, theirs = align(query, None, 3, 3)
    assert ours is theirs
    assert ids(ours)[0] == ([7, 8, 9] if isinstance(query, Positions) else [4, 1, 9])


def test_both_given_are_both_used() -> None:
    query, key = align(torch.tensor([9]), 3, 1, 2)
    assert (ids(query), ids(key)) == ([[9]], [[3, 4]])


def test_positions_go_to_the_device_asked_for() -> None:
    query, key = align(None, Positions.range(4), 1, 4, "meta")
    assert (query.device.type, key.device.type) == ("meta", "meta")
