"""Learned positions: rows and their offset, padding, where the table ends, and how it is made longer."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from situs import Learned, Positions
from situs.functional.tables import stretch, with_more_rows
from tests.raising import raises_exactly
from tests.references import learned as reference


def rows_of(encoding: Learned, positions: Any, length: int, rows: int = 1) -> Tensor:
    """What is added to tokens of zeros."""
    added: Tensor = encoding(torch.zeros(rows, length, encoding.dim), positions)
    return added.detach()


@pytest.mark.parametrize("offset", [0, 2])
def test_each_position_adds_its_row(offset: int) -> None:
    encoding = Learned(dim=4, max_length=10, offset=offset)
    x = torch.randn(3, 5, 4)
    expected = x + encoding.table[offset + 2 : offset + 7]
    for positions in (2, torch.arange(2, 7), Positions.range(9)[2:7]):
        assert torch.equal(encoding(x, positions), expected)
    scattered = torch.tensor([[7, 0, 7], [1, 1, 2]])
    assert torch.equal(rows_of(encoding, scattered, 3, 2), encoding.table.detach()[scattered + offset])


def test_the_offset_leaves_fewer_usable_positions() -> None:
    roberta = Learned(dim=4, max_length=514, offset=2, padding_row=1)
    assert roberta.usable_length == 512
    assert roberta.describe()["usable_length"] == 512
    assert roberta.table.shape == (514, 4)
    assert torch.equal(rows_of(roberta, 511, 1)[0], roberta.table.detach()[513:])


def test_padded_places_take_the_padding_row_and_give_it_no_gradient() -> None:
    encoding = Learned(dim=4, max_length=8, offset=2, padding_row=1)
    assert bool((encoding.table[1] == 0).all())
    positions = Positions.from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
    added = rows_of(encoding, positions, 4, 2)
    assert torch.equal(added[0], encoding.table.detach()[[1, 1, 2, 3]])
    encoding(torch.zeros(2, 4, 4), positions).sum().backward()
    assert encoding.table.grad is not None
    assert encoding.table.grad[:, 0].tolist() == [0, 0, 2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize("method", ["interpolate", "keep"])
def test_the_padding_row_of_a_longer_table_is_zero_as_well(method: Any) -> None:
    longer = Learned(dim=4, max_length=8, padding_row=7).extend(16, method=method)
    assert longer.padding_row == 7
    assert not longer.table[7].any()


def test_without_a_padding_row_padded_places_take_that_of_position_zero() -> None:
    encoding = Learned(dim=4, max_length=8)
    added = rows_of(encoding, Positions.from_mask(torch.tensor([[0, 1, 1]])), 3)
    assert torch.equal(added[0], encoding.table.detach()[[0, 0, 1]])


@pytest.mark.parametrize("written_out", [False, True])
def test_the_padding_row_gets_no_gradient_however_it_is_reached(written_out: bool) -> None:
    encoding = Learned(dim=4, max_length=8, padding_row=3)
    encoding(torch.zeros(1, 6, 4), torch.arange(6) if written_out else None).sum().backward()
    assert encoding.table.grad is not None
    assert encoding.table.grad[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 0, 0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_result_has_the_dtype_of_the_tokens(dtype: torch.dtype) -> None:
    encoding = Learned(dim=4, max_length=8)
    x = torch.randn(1, 3, 4).to(dtype)
    assert torch.equal(encoding(x), x + encoding.table[:3].to(dtype))


def test_the_start_is_normal_with_the_spread_asked_for() -> None:
    for spread in (0.02, 1.5):
        table = Learned(dim=64, max_length=512, init_std=spread).table.detach()
        assert float(table.std()) == pytest.approx(spread, rel=0.03)  # 1 / sqrt(2 * 32768) is 0.4 %
        assert float(table.mean()) == pytest.approx(0, abs=0.03 * spread)


def test_dropout_acts_in_training_alone() -> None:
    encoding = Learned(dim=64, max_length=50, dropout=0.5)
    x = torch.full((1, 50, 64), 3.0)
    kept = encoding(x) != 0
    assert 0.4 < float(kept.float().mean()) < 0.6
    assert torch.allclose(encoding.eval()(x), x + encoding.table)


@given(st.integers(1, 12), st.integers(0, 30), st.integers(0, 3))
def test_interpolation_keeps_the_ends_and_is_linear_between(length: int, more: int, offset: int) -> None:
    encoding = Learned(dim=3, max_length=length + offset, offset=offset)
    longer = encoding.extend(length + more)
    assert (longer.usable_length, longer.max_length) == (length + more, length + more + offset)
    old, new = encoding.table.detach(), longer.table.detach()
    assert torch.equal(new[:offset], old[:offset])
    assert torch.equal(new[offset], old[offset])
    assert torch.equal(new[-1], old[-1] if length > 1 or not more else old[offset])
    expected = reference.interpolate(old[offset:].double().numpy(), length + more)
    assert torch.allclose(new[offset:].double(), torch.from_numpy(expected), rtol=0, atol=1e-8)


def test_rows_that_fall_on_old_ones_are_copies_of_them() -> None:
    encoding = Learned(dim=3, max_length=5)
    twice = encoding.extend(9).table.detach()
    assert torch.equal(twice[::2], encoding.table.detach())


@pytest.mark.parametrize("method", ["interpolate", "keep"])
def test_extending_to_the_same_length_is_a_copy(method: Any) -> None:
    encoding = Learned(dim=3, max_length=7, offset=2)
    same = encoding.extend(5, method=method)
    assert same is not encoding
    assert torch.equal(same.table, encoding.table)
    assert same.table.data_ptr() != encoding.table.data_ptr()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_kept_rows_are_bit_equal_and_new_ones_spread_alike(dtype: torch.dtype) -> None:
    encoding = Learned(dim=64, max_length=102, offset=2, padding_row=1, init_std=0.5).to(dtype)
    longer = encoding.extend(400, method="keep")
    assert longer.table.dtype == dtype
    assert torch.equal(longer.table[:102], encoding.table)
    assert float(longer.table.detach()[102:].float().std()) == pytest.approx(0.5, rel=0.05)
    assert longer.config == {**encoding.config, "max_length": 402}


def test_a_longer_copy_trains_as_the_old_one_did() -> None:
    encoding = Learned(dim=4, max_length=4, dropout=0.3)
    assert encoding.extend(8).training
    assert not encoding.eval().extend(8).training
    assert encoding.extend(8).table.requires_grad


def test_stretching_and_adding_rows_are_pure() -> None:
    table = torch.tensor([[0.0], [10.0], [40.0]])
    assert stretch(table, 5).tolist() == [[0.0], [5.0], [10.0], [25.0], [40.0]]
    assert stretch(table[:1], 3).tolist() == [[0.0], [0.0], [0.0]]
    assert with_more_rows(table.bfloat16(), torch.ones(1, 1)).dtype == torch.bfloat16
    assert table.tolist() == [[0.0], [10.0], [40.0]]


def test_its_configuration_makes_it_again() -> None:
    encoding = Learned(dim=4, max_length=9, offset=2, padding_row=1, init_std=0.1, dropout=0.2)
    again = Learned(**encoding.config)
    again.load_state_dict(encoding.state_dict())
    assert again.config == encoding.config
    assert torch.equal(again.table, encoding.table)
    assert encoding.describe()["parameters"] == 36
    assert list(encoding.state_dict()) == ["table"]


BEYOND = "positions must lie in 0 .. 5, since the table has a row for 6 positions"


@pytest.mark.parametrize(
    ("positions", "length", "got"),
    [
        (4, 3, 6),
        (10_000_000, 1, 10_000_000),
        (torch.tensor([0, 6, 2]), 3, 6),
        (None, 7, 6),
    ],
    ids=str,
)
def test_a_position_without_a_row_is_refused(positions: Any, length: int, got: int) -> None:
    with raises_exactly(ValueError, f"{BEYOND}; got {got}. Use extend() for a longer table."):
        Learned(dim=4, max_length=8, offset=2)(torch.zeros(1, length, 4), positions)


@pytest.mark.parametrize(("positions", "got"), [(-1, -1), (torch.tensor([0, -4, 9]), -4)], ids=str)
def test_a_negative_position_is_refused_and_no_longer_table_is_offered(positions: Any, got: int) -> None:
    cure = "Count from 0, as Positions.from_mask() does for padded rows."
    with raises_exactly(ValueError, f"{BEYOND}; got {got}. {cure}"):
        Learned(dim=4, max_length=8, offset=2)(torch.zeros(1, 3, 4), positions)
    padded = Positions.from_mask(torch.tensor([[0, 1, 1]]))
    assert Learned(dim=4, max_length=8, offset=2)(torch.zeros(1, 3, 4), padded).shape == (1, 3, 4)


@pytest.mark.compiled
def test_a_position_without_a_row_is_refused_in_a_graph_too() -> None:
    encoding = Learned(dim=4, max_length=8, offset=2)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, ids: encoding(x, ids), fullgraph=True, backend="eager")
    compiled(torch.zeros(1, 2, 4), torch.tensor([0, 5]))
    with raises_exactly(RuntimeError, f"{BEYOND}. Use extend() for a longer table."):
        compiled(torch.zeros(1, 2, 4), torch.tensor([0, 6]))
    torch._dynamo.reset()


def test_no_positions_at_all_are_taken() -> None:
    encoding = Learned(dim=4, max_length=3)
    for positions in (None, 99, torch.zeros(0, dtype=torch.int64)):
        assert encoding(torch.zeros(2, 0, 4), positions).shape == (2, 0, 4)


def test_positions_of_one_axis_are_a_plain_sequence() -> None:
    encoding = Learned(dim=4, max_length=6)
    assert torch.equal(rows_of(encoding, Positions.grid(4), 4), rows_of(encoding, None, 4))


def test_positions_that_pick_no_row_are_refused() -> None:
    encoding, x = Learned(dim=4, max_length=6), torch.zeros(1, 2, 4)
    with raises_exactly(
        TypeError, "positions must be whole numbers, since each picks a row of the table; got dtype torch.float32."
    ):
        encoding(x, torch.tensor([0.5, 1.0]))
    with raises_exactly(
        ValueError,
        "positions must have 1 coordinate each, since this Learned encodes that many; got 2 in "
        "Positions(grid, 1 x 2, length 2, axes 2).",
    ):
        encoding(x, Positions.grid(1, 2))
    with raises_exactly(ValueError, "x must have 4 channels, since Learned was made with dim=4; got shape (1, 2, 5)."):
        encoding(torch.zeros(1, 2, 5))


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"dim": 0}, "dim must be 1 or more, since it sizes the table; got 0."),
    ({"max_length": 0}, "max_length must be 1 or more, since it sizes the table; got 0."),
    ({"offset": 8}, "offset must lie in 0 .. 7, since it is a row of the table; got 8."),
    ({"padding_row": 8}, "padding_row must lie in 0 .. 7, since it is a row of the table; got 8."),
    ({"padding_row": -1}, "padding_row must lie in 0 .. 7, since it is a row of the table; got -1."),
    (
        {"dropout": 1.0},
        "dropout must be at least 0 and below 1, since it is a probability and 1 leaves nothing; got 1.0.",
    ),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        Learned(**{"dim": 4, "max_length": 8, **options})


def test_tokens_it_cannot_be_added_to_are_refused() -> None:
    encoding = Learned(dim=4, max_length=6)
    with raises_exactly(
        ValueError, "x must have shape (batch, sequence, 4), since Learned is added to embeddings; got shape (3, 4)."
    ):
        encoding(torch.zeros(3, 4))
    with raises_exactly(
        TypeError,
        "x must be of a real floating-point dtype, since Learned computes with real fractions; got torch.int64. "
        "Convert it with x.float().",
    ):
        encoding(torch.zeros(1, 3, 4, dtype=torch.int64))
    with pytest.raises(AttributeError, match=r"^max_length must be given when Learned is made, since .*; got .*\.$"):
        encoding.max_length = 8


def test_a_table_is_only_made_longer_and_in_known_ways() -> None:
    encoding = Learned(dim=4, max_length=8, offset=2)
    with raises_exactly(
        ValueError,
        "new_length must be at least 6, the present usable length, since rows are only added; got 5.",
    ):
        encoding.extend(5)
    with raises_exactly(
        ValueError, "method must be one of 'interpolate', 'keep', since old rows are stretched or kept; got 'tile'."
    ):
        encoding.extend(12, method="tile")  # type: ignore[arg-type]
