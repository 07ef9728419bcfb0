"""Images, as drawn: what one patch is to all others."""

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes

import situs
from situs import plots
from situs.lab.probing import portraits
from situs.lab.probing.sitters import sitters
from tests.plots.portraits.reading import MINUS, Numbers, drawn, extent, key, limits, names, panels, points, words
from tests.raising import raises_exactly
from tests.references import sinusoidal, swin

pytestmark = pytest.mark.once


def cells(height: int, width: int) -> Numbers:
    return np.array([(row, column) for row in range(height) for column in range(width)], dtype=float)


def marked(axes: Axes) -> tuple[float, float]:
    """The row and the column of the marked patch."""
    (line,) = axes.get_lines()
    (column,), (row,) = points(line)
    return row, column


def cosines(rows: Numbers) -> Numbers:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found: Numbers = unit @ unit.T
    return found


def test_cosines_to_nine_patches_are_those_of_the_paper() -> None:
    figure = plots.grid(situs.Sinusoidal(dim=32, axes=2), size=(6, 12))
    alike = cosines(sinusoidal.grid(cells(6, 12), 32))
    patches = [(row, column) for row in (1, 3, 4) for column in (2, 6, 9)]
    assert names(figure) == [(f"row {row}, column {column}", "") for row, column in patches]
    for axes, (row, column) in zip(panels(figure), patches, strict=True):
        assert np.allclose(drawn(axes), alike[12 * row + column].reshape(6, 12), atol=1e-5)
        assert drawn(axes)[row, column] == pytest.approx(1)
        assert extent(axes) == (-0.5, 11.5, 5.5, -0.5)
        assert marked(axes) == (row, column)
    assert len({limits(axes) for axes in panels(figure)}) == 1
    assert words(figure)[:2] == [
        "sinusoidal on an image of 6 × 12 patches",
        "cosine between the marked patch and all others",
    ]
    assert key(figure)[1] == "1"


def test_the_caption_tells_how_much_of_a_cross_there_is() -> None:
    alike = cosines(sinusoidal.grid(cells(14, 14), 32))[7 * 14 + 7].reshape(14, 14)
    beside = np.concatenate((np.delete(alike[7], 7), np.delete(alike[:, 7], 7)))
    rest = np.delete(np.delete(alike, 7, 0), 7, 1)
    assert words(plots.grid(situs.Sinusoidal(dim=32, axes=2)))[2] == (
        f"Patches of the same row or column as the middle one are more similar to it (mean {beside.mean():.2f}) than "
        f"others ({rest.mean():.2f})."
    )


def test_rotary_with_an_axial_split_is_drawn_from_contents() -> None:
    encoding = situs.Rotary(head_dim=16, split=situs.Axial())
    figure = plots.grid(encoding, size=(4, 5))
    alike = portraits.similarity(sitters(encoding)[0], situs.Positions.grid(4, 5))
    for axes in panels(figure):
        row, column = (int(each) for each in marked(axes))
        assert np.allclose(drawn(axes), alike[5 * row + column].view(4, 5))


def test_heads_with_one_map_are_drawn_once() -> None:
    bias = situs.SwinBias(num_heads=3, window=(5, 5))
    torch.nn.init.constant_(bias.table, 0.5)
    figure = plots.grid(bias)
    assert names(figure) == [("all heads", "")]
    assert "one map for all heads" in words(figure)[1]


@pytest.mark.parametrize("size", [None, (4, 6), (3, 2)])
def test_a_learned_grid_is_its_own_size_or_a_corner_of_it(size: tuple[int, int] | None) -> None:
    encoding = situs.LearnedGrid(dim=8, size=(4, 6), prefix=1)
    height, width = size or (4, 6)
    figure = plots.grid(encoding, size=size)
    table = encoding.table.detach().double()[1:].view(4, 6, 8)[:height, :width].reshape(-1, 8).numpy()
    alike = cosines(table)
    assert words(figure)[0] == f"learned_grid on an image of {height} × {width} patches"
    for axes in panels(figure):
        row, column = (int(each) for each in marked(axes))
        assert np.allclose(drawn(axes), alike[width * row + column].reshape(height, width), atol=1e-5)


def test_a_grid_of_noise_is_no_cross() -> None:
    encoding = situs.LearnedGrid(dim=64, size=(8, 8))
    alike = cosines(encoding.table.detach().double().numpy())[4 * 8 + 4].reshape(8, 8)
    beside = np.concatenate((np.delete(alike[4], 4), np.delete(alike[:, 4], 4))).mean()
    rest = np.delete(np.delete(alike, 4, 0), 4, 1).mean()
    said = (
        f"Patches of the same row or column as the middle one (mean {beside:.2f}) are not more similar to it than "
        f"others ({rest:.2f})."
    )
    assert words(plots.grid(encoding))[2] == said.replace("-", MINUS)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_window_is_drawn_by_head_from_its_middle(version: str) -> None:
    encoding = situs.SwinBias(num_heads=3, window=(4, 5), version=version, width=8)  # type: ignore[arg-type]
    figure = plots.grid(encoding)
    middle = np.array([[2, 2]])
    with torch.no_grad():
        if version == "v1":
            expected = swin.bias_v1(encoding.table.double().numpy(), (4, 5), middle, cells(4, 5).astype(int))
        else:
            first = encoding.hidden.weight.double().numpy(), encoding.hidden.bias.double().numpy()
            last = encoding.out.weight.double().numpy()
            expected = swin.bias_v2((4, 5), (4, 5), middle.astype(float), cells(4, 5), *first, last)
    assert names(figure) == [("head 1", ""), ("head 2", ""), ("head 3", "")]
    for axes, values in zip(panels(figure), expected, strict=True):
        assert np.allclose(drawn(axes), values.reshape(4, 5), atol=1e-4)
        assert extent(axes) == (-0.5, 4.5, 3.5, -0.5)
        assert marked(axes) == (2, 2)
    assert words(figure)[:2] == [
        "swin: bias from the marked patch to all others",
        f"what is added to the scores in a window of 4 × 5 patches, one map per head, version {version[1]}",
    ]
    assert key(figure)[0].startswith("added: ")


@pytest.mark.parametrize("size", [(1, 5), (5, 65), (0, 0), (5,)])
def test_sizes_that_show_nothing_or_too_much_are_refused(size: tuple[int, int]) -> None:
    with raises_exactly(
        ValueError,
        "size must be 2 to 64 patches each way, since fewer show nothing and more cannot be seen in a figure; "
        f"got {size}.",
    ):
        plots.grid(situs.Sinusoidal(dim=8, axes=2), size=size)


def test_sizes_beyond_the_encodings_own_are_refused_with_its_cure() -> None:
    with raises_exactly(
        ValueError,
        "positions must lie in a grid of 4 x 6, the table's size; got row 0, column 6. Use resize() for another size.",
    ):
        plots.grid(situs.LearnedGrid(dim=8, size=(4, 6)), size=(4, 7))
    with raises_exactly(
        ValueError,
        "positions must span at most 4 cells along axis 0, since SwinBias ends there; got 5. Use resize() for a larger "
        "window.",
    ):
        plots.grid(situs.SwinBias(num_heads=2, window=(4, 4)), size=(5, 4))
    with raises_exactly(
        ValueError,
        "size must be 2 to 64 patches each way, since fewer show nothing and more cannot be seen in a figure; "
        "got (65, 65).",
    ):
        plots.grid(situs.LearnedGrid(dim=8, size=(65, 65)))
