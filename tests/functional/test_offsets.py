"""Matrices over queries and keys from numbers that belong to offsets, against plain loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs.functional.offsets import by_row, range_offsets, skew, skew_keys, sum_by_row, toeplitz, unskew

lengths = st.integers(1, 7)
leading = st.sampled_from([(), (2,), (2, 3)])
starts = st.sampled_from([-10_000_000, -3, 0, 1, 70_000, 10_000_000])


def looped(rows: tuple[int, ...], queries: int, keys: int) -> Tensor:
    return torch.zeros(*rows, queries, keys, dtype=torch.float64)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@given(lengths, lengths, starts, starts)
def test_the_offsets_of_two_ranges_are_those_of_their_pairs(
    queries: int, keys: int, query_start: int, key_start: int
) -> None:
    pairs = {
        key - query for query in range(query_start, query_start + queries) for key in range(key_start, key_start + keys)
    }
    assert range_offsets(query_start, queries, key_start, keys).tolist() == sorted(pairs)


@given(leading, lengths, lengths)
def test_toeplitz_reads_a_vector_along_a_slant(rows: tuple[int, ...], queries: int, keys: int) -> None:
    vector, expected = random(*rows, queries + keys - 1).detach(), looped(rows, queries, keys)
    for i in range(queries):
        for j in range(keys):
            expected[..., i, j] = vector[..., j - i + queries - 1]
    assert torch.equal(toeplitz(vector, keys), expected)


@given(lengths, lengths, starts, starts)
def test_toeplitz_of_the_offsets_is_the_matrix_of_offsets(
    queries: int, keys: int, query_start: int, key_start: int
) -> None:
    offsets = range_offsets(query_start, queries, key_start, keys).double()
    at_query, at_key = torch.arange(queries) + query_start, torch.arange(keys) + key_start
    assert torch.equal(toeplitz(offsets, keys), (at_key[None, :] - at_query[:, None]).double())


@given(leading, lengths, lengths)
def test_skew_takes_from_each_query_its_own_offsets(rows: tuple[int, ...], queries: int, keys: int) -> None:
    products, expected = random(*rows, queries, queries + keys - 1).detach(), looped(rows, queries, keys)
    for i in range(queries):
        for j in range(keys):
            expected[..., i, j] = products[..., i, j - i + queries - 1]
    assert torch.equal(skew(products, keys), expected)


@given(leading, lengths, lengths)
def test_skew_keys_takes_from_each_key_its_own_offsets(rows: tuple[int, ...], queries: int, keys: int) -> None:
    products, expected = random(*rows, keys, queries + keys - 1).detach(), looped(rows, queries, keys)
    for i in range(queries):
        for j in range(keys):
            expected[..., i, j] = products[..., j, j - i + queries - 1]
    assert torch.equal(skew_keys(products, queries), expected)


@given(leading, lengths, lengths)
def test_unskew_lays_each_querys_weights_out_by_offset(rows: tuple[int, ...], queries: int, keys: int) -> None:
    weights, expected = random(*rows, queries, keys).detach(), looped(rows, queries, queries + keys - 1)
    for i in range(queries):
        for j in range(keys):
            expected[..., i, j - i + queries - 1] = weights[..., i, j]
    assert torch.equal(unskew(weights), expected)


@given(lengths, lengths)
def test_unskew_is_the_inverse_and_the_transpose_of_skew(queries: int, keys: int) -> None:
    products, weights = random(2, queries, queries + keys - 1).detach(), random(2, queries, keys).detach()
    assert torch.equal(skew(unskew(weights), keys), weights)
    across, back = (skew(products, keys) * weights).sum(), (products * unskew(weights)).sum()
    assert float(across) == pytest.approx(float(back), rel=1e-12, abs=1e-12)


@given(lengths, lengths)
def test_what_is_not_contiguous_in_memory_gives_the_same(queries: int, keys: int) -> None:
    offsets = queries + keys - 1
    for function, other, count in ((skew, keys, queries), (skew_keys, queries, keys)):
        turned = random(2, offsets, count).detach().transpose(-2, -1)
        assert torch.equal(function(turned, other), function(turned.contiguous(), other))
    turned = random(2, keys, queries).detach().transpose(-2, -1)
    assert torch.equal(unskew(turned), unskew(turned.contiguous()))
    thinned = random(2, 2 * offsets).detach()[:, ::2]
    assert torch.equal(toeplitz(thinned, keys), toeplitz(thinned.contiguous(), keys))


@given(st.integers(1, 2), st.booleans(), lengths, lengths, lengths)
def test_by_row_looks_every_pair_up(batch: int, shared: bool, queries: int, keys: int, count: int) -> None:
    products = random(batch, 3, queries, count).detach()
    rows = torch.randint(0, count, (1 if shared else batch, 1, queries, keys))
    expected = torch.zeros(batch, 3, queries, keys, dtype=torch.float64)
    for number in range(batch):
        for i in range(queries):
            for j in range(keys):
                row = int(rows[0 if shared else number, 0, i, j])
                expected[number, :, i, j] = products[number, :, i, row]
    assert torch.equal(by_row(products, rows), expected)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 4), (4, 1), (3, 5), (5, 3), (4, 4)])
def test_gradients_are_those_of_finite_differences(queries: int, keys: int) -> None:
    offsets = queries + keys - 1
    rows = torch.randint(0, offsets, (1, 1, queries, keys))
    assert torch.autograd.gradcheck(lambda vector: toeplitz(vector, keys), random(2, offsets))
    assert torch.autograd.gradcheck(lambda products: skew(products, keys), random(2, queries, offsets))
    assert torch.autograd.gradcheck(lambda products: skew_keys(products, queries), random(2, keys, offsets))
    assert torch.autograd.gradcheck(unskew, random(2, queries, keys))
    assert torch.autograd.gradcheck(lambda products: by_row(products, rows), random(2, 1, queries, offsets))


@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (5, 1), (4, 6)])
def test_the_gradient_of_skew_is_unskew(queries: int, keys: int) -> None:
    products, weights = random(2, queries, queries + keys - 1), random(2, queries, keys).detach()
    (gradient,) = torch.autograd.grad(skew(products, keys), products, weights)
    assert torch.equal(gradient, unskew(weights))


@pytest.mark.compiled
def test_compiled_at_any_length_they_give_the_same() -> None:
    torch._dynamo.reset()
    compiled = {
        function: torch.compile(function, fullgraph=True, backend="eager", dynamic=True)
        for function in (toeplitz, skew, skew_keys, unskew)
    }
    for queries, keys in ((4, 6), (7, 2), (5, 5), (1, 3), (3, 1)):
        offsets = queries + keys - 1
        for function, arguments in (
            (toeplitz, (random(2, offsets), keys)),
            (skew, (random(2, queries, offsets), keys)),
            (skew_keys, (random(2, keys, offsets), queries)),
            (unskew, (random(2, queries, keys),)),
        ):
            results = [run(*arguments) for run in (function, compiled[function])]
            assert torch.equal(results[0], results[1])
            slope = torch.randn_like(results[0])
            gradients = [torch.autograd.grad(result, arguments[0], slope)[0] for result in results]
            torch.testing.assert_close(gradients[1], gradients[0])


@given(st.integers(1, 3), lengths, lengths, st.integers(1, 5))
def test_sums_by_row_are_the_backward_of_a_look_up(batch: int, queries: int, keys: int, count: int) -> None:
    products, values = random(batch, 2, queries, count), random(batch, 2, queries, keys)
    rows = torch.randint(count, (batch, 1, queries, keys))
    (expected,) = torch.autograd.grad(by_row(products, rows), products, values)
    torch.testing.assert_close(sum_by_row(values, rows, count), expected)
    assert torch.autograd.gradcheck(lambda values: sum_by_row(values, rows, count), values)


def test_sums_by_row_keep_their_digits_over_many_keys() -> None:
    values, rows = torch.full((1, 70_001), 1 / 70_001), torch.zeros(1, 70_001, dtype=torch.int64)
    assert abs(float(sum_by_row(values, rows, 1)) - float(values.double().sum())) < 1e-7
