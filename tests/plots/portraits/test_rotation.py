"""Rotation and speeds: arrows end where the paper's rotation puts them."""

import math
from typing import Any

import numpy as np
import pytest

import situs
from situs import plots
from tests.plots.portraits.reading import Numbers, arrows, lines, names, panels, points, words, written
from tests.raising import raises_exactly
from tests.references import rotary, xpos

pytestmark = pytest.mark.once

ROTARY = situs.Rotary(head_dim=16)
EQUAL = "The angle between two arrows depends only on the distance between their positions."
TURNS = "4.9 full rotations in all: alone, this pair cannot distinguish all positions."


def turned(pair: int, positions: Any) -> Numbers:
    angles = np.asarray(positions) * rotary.frequencies(16)[pair]
    found: Numbers = np.stack((np.cos(angles), np.sin(angles)), 1)
    return found


def test_arrows_end_where_the_vector_stands_at_each_position() -> None:
    figure = plots.rotation(ROTARY, length=6, pair=2)
    vector, _ = panels(figure)
    assert np.allclose(arrows(vector), turned(2, range(6)), atol=1e-6)
    assert written(vector, "position") == ["0", "1", "2", "3", "4", "5"]
    assert names(figure) == [("the vector", "at positions 0 to 5")]
    assert vector.get_xlim() == vector.get_ylim() == pytest.approx((-1.22, 1.22))
    assert words(figure) == [
        "rotary: a vector rotated by its position",
        "pair 2 of 8, rotated by 0.1 radians per position",
        f"{EQUAL} The vector keeps its length.",
    ]


def test_beside_them_are_both_channels_over_positions() -> None:
    _, channels = panels(plots.rotation(ROTARY, length=6, pair=1))
    shown = lines(channels)
    assert list(shown) == ["first channel", "second channel"]
    for number, (x, y) in enumerate(shown.values()):
        assert (x[0], x[-1], len(x)) == (0, 5, 240)
        assert np.allclose(y, turned(1, x)[:, number], atol=1e-6)
    whole = [points(line) for line in channels.get_lines() if str(line.get_label()).startswith("_")]
    assert [x.tolist() for x, _ in whole] == [[*range(6)]] * 2
    assert all(np.allclose(y, turned(1, range(6))[:, number], atol=1e-6) for number, (_, y) in enumerate(whole))
    assert channels.get_xlabel() == "position"
    legend = channels.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["first channel", "second channel"]


def test_the_pair_is_one_that_eight_arrows_show_well_unless_chosen() -> None:
    steps = np.abs(rotary.frequencies(64) - math.tau / 16)
    encoding = situs.Rotary(head_dim=64)
    assert words(plots.rotation(encoding))[1].startswith(f"pair {steps.argmin()} of 32, rotated by 0.422 radians")
    assert np.allclose(arrows(panels(plots.rotation(encoding))[0])[1], (math.cos(0.4217), math.sin(0.4217)), atol=1e-4)


@pytest.mark.parametrize("pair", [8, -1])
def test_a_pair_that_does_not_turn_is_refused(pair: int) -> None:
    with raises_exactly(ValueError, f"pair must be one of 0 .. 7, since so many pairs rotate; got {pair}."):
        plots.rotation(ROTARY, pair=pair)
    with raises_exactly(ValueError, "pair must be one of 0 .. 3, since so many pairs rotate; got 4."):
        plots.rotation(situs.Rotary(head_dim=16, rotary_dim=8), pair=4)


def test_lengths_that_change_are_told() -> None:
    figure = plots.rotation(situs.XPos(head_dim=16), length=32, pair=0)
    last = xpos.scales(16)[0] ** (31 / 512)
    assert np.hypot(*arrows(panels(figure)[0]).T)[-1] == pytest.approx(last)
    assert words(figure)[2] == f"{TURNS} Queries are scaled from 1 to {last:.3g}, keys by the inverse."
    yarn = situs.Rotary(head_dim=16, scaling=situs.YaRN(factor=8.0, original_length=64))
    longer = 0.1 * math.log(8) + 1
    figure = plots.rotation(yarn)
    assert np.hypot(*arrows(panels(figure)[0]).T)[[0, -1]] == pytest.approx([longer] * 2)
    assert words(figure)[2] == f"{EQUAL} The vector is {longer:.3g} times as long."
    assert panels(figure)[0].get_xlim()[1] == pytest.approx(1.22 * longer)


def test_values_are_rotated_alike_and_the_output_back_or_not() -> None:
    for back, said in (
        (True, "Values are rotated so, and outputs back by the query's position: the difference remains."),
        (False, "Values are rotated so, and outputs are not rotated back: they depend on absolute positions."),
    ):
        figure = plots.rotation(situs.RotaryValue(head_dim=8, value_dim=16, rotate_back=back), length=6, pair=2)
        assert np.allclose(arrows(panels(figure)[0]), turned(2, range(6)), atol=1e-6)
        assert words(figure)[2] == f"{EQUAL} The vector keeps its length. {said}"
    assert names(plots.speeds(situs.RotaryValue(head_dim=16))) == names(plots.speeds(ROTARY))
    (axes,) = panels(plots.wavelengths(situs.RotaryValue(head_dim=16)))
    assert np.allclose(lines(axes)["rotary_value"][1], math.tau / rotary.frequencies(16))


def test_every_pair_has_its_own_speed() -> None:
    figure = plots.speeds(ROTARY, length=5)
    waves = math.tau / rotary.frequencies(16)
    shown = names(figure)
    assert shown[0] == ("pair 0", "6.3 per rotation")
    assert shown[-1] == ("pair 7", f"{waves[7]:,.0f} per rotation") == ("pair 7", "19,869 per rotation")
    for axes, (name, said) in zip(panels(figure), shown, strict=True):
        pair = int(name.removeprefix("pair "))
        assert np.allclose(arrows(axes), turned(pair, range(5)), atol=1e-6)
        assert said == f"{waves[pair]:,.{1 if waves[pair] < 100 else 0}f} per rotation"
    assert words(figure)[:2] == [
        "rotary: every pair rotates at its own speed",
        "the vector (1, 0) of each pair at positions 0 to 4; beside each name: positions per full rotation",
    ]


def test_of_many_pairs_the_fast_ones_are_shown_and_the_slowest() -> None:
    shown = [int(name.removeprefix("pair ")) for name, _ in names(plots.speeds(situs.Rotary(head_dim=128), length=8))]
    waves = math.tau / rotary.frequencies(128)
    assert shown[0] == 0
    assert shown[-1] == 63
    assert shown == sorted(set(shown))
    assert len(shown) == 8
    assert waves[shown[-2]] < 60 * 8 <= waves[shown[-2] + 1]
    assert [name for name, _ in names(plots.speeds(situs.Rotary(head_dim=4)))] == ["pair 0", "pair 1"]


def test_a_pair_that_stands_still_is_said_to() -> None:
    figure = plots.speeds(situs.Rotary(head_dim=16, scaling=situs.ProportionalScaling(fraction=0.5)), length=5)
    assert names(figure)[-1] == ("pair 7", "not rotated")
    assert np.allclose(arrows(panels(figure)[-1]), [(1, 0)] * 5)


def test_past_a_full_turn_arrows_do_not_tell_distances() -> None:
    within, beyond = (words(plots.rotation(ROTARY, length=length, pair=0))[2] for length in (7, 8))
    assert within == f"{EQUAL} The vector keeps its length."
    assert beyond == (
        "1.1 full rotations in all: alone, this pair cannot distinguish all positions. The vector keeps its length."
    )
