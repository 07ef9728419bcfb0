"""Windows: rows of offsets, and what Swin v2's network is shown for them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from situs.functional.windows import log_coordinates, window_offsets, window_rows
from tests.references import swin as formula

sides = st.tuples(st.integers(1, 8), st.integers(1, 8))


def test_rows_of_a_small_window_are_golden() -> None:
    """Query minus key, downwards slowest: the released order."""
    assert window_offsets((2, 2)).tolist() == [
        [1, 1], [1, 0], [1, -1],
        [0, 1], [0, 0], [0, -1],
        [-1, 1], [-1, 0], [-1, -1],
    ]  # fmt: skip
    assert window_offsets((1, 3)).tolist() == [[0, 2], [0, 1], [0, 0], [0, -1], [0, -2]]
    assert window_offsets((1, 1)).tolist() == [[0, 0]]


@pytest.mark.parametrize(
    ("offset", "window", "row"),
    [
        ((0, 0), (7, 7), 84),
        ((6, 6), (7, 7), 0),
        ((-6, -6), (7, 7), 168),
        ((0, 1), (7, 7), 83),
        ((1, 0), (7, 7), 71),
        ((0, 0), (3, 5), 22),
        ((2, -4), (3, 5), 8),
        ((0, 0), (1, 1), 0),
    ],
)
def test_rows_of_single_offsets_are_golden(offset: tuple[int, int], window: tuple[int, int], row: int) -> None:
    down, right = (torch.tensor(each) for each in offset)
    assert int(window_rows(down, right, window)) == row


@given(sides)
def test_offsets_are_the_inverse_of_rows(window: tuple[int, int]) -> None:
    offsets = window_offsets(window)
    count = (2 * window[0] - 1) * (2 * window[1] - 1)
    assert offsets.shape == (count, 2)
    assert torch.equal(window_rows(offsets[:, 0], offsets[:, 1], window), torch.arange(count))


@given(sides)
def test_rows_equal_those_of_the_formula(window: tuple[int, int]) -> None:
    """Which counts offsets as query minus key."""
    offsets = window_offsets(window)
    assert [formula.table_row(-down, -right, window) for down, right in offsets.tolist()] == list(range(len(offsets)))


@given(sides, sides)
def test_log_coordinates_equal_those_of_the_formula(window: tuple[int, int], trained: tuple[int, int]) -> None:
    trained = (max(trained[0], 2), max(trained[1], 2))
    expected = [
        formula.log_coordinates(-down, -right, window, trained) for down, right in window_offsets(window).tolist()
    ]
    actual = log_coordinates(window, trained)
    assert actual.dtype == torch.float64
    np.testing.assert_allclose(actual.numpy(), np.array(expected), atol=1e-15)


@given(sides)
def test_log_coordinates_are_odd_and_end_at_the_same_edge_in_every_window(window: tuple[int, int]) -> None:
    shown = log_coordinates(window, window)
    assert torch.equal(shown, -shown.flip(0))
    edges = [np.log2(9) / 3 if side > 1 else 0.0 for side in window]
    assert shown.amax(0).tolist() == pytest.approx(edges, abs=1e-15)


def test_log_coordinates_are_golden() -> None:
    """Of an edge 8 shares away, log2(9) / 3; of a window twice as far, log2(17) / 3."""
    assert log_coordinates((1, 3), (3, 3))[:, 1].tolist() == pytest.approx(
        [-1.0566416671474375, -0.7739760316291209, 0.0, 0.7739760316291209, 1.0566416671474375], abs=1e-15
    )
    assert log_coordinates((1, 5), (3, 3))[-1].tolist() == pytest.approx([0.0, 1.3624876137501132], abs=1e-15)
    assert log_coordinates((1, 1), (1, 1)).tolist() == [[0.0, 0.0]]


def test_log_coordinates_of_a_trained_window_of_one_cell_are_finite() -> None:
    assert log_coordinates((3, 3), (1, 1)).isfinite().all()


def test_windows_do_not_depend_on_the_default_device() -> None:
    """Models are built on the meta device, where nothing has values."""
    with torch.device("meta"):
        assert window_offsets((2, 3)).device.type == "cpu"
        assert log_coordinates((2, 3), (2, 3)).device.type == "cpu"
