"""The compiled loop gives what tensor operations give, in any layout, dtype, width and number of threads."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs.functional import rotate_real
from situs.functional.rotation import Pairing
from situs.rotation import RotationTable, rotate
from situs.rotation.fused import planning
from tests.rotation.fused_cases import (
    SHAPE,
    assert_agree,
    both_pairings,
    needs_the_loop,
    small_tasks,
    table_for,
    turn,
    turn_all,
)

pytestmark = needs_the_loop

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
HALVES = [torch.bfloat16, torch.float16]


def rotate_by_operations(x: Tensor, table: RotationTable, pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    with monkeypatch.context() as without:
        without.setattr(planning, "available", lambda: False)
        return rotate(x, table, pairing)


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "heads"), [(1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("turning", [64, 40])
def test_the_compiled_loop_equals_tensor_operations(
    pairing: Pairing, dtype: torch.dtype, rows: int, heads: int, turning: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(SHAPE).to(dtype)
    table = table_for(rows, heads, SHAPE[2], turning, dtype, magnitude=1.25)
    turned = turn(x, table, pairing)
    assert_agree(turned, rotate_by_operations(x, table, pairing, monkeypatch))
    assert torch.equal(turned[..., turning:], x[..., turning:])


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
def test_transposed_and_sliced_tensors_are_read_where_they_lie(
    pairing: Pairing, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = torch.randn(2, 48, 4, 3 * 64 + 1).to(dtype)
    table = table_for(2, 4, 48, 64, dtype)
    shared = storage[:1, :, :, 1:65].expand(2, -1, -1, -1)
    for x in (storage.transpose(1, 2)[..., 65:129], storage.transpose(1, 2)[..., :64], shared.transpose(1, 2)):
        assert_agree(turn(x, table, pairing), rotate_by_operations(x, table, pairing, monkeypatch))


@both_pairings
@given(data=st.data())
def test_any_sizes_are_turned_to_the_last_bit(pairing: Pairing, data: st.DataObject) -> None:
    """Widths that fill no register, blocks that do not come out even, tables of rows and heads, in any order."""
    dtype = data.draw(st.sampled_from(DTYPES))
    batch, heads, length = (data.draw(st.integers(1, most)) for most in (3, 9, 70))
    turning, still = 2 * data.draw(st.integers(1, 40)), data.draw(st.integers(0, 9))
    rows, of_heads = data.draw(st.sampled_from([1, batch])), data.draw(st.sampled_from([1, heads]))
    order = data.draw(st.permutations(range(3)))
    x = torch.randn([(batch, heads, length)[axis] for axis in order] + [turning + still]).to(dtype)
    x = x.permute(*(order.index(axis) for axis in range(3)), 3)
    table = table_for(rows, of_heads, length, turning, dtype)
    expected = rotate_real(x, table.cos, table.sin, pairing)
    assert torch.equal(turn(x, table, pairing), expected)


@both_pairings
@pytest.mark.parametrize("dtype", HALVES)
def test_infinities_and_nans_come_through(pairing: Pairing, dtype: torch.dtype) -> None:
    """Every bit is what float32 arithmetic and torch's own rounding give, not-a-numbers in the same channels."""
    x = torch.randn(SHAPE).to(dtype)
    tiny, largest = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    specials = torch.tensor([torch.inf, -torch.inf, torch.nan, largest, -largest, tiny / 4, -0.0])
    for number, special in enumerate(specials.to(dtype)):
        x[:, :, number::11, number::13] = special
    table = table_for(1, 1, SHAPE[2], 64, dtype)
    table.cos[..., 0, :], table.sin[..., 0, :] = 1.0, 0.0  # position 0
    turned = turn(x, table, pairing)
    expected = rotate_real(x.float(), table.cos, table.sin, pairing).to(dtype)
    assert bool(turned.isnan().any())
    assert bool(turned.isinf().any())
    assert torch.equal(turned.isnan(), expected.isnan())
    assert torch.equal(turned.nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))


@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_number_is_read_and_written_unchanged_at_position_zero(dtype: torch.dtype) -> None:
    numbers = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    finite = torch.where(numbers.isfinite(), numbers, 0.0)
    x = torch.stack((finite, torch.zeros_like(finite)), -1).view(1, 1, -1, 2)
    still = torch.ones(1, 1, x.shape[2], 1)
    assert torch.equal(turn(x, RotationTable(still, still * 0), "interleaved")[..., 0], x[..., 0])


@pytest.mark.parametrize("dtype", HALVES)
def test_ties_go_to_the_even_neighbour_and_every_nan_stays_one(dtype: torch.dtype) -> None:
    half_step = torch.finfo(dtype).eps / 2
    strange = torch.tensor([0x7FFFFFFF, -1, 0x7F800001], dtype=torch.int32).view(torch.float32)  # nan, all bits set
    factors = torch.cat((1 + torch.arange(8) * half_step, -1 - torch.arange(8) * half_step, strange))
    cos = factors.view(1, 1, -1, 1)
    x = torch.tensor([1.0, 0.0]).to(dtype).expand(1, 1, len(factors), 2)
    turned = turn(x, RotationTable(cos, torch.zeros_like(cos)), "interleaved")[0, 0, :, 0]
    assert turned[:4].tolist() == [1, 1, 1 + 2 * half_step, 1 + 4 * half_step]
    assert torch.equal(turned[:16], factors[:16].to(dtype))
    assert bool(turned[16:].isnan().all())


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_threads_give_the_bits_of_one(
    pairing: Pairing, dtype: torch.dtype, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tasks(monkeypatch)
    x = torch.randn(3, 5, 48, 64).to(dtype)
    table = table_for(3, 5, 48, 48, dtype)
    for lying in (x, x.transpose(1, 2).contiguous().transpose(1, 2)):
        in_two = turn(lying, table, pairing)
        torch.set_num_threads(1)
        assert torch.equal(turn(lying, table, pairing), in_two)
        torch.set_num_threads(2)


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_tensors_turned_in_one_pass_have_the_bits_of_each_alone(
    pairing: Pairing, dtype: torch.dtype, count: int, two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of as many heads as they like, and whichever threads there are, also more than there are tasks."""
    small_tasks(monkeypatch)
    torch.set_num_threads(count)
    query, key, few = (torch.randn(2, heads, 48, 64).to(dtype) for heads in (8, 4, 1))
    table = table_for(2, 1, 48, 48, dtype)
    for tensors in ((query, key), (key, query, key), (few, few)):
        for each, alone in zip(turn_all(tensors, table, pairing), tensors, strict=True):
            assert torch.equal(each, rotate_real(alone, table.cos, table.sin, pairing))


@both_pairings
def test_vectors_within_one_another_are_turned(pairing: Pairing) -> None:
    x = torch.randn(20).unfold(0, 16, 1)[None, None]
    table = table_for(1, 1, 5, 16, torch.float32)
    assert_agree(rotate(x, table, pairing), rotate(x.contiguous(), table, pairing))


@both_pairings
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 6, 8, 12])
def test_any_number_of_heads_shares_the_table(pairing: Pairing, heads: int) -> None:
    x, table = torch.randn(2, heads, 7, 16), table_for(1, 1, 7, 16, torch.float32)
    expected = rotate_real(x, table.cos, table.sin, pairing)
    assert torch.equal(turn(x, table, pairing), expected)
    assert torch.equal(turn(x.transpose(1, 2).contiguous().transpose(1, 2), table, pairing), expected)


def test_a_table_that_was_used_can_be_copied_and_sent() -> None:
    x, table = torch.randn(SHAPE), table_for(1, 1, SHAPE[2], 64, torch.float32)
    expected = turn(x, table, "halves")
    for twin in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert torch.equal(turn(x, twin, "halves"), expected)


def test_places_of_a_table_share_their_plans() -> None:
    x, table = torch.randn(1, 4, 3, 16), table_for(1, 1, 3, 16, torch.float32)
    whole = turn(x, table, "halves")
    parts = [turn(x[:, :, place : place + 1], table.at(place), "halves") for place in range(3)]
    assert torch.equal(torch.cat(parts, 2), whole)
    assert len(table.at(0).plans) == 1
    for place in (-1, 3):
        with pytest.raises(IndexError, match=rf"^index must be one of the table's 3 positions; got {place}\.$"):
            table.at(place)
