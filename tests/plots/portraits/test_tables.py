"""Tables, single channels and likeness of places, as drawn."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import situs
from situs import plots
from tests.plots.portraits.reading import (
    MINUS,
    Numbers,
    drawn,
    extent,
    key,
    limits,
    panels,
    points,
    words,
)
from tests.raising import raises_exactly
from tests.references import sinusoidal

pytestmark = pytest.mark.once

SINES = situs.Sinusoidal(dim=16)


def sines(length: int) -> Numbers:
    return sinusoidal.table(np.arange(length, dtype=float), 16)


def test_the_table_is_drawn_position_by_channel() -> None:
    figure = plots.table(SINES, length=40)
    (axes,) = panels(figure)
    assert np.allclose(drawn(axes), sines(40), atol=1e-6)
    assert extent(axes) == (-0.5, 15.5, 39.5, -0.5)
    assert limits(axes) == pytest.approx((-1, 1), abs=1e-3)
    assert words(figure)[:2] == [
        "What sinusoidal adds to the input",
        "rows: positions; columns: channels; colour: the number that is added",
    ]
    assert key(figure) == [f"added: {MINUS}1", "1"]


@pytest.mark.parametrize("length", [6, 7, 40, 2048])
def test_the_caption_counts_the_waves_that_do_not_end(length: int) -> None:
    waves = 2 * np.pi * 10000 ** (np.arange(8) / 8)
    expected = (
        "Fast channels distinguish neighbours, slow ones distant parts of the text: "
        f"{int((waves > length).sum())} of 8 pairs make less than one wave within {length:,} positions."
    )
    assert words(plots.table(SINES, length=length))[2] == expected


def test_a_learned_table_is_drawn_to_its_end_if_no_length_is_asked_for() -> None:
    encoding = situs.Learned(dim=8, max_length=20, offset=2)
    figure = plots.table(encoding)
    (axes,) = panels(figure)
    assert np.allclose(drawn(axes), encoding.table.detach()[2:])
    assert extent(axes) == (-0.5, 7.5, 17.5, -0.5)
    assert words(figure)[2] == (
        "Each position has its own vector. Only positions that occur in training learn, and there is nothing beyond "
        "the table's last row."
    )
    with raises_exactly(
        ValueError,
        "positions must lie in 0 .. 17, since the table has a row for 18 positions; got 18. Use extend() for a longer "
        "table.",
    ):
        plots.table(encoding, length=19)


def test_channels_are_drawn_one_a_strip_with_their_waves() -> None:
    figure = plots.dimensions(SINES, length=50, channels=(15, 0, 2))
    strips = panels(figure)
    assert [axes.get_label() for axes in strips] == ["channel 15", "channel 0", "channel 2"]
    for axes, channel in zip(strips, (15, 0, 2), strict=True):
        x, y = points(axes.get_lines()[0])
        assert x.tolist() == [*range(50)]
        assert np.allclose(y, sines(50)[:, channel], atol=1e-6)
        assert axes.get_xlim() == (0, 49)
        assert axes.get_ylim() == pytest.approx((-1.1, 1.1), abs=2e-3)
    beside = [[text.get_text() for text in axes.texts] for axes in strips]
    assert beside == [
        ["channel 15", "1.99e+04 positions per wave"],
        ["channel 0", "6.28 positions per wave"],
        ["channel 2", "19.9 positions per wave"],
    ]
    assert [axes.get_xlabel() for axes in strips] == ["", "", "position"]
    assert words(figure)[:2] == [
        "Single channels of sinusoidal",
        f"the number that is added at each position, from {MINUS}1 to 1",
    ]


def test_waves_are_those_of_the_layout() -> None:
    figure = plots.dimensions(situs.Sinusoidal(dim=17, layout="concatenated"), length=8, channels=(1, 9, 16))
    beside = [axes.texts[1].get_text() for axes in panels(figure)]
    assert beside[0] == beside[1] == "19.9 positions per wave"
    odd = plots.dimensions(situs.Learned(dim=4, max_length=8))
    assert [axes.get_label() for axes in panels(odd)] == ["channel 0", "channel 1"]
    assert [axes.texts[1].get_text() for axes in panels(odd)] == ["", ""]


@pytest.mark.parametrize("channels", [(16,), (0, -1), ()])
def test_channels_that_are_not_there_are_refused(channels: tuple[int, ...]) -> None:
    with raises_exactly(
        ValueError,
        f"channels must be one or more of 0 .. 15, since sinusoidal has that many; got {channels}.",
    ):
        plots.dimensions(SINES, channels=channels)


def test_likeness_of_places_is_a_map_and_a_line_from_the_middle() -> None:
    figure = plots.similarity(SINES, length=30)
    map_, curve = panels(figure)
    rows = sines(30) / np.linalg.norm(sines(30), axis=1, keepdims=True)
    assert np.allclose(drawn(map_), rows @ rows.T, atol=1e-5)
    assert extent(map_) == (-0.5, 29.5, 29.5, -0.5)
    x, y = points(curve.get_lines()[1])
    assert x.tolist() == [*range(-15, 15)]
    assert np.allclose(y, (rows @ rows.T)[15], atol=1e-5)
    assert curve.get_xlim() == (-15, 14)
    assert curve.get_xlabel() == "offset from position 15"
    near, far = rows[15] @ rows[14], rows[15] @ rows[0]
    assert words(figure) == [
        "sinusoidal: how similar positions are",
        "cosine between the vectors that two positions add",
        f"Constant along diagonals: only the distance counts. Neighbours have {near:.2f}, positions 15 apart "
        f"{far:.2f}.",
    ]
    assert key(figure)[1] == "1"


def test_places_of_a_learned_table_are_unlike_in_their_own_way() -> None:
    encoding = situs.Learned(dim=8, max_length=20)
    figure = plots.similarity(encoding)
    rows = torch.nn.functional.normalize(encoding.table.detach().double(), dim=-1).numpy()
    alike = rows @ rows.T
    spread = max(float(np.ptp(np.diagonal(alike, apart))) for apart in (1, 5))
    assert words(figure)[2] == (
        f"Pairs of positions at the same distance differ: their cosines by up to {spread:.2g}. Seen from "
        f"position 10, the one before it has {alike[10, 9]:.2f}, and position 0 {alike[10, 0]:.2f}."
    ).replace("-", MINUS)


def test_what_acts_on_queries_and_keys_is_said_to_be_of_contents() -> None:
    class Swap(situs.QueryKeyEncoding):
        def forward(self, x: Tensor, positions: Any = None, *, role: Any = "query") -> Tensor:
            return x if role == "query" else -x

    for encoding in (situs.Rotary(head_dim=8), Swap()):
        figure = plots.similarity(encoding, length=8)
        assert words(figure)[1] == "mean score of a vector of length 1 with itself, at two positions"
        assert key(figure)[0].startswith("score: ")
    assert np.allclose(drawn(panels(plots.similarity(Swap(), length=8))[0]), -1)


def test_of_a_table_of_ones_own_nothing_is_said_that_may_not_hold() -> None:
    class Halves(situs.InputEncoding):
        def forward(self, x: Tensor, positions: Any = None) -> Tensor:
            return x + situs.Positions.of(positions, x.shape[-2]).ids[..., None] / 2

    assert words(plots.table(Halves(), length=8))[2] == "Each row is the vector that is added at that position."


def test_what_tells_places_apart_on_queries_and_keys_is_said_to() -> None:
    class Grow(situs.QueryKeyEncoding):
        def forward(self, x: Tensor, positions: Any = None, *, role: Any = "query") -> Tensor:
            return x * (1 + situs.Positions.of(positions, x.shape[-2]).ids[..., None].float())

    figure = plots.similarity(Grow(), length=8)
    at = 1 + np.arange(8.0)
    assert np.allclose(drawn(panels(figure)[0]), np.outer(at, at), atol=1e-3)
    assert words(figure)[2] == (
        "Pairs of positions at the same distance differ: their scores by up to 54. Seen from position 4, the one "
        "before it has 20.00, and position 0 5.00."
    )


def test_xpos_is_as_alike_at_one_distance_wherever_it_is() -> None:
    figure = plots.similarity(situs.XPos(head_dim=16), length=64)
    values = drawn(panels(figure)[0])
    assert max(float(np.ptp(np.diagonal(values, apart))) for apart in range(-63, 64)) < 1e-5
    assert words(figure)[2] == (
        f"Constant along diagonals: only the distance counts. Neighbours have {values[32, 31]:.2f}, positions 32 apart "
        f"{values[32, 0]:.2f}."
    )
