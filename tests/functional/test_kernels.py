"""Kernels of a distance against the papers' formulas, number by number, and their derivatives."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs.functional.frequencies import sinusoidal_frequencies
from situs.functional.kernels import kerple_log, kerple_power, log_distance, signed_log, sum_of_cosines
from tests.references import fire, kerple, sandwich

NEAR_AND_FAR = [0, 1, 2, 17, 257, 70_000, 10_000_000]
distances = st.one_of(st.sampled_from(NEAR_AND_FAR), st.integers(0, 10_000_000), st.floats(1e-3, 1e7))
positive = st.floats(0.01, 2.0)


def as_given(distance: float) -> Tensor:
    return torch.tensor([distance], dtype=torch.int64 if isinstance(distance, int) else torch.float64)


def double(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(distances, positive, positive)
def test_kerple_is_the_papers_at_every_distance(distance: float, r1: float, r2: float) -> None:
    for kernel, variant in ((kerple_log, "log"), (kerple_power, "power")):
        result = kernel(as_given(distance), double(r1), double(r2))
        assert result.dtype == torch.float64
        assert float(result) == pytest.approx(kerple.kernel(distance, r1, r2, variant), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("kernel", [kerple_log, kerple_power])
def test_kerple_broadcasts_heads_against_pairs(kernel: object) -> None:
    assert callable(kernel)
    distance, r1, r2 = torch.arange(12).view(1, 3, 4), double(0.5, 1.5), double(0.2, 1.1)
    together = kernel(distance, r1.view(2, 1, 1), r2.view(2, 1, 1))
    for head in range(2):
        assert torch.equal(together[head], kernel(distance[0], r1[head], r2[head]))


def test_the_power_of_distance_zero_is_zero_and_so_are_its_derivatives() -> None:
    r1, r2 = double(0.7).requires_grad_(), double(0.3).requires_grad_()
    result = kerple_power(torch.zeros(1, dtype=torch.int64), r1, r2)
    gradients = torch.autograd.grad(result.sum(), (r1, r2))
    assert result.tolist() == [0.0]
    assert [gradient.tolist() for gradient in gradients] == [[0.0], [0.0]]


@pytest.mark.parametrize("kernel", [kerple_log, kerple_power])
def test_kerples_gradients_are_those_of_finite_differences(kernel: object) -> None:
    assert callable(kernel)
    distance = torch.tensor([0, 1, 5, 70_000, 10_000_000])
    r1, r2 = double(0.7).requires_grad_(), double(0.2).requires_grad_()
    assert torch.autograd.gradcheck(lambda first, second: kernel(distance, first, second), (r1, r2))


@given(distances, st.sampled_from([2, 8, 128]), st.sampled_from([2.0, 500.0, 10_000.0]))
def test_cosines_add_up_to_the_product_of_two_sinusoidal_encodings(distance: float, dim: int, base: float) -> None:
    frequencies = sinusoidal_frequencies(dim, base, "exclusive").tolist()
    for sign in (1, -1):
        expected = sandwich.inner_product(sign * distance, dim, base)
        assert float(sum_of_cosines(as_given(sign * distance), frequencies)) == pytest.approx(expected, abs=1e-7)


def test_the_sum_of_cosines_is_widest_whatever_the_distances_dtype() -> None:
    frequencies = sinusoidal_frequencies(16, 10_000.0, "exclusive").tolist()
    for dtype in (torch.int32, torch.int64, torch.float32, torch.float64):
        result = sum_of_cosines(torch.tensor([10_000_000], dtype=dtype), frequencies)
        assert result.dtype == torch.float64
        assert torch.equal(result, sum_of_cosines(torch.tensor([10_000_000]), frequencies))
    assert sum_of_cosines(torch.tensor([0, 3]), []).tolist() == [0.0, 0.0]
    assert sum_of_cosines(torch.zeros(2, 3), frequencies).tolist() == [[8.0] * 3] * 2


@given(distances, st.floats(1e-3, 10.0), st.booleans())
def test_the_log_distance_is_fires_whatever_the_sign_of_its_rate(distance: float, rate: float, flipped: bool) -> None:
    rate = -rate if flipped else rate
    result = log_distance(double(distance), torch.tensor(rate, dtype=torch.float64))
    assert float(result) == pytest.approx(fire.psi(distance, rate), rel=1e-12)


def test_the_log_distance_keeps_small_products_that_adding_one_would_lose() -> None:
    tiny = log_distance(torch.tensor([1.0]), torch.tensor(1e-9))
    assert float(tiny) == pytest.approx(1e-9, rel=1e-6)
    assert float(log_distance(torch.tensor([0.0]), torch.tensor(0.1))) == 0.0


@pytest.mark.parametrize("rate", [0.1, -0.1, 3.0])
def test_the_log_distances_gradients_are_those_of_finite_differences(rate: float) -> None:
    given_rate = torch.tensor(rate, dtype=torch.float64, requires_grad=True)
    distance = double(1.0, 5.0, 70_000.0, 10_000_000.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda value: log_distance(distance.detach(), value), given_rate)
    assert torch.autograd.gradcheck(lambda value: log_distance(value, given_rate.detach()), distance)


def test_the_values_are_golden() -> None:
    one = double(1.0)
    assert float(kerple_log(torch.tensor([1]), one, one)) == pytest.approx(-math.log(2))
    assert float(kerple_power(torch.tensor([3]), one, 2 * one)) == pytest.approx(-9.0)
    assert float(sum_of_cosines(torch.tensor([1]), [1.0, 0.01])) == pytest.approx(math.cos(1) + math.cos(0.01))
    assert float(log_distance(one, torch.tensor(0.5))) == pytest.approx(math.log(1.5))


def test_the_signed_log_is_odd_and_keeps_small_distances() -> None:
    distances = torch.tensor([0.0, 1e-17, 1.0, math.e - 1, 1e7], dtype=torch.float64)
    wanted = torch.tensor([0.0, 1e-17, math.log(2), 1.0, math.log(1e7 + 1)], dtype=torch.float64)
    torch.testing.assert_close(signed_log(distances), wanted, rtol=1e-12, atol=0)
    assert torch.equal(signed_log(-distances), -signed_log(distances))
