"""Rotating by a table agrees with the paper, for every layout and dtype and by every program."""

import pytest
import torch
from torch import Tensor

from situs.functional import rotate_real
from situs.functional.rotation import Pairing
from situs.rotation import RotationTable, apply, rotate
from situs.rotation.fused import planning
from tests.raising import raises_exactly
from tests.rotation.rotation_cases import DTYPES, both_pairings, by_paper, layouts, table_of


def by_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the compiled loop out."""
    monkeypatch.setattr(planning, "available", lambda: False)


def chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also cut into pieces that are small for a test."""
    by_operations(monkeypatch)
    monkeypatch.setattr(apply, "SMALLEST_CUT", 1)
    monkeypatch.setattr(apply, "CHUNK_ELEMENTS", 96)


def ulp_of_pair_norm(truth: Tensor, dtype: torch.dtype, pairing: str) -> Tensor:
    """For each channel, the distance of neighbouring numbers of ``dtype`` at the norm of its pair."""
    shape = (-1, 2) if pairing == "interleaved" else (2, -1)
    axis = -1 if pairing == "interleaved" else -2
    pairs = truth.unflatten(-1, shape)
    norm = pairs.norm(dim=axis, keepdim=True).expand_as(pairs).flatten(-2)
    return torch.finfo(dtype).eps * torch.exp2(torch.floor(torch.log2(norm)))


@both_pairings
@pytest.mark.parametrize("turning", [2, 6, 8])
@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_beyond_the_table_are_bit_equal(pairing: Pairing, turning: int, dtype: torch.dtype) -> None:
    positions = torch.arange(70_000, 70_007)[None, None]
    x = torch.randn(2, 3, 7, 8).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    turned = rotate(x, table_of(positions, turning, wide), pairing)
    assert turned.dtype == dtype
    assert torch.equal(turned[..., turning:], x[..., turning:])
    expected = by_paper(x, positions, turning, pairing)
    assert torch.allclose(turned.double(), expected, rtol=0, atol={8: 1e-9, 4: 2e-6}.get(dtype.itemsize, 0.02))


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", layouts())
@pytest.mark.parametrize("path", ["direct", "chunked", "fused"])
def test_how_a_tensor_lies_in_memory_does_not_matter(
    pairing: Pairing, dtype: torch.dtype, layout: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path != "fused":
        {"direct": by_operations, "chunked": chunked}[path](monkeypatch)
    x = layouts()[layout]
    x = x.to(dtype) if dtype != torch.float32 else x  # keeps the strides of dense layouts
    before = x.clone()
    table = table_of(
        torch.arange(1000, 1005)[None, None], 8, torch.float64 if dtype == torch.float64 else torch.float32
    )
    turned = rotate(x, table, pairing)
    plain = rotate(x.resolve_neg().contiguous().clone(), table, pairing)
    assert turned.dtype == dtype
    assert torch.equal(x, before)
    assert torch.allclose(turned.float(), plain.float(), rtol=0, atol=0 if dtype.itemsize == 2 else 1e-6)


@both_pairings
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turning", [4, 8])
@pytest.mark.parametrize("shape", [(2, 3, 0, 8), (0, 3, 5, 8), (0, 3, 0, 8)])
@pytest.mark.parametrize("grad", [False, True])
def test_nothing_turns_into_nothing(
    pairing: Pairing, dtype: torch.dtype, turning: int, shape: tuple[int, ...], grad: bool
) -> None:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x = torch.zeros(shape, dtype=dtype, requires_grad=grad)
    turned = rotate(x, table_of(torch.arange(shape[2])[None, None], turning, wide), pairing)
    assert turned.shape == shape
    assert turned.dtype == dtype


@both_pairings
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("path", ["direct", "chunked", "fused"])
@pytest.mark.parametrize("start", [0, 10_000_000])
def test_half_precision_is_rounded_once(
    pairing: Pairing, dtype: torch.dtype, path: str, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each channel lies within 0.51 ulp, at the norm of its pair, of the float64 truth for the same half inputs:
    half a unit for the one rounding, the rest for float32 arithmetic."""
    if path != "fused":
        {"direct": by_operations, "chunked": chunked}[path](monkeypatch)
    positions = start + torch.arange(40)[None, None]
    x = torch.randn(2, 3, 40, 16).to(dtype)
    turned = rotate(x, table_of(positions, 16), pairing).double()
    truth = by_paper(x, positions, 16, pairing)
    assert bool(((turned - truth).abs() <= 0.51 * ulp_of_pair_norm(truth, dtype, pairing)).all())


@both_pairings
def test_pieces_are_cut_where_they_belong(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = torch.randint(0, 10_000_000, (2, 3, 37))
    x = torch.randn(2, 3, 37, 12)
    chunked(monkeypatch)
    for turning in (8, 12):
        turned = rotate(x, table_of(positions, turning), pairing)
        assert torch.allclose(turned.double(), by_paper(x, positions, turning, pairing), rtol=0, atol=2e-6)


@both_pairings
def test_other_numbers_of_axes_are_turned(pairing: Pairing) -> None:
    positions = torch.arange(500, 505)
    table = table_of(positions[None, None], 8, torch.float64)
    many = torch.randn(2, 2, 3, 5, 8, dtype=torch.float64)
    expected = by_paper(many, positions, 8, pairing)
    assert torch.allclose(rotate(many, table, pairing), expected, rtol=0, atol=1e-10)
    one = rotate_real(many[0, 0], table.cos[0], table.sin[0], pairing)
    assert torch.allclose(one, expected[0, 0], rtol=0, atol=1e-10)


def test_a_table_remembers_its_other_forms_and_tells_its_size() -> None:
    table = table_of(torch.arange(5)[None, None], 8)
    assert table.polar is table.polar
    assert table.wide_cos is table.wide_cos
    assert table.wide_sin is table.wide_sin
    assert torch.equal(table.polar, torch.complex(table.cos, table.sin))
    assert torch.equal(table.transposed().sin, -table.sin)
    assert repr(table) == "RotationTable((1, 1, 5, 4), torch.float32, cpu)"


MISFITS = {"length": (1, 1, 5, 32), "rows": (3, 1, 4, 32), "heads": (1, 5, 4, 32), "pairs": (1, 1, 4, 33)}
LARGE_MISFITS = {
    "many pairs": (1, 1, 64, 33),
    "few places": (1, 1, 63, 32),
    "many places": (1, 1, 65, 32),
    "many rows": (3, 1, 64, 32),
    "many heads": (1, 5, 64, 32),
}


@both_pairings
@pytest.mark.parametrize("wrong", [*MISFITS, *LARGE_MISFITS])
def test_a_table_that_does_not_fit_is_refused(pairing: Pairing, wrong: str) -> None:
    x = torch.randn(2, 4, 4 if wrong in MISFITS else 64, 64)  # the larger one goes to the compiled loop
    shape = (MISFITS | LARGE_MISFITS)[wrong]
    table = RotationTable(torch.ones(shape), torch.zeros(shape))
    with raises_exactly(
        ValueError,
        "table must have an entry for every position of x, and for one or all of its rows and heads, since it rotates "
        f"each vector; got a table of shape {shape} for x of shape {tuple(x.shape)}.",
    ):
        rotate(x, table, pairing)
