"""Counting gates from each key on, and reading a table between its rows."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs.functional.contextual import between_rows, gate_counts

sizes = st.integers(1, 6)


def by_loops(gates: Tensor, slots: Tensor) -> Tensor:
    """The definition: the gates of all keys at or after each."""
    counts = torch.zeros_like(gates)
    for batch, head, query, key in torch.cartesian_prod(*(torch.arange(size) for size in gates.shape)):
        own = slots.expand(gates.shape[0], -1)[batch]
        counts[batch, head, query, key] = gates[batch, head, query, own >= own[key]].sum()
    return counts


def drawn_gates(batch: int, heads: int, queries: int, keys: int) -> Tensor:
    return torch.rand(batch, heads, queries, keys, dtype=torch.float64)


@given(st.integers(1, 2), st.integers(1, 2), sizes, sizes)
def test_gates_are_counted_from_each_key_to_the_last(batch: int, heads: int, queries: int, keys: int) -> None:
    gates = drawn_gates(batch, heads, queries, keys)
    torch.testing.assert_close(gate_counts(gates), by_loops(gates, torch.arange(keys)[None]))


@given(st.data(), st.integers(1, 2), sizes, sizes, st.booleans())
def test_slots_tell_the_order_of_keys_of_each_row(
    data: st.DataObject, batch: int, queries: int, keys: int, shared: bool
) -> None:
    gates = drawn_gates(batch, 2, queries, keys)
    rows = 1 if shared else batch
    slots = torch.tensor([data.draw(st.permutations([7 * key - 3 for key in range(keys)])) for _ in range(rows)])
    torch.testing.assert_close(gate_counts(gates, slots), by_loops(gates, slots))


@given(sizes, sizes)
def test_slots_in_the_order_of_memory_change_nothing(queries: int, keys: int) -> None:
    gates = drawn_gates(2, 2, queries, keys)
    torch.testing.assert_close(gate_counts(gates, torch.arange(keys)[None] + 70_000), gate_counts(gates))


def test_the_first_key_has_the_sum_and_the_last_its_own_gate() -> None:
    gates = drawn_gates(1, 2, 3, 5)
    counts = gate_counts(gates)
    torch.testing.assert_close(counts[..., 0], gates.sum(-1))
    torch.testing.assert_close(counts[..., -1], gates[..., -1])
    assert bool((counts.diff(dim=-1) <= 0).all())


def test_no_keys_have_no_counts() -> None:
    assert gate_counts(torch.zeros(1, 2, 3, 0)).shape == (1, 2, 3, 0)
    assert gate_counts(torch.zeros(1, 2, 0, 3), torch.arange(3)[None]).shape == (1, 2, 0, 3)


@given(st.integers(1, 5), st.lists(st.floats(0, 8), min_size=1, max_size=6))
def test_a_table_is_read_in_proportion_between_its_rows(rows: int, counts: list[float]) -> None:
    products = torch.randn(1, 1, 1, rows, dtype=torch.float64)
    read = between_rows(products, torch.tensor(counts, dtype=torch.float64)[None, None, None])[0, 0, 0].tolist()
    table = products[0, 0, 0].tolist()
    for value, count in zip(read, counts, strict=True):
        at = min(count, rows - 1)
        below = math.floor(at)
        above = min(below + 1, rows - 1)
        assert value == pytest.approx(table[below] + (at - below) * (table[above] - table[below]), abs=1e-12)


def test_whole_counts_read_their_row_exactly_and_those_beyond_the_last() -> None:
    products = torch.randn(2, 3, 4, 5)
    counts = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1e6, torch.inf]).expand(2, 3, 4, 8)
    read = between_rows(products, counts)
    assert torch.equal(read[..., :5], products)
    assert torch.equal(read[..., 5:], products[..., 4:].expand(2, 3, 4, 3))


def test_each_query_reads_its_own_products() -> None:
    products = torch.randn(2, 3, 4, 6)
    counts = 5 * torch.rand(2, 3, 4, 7)
    whole = between_rows(products, counts)
    one = between_rows(products[1:, 2:, 3:], counts[1:, 2:, 3:])
    assert torch.equal(whole[1:, 2:, 3:], one)


@pytest.mark.parametrize("slots", [None, torch.tensor([[3, 0, 2, 1]])], ids=["in order", "by slots"])
def test_gradients_reach_gates_and_products(slots: Tensor | None) -> None:
    gates = drawn_gates(1, 2, 3, 4).requires_grad_()
    products = torch.randn(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)

    def read(gates: Tensor, products: Tensor) -> Tensor:
        return between_rows(products, gate_counts(gates, slots))

    assert torch.autograd.gradcheck(read, (gates, products))


def test_a_count_beyond_the_table_has_no_gradient() -> None:
    counts = torch.tensor([[[[0.5, 7.5]]]], requires_grad=True)
    (gradient,) = torch.autograd.grad(between_rows(torch.tensor([[[[1.0, 3.0, 4.0]]]]), counts).sum(), counts)
    assert gradient.flatten().tolist() == [2.0, 0.0]
