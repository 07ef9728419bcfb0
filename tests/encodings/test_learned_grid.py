"""Learned positions of images: prefix and patches, and images of another size."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import interpolate

from situs import LearnedGrid, Positions
from situs.functional import resize_grid
from tests.raising import raises_exactly


def test_tokens_take_the_rows_of_prefix_and_patches() -> None:
    encoding = LearnedGrid(dim=4, size=(2, 3), prefix=1)
    assert encoding.usable_length == 7
    x = torch.randn(2, 7, 4)
    for positions in (None, 0, torch.arange(7)):
        assert torch.equal(encoding(x, positions), x + encoding.table)
    assert torch.equal(encoding(x[:, 2:5], 2), x[:, 2:5] + encoding.table[2:5])


@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_rows_and_columns_pick_patches_after_the_prefix(prefix: int) -> None:
    encoding = LearnedGrid(dim=4, size=(2, 3), prefix=prefix)
    x = torch.randn(1, 6, 4)
    assert torch.equal(encoding(x, Positions.grid(2, 3)), x + encoding.table[prefix:])
    corners = Positions.explicit(torch.tensor([[[1, 2], [0, 0], [1, 0]]]))
    assert torch.equal(encoding(x[:, :3], corners), x[:, :3] + encoding.table[[prefix + 5, prefix, prefix + 3]])


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("antialias", [False, True])
def test_the_same_size_is_the_identity(prefix: int, mode: Any, antialias: bool) -> None:
    encoding = LearnedGrid(dim=4, size=(3, 5), prefix=prefix)
    same = encoding.resize((3, 5), mode=mode, antialias=antialias)
    assert torch.equal(same.table, encoding.table)
    assert same.table.data_ptr() != encoding.table.data_ptr()


@pytest.mark.parametrize("prefix", [0, 1, 5])
@pytest.mark.parametrize("size", [(4, 5), (7, 3), (1, 1), (2, 9)])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
@pytest.mark.parametrize("antialias", [False, True])
def test_patches_are_resized_as_an_image_and_the_prefix_is_kept(
    prefix: int, size: tuple[int, int], mode: Any, antialias: bool
) -> None:
    encoding = LearnedGrid(dim=4, size=(3, 5), prefix=prefix)
    other = encoding.resize(size, mode=mode, antialias=antialias)
    assert other.size == size
    assert torch.equal(other.table[:prefix], encoding.table[:prefix])
    image = encoding.table.detach()[prefix:].view(3, 5, 4).permute(2, 0, 1)[None]
    expected = interpolate(image, size=size, mode=mode, align_corners=False, antialias=antialias)[0]
    assert torch.equal(other.table.detach()[prefix:].view(*size, 4).permute(2, 0, 1), expected)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.integers(1, 9))
def test_bilinear_resizing_is_the_formula(height: int, width: int, new_height: int, new_width: int) -> None:
    """A new patch's middle, carried into the old image, is read linearly between the four middles around it."""
    table = torch.randn(height * width, 2, dtype=torch.float64).float()
    resized = resize_grid(table, (height, width), (new_height, new_width), mode="bilinear")
    old = table.view(height, width, 2).double()

    def around(new: int, count: int, new_count: int) -> tuple[int, int, float]:
        place = max((new + 0.5) * count / new_count - 0.5, 0.0)
        low = min(int(place), count - 1)
        return low, min(low + 1, count - 1), place - low

    for row in range(new_height):
        for column in range(new_width):
            top, bottom, down = around(row, height, new_height)
            left, right, across = around(column, width, new_width)
            upper = (1 - across) * old[top, left] + across * old[top, right]
            lower = (1 - across) * old[bottom, left] + across * old[bottom, right]
            expected = (1 - down) * upper + down * lower
            assert torch.allclose(resized[row * new_width + column].double(), expected, rtol=0, atol=1e-5)


@given(st.integers(1, 6), st.integers(1, 6), st.integers(2, 9), st.integers(2, 9))
def test_aligned_corners_stay_as_they_are(height: int, width: int, new_height: int, new_width: int) -> None:
    """A new patch's place between the outer patches is the same share of the way as in the old image."""
    encoding = LearnedGrid(dim=2, size=(height, width), prefix=1).double()
    other = encoding.resize((new_height, new_width), mode="bilinear", align_corners=True)
    old, new = (each.table.detach()[1:].view(*each.size, 2) for each in (encoding, other))
    for row in range(new_height):
        for column in range(new_width):
            down, across = row * (height - 1) / (new_height - 1), column * (width - 1) / (new_width - 1)
            expected = sum(
                max(0.0, 1 - abs(down - top)) * max(0.0, 1 - abs(across - left)) * old[top, left]
                for top in range(height)
                for left in range(width)
            )
            assert torch.allclose(new[row, column], expected, rtol=0, atol=1e-9)  # type: ignore[arg-type]


def test_height_and_width_are_not_confused() -> None:
    encoding = LearnedGrid(dim=1, size=(2, 4))
    with torch.no_grad():
        encoding.table.copy_(torch.arange(2.0).repeat_interleave(4).unsqueeze(-1))  # each row of patches is constant
    taller = encoding.resize((6, 4), mode="bilinear").table.detach().view(6, 4)
    assert bool((taller == taller[:, :1]).all())
    assert taller[:, 0].tolist() == pytest.approx([0, 0, 1 / 3, 2 / 3, 1, 1], abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtype_and_mode_of_training_are_kept(dtype: torch.dtype) -> None:
    encoding = LearnedGrid(dim=4, size=(3, 3), prefix=1).to(dtype).eval()
    other = encoding.resize((4, 4))
    assert other.table.dtype == dtype
    assert not other.training
    assert other.config == {**encoding.config, "size": (4, 4)}


def test_a_float64_table_is_resized_in_float64() -> None:
    table = torch.randn(9, 2, dtype=torch.float64)
    image = table.view(3, 3, 2).permute(2, 0, 1)[None]
    expected = interpolate(image, size=(5, 4), mode="bicubic", align_corners=False)[0].permute(1, 2, 0)
    assert torch.allclose(resize_grid(table, (3, 3), (5, 4)), expected.reshape(20, 2), rtol=0, atol=1e-12)


def test_the_start_is_cut_off_at_two_deviations() -> None:
    table = LearnedGrid(dim=64, size=(16, 16), init_std=0.5).table.detach()
    assert float(table.abs().max()) <= 1.0
    assert float(table.std()) == pytest.approx(0.44, rel=0.03)  # that of a normal cut off at two deviations


def test_its_configuration_makes_it_again() -> None:
    encoding = LearnedGrid(dim=4, size=(2, 3), prefix=1, init_std=0.1)
    again = LearnedGrid(**encoding.config)
    again.load_state_dict(encoding.state_dict())
    assert again.config == encoding.config
    assert torch.equal(again.table, encoding.table)
    assert encoding.describe()["usable_length"] == 7
    assert encoding.describe()["parameters"] == 28


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim must be 1 or more, since it sizes the table; got 0."),
        ({"size": (0, 3)}, "size must be 1 or more, since a picture's patches are counted both ways; got 0."),
        ({"prefix": -1}, "prefix must be 0 or more, since it counts tokens before the patches; got -1."),
    ],
)
def test_sizes_of_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        LearnedGrid(**{"dim": 4, "size": (2, 3), "prefix": 1, **options})


def test_images_it_has_no_rows_for_are_refused() -> None:
    encoding = LearnedGrid(dim=4, size=(2, 3), prefix=1)
    outside = ("row 2, column 0", Positions.grid(3, 3)), ("row 0, column 3", Positions.grid(2, 4))
    negative = "row 1, column -1", Positions.explicit(torch.tensor([[[1, 2], [1, -1]]]))
    for where, positions in (*outside, negative):
        with raises_exactly(
            ValueError,
            f"positions must lie in a grid of 2 x 3, the table's size; got {where}. Use resize() for another size.",
        ):
            encoding(torch.zeros(1, positions.length, 4), positions)
    with raises_exactly(
        ValueError, "x must have 4 channels, since LearnedGrid was made with dim=4; got shape (1, 7, 5)."
    ):
        encoding(torch.zeros(1, 7, 5))
    with raises_exactly(
        TypeError, "positions must be whole numbers, since each picks a row of the table; got dtype torch.float32."
    ):
        encoding(torch.zeros(1, 1, 4), Positions.explicit(torch.tensor([[[0.5, 1.0]]])))


def test_the_cure_for_tokens_beyond_the_table_is_one_it_has() -> None:
    encoding = LearnedGrid(dim=4, size=(2, 3), prefix=1)
    with raises_exactly(
        ValueError,
        "positions must lie in 0 .. 6, since the table has a row for 7 positions; got 7. Use resize() for another "
        "size.",
    ):
        encoding(torch.zeros(1, 8, 4))


@pytest.mark.parametrize("size", [(3, 4, 5), (3,), 5, "34"], ids=str)
def test_a_size_that_is_no_height_and_width_is_refused(size: Any) -> None:
    for make in (lambda: LearnedGrid(dim=4, size=size), lambda: LearnedGrid(dim=4, size=(3, 4)).resize(size)):
        with raises_exactly(
            ValueError,
            f"size must be (height, width), since a picture's patches are counted both ways; got {size!r}.",
        ):
            make()


def test_half_a_patch_and_tokens_without_a_batch_are_refused() -> None:
    message = "size must be a whole number, since a picture's patches are counted both ways; got 3.5."
    with raises_exactly(TypeError, message):
        LearnedGrid(dim=4, size=(3.5, 4))  # type: ignore[arg-type]
    with raises_exactly(
        ValueError,
        "x must have shape (batch, sequence, 4), since LearnedGrid is added to embeddings; got shape (12, 4).",
    ):
        LearnedGrid(dim=4, size=(3, 4))(torch.zeros(12, 4))


def test_coordinates_of_a_video_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^positions must have .*; got 3 in Positions\(grid, 1 x 1 x 3, .*\)\.$"):
        LearnedGrid(dim=4, size=(2, 3))(torch.zeros(1, 3, 4), Positions.grid(1, 1, 3))


def test_sizes_and_modes_it_cannot_take_are_refused() -> None:
    encoding = LearnedGrid(dim=4, size=(2, 3))
    with raises_exactly(
        ValueError, ("size must be 1 or more, since a picture's patches are counted both ways; got 0.")
    ):
        encoding.resize((0, 3))
    with raises_exactly(
        ValueError,
        "mode must be one of 'bicubic', 'bilinear', since rows between patches are interpolated one of these ways; "
        "got 'nearest'.",
    ):
        encoding.resize((4, 4), mode="nearest")  # type: ignore[arg-type]


@pytest.mark.compiled
def test_a_patch_beyond_the_grid_is_refused_in_a_graph_too() -> None:
    torch._dynamo.reset()
    encoding = LearnedGrid(dim=4, size=(4, 4))
    compiled = torch.compile(lambda x, ids: encoding(x, ids), fullgraph=True, backend="eager")
    compiled(torch.zeros(1, 2, 4), torch.tensor([[[0, 3], [3, 0]]]))
    with raises_exactly(
        RuntimeError, "positions must lie in a grid of 4 x 4, the table's size. Use resize() for another size."
    ):
        compiled(torch.zeros(1, 2, 4), torch.tensor([[[0, 3], [0, 5]]]))
    torch._dynamo.reset()
