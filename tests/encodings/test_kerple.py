"""KERPLE: both kernels, parameters that leave their range, and what happens at distance 0."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from situs import Kerple, Positions
from situs.encodings.kerple import SMALLEST
from tests.encodings.bias_places import any_ids, assert_follows, placed, starts
from tests.references import kerple as paper

KERNELS = ["log", "power"]
both_kernels = pytest.mark.parametrize("kernel", KERNELS)


def by_paper(encoding: Kerple, query: NDArray[Any], key: NDArray[Any]) -> NDArray[np.float64]:
    """The paper's kernel, its parameters clamped as the released code clamps them."""
    r1, r2 = (each.detach().double().numpy().clip(SMALLEST) for each in (encoding.r1, encoding.r2))
    return paper.bias(r1, r2.clip(None, 2.0) if encoding.kernel == "power" else r2, query, key, encoding.kernel)


def with_values(kernel: Any, r1: list[float], r2: list[float]) -> Kerple:
    encoding = Kerple(num_heads=len(r1), kernel=kernel).double()
    with torch.no_grad():
        encoding.r1.copy_(torch.tensor(r1, dtype=torch.float64))
        encoding.r2.copy_(torch.tensor(r2, dtype=torch.float64))
    return encoding


assert_is_the_papers = partial(assert_follows, by_paper, rtol=1e-9, atol=1e-12)


@given(
    st.integers(1, 5), st.sampled_from(KERNELS), st.integers(1, 6), st.integers(1, 6), starts, st.integers(-300, 300)
)
def test_ranges_get_the_papers_bias(heads: int, kernel: Any, queries: int, keys: int, start: int, ahead: int) -> None:
    encoding = Kerple(num_heads=heads, kernel=kernel)
    assert_is_the_papers(encoding, Positions.range(queries, start=start), Positions.range(keys, start=start + ahead))


@given(
    st.sampled_from(KERNELS),
    st.lists(st.tuples(st.floats(-1.0, 3.0), st.floats(-1.0, 3.0)), min_size=1, max_size=3),
    any_ids,
    any_ids,
)
def test_any_positions_and_parameters_get_the_papers_bias(
    kernel: str, parameters: list[tuple[float, float]], query: list[float], key: list[float]
) -> None:
    encoding = with_values(kernel, [r1 for r1, _ in parameters], [r2 for _, r2 in parameters])
    assert_is_the_papers(encoding, placed(query), placed(key))


def test_the_values_are_golden() -> None:
    offsets = torch.tensor([0, -1, 3, -70_000])
    log = with_values("log", [2.0], [0.5]).by_offset(offsets)[0].tolist()
    assert log == pytest.approx([0.0, -2 * math.log(1.5), -2 * math.log(2.5), -2 * math.log(35_001)], rel=1e-12)
    power = with_values("power", [0.1], [0.5]).by_offset(offsets)[0].tolist()
    assert power == pytest.approx([0.0, -0.1, -0.1 * math.sqrt(3), -0.1 * math.sqrt(70_000)], rel=1e-12)


def test_a_log_kernel_with_a_small_rate_and_a_first_power_are_both_linear() -> None:
    positions = Positions.explicit(torch.tensor([0, 2, 5, 9, 1]))
    distance = (positions.ids[0][None, :] - positions.ids[0][:, None]).abs().double()
    almost = with_values("log", [50.0], [SMALLEST])(positions)[0, 0]
    torch.testing.assert_close(almost, -0.5 * distance, rtol=0.05, atol=0)
    torch.testing.assert_close(with_values("power", [0.5], [1.0])(positions)[0, 0], -0.5 * distance)


@both_kernels
def test_it_falls_all_the_way_and_alike_on_both_sides(kernel: Any) -> None:
    encoding = Kerple(num_heads=4, kernel=kernel)
    offsets = torch.tensor([0, 1, 2, 50, 257, 70_000, 10_000_000])
    ahead = encoding.by_offset(offsets, dtype=torch.float64)
    assert bool((ahead.diff(dim=1) < 0).all())
    assert torch.equal(ahead, encoding.by_offset(-offsets, dtype=torch.float64))


@both_kernels
@pytest.mark.parametrize("name", ["r1", "r2"])
@pytest.mark.parametrize("low", [0.0, -0.3, -5.0])
def test_a_parameter_below_its_range_acts_as_the_smallest_and_still_learns(kernel: str, name: str, low: float) -> None:
    values = {"r1": 0.7, "r2": 0.7, name: low}
    encoding = with_values(kernel, [values["r1"]], [values["r2"]])
    smallest = with_values(kernel, *([max(values[each], SMALLEST)] for each in ("r1", "r2")))
    before = {key: value.clone() for key, value in encoding.state_dict().items()}
    gradients = []
    for each in (encoding, smallest):
        bias = each.by_offset(torch.tensor([0, 3, -70_000, 10_000_000]))
        gradients.append(torch.autograd.grad(bias.sum(), getattr(each, name))[0])
    torch.testing.assert_close(encoding(Positions.range(9)), smallest(Positions.range(9)), rtol=1e-12, atol=0)
    assert float(gradients[0]) == pytest.approx(float(gradients[1]), rel=1e-9)
    assert float(gradients[0]) != 0
    assert all(torch.equal(value, before[key]) for key, value in encoding.state_dict().items())


@pytest.mark.parametrize("high", [2.0, 2.5, 9.0])
def test_an_exponent_above_two_acts_as_two_and_still_learns(high: float) -> None:
    encoding, square = with_values("power", [0.5], [high]), with_values("power", [0.5], [2.0])
    offsets = torch.tensor([0, 3, -70_000])
    torch.testing.assert_close(encoding.by_offset(offsets), square.by_offset(offsets), rtol=1e-12, atol=0)
    encoding.by_offset(offsets).sum().backward()
    assert encoding.r2.grad is not None
    assert float(encoding.r2.grad) < 0
    log = with_values("log", [0.5], [high]).by_offset(torch.tensor([1]))
    assert log.item() == pytest.approx(-0.5 * math.log(1 + high))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_has_finite_gradients_where_query_and_key_stand_at_one_place(dtype: torch.dtype) -> None:
    encoding = with_values("power", [0.5, 0.1], [0.3, 1.7]).to(dtype)
    positions = torch.tensor([[4, 4, 10_000_000], [0, 70_000, 70_000]])
    bias = encoding(positions)
    gradients = torch.autograd.grad(bias.sum(), (encoding.r1, encoding.r2))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert bool((bias.diagonal(dim1=-2, dim2=-1) == 0).all())
    alone = torch.autograd.grad(encoding.by_offset(torch.tensor([0])).sum(), (encoding.r1, encoding.r2))
    assert all(bool((gradient == 0).all()) for gradient in alone)


@both_kernels
def test_gradients_are_those_of_finite_differences(kernel: str) -> None:
    encoding = with_values(kernel, [0.4, 0.9], [0.8, 0.3])
    parameters = (encoding.r1, encoding.r2)
    ids = torch.tensor([[0, 3, 3, 257], [70_000, 69_999, 70_004, 70_000]])
    offsets = torch.tensor([-5, 0, 3, 10_000_000])
    scale = 1 + encoding.by_offset(offsets).detach().abs()  # a far power would drown the small difference
    assert torch.autograd.gradcheck(lambda *_: encoding(ids), parameters)
    assert torch.autograd.gradcheck(lambda *_: encoding(Positions.range(4, start=10_000_000)), parameters)
    assert torch.autograd.gradcheck(lambda *_: encoding.by_offset(offsets) / scale, parameters)


def test_the_start_is_uniform_as_the_authors_draw_it() -> None:
    for kernel, highest in (("log", (2.0, 1.0)), ("power", (1.0, 2.0))):
        encoding = Kerple(num_heads=4000, kernel=kernel)  # type: ignore[arg-type]
        for parameter, high in zip((encoding.r1, encoding.r2), highest, strict=True):
            assert float(parameter.detach().min()) >= 0
            assert 0.99 * high < float(parameter.detach().max()) <= high
            assert float(parameter.detach().mean()) == pytest.approx(high / 2, rel=0.05)


@both_kernels
def test_its_configuration_makes_it_again(kernel: Any) -> None:
    encoding = Kerple(num_heads=3, kernel=kernel)
    assert Kerple(**encoding.config).config == encoding.config == {"num_heads": 3, "kernel": kernel}
    assert encoding.describe()["parameters"] == 6
    assert set(encoding.state_dict()) == {"r1", "r2"}
