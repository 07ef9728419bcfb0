"""Biases of boxes: the formula in each axis, positions from boxes, kernels, and what is refused."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from situs import Boxes, Positions, T5Bias
from situs.attention import attend, reference
from tests.raising import raises_exactly
from tests.references import boxes as paper

SMALL: dict[str, Any] = {"num_heads": 2, "num_buckets": (8, 12, 4), "max_distance": (9, 20, 50), "init_std": 1.0}


def by_paper(encoding: Boxes, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    tables = [each.double().numpy() for each in encoding.table.detach().split(list(encoding.num_buckets))]
    resolution = list(encoding.resolution or (1.0,) * encoding.axes)
    told = query.double().numpy(), key.double().numpy()
    return torch.from_numpy(paper.bias(tables, list(encoding.max_distance), resolution, encoding.factor, *told))


coordinates = st.tuples(*[st.integers(-3000, 3000) | st.integers(-12, 12)] * 3)


@given(st.lists(coordinates, min_size=1, max_size=5), st.lists(coordinates, min_size=1, max_size=5), st.booleans())
def test_the_bias_is_the_papers(query: list[Any], key: list[Any], moved: bool) -> None:
    encoding = Boxes(**SMALL, factor=0.5).double()
    both = [torch.tensor(each) + 10_000_000 * moved for each in (query, key)]
    bias = encoding(*(each[None] for each in both))[0]
    torch.testing.assert_close(bias, by_paper(encoding, *both), rtol=0, atol=1e-12)


def test_shares_of_a_page_are_counted_in_steps() -> None:
    """Shares are sixteenths, of which float32 counts hundredths exactly."""
    encoding = Boxes(**SMALL, resolution=(1, 100, 100)).double()
    at = torch.stack([torch.randint(0, high, (24,)).double() for high in (50, 17, 17)], -1)
    at[:, 1:] /= 16
    torch.testing.assert_close(encoding(at[None])[0], by_paper(encoding, at, at), rtol=0, atol=1e-12)


def test_one_distance_serves_all_axes() -> None:
    assert Boxes(num_heads=2, max_distance=48).max_distance == (48, 48, 48)


def test_one_axis_is_t5s_bias() -> None:
    encoding = Boxes(num_heads=3, num_buckets=(32,), max_distance=(128,))
    other = T5Bias(num_heads=3)
    other.load_state_dict(encoding.state_dict())
    places = Positions.range(300)
    assert torch.equal(encoding(places), other(places))


def test_positions_are_made_from_boxes() -> None:
    encoding = Boxes(num_heads=2)
    boxes = torch.tensor([[[1, 2, 5, 8], [3, 3, 4, 9]]])
    assert encoding.positions(boxes).ids.tolist() == [[[0, 1, 8], [1, 3, 9]]]
    assert encoding.positions(boxes, anchor="centre").ids.tolist() == [[[0.0, 3.0, 5.0], [1.0, 3.5, 6.0]]]
    told = encoding.positions(boxes, text=torch.tensor([[7, 0]]), valid=torch.tensor([[True, False]]))
    assert told.ids.tolist() == [[[7, 1, 8], [0, 0, 0]]]
    assert told.valid is not None
    assert encoding.positions(boxes / 10.0).ids.dtype == torch.float64


@pytest.mark.parametrize("impl", ["auto", "blockwise", "dense"])
@pytest.mark.parametrize("anchor", ["left_bottom", "centre"])
def test_attention_over_pages_with_padding_is_that_of_the_reference(impl: Any, anchor: Any) -> None:
    encoding = Boxes(**SMALL).double()
    q, k, v = (torch.randn(2, 2, 9, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    valid = torch.arange(9) < torch.tensor([[9], [5]])
    positions = encoding.positions(torch.randint(0, 99, (2, 9, 4)), valid=valid, anchor=anchor)
    told: dict[str, Any] = {"encoding": encoding, "positions": positions}
    expected, out = reference(q, k, v, **told), attend(q, k, v, impl=impl, **told)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    learnt = (q, k, v, encoding.table)
    found, wanted = (torch.autograd.grad(each.square().sum(), learnt) for each in (out, expected))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)


ERRORS: list[tuple[dict[str, Any], str]] = [
    (
        {"num_buckets": (3, 8, 8)},
        "num_buckets must be at least 4 on every axis, since each direction has single and growing distances; got 3.",
    ),
    (
        {"max_distance": (128, 16, 256)},
        "max_distance must be more than 16, since that many buckets hold a single distance; got 16.",
    ),
    (
        {"max_distance": (128, 256)},
        "max_distance must be 3 numbers, since each axis has buckets of its own and num_buckets has 3; got (128, 256).",
    ),
    (
        {"resolution": (100.0,)},
        "resolution must be 3 numbers, since each axis has buckets of its own and num_buckets has 3; got (100.0,).",
    ),
    ({"resolution": (1, 0, 1)}, "resolution must be more than 0, since it counts steps; got 0."),
    ({"num_buckets": ()}, "num_buckets must be one number or more, since each axis has buckets of its own; got none."),
    ({"num_heads": 0}, "num_heads must be 1 or more, since each has numbers of its own; got 0."),
]


@pytest.mark.parametrize(("options", "message"), ERRORS, ids=[message for _, message in ERRORS])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        Boxes(**{"num_heads": 2, **options})


def test_what_does_not_fit_is_refused() -> None:
    encoding, boxes = Boxes(num_heads=2), torch.zeros(2, 3, 4)
    with raises_exactly(
        ValueError, "boxes must have shape (batch, sequence, 4), since a box has four edges; got (3, 4)."
    ):
        encoding.positions(boxes[0])
    with raises_exactly(
        ValueError,
        "text must have shape (2, 3), since each of the boxes has a place in it; got shape (1, 2) for boxes of shape "
        "(2, 3, 4).",
    ):
        encoding.positions(boxes, text=torch.zeros(1, 2, dtype=torch.int64))
    with raises_exactly(
        ValueError,
        "anchor must be one of 'left_bottom', 'centre', since one point of a box stands for it; got 'top'.",
    ):
        encoding.positions(boxes, anchor="top")  # type: ignore[arg-type]
    with raises_exactly(
        ValueError,
        "num_buckets must be of the text, of x and of y for positions of boxes, since they have these three "
        "coordinates; got (32, 32).",
    ):
        Boxes(num_heads=2, num_buckets=(32, 32), max_distance=(128, 128)).positions(boxes)
    with raises_exactly(
        ValueError,
        "positions must have 3 coordinates each, since this Boxes encodes that many; got 1 in "
        "Positions(range 0..2, length 3). Use encoding.positions(...).",
    ):
        encoding(Positions.range(3))
