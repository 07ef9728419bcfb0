"""Sums of hinges against the formula as it is written: values, derivatives on every path, and memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from situs.encodings import hinges
from situs.encodings.hinges import sum_of_hinges
from situs.functional.kernels import sum_of_hinges as sum_of_hinges_plain

positive = st.floats(1e-6, 3.0)
numbers = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -0.5, 1e-9, -1e-9, 1e-30, -1e-30]), positive, positive.map(lambda each: -each)
)
shares = st.lists(st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2e7]), positive), min_size=1, max_size=9)
units = st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=6)


@contextmanager
def tiles_of(elements: int) -> Iterator[None]:
    """Lead small tensors through the path that is meant for large ones, with many tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hinges, "SMALLEST", 1)
        patch.setattr(hinges, "TILE_ELEMENTS", elements)
        yield


@pytest.fixture
def tiled() -> Iterator[None]:
    with tiles_of(64):
        yield


def network(
    *, width: int = 7, heads: int = 3, batch: int = 2, places: int = 19, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Units of every kind: rising and falling, that turn above 0 and below."""
    x = 3 * torch.rand(batch, places, dtype=torch.float64)
    slope, start = torch.randn(2, width, dtype=torch.float64)
    return [each.to(dtype) for each in (x, slope, start, torch.randn(heads, width, dtype=torch.float64))]


def learning(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [each.clone().requires_grad_() for each in tensors]


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(shares, units, st.integers(1, 40))
def test_any_hinges_are_the_formula_and_so_are_their_gradients(
    x: list[float], each: list[tuple[float, ...]], elements: int
) -> None:
    slope, start, *weight = double(each).T
    tensors = [double([x, x[::-1]]), slope, start, torch.stack(weight)]
    turns = -start / slope
    assume(not any(bool(((place - turns).abs() < 1e-9 * place).any()) for place in x))  # rounding tells if it is on
    mine, plain = learning(tensors), learning(tensors)
    with tiles_of(elements):
        result = sum_of_hinges(*mine)
    expected = sum_of_hinges_plain(*plain)
    size = 1 + max(x)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12 * size)
    gradient = torch.randn_like(expected)
    found, wanted = torch.autograd.grad(result, mine, gradient), torch.autograd.grad(expected, plain, gradient)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12 * size)


def test_the_plain_form_is_the_formula_number_by_number() -> None:
    x, slope, start, weight = network(batch=1, places=4)
    result = sum_of_hinges_plain(x, slope, start, weight)
    for place in range(4):
        for head in range(3):
            each = zip(slope.tolist(), start.tolist(), weight[head].tolist(), strict=True)
            expected = sum(c * max(0.0, a * float(x[0, place]) + b) for a, b, c in each)
            assert float(result[0, head, place]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("elements", [1, 30, 64, 200, 1 << 19])
@pytest.mark.parametrize("places", [1, 7, 19])
def test_tiles_of_every_size_make_the_same(elements: int, places: int) -> None:
    tensors = network(places=places)
    with tiles_of(elements):
        torch.testing.assert_close(sum_of_hinges(*tensors), sum_of_hinges_plain(*tensors))


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 4), (3, 2, 2, 2), (2,), (0, 3), (2, 0, 4)])
def test_places_may_have_any_shape(shape: tuple[int, ...]) -> None:
    _, *parameters = network()
    x = torch.rand(shape, dtype=torch.float64)
    result = sum_of_hinges(x, *parameters)
    assert result.shape == (shape[0], 3, *shape[1:])
    torch.testing.assert_close(result, sum_of_hinges_plain(x, *parameters))


@pytest.mark.usefixtures("tiled")
def test_places_and_gradients_may_lie_in_any_order_in_memory() -> None:
    x, *parameters = learning(network(batch=4, places=6))
    turned, straight = sum_of_hinges(x.T, *parameters), sum_of_hinges_plain(x.T, *parameters)
    torch.testing.assert_close(turned, straight)
    for gradient in (torch.ones((), dtype=torch.float64).expand(6, 3, 4), torch.randn(3, 6, 4).double().movedim(0, 1)):
        found, wanted = (
            torch.autograd.grad(each, [x, *parameters], gradient, retain_graph=True) for each in (turned, straight)
        )
        torch.testing.assert_close(found, wanted)


def test_float32_is_as_exact_as_the_plain_form() -> None:
    exact = network(width=32, heads=8, places=40_000)
    rounded = [each.float() for each in exact]
    exact = [each.double() for each in rounded]
    gradient = torch.randn(2, 8, 40_000)
    errors = []
    for form in (sum_of_hinges, sum_of_hinges_plain):
        given_, true = learning(rounded), learning(exact)
        result, expected = form(*given_), sum_of_hinges_plain(*true)
        assert result.dtype == torch.float32
        pairs = zip(
            (result, *torch.autograd.grad(result, given_, gradient)),
            (expected, *torch.autograd.grad(expected, true, gradient.double())),
            strict=True,
        )
        errors.append(
            [float(((one.double() - other).abs().max() / other.abs().max()).detach()) for one, other in pairs]
        )
    assert hinges._tiles_serve(rounded[0], rounded[1])
    assert max(errors[0]) < 2e-6
    assert all(mine < 8 * plain + 1e-7 for mine, plain in zip(*errors, strict=True)), errors


@pytest.mark.usefixtures("tiled")
def test_first_and_second_derivatives_are_exact() -> None:
    tensors = learning(network(width=5, heads=2, places=6))
    assert gradcheck(sum_of_hinges, tensors, check_batched_grad=True)
    assert gradgradcheck(sum_of_hinges, tensors)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 2), (1, 3), (1, 2, 3)])
def test_only_what_is_asked_for_has_a_gradient(wanted: tuple[int, ...]) -> None:
    tensors = network(width=5, heads=2, places=6)
    for index in wanted:
        tensors[index].requires_grad_()
    result = sum_of_hinges(*tensors)
    assert gradcheck(sum_of_hinges, tensors)
    assert gradgradcheck(sum_of_hinges, tensors)
    result.sum().backward()
    assert [index for index in range(4) if tensors[index].grad is not None] == list(wanted)


@pytest.mark.usefixtures("tiled")
def test_autocast_changes_nothing() -> None:
    tensors = learning(network(dtype=torch.float32))
    plain = sum_of_hinges(*tensors)
    expected = torch.autograd.grad(plain.sum(), tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = sum_of_hinges(*tensors)
        found = torch.autograd.grad(under.sum(), tensors)
    assert torch.equal(under, plain)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.usefixtures("tiled")
def test_no_graph_is_kept_where_nothing_learns() -> None:
    tensors = network()
    assert sum_of_hinges(*tensors).grad_fn is None
    with torch.no_grad():
        assert sum_of_hinges(*learning(tensors)).grad_fn is None


@pytest.mark.usefixtures("tiled")
def test_forward_mode_and_torch_func_see_the_formula() -> None:
    tensors, tangents = network(), network()
    result, expected = (
        torch.func.jvp(form, tuple(tensors), tuple(tangents)) for form in (sum_of_hinges, sum_of_hinges_plain)
    )
    torch.testing.assert_close(result, expected)
    x, *parameters = tensors
    many = torch.stack([x, x.flip(1)])
    each = torch.func.vmap(lambda one: sum_of_hinges(one, *parameters))(many)
    torch.testing.assert_close(each, torch.stack([sum_of_hinges_plain(one, *parameters) for one in many]))
    slopes = torch.stack([parameters[0], -parameters[0]])
    of = torch.func.vmap(torch.func.grad(lambda slope: sum_of_hinges(x, slope, *parameters[1:]).sum()))(slopes)
    torch.testing.assert_close(
        of[0], torch.func.grad(lambda slope: sum_of_hinges_plain(x, slope, *parameters[1:]).sum())(slopes[0])
    )


@pytest.mark.compiled
@pytest.mark.usefixtures("tiled")
def test_it_compiles_whole() -> None:
    torch._dynamo.reset()
    tensors = learning(network())
    compiled = torch.compile(sum_of_hinges, backend="aot_eager", fullgraph=True)(*tensors)
    plain = sum_of_hinges(*tensors)
    torch.testing.assert_close(compiled, plain)
    torch.testing.assert_close(
        torch.autograd.grad(compiled.square().sum(), tensors), torch.autograd.grad(plain.square().sum(), tensors)
    )


@pytest.mark.usefixtures("tiled")
def test_a_unit_that_turns_where_x_stands_is_off_as_in_torch() -> None:
    x, weight = double([[0.0, 0.5, 2.0]]), double([[1.0, 10.0, 100.0]])
    tensors = [x, double([2.0, -2.0, 3.0]), double([0.0, 0.0, -1.5]), weight]
    mine, plain = learning(tensors), learning(tensors)
    result, expected = sum_of_hinges(*mine), sum_of_hinges_plain(*plain)
    assert result.tolist() == expected.tolist() == [[[0.0, 1.0, 454.0]]]
    for one, other in zip(
        torch.autograd.grad(result.sum(), mine), torch.autograd.grad(expected.sum(), plain), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("tiled")
@pytest.mark.parametrize("index", range(4))
def test_what_is_not_a_number_stays_to_be_seen(index: int) -> None:
    tensors = network()
    tensors[index].view(-1)[-1] = torch.nan
    assert torch.equal(sum_of_hinges(*tensors).isnan(), sum_of_hinges_plain(*tensors).isnan())


class Largest(TorchDispatchMode):
    """Notes the largest tensor that any operation makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.elements = max(self.elements, out.numel())
        return out


def test_nothing_larger_than_the_result_is_made_or_kept() -> None:
    tensors = learning(network(width=32, heads=2, places=40_000, dtype=torch.float32))
    kept: list[int] = []

    def keep(each: Tensor) -> Tensor:
        kept.append(each.numel())
        return each

    with (
        pytest.MonkeyPatch.context() as patch,
        Largest() as largest,
        torch.autograd.graph.saved_tensors_hooks(keep, lambda each: each),
    ):
        patch.setattr(hinges, "TILE_ELEMENTS", 1 << 16)
        result = sum_of_hinges(*tensors)
        torch.autograd.grad(result, tensors, torch.ones_like(result))
    assert largest.elements == result.numel() == 2 * 2 * 40_000
    assert max(kept) == tensors[0].numel()
