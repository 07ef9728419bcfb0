"""Derivatives on every path: reverse, double, forward and batched, and torch.func's transforms of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.forward_ad import dual_level, make_dual, unpack_dual

from situs.functional import rotary_frequencies, rotate_real, unit_circle
from situs.functional.rotation import PAIRINGS, Pairing
from situs.rotation import RotationTable, apply, rotate
from situs.rotation.fused import planning

both_pairings = pytest.mark.parametrize("pairing", PAIRINGS)
PATHS = ["direct", "chunked", "fused"]
every_path = pytest.mark.parametrize("path", PATHS)
every_width = pytest.mark.parametrize("turning", [4, 8])


@pytest.fixture
def take(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lead small tensors through a path that is meant for large ones."""

    def choose(path: str) -> None:
        if path != "fused":
            monkeypatch.setattr(planning, "available", lambda: False)
        if path == "chunked":
            monkeypatch.setattr(apply, "SMALLEST_CUT", 1)
            monkeypatch.setattr(apply, "CHUNK_ELEMENTS", 16)

    return choose


def table_of(turning: int, *, heads: int = 1, dtype: torch.dtype = torch.float64) -> RotationTable:
    """Far positions, one ladder a head, and a magnitude, which derivatives must carry too."""
    bases = torch.tensor([100.0 * (head + 1) for head in range(heads)])
    frequencies = rotary_frequencies(turning, bases)[None, :, None]
    cos, sin = unit_circle(torch.arange(70_000, 70_003)[None, None, :, None], frequencies, dtype)
    return RotationTable(cos * 1.5, sin * 1.5)


def tokens(*, grad: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(1, 2, 3, 8, dtype=torch.float64).to(dtype).requires_grad_(grad)


@pytest.mark.thin(6)
@both_pairings
@every_path
@every_width
@pytest.mark.parametrize("heads", [1, 2])
def test_first_and_second_derivatives_are_exact(
    pairing: Pairing, path: str, turning: int, heads: int, take: Callable[[str], None]
) -> None:
    take(path)
    table = table_of(turning, heads=heads)
    run = lambda x: rotate(x, table, pairing)  # noqa: E731
    assert gradcheck(run, tokens(grad=True), check_forward_ad=True)
    assert gradgradcheck(run, tokens(grad=True))
    squared = lambda x: rotate(x, table, pairing).square()  # noqa: E731
    assert gradgradcheck(squared, tokens(grad=True), check_fwd_over_rev=True)


@both_pairings
@every_width
def test_the_plain_form_has_exact_derivatives_for_tables_too(pairing: Pairing, turning: int) -> None:
    table = table_of(turning)
    cos, sin = table.cos.clone().requires_grad_(), table.sin.clone().requires_grad_()
    run = lambda x, cos, sin: rotate_real(x, cos, sin, pairing)  # noqa: E731
    assert gradcheck(run, (tokens(grad=True), cos, sin), check_forward_ad=True)
    rotate(tokens(), RotationTable(cos, sin), pairing).square().sum().backward()
    assert cos.grad is not None
    assert sin.grad is not None
    assert float(cos.grad.abs().min()) > 0


@both_pairings
@every_path
@every_width
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gradients_come_in_the_dtype_of_the_vectors(
    pairing: Pairing, path: str, turning: int, dtype: torch.dtype, take: Callable[[str], None]
) -> None:
    take(path)
    x, weights = tokens(grad=True, dtype=dtype), tokens()
    rotate(x, table_of(turning, dtype=torch.float32), pairing).backward(weights.to(dtype))
    assert x.grad is not None
    assert x.grad.dtype == dtype
    exact = torch.func.vjp(lambda x: rotate_real(x, *_ends(table_of(turning)), pairing), tokens())[1]
    expected = exact(weights.to(dtype).double())[0]
    assert torch.allclose(x.grad.double(), expected, rtol=torch.finfo(dtype).eps, atol=4e-6)


@both_pairings
@every_path
@every_width
def test_many_gradients_are_taken_at_once(
    pairing: Pairing, path: str, turning: int, take: Callable[[str], None]
) -> None:
    """As ``torch.autograd.functional.jacobian(vectorize=True)`` does."""
    take(path)
    table, x = table_of(turning), tokens(grad=True)
    many = torch.randn(4, *x.shape, dtype=torch.float64)
    (gradients,) = torch.autograd.grad(rotate(x, table, pairing), x, many, is_grads_batched=True)
    expected = torch.stack([rotate_real(each, table.cos, -table.sin, pairing) for each in many])
    assert torch.allclose(gradients, expected)


@both_pairings
@every_path
@every_width
def test_forward_mode_carries_tangents(pairing: Pairing, path: str, turning: int, take: Callable[[str], None]) -> None:
    take(path)
    table, x, tangent = table_of(turning), tokens(), tokens()
    expected, expected_tangent = rotate_real(x, *_ends(table), pairing), rotate_real(tangent, *_ends(table), pairing)
    value, derivative = torch.func.jvp(lambda x: rotate(x, table, pairing), (x,), (tangent,))[:2]
    assert torch.allclose(value, expected)
    assert torch.allclose(derivative, expected_tangent)
    with dual_level():
        turned = unpack_dual(rotate(make_dual(x, tangent), table, pairing))
        assert torch.allclose(turned.primal, expected)
        assert turned.tangent is not None
        assert torch.allclose(turned.tangent, expected_tangent)


@both_pairings
@every_path
@every_width
@pytest.mark.parametrize("axis", [0, 2, 4])
def test_vmap_turns_each_as_if_alone(
    pairing: Pairing, path: str, turning: int, axis: int, take: Callable[[str], None]
) -> None:
    take(path)
    table = table_of(turning)
    many = torch.randn(4, 1, 2, 3, 8, dtype=torch.float64)
    expected = torch.stack([rotate_real(x, *_ends(table), pairing) for x in many])
    turned = torch.func.vmap(lambda x: rotate(x, table, pairing), in_dims=axis)(many.movedim(0, axis).contiguous())
    assert torch.allclose(turned, expected)


@both_pairings
@every_path
@every_width
def test_torch_func_takes_gradients_of_each_sample(
    pairing: Pairing, path: str, turning: int, take: Callable[[str], None]
) -> None:
    take(path)
    table, target = table_of(turning), tokens()
    loss = lambda x: (rotate(x, table, pairing) * target).sum()  # noqa: E731
    plain = lambda x: (rotate_real(x, *_ends(table), pairing) * target).sum()  # noqa: E731
    x = tokens()
    assert torch.allclose(torch.func.grad(loss)(x), torch.func.grad(plain)(x))
    many = torch.randn(3, 1, 2, 3, 8, dtype=torch.float64)
    samples = torch.func.vmap(torch.func.grad(loss))(many)
    assert torch.allclose(samples, torch.stack([torch.func.grad(plain)(each) for each in many]))


@both_pairings
@every_width
def test_the_backward_pass_is_the_rotation_back(pairing: Pairing, turning: int) -> None:
    table, x = table_of(turning), tokens(grad=True)
    weights = torch.randn_like(x)
    rotate(x, table, pairing).backward(weights)
    back = rotate(weights, table.transposed(), pairing)
    assert x.grad is not None
    assert torch.allclose(x.grad, back, rtol=0, atol=1e-14)


@both_pairings
@every_path
def test_vectors_are_never_changed_in_place(pairing: Pairing, path: str, take: Callable[[str], None]) -> None:
    take(path)
    x = tokens(grad=True)
    before, version = x.detach().clone(), x._version
    turned = rotate(x, table_of(8), pairing)
    turned.square().sum().backward()
    assert torch.equal(x, before)
    assert x._version == version
    assert turned.data_ptr() != x.data_ptr()


def _ends(table: RotationTable) -> tuple[Tensor, Tensor]:
    return table.cos, table.sin
