"""Sinusoidal encodings: the paper's values, the released layouts, odd widths, grids and the shift matrix."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import Positions, Sinusoidal
from situs.functional import sinusoidal_frequencies
from tests.raising import raises_exactly
from tests.references import sinusoidal as reference

every_layout = pytest.mark.parametrize("layout", ["interleaved", "concatenated"])
every_spacing = pytest.mark.parametrize("spacing", ["exclusive", "inclusive"])
NEAR_AND_FAR = [0, 1, 257, 65_537, 1_000_003, 10_000_000, -10_000_000]


def encoded(encoding: Sinusoidal, ids: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return encoding.encode(Positions.explicit(ids), dtype)[0]


def test_the_values_of_the_paper_are_golden() -> None:
    first = encoded(Sinusoidal(dim=4), torch.tensor([0, 1, 2]), torch.float64)
    assert first[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert first[1].tolist() == pytest.approx([0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004], abs=1e-10)
    assert first[2].tolist() == pytest.approx([0.9092974268, -0.4161468365, 0.0199986667, 0.9998000067], abs=1e-10)
    last = encoded(Sinusoidal(dim=512), torch.tensor([1]), torch.float64)[0, 510:]
    slowest = 10000 ** (-510 / 512)
    assert last.tolist() == pytest.approx([math.sin(slowest), math.cos(slowest)], abs=1e-12)


@every_layout
@every_spacing
@pytest.mark.parametrize("dim", [2, 3, 6, 7, 16, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_papers_table_near_and_far_for_odd_widths_too(
    layout: Any, spacing: Any, dim: int, dtype: torch.dtype
) -> None:
    encoding = Sinusoidal(dim=dim, base=500.0, layout=layout, spacing=spacing)
    ids = torch.tensor(NEAR_AND_FAR)
    expected = reference.table(ids.double().numpy(), dim, 500.0, layout, spacing)
    difference = encoded(encoding, ids, dtype).double() - torch.from_numpy(expected)
    assert float(difference.abs().max()) <= (1e-7 if dtype == torch.float32 else 5e-9)


@every_layout
@pytest.mark.parametrize("dim", [6, 7])
def test_cosines_may_stand_first(layout: Any, dim: int) -> None:
    encoding = Sinusoidal(dim=dim, layout=layout, cosines_first=True)
    ids = torch.tensor(NEAR_AND_FAR)
    expected = reference.table(ids.double().numpy(), dim, layout=layout, cosines_first=True)
    assert torch.allclose(encoded(encoding, ids, torch.float64), torch.from_numpy(expected), rtol=0, atol=5e-9)
    if dim == 6:
        moved = encoded(encoding, ids, torch.float64) @ encoding.shift_matrix(5.0).T
        assert torch.allclose(moved, encoded(encoding, ids + 5, torch.float64), rtol=0, atol=5e-9)


@pytest.mark.parametrize("length", [1, 5, 140])
def test_an_offset_moves_every_position(length: int) -> None:
    plain, moved, x = Sinusoidal(dim=8), Sinusoidal(dim=8, offset=2), torch.randn(2, length, 8)
    ids = torch.randint(0, 1_000_003, (2, length))
    assert torch.equal(moved(x, ids), plain(x, ids + 2))
    assert torch.equal(moved(x, 65_537), plain(x, 65_539))
    grid = Positions.grid(3, 2).ids
    assert torch.equal(
        Sinusoidal(dim=8, axes=2, offset=-1).encode(Positions.explicit(grid)),
        Sinusoidal(dim=8, axes=2).encode(Positions.explicit(grid - 1)),
    )


def test_padding_gets_a_position_or_zeros() -> None:
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0]])
    positions, x = Positions.from_mask(mask), torch.randn(2, 4, 8)
    plain, zeros = Sinusoidal(dim=8, offset=2), Sinusoidal(dim=8, offset=2, padding="zeros")
    assert torch.equal(zeros(x, positions), torch.where(mask.bool()[..., None], plain(x, positions), x))
    assert torch.equal(plain(x, positions)[1, 3], plain(x[:, 3:])[1, 0])
    assert torch.equal(zeros(x), plain(x))


@every_layout
@pytest.mark.parametrize("start", NEAR_AND_FAR)
@pytest.mark.parametrize("length", [1, 5, 140])
def test_a_range_and_its_ids_written_out_agree(layout: Any, start: int, length: int) -> None:
    encoding = Sinusoidal(dim=16, layout=layout)
    x = torch.randn(2, length, 16)
    ids = torch.arange(start, start + length)
    expected = x.double() + torch.from_numpy(reference.table(ids.double().numpy(), 16, layout=layout))
    for positions in (start, ids, Positions.range(length, start=start)):
        assert torch.allclose(encoding(x, positions).double(), expected, rtol=0, atol=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_positions_may_be_fractions_and_negative(where: list[float]) -> None:
    ids = torch.tensor(where, dtype=torch.float64)
    expected = torch.from_numpy(reference.table(ids.numpy(), 8))
    assert torch.allclose(encoded(Sinusoidal(dim=8), ids, torch.float64), expected, rtol=0, atol=1e-9)


@every_layout
@every_spacing
@pytest.mark.parametrize(("axes", "dim"), [(2, 16), (2, 17), (3, 24), (3, 25), (3, 26)])
@pytest.mark.parametrize("moved", [0, 10_000_000])
def test_grids_get_a_table_an_axis_side_by_side(layout: Any, spacing: Any, axes: int, dim: int, moved: int) -> None:
    encoding = Sinusoidal(dim=dim, axes=axes, layout=layout, spacing=spacing)
    ids = Positions.grid(*(2, 3, 2)[:axes]).ids + moved
    expected = reference.grid(ids[0].double().numpy(), dim, layout=layout, spacing=spacing)
    x = torch.randn(2, ids.shape[1], dim)
    result = encoding(x, Positions.explicit(ids))
    assert torch.allclose(result.double(), x.double() + torch.from_numpy(expected), rtol=0, atol=1e-6)
    assert sum(encoding.describe()["channels_per_axis"]) == dim


def test_positions_of_one_axis_are_a_plain_sequence() -> None:
    encoding, x = Sinusoidal(dim=8), torch.randn(1, 4, 8)
    assert torch.equal(encoding(x, Positions.grid(4)), encoding(x))


@every_layout
@pytest.mark.parametrize("offset", [0.0, 1.0, -7.5, 1000.0])
def test_the_shift_matrix_moves_every_position_by_its_offset(layout: Any, offset: float) -> None:
    encoding = Sinusoidal(dim=10, layout=layout)
    matrix = encoding.shift_matrix(offset)
    assert torch.allclose(matrix, torch.from_numpy(reference.shift_matrix(offset, 10, layout=layout)), atol=1e-12)
    ids = torch.tensor([0.0, 3.0, 257.0, 65_537.0], dtype=torch.float64)
    moved = encoded(encoding, ids, torch.float64) @ matrix.T
    assert torch.allclose(moved, encoded(encoding, ids + offset, torch.float64), rtol=0, atol=1e-9)


def test_the_shift_matrix_leaves_the_column_of_zeros_of_an_odd_width() -> None:
    encoding = Sinusoidal(dim=7, layout="concatenated")
    moved = encoded(encoding, torch.arange(5), torch.float64) @ encoding.shift_matrix(3.0).T
    assert torch.allclose(moved, encoded(encoding, torch.arange(3, 8), torch.float64), atol=1e-12)
    assert bool((moved[:, -1] == 0).all())


def test_embeddings_are_scaled_by_the_root_of_the_width_if_asked() -> None:
    x = torch.randn(2, 5, 16)
    plain, scaled = Sinusoidal(dim=16), Sinusoidal(dim=16, scale_embeddings=True)
    assert torch.allclose(scaled(x, 70), plain(4 * x, 70), rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale_embeddings", [False, True])
def test_half_precision_is_rounded_once(dtype: torch.dtype, scale_embeddings: bool) -> None:
    encoding = Sinusoidal(dim=16, scale_embeddings=scale_embeddings)
    x = torch.randn(2, 5, 16).to(dtype)
    result = encoding(x, 10_000_000)
    assert result.dtype == dtype
    assert torch.equal(result, encoding(x.float(), 10_000_000).to(dtype))


def test_each_row_has_positions_of_its_own() -> None:
    encoding, x = Sinusoidal(dim=8), torch.zeros(2, 3, 8)
    rows = encoding(x, Positions.from_mask(torch.tensor([[0, 1, 1], [1, 1, 1]])))
    assert torch.equal(rows[0, 1:], rows[1, :2])
    assert torch.equal(rows[1], encoding(x[1:])[0])


def test_dropout_acts_in_training_alone() -> None:
    encoding, x = Sinusoidal(dim=64, dropout=0.5), torch.full((1, 50, 64), 3.0)
    dropped = encoding(x)
    kept = dropped != 0
    assert 0.4 < float(kept.float().mean()) < 0.6
    assert torch.allclose(dropped[kept], 2 * encoding.eval()(x)[kept])
    assert bool((encoding.eval()(x) != 0).all())


def test_its_wavelengths_are_told() -> None:
    exclusive, inclusive = Sinusoidal(dim=512), Sinusoidal(dim=512, spacing="inclusive")
    assert inclusive.describe()["wavelengths"] == pytest.approx((2 * math.pi, 2 * math.pi * 10_000))
    assert exclusive.describe()["wavelengths"][1] == pytest.approx(2 * math.pi * 10_000 ** (510 / 512))
    assert sinusoidal_frequencies(2, 10_000.0, "inclusive").tolist() == [1.0]


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 8},
        {"dim": 9, "base": 500.0, "layout": "concatenated", "spacing": "inclusive", "dropout": 0.1},
        {"dim": 12, "axes": 3, "scale_embeddings": True},
        {"dim": 8, "offset": 2, "padding": "zeros", "cosines_first": True},
    ],
    ids=str,
)
def test_its_configuration_makes_it_again(options: dict[str, Any]) -> None:
    encoding = Sinusoidal(**options)
    assert Sinusoidal(**encoding.config).config == encoding.config
    assert options.items() <= encoding.config.items()
    assert encoding.describe()["encoding"] == "Sinusoidal"
    assert encoding.describe()["parameters"] == 0
    assert encoding.state_dict() == {}


ERRORS: list[tuple[dict[str, Any], str]] = [
    (
        {"dim": 8, "layout": "mixed"},
        "layout must be one of 'interleaved', 'concatenated', since sines alternate with cosines or precede them; "
        "got 'mixed'.",
    ),
    (
        {"dim": 8, "spacing": "even"},
        "spacing must be one of 'exclusive', 'inclusive', since the slowest wavelength is left out or reached; got "
        "'even'.",
    ),
    (
        {"dim": 8, "padding": "none"},
        "padding must be one of 'position', 'zeros', since padding gets an encoding or none; got 'none'.",
    ),
    ({"dim": 8, "axes": 4}, "axes must be one of 1, 2, 3, since positions have that many coordinates; got 4."),
    ({"dim": 1}, "dim must be at least 2, since every axis needs a sine and a cosine; got 1."),
    ({"dim": 5, "axes": 3}, "dim must be at least 6, since every axis needs a sine and a cosine; got 5."),
    ({"dim": 8, "base": 1.0}, "base must be more than 1, since wavelengths grow by its powers; got 1.0."),
    ({"dim": 8, "base": math.nan}, "base must be finite, since wavelengths grow by its powers; got nan."),
    ({"dim": 8, "base": math.inf}, "base must be finite, since wavelengths grow by its powers; got inf."),
    (
        {"dim": 8, "dropout": 1.0},
        "dropout must be at least 0 and below 1, since it is a probability and 1 leaves nothing; got 1.0.",
    ),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        Sinusoidal(**options)


def test_what_does_not_fit_is_refused() -> None:
    with raises_exactly(
        ValueError, "x must have 8 channels, since Sinusoidal was made with dim=8; got shape (1, 3, 6)."
    ):
        Sinusoidal(dim=8)(torch.zeros(1, 3, 6))
    with raises_exactly(
        ValueError,
        "positions must have 2 coordinates each, since this Sinusoidal encodes that many; got 1 in "
        "Positions(range 0..2, length 3). "
        "Use Positions.grid(...) for images, or Positions.explicit(ids), with ids of shape (batch, tokens, 2).",
    ):
        Sinusoidal(dim=8, axes=2)(torch.zeros(1, 3, 8))
    with raises_exactly(ValueError, "shift_matrix takes one axis, since an offset is one number; got axes=2."):
        Sinusoidal(dim=8, axes=2).shift_matrix(1.0)
    with raises_exactly(
        ValueError,
        "dim must be even for shift_matrix, since the last sine of an odd one has no cosine to be rotated with; got 7.",
    ):
        Sinusoidal(dim=7).shift_matrix(1.0)


def test_what_is_of_another_kind_is_refused() -> None:
    with raises_exactly(TypeError, "base must be a number, since wavelengths grow by its powers; got '1e4'."):
        Sinusoidal(dim=8, base="1e4")  # type: ignore[arg-type]
    with raises_exactly(TypeError, "base must be a number, since wavelengths grow by its powers; got [10000.0]."):
        Sinusoidal(dim=8, base=[1e4])  # type: ignore[arg-type]
    with raises_exactly(TypeError, "dim must be a whole number, since it counts channels; got 8.0."):
        Sinusoidal(dim=8.0)  # type: ignore[arg-type]
    with raises_exactly(TypeError, "offset must be a whole number, since it is added to positions; got 0.5."):
        Sinusoidal(dim=8, offset=0.5)  # type: ignore[arg-type]
    with raises_exactly(
        TypeError, "cosines_first must be True or False, since cosines precede sines or follow them; got 1."
    ):
        Sinusoidal(dim=8, cosines_first=1)  # type: ignore[arg-type]
    with raises_exactly(
        TypeError,
        "x must be of a real floating-point dtype, since Sinusoidal computes with real fractions; got torch.int64. "
        "Convert it with x.float().",
    ):
        Sinusoidal(dim=8)(torch.ones(1, 3, 8, dtype=torch.int64))
    with raises_exactly(
        ValueError,
        "x must have shape (batch, sequence, 8), since Sinusoidal is added to embeddings; got shape (3, 8).",
    ):
        Sinusoidal(dim=8)(torch.ones(3, 8))
    with raises_exactly(
        TypeError,
        "positions must be a situs.Positions, since it tells where tokens stand; got a tensor of shape (3,) and "
        "dtype torch.int64. Use Positions.explicit(ids) for a tensor of positions, or Positions.range(length).",
    ):
        Sinusoidal(dim=8).encode(torch.arange(3))  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"^base must be given when Sinusoidal is made, since .*; got .*\.$"):
        Sinusoidal(dim=8).base = 500.0
