"""Two-axis vectors against the formula: windows anywhere, padding, kernels, resizing, and what is refused."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from situs import Positions, SwinBias, ViTDet
from situs.attention import attend, reference
from tests.raising import raises_exactly
from tests.references import vitdet as paper

HEADS, HEAD_DIM = 2, 4


def made(window: tuple[int, int], **options: Any) -> ViTDet:
    return ViTDet(num_heads=HEADS, head_dim=HEAD_DIM, window=window, init_std=1.0, **options).double()


def by_paper(encoding: ViTDet, q: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    tables = (each.detach().numpy() for each in (encoding.down_table, encoding.across_table))
    return torch.from_numpy(paper.term(q.numpy(), query.numpy(), key.numpy(), *tables))


windows = st.sampled_from([(1, 1), (1, 4), (4, 1), (3, 5)])
origins = st.sampled_from([(0, 0), (-5, 3), (10_000_000, 70_000)])


@given(windows, origins, st.data(), st.sampled_from([(False, None), (True, None), (True, 0.7)]))
def test_any_cells_of_a_window_anywhere_get_the_papers_term(
    window: tuple[int, int], origin: tuple[int, int], data: st.DataObject, scaled: tuple[bool, float | None]
) -> None:
    encoding = made(window, scaled=scaled[0])
    cell = st.tuples(st.integers(0, window[0] - 1), st.integers(0, window[1] - 1))
    query, key = (
        torch.tensor(data.draw(st.lists(cell, min_size=1, max_size=6))) + torch.tensor(origin) for _ in range(2)
    )
    q = torch.randn(2, HEADS, len(query), HEAD_DIM, dtype=torch.float64)
    k = torch.randn(2, 1, len(key), HEAD_DIM, dtype=torch.float64)
    term = encoding(q, k, query[None], key[None], scale=scaled[1])
    factor = (0.5 if scaled[1] is None else scaled[1]) if scaled[0] else 1.0
    for row in range(2):
        torch.testing.assert_close(term[row], factor * by_paper(encoding, q[row], query, key), rtol=0, atol=1e-12)


@pytest.mark.parametrize("impl", ["auto", "blockwise"])
def test_images_of_unequal_sizes_are_as_if_alone(impl: Any) -> None:
    encoding = made((4, 5))
    rows = [Positions.grid(4, 5), Positions.explicit(Positions.grid(3, 4).ids + 70_000)]
    images = Positions.batch(rows)
    q, k, v = (torch.randn(2, HEADS, 20, HEAD_DIM, dtype=torch.float64, requires_grad=True) for _ in range(3))
    out = attend(q, k, v, encoding=encoding, positions=images, impl=impl)
    for number, row in enumerate(rows):
        alone = (each[number : number + 1, :, : row.length] for each in (q, k, v))
        expected = reference(*alone, encoding=encoding, positions=row)
        torch.testing.assert_close(out[number : number + 1, :, : row.length], expected, rtol=0, atol=1e-12)
    whole = reference(q, k, v, encoding=encoding, positions=images)
    learnt = (q, k, v, *encoding.parameters())
    found, wanted = (torch.autograd.grad(each.square().sum(), learnt) for each in (out, whole))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("impl", ["auto", "blockwise"])
@pytest.mark.parametrize("kind", [ViTDet, SwinBias])
def test_packed_images_that_begin_anywhere_are_as_if_alone(kind: Any, impl: Any) -> None:
    encoding = made((4, 5)) if kind is ViTDet else SwinBias(num_heads=HEADS, window=(4, 5), init_std=1.0).double()
    images = [Positions.grid(4, 5), *(Positions.explicit(Positions.grid(3, 4).ids + far) for far in (-9, 70_000))]
    order = torch.randperm(sum(each.length for each in images))  # tokens of an image need not be neighbours
    packed = Positions.pack(images)
    assert packed.documents is not None
    padded = Positions.explicit(
        torch.cat((packed.ids[:, order], torch.full((1, 3, 2), 10**9)), 1),
        documents=torch.cat((packed.documents[:, order], torch.zeros(1, 3, dtype=torch.int64)), 1),
        valid=torch.arange(len(order) + 3)[None] < len(order),
    )
    q, k, v = torch.randn(3, 1, HEADS, padded.length, HEAD_DIM, dtype=torch.float64)
    out = attend(q, k, v, encoding=encoding, positions=padded, impl=impl)
    for number, image in enumerate(images):
        mine = (packed.documents[0, order] == packed.documents[0].unique()[number]).nonzero()[:, 0]
        cells = Positions.explicit(packed.ids[:, order][:, mine])
        assert len(mine) == image.length
        expected = reference(*(each[:, :, mine] for each in (q, k, v)), encoding=encoding, positions=cells)
        torch.testing.assert_close(out[:, :, mine], expected, rtol=0, atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    encoding = made((2, 3))
    q = torch.randn(1, HEADS, 6, HEAD_DIM, dtype=torch.float64, requires_grad=True)
    at = Positions.grid(2, 3)
    assert torch.autograd.gradcheck(lambda q, *_: encoding(q, q, at, at), (q, *encoding.parameters()))


def test_resizing_interpolates_each_table_and_leaves_the_same_window_as_it_is() -> None:
    encoding = made((3, 4)).eval()
    larger = encoding.resize((5, 4))
    expected = interpolate(encoding.down_table.detach().T[None], size=9, mode="linear")[0].T
    torch.testing.assert_close(larger.down_table.detach(), expected)
    assert torch.equal(larger.across_table, encoding.across_table)
    assert larger.config == {**encoding.config, "window": (5, 4)}
    assert not larger.training


def test_what_does_not_fit_is_refused() -> None:
    x = torch.randn(1, HEADS, 6, HEAD_DIM)
    encoding = ViTDet(num_heads=HEADS, head_dim=HEAD_DIM, window=(2, 2))
    with raises_exactly(
        ValueError,
        "positions must span at most 2 cells along axis 1, since ViTDet ends there; got 3. Use resize() for a larger "
        "window.",
    ):
        attend(x, x, x, encoding=encoding, positions=Positions.grid(2, 3))
    with raises_exactly(
        ValueError,
        "positions must span at most 2 cells along axis 0, since ViTDet ends there; got 3. Use resize() for a larger "
        "window.",
    ):
        attend(x, x, x, encoding=encoding, positions=Positions.pack([Positions.grid(2, 2)[:3], Positions.grid(3, 1)]))
    with raises_exactly(
        ValueError,
        "positions must have 2 coordinates each, since this ViTDet encodes that many; got 1 in "
        "Positions(range 0..5, length 6).",
    ):
        attend(x, x, x, encoding=encoding)
    for options, message in (
        ({"window": (0, 3)}, "window must be 1 or more, since a window has that many cells each way; got 0."),
        ({"head_dim": 0}, "head_dim must be 1 or more, since it sizes the tables; got 0."),
    ):
        with raises_exactly(ValueError, message):
            ViTDet(**{"num_heads": 2, "head_dim": 4, **options})  # type: ignore[arg-type]
    with raises_exactly(
        TypeError,
        "scaled must be True or False, since the products are multiplied by the softmax scale or not; got None.",
    ):
        ViTDet(num_heads=2, head_dim=4, scaled=None)  # type: ignore[arg-type]
