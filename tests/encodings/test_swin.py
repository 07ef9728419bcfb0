"""Swin's bias: tables and networks, windows of any shape, where they end, and making them larger."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from situs import Positions, SwinBias
from situs.attention import attend, reference
from situs.functional.windows import window_offsets
from tests.encodings.bias_places import assert_follows
from tests.raising import raises_exactly
from tests.references import swin as paper

VERSIONS = ["v1", "v2"]
both_versions = pytest.mark.parametrize("version", VERSIONS)
windows = st.sampled_from([(1, 1), (1, 4), (4, 1), (2, 3), (3, 2), (4, 4)])
origins = st.sampled_from([(0, 0), (-5, 3), (70_000, 2), (10_000_000, 70_000), (-10_000_000, 10_000_000)])


def by_paper(encoding: SwinBias, query: NDArray[Any], key: NDArray[Any]) -> NDArray[np.float64]:
    state = {name: value.double().numpy() for name, value in encoding.state_dict().items()}
    if encoding.version == "v1":
        return paper.bias_v1(state["table"], encoding.window, query, key)
    network = (state["hidden.weight"], state["hidden.bias"], state["out.weight"])
    return paper.bias_v2(encoding.window, encoding.trained_window or (0, 0), query, key, *network)


def made(version: Any, window: tuple[int, int], heads: int = 2, trained: tuple[int, int] | None = None) -> SwinBias:
    return SwinBias(num_heads=heads, window=window, version=version, trained_window=trained, width=4, init_std=1.0)


assert_is_the_papers = partial(assert_follows, by_paper, rtol=1e-12, atol=0)


@given(st.sampled_from(VERSIONS), windows, st.integers(1, 4), origins, st.booleans())
def test_a_window_anywhere_gets_the_papers_bias(
    version: str, window: tuple[int, int], heads: int, origin: tuple[int, int], trained: bool
) -> None:
    encoding = made(version, window, heads, (5, 6) if trained and version == "v2" else None)
    cells = Positions.explicit(Positions.grid(*window).ids + torch.tensor(origin))
    assert_is_the_papers(encoding, cells, cells)


@given(st.sampled_from(VERSIONS), origins, st.data())
def test_any_cells_of_a_window_in_any_order_get_the_papers_bias(
    version: str, origin: tuple[int, int], data: st.DataObject
) -> None:
    cells = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6)
    places = [Positions.explicit(torch.tensor([data.draw(cells)]) + torch.tensor(origin)) for _ in range(2)]
    assert_is_the_papers(made(version, (4, 3)), *places)


@both_versions
def test_padded_windows_are_as_if_alone(version: str) -> None:
    encoding = made(version, (3, 4))
    for side in ("left", "right"):
        rows = [Positions.grid(3, 4), Positions.grid(2, 2)]
        padded = Positions.batch(rows, side=side)
        bias = encoding(padded)
        assert padded.valid is not None
        for number, row in enumerate(rows):
            real = padded.valid[number]
            assert torch.equal(bias[number][:, real][:, :, real], encoding(row)[0])


@both_versions
def test_packed_and_sharded_windows_are_as_if_alone(version: str) -> None:
    encoding, window = made(version, (3, 4)), Positions.grid(3, 4)
    whole = encoding(window)
    packed = encoding(Positions.pack([window, Positions.grid(2, 3)]))
    assert torch.equal(packed[:, :, :12, :12], whole)
    assert torch.equal(packed[:, :, 12:, 12:], encoding(Positions.grid(2, 3)))
    mine = window.shard(1, 2, layout="zigzag")
    assert torch.equal(encoding(mine, window), whole[:, :, 3:9])


def test_a_table_has_the_order_of_released_ones() -> None:
    encoding = made("v1", (2, 3))
    assert torch.equal(encoding.by_row(torch.device("cpu"), torch.float32), encoding.table)
    assert torch.equal(encoding.by_offset(window_offsets((2, 3))), encoding.table.T)
    first_to_last = encoding(Positions.grid(2, 3))[0, :, 0, -1]
    assert torch.equal(first_to_last, encoding.table[0])


def test_a_networks_bias_lies_between_0_and_16_and_is_8_where_it_says_nothing() -> None:
    encoding = made("v2", (4, 4))
    bias = encoding(Positions.grid(4, 4))
    assert 0 < float(bias.detach().min()) < float(bias.detach().max()) < 16
    with torch.no_grad():
        encoding.out.weight.zero_()
    assert bool((encoding(Positions.grid(4, 4)) == 8).all())


@both_versions
def test_gradients_are_those_of_finite_differences(version: str) -> None:
    encoding = made(version, (2, 3)).double()
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    if version == "v2":
        units = encoding.hidden(encoding._coordinates).detach()
        assert float(units.abs().min()) > 1e-4  # none stands at its kink
    parameters = tuple(encoding.parameters())
    moved = Positions.explicit(Positions.grid(2, 3).ids + 10_000_000)
    assert torch.autograd.gradcheck(lambda *_: encoding(Positions.grid(2, 3)), parameters)
    assert torch.autograd.gradcheck(lambda *_: encoding(moved, moved[:2]), parameters)
    assert torch.autograd.gradcheck(lambda *_: encoding.by_offset(window_offsets((2, 3))), parameters)


@both_versions
def test_resizing_to_the_same_window_changes_nothing(version: str) -> None:
    encoding = made(version, (3, 4)).eval()
    same = encoding.resize((3, 4))
    assert torch.equal(same(Positions.grid(3, 4)), encoding(Positions.grid(3, 4)))
    assert not same.training
    with torch.no_grad():
        next(same.parameters()).add_(1.0)
    assert not torch.equal(next(same.parameters()), next(encoding.parameters()))


def test_resizing_interpolates_a_table_of_offsets() -> None:
    encoding = made("v1", (3, 4), heads=5)
    larger = encoding.resize((6, 5))
    image = encoding.table.detach().T.reshape(1, 5, 5, 7)
    expected = interpolate(image, size=(11, 9), mode="bicubic", align_corners=False)[0].flatten(1).T
    torch.testing.assert_close(larger.table.detach(), expected)
    assert larger.config == {**encoding.config, "window": (6, 5)}
    with torch.no_grad():
        encoding.table.fill_(0.75)
    torch.testing.assert_close(encoding.resize((6, 5)).table.detach(), torch.full((99, 5), 0.75))
    assert larger(Positions.grid(6, 5)).shape == (1, 5, 30, 30)


def test_resizing_leaves_a_network_as_it_is_and_offsets_keep_their_bias() -> None:
    encoding = made("v2", (3, 4))
    larger = encoding.resize((6, 9))
    assert larger.trained_window == (3, 4)
    for name, value in encoding.state_dict().items():
        assert torch.equal(larger.state_dict()[name], value)
    near = window_offsets((3, 4))
    torch.testing.assert_close(larger.by_offset(near), encoding.by_offset(near))
    again = larger.resize((2, 2))
    assert again.trained_window == (3, 4)
    torch.testing.assert_close(again(Positions.grid(2, 2)), encoding(Positions.grid(2, 2)))
    assert_is_the_papers(larger, Positions.grid(6, 9), Positions.grid(6, 9))


@both_versions
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_resizing_keeps_the_dtype(version: str, dtype: torch.dtype) -> None:
    resized = made(version, (2, 2)).to(dtype).resize((3, 3))
    assert {parameter.dtype for parameter in resized.parameters()} == {dtype}


@both_versions
def test_its_configuration_makes_it_again(version: str) -> None:
    encoding = made(version, (3, 4), 2, (5, 6) if version == "v2" else None)
    assert SwinBias(**encoding.config).config == encoding.config
    assert encoding.describe()["rows"] == 35
    assert encoding.describe()["parameters"] == (70 if version == "v1" else 2 * 4 + 4 + 4 * 2)


def test_the_start_is_small_and_can_be_drawn_anew() -> None:
    table = SwinBias(num_heads=64)
    assert float(table.table.detach().std()) == pytest.approx(0.02, rel=0.05)
    network = SwinBias(num_heads=64, version="v2")
    assert bool((network.hidden.bias == 0).all())
    assert float(network.out.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
    before = table.table.detach().clone()
    table.reset_parameters()
    assert not torch.equal(table.table, before)


@both_versions
def test_positions_beyond_the_window_are_refused(version: str) -> None:
    encoding = made(version, (2, 3))
    for size, axis, limit in (((3, 3), 0, 2), ((2, 5), 1, 3)):
        grid = Positions.grid(*size)
        with raises_exactly(
            ValueError,
            f"positions must span at most {limit} cells along axis {axis}, since SwinBias ends there; got "
            f"{size[axis]}. Use resize() for a larger window.",
        ):
            encoding(grid)
        with pytest.raises(ValueError, match="positions must span at most"):
            encoding.score_mod(grid)
    near, far = Positions.grid(2, 3), Positions.explicit(Positions.grid(2, 3).ids + 10_000_000)
    assert encoding(far).shape == (1, 2, 6, 6)
    with raises_exactly(
        ValueError,
        "positions must span at most 2 cells along axis 0, since SwinBias ends there; got 10000002. Use resize() for a "
        "larger window.",
    ):
        encoding(near, far)


@both_versions
def test_padding_may_lie_outside_the_window(version: str) -> None:
    encoding = made(version, (2, 3))
    cells = torch.cat([Positions.grid(2, 3).ids + 70_000, torch.zeros(1, 2, 2, dtype=torch.int64)], 1)
    valid = torch.tensor([True] * 6 + [False] * 2)
    bias = encoding(Positions.explicit(cells, valid=valid))
    assert torch.equal(bias[:, :, :6, :6], encoding(Positions.grid(2, 3)))
    nothing = Positions.explicit(cells, valid=torch.zeros(8, dtype=torch.bool))
    assert encoding(nothing).shape == (1, 2, 8, 8)


@pytest.mark.compiled
@both_versions
def test_a_compiled_bias_still_refuses_positions_beyond_the_window(version: str) -> None:
    torch._dynamo.reset()
    encoding = made(version, (2, 3))
    compiled = torch.compile(encoding, fullgraph=True, backend="aot_eager")
    cells = Positions.grid(2, 3).ids
    torch.testing.assert_close(compiled(cells), encoding(cells))
    with pytest.raises(
        RuntimeError, match="positions must span at most 2 cells along axis 0, since SwinBias ends there"
    ):
        compiled(2 * cells)


@given(windows, st.data())
def test_tokens_without_a_cell_have_rows_of_their_own(window: tuple[int, int], data: st.DataObject) -> None:
    encoding = SwinBias(num_heads=2, window=window, cls=True, init_std=1.0).double()
    cell = st.tuples(st.integers(0, window[0] - 1), st.integers(0, window[1] - 1))
    sides = [data.draw(st.lists(st.none() | cell, min_size=1, max_size=6)) for _ in range(2)]
    both = [
        Positions.explicit(
            torch.tensor([[each or (0, 0) for each in side]]) + 70_000,
            placed=torch.tensor([each is not None for each in side]),
        )
        for side in sides
    ]
    expected = torch.from_numpy(paper.bias_with_cls(encoding.table.detach().numpy(), window, *sides))
    bias = encoding(*both)[0]
    assert torch.equal(bias, expected)
    add = encoding.score_mod(*both)
    at = torch.tensor(0)
    for i, j in ((0, 0), (len(sides[0]) - 1, len(sides[1]) - 1)):
        one = add(torch.zeros((), dtype=torch.float64), at, at + 1, at + i, at + j)
        assert torch.equal(one, expected[1, i, j])


def test_attention_in_every_kernel_sees_tokens_without_a_cell() -> None:
    encoding = SwinBias(num_heads=2, window=(3, 4), cls=True, init_std=1.0).double()
    q, k, v = torch.randn(3, 2, 2, 13, 8, dtype=torch.float64)
    images = Positions.batch([Positions.grid(3, 4, prefix=1), Positions.grid(2, 3, prefix=2)])
    expected = reference(q, k, v, encoding=encoding, positions=images)
    for impl in ("auto", "blockwise", "dense"):
        torch.testing.assert_close(attend(q, k, v, encoding=encoding, positions=images, impl=impl), expected)
    learnt = torch.autograd.grad(attend(q, k, v, encoding=encoding, positions=images).square().sum(), encoding.table)
    torch.testing.assert_close(learnt, torch.autograd.grad(expected.square().sum(), encoding.table))
    assert bool((learnt[0][-3:] != 0).all())


@given(windows, st.data())
def test_distances_without_a_sign_share_rows(window: tuple[int, int], data: st.DataObject) -> None:
    encoding = SwinBias(num_heads=2, window=window, signed=False, init_std=1.0).double()
    cell = st.tuples(st.integers(0, window[0] - 1), st.integers(0, window[1] - 1))
    sides = [torch.tensor([data.draw(st.lists(cell, min_size=1, max_size=6))]) for _ in range(2)]
    expected = paper.bias_of_distances(encoding.table.detach().numpy(), window, *(side[0].numpy() for side in sides))
    assert torch.equal(encoding(*map(Positions.explicit, sides))[0], torch.from_numpy(expected))


@pytest.mark.parametrize(("options", "grid"), [({"cls": True}, (5, 7)), ({"signed": False, "cls": True}, (3, 4))])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_rows_of_tokens_without_a_cell_are_not_resized(options: dict[str, bool], grid: Any, mode: Any) -> None:
    encoding = SwinBias(num_heads=5, window=(3, 4), init_std=1.0, **options)  # type: ignore[arg-type]
    larger = encoding.resize((6, 5), mode=mode)
    image = encoding.table.detach()[:-3].T.reshape(1, 5, *grid)
    size = (11, 9) if encoding.signed else (6, 5)
    expected = interpolate(image, size=size, mode=mode, align_corners=False)[0].flatten(1).T
    torch.testing.assert_close(larger.table.detach()[:-3], expected)
    assert torch.equal(larger.table[-3:], encoding.table[-3:])
    assert larger.config == {**encoding.config, "window": (6, 5)}
