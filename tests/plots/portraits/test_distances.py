"""Biases and scores over distance, as drawn."""

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

import situs
from situs import plots
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter
from situs.plots.portraits.scores_axis import Curve, Curves
from situs.plots.style import Look
from tests.plots.portraits.reading import MINUS, Numbers, lines, names, panels, words, written
from tests.raising import raises_exactly
from tests.references import alibi, kerple, sandwich

pytestmark = pytest.mark.once

BEHIND = "how far the key lies behind the query"
CUT = f"Values below {MINUS}12 are cut off: such keys get almost no weight."


def bands(axes: Axes) -> list[Numbers]:
    found = [band for band in axes.collections if isinstance(band, PolyCollection)]
    return [np.asarray(band.get_paths()[0].vertices) for band in found]


def staircase(*heads: list[float]) -> situs.T5Bias:
    """A bias with a number of one's own for each of eight buckets, from near to far."""
    bias = situs.T5Bias(num_heads=len(heads), num_buckets=8, max_distance=32, bidirectional=False)
    with torch.no_grad():
        bias.table.copy_(torch.tensor(heads).T)
    return bias


def test_each_head_of_alibi_is_a_line_of_its_slope() -> None:
    figure = plots.distance(situs.ALiBi(num_heads=4), length=11)
    (axes,) = panels(figure)
    shown = lines(axes)
    assert list(shown) == ["head 1", "head 2", "head 3", "head 4"] == written(axes, "label")
    for (x, y), slope in zip(shown.values(), alibi.slopes(4), strict=True):
        assert x.tolist() == [*range(11)]
        assert np.allclose(y, -slope * np.arange(11))
    assert axes.get_xlim() == (0, 10)
    assert axes.get_ylim() == pytest.approx((-2.625, 0.125))
    assert axes.get_xlabel() == BEHIND
    assert written(axes, "number") == [f"{MINUS}2.5", f"{MINUS}0.62", f"{MINUS}0.16", f"{MINUS}0.039"]
    assert written(axes, "heading") == ["at 10"]
    assert words(figure) == [
        "alibi: what is added to the scores, by distance",
        "one line per head, relative to distance 0",
        f"Heads differ. At the greatest distance head 1 adds {MINUS}2.5 and head 4 {MINUS}0.039.",
    ]


def test_lines_leave_at_the_floor_and_the_caption_says_so() -> None:
    figure = plots.distance(situs.ALiBi(num_heads=4), length=2000)
    (axes,) = panels(figure)
    assert axes.get_ylim()[0] == -12
    assert lines(axes)["head 1"][1][-1] == pytest.approx(-1999 / 4)
    assert written(axes, "number")[0] == f"{MINUS}500"
    assert words(figure)[2].endswith(f" and head 4 {MINUS}7.8. {CUT}")
    assert CUT not in words(plots.distance(situs.ALiBi(num_heads=4), length=48))[2]  # -11.75 at most


def test_of_many_heads_some_are_drawn_from_the_first_to_the_last() -> None:
    (axes,) = panels(plots.distance(situs.ALiBi(num_heads=32), length=8))
    shown = lines(axes)
    assert len(shown) == 8
    assert [*shown][::7] == ["head 1", "head 32"]
    for name, (_, y) in shown.items():
        assert y[-1] == pytest.approx(-7 * alibi.slopes(32)[int(name.removeprefix("head ")) - 1])


def test_a_single_head_has_a_sentence_of_its_own() -> None:
    assert (
        words(plots.distance(situs.ALiBi(num_heads=1), length=5))[2]
        == f"It adds {MINUS}0.016 at the greatest distance."
    )


def test_what_a_single_encoding_adds_everywhere_is_not_drawn() -> None:
    steps = [float(step) for step in range(8)]
    figure = plots.distance(staircase([5 - step for step in steps], [9 - step for step in steps]), length=64)
    (axes,) = panels(figure)
    assert list(lines(axes)) == ["all heads"] == written(axes, "label")
    for _, y in lines(axes).values():
        assert (y[0], y[1], y[-1]) == (0, -1, -7)
    assert words(figure)[1:] == [
        "one line for all heads, relative to distance 0",
        f"All heads add {MINUS}7 at the greatest distance.",
    ]
    both = {name: staircase([3 - step for step in steps]) for name in "ab"}
    assert words(plots.distance(both, length=64))[2] == f"All add {MINUS}7 at the greatest distance."


def test_heads_with_one_curve_are_drawn_once() -> None:
    falling, rising = ([sign * step for step in map(float, range(8))] for sign in (-1, 1))
    figure = plots.distance(staircase(falling, rising, falling, falling), length=64)
    (axes,) = panels(figure)
    assert list(lines(axes)) == ["heads 1, 3, 4", "head 2"]
    assert words(figure)[1:] == [
        "one line per head, relative to distance 0",
        f"Heads differ. At the greatest distance heads 1, 3, 4 add {MINUS}7 and head 2 +7.",
    ]
    alike = staircase(*[falling] * 12)
    assert names(plots.bias(alike, length=8)) == [("all heads", "")]
    assert list(lines(panels(plots.decay(alike, length=8))[0])) == ["all heads"]


def test_several_encodings_are_means_of_heads_against_distance_zero() -> None:
    learned = situs.Kerple(num_heads=3)
    figure = plots.distance([situs.ALiBi(num_heads=4), learned, situs.Sandwich(num_heads=2, cosine_dim=8)], length=20)
    (axes,) = panels(figure)
    at = np.arange(20.0)
    by_head = {
        "alibi": alibi.bias(alibi.slopes(4), alibi.slopes(4), at[-1:], at)[:, 0, ::-1],
        "kerple": kerple.bias(
            learned.r1.detach().double().numpy(), learned.r2.detach().double().numpy(), at[-1:], at, "log"
        )[:, 0, ::-1],
        "sandwich": sandwich.bias(2, at[-1:], at, 8)[:, 0, ::-1],
    }
    shown = lines(axes)
    assert list(shown) == list(by_head)
    for (name, expected), band in zip(by_head.items(), bands(axes), strict=True):
        against = expected - expected[:, :1]
        assert np.allclose(shown[name][1], against.mean(0), atol=1e-5), name
        assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((against.min(), against.max()), abs=1e-5)
    last = {name: float(y[-1]) for name, (_, y) in shown.items()}
    lowest, highest = min(last, key=lambda name: last[name]), max(last, key=lambda name: last[name])
    low, high = (written(axes, "number")[list(by_head).index(name)] for name in (lowest, highest))
    assert words(figure) == [
        "alibi, kerple, sandwich: what is added to the scores, by distance",
        "mean of heads, relative to distance 0; bands: all heads",
        f"At the greatest distance {lowest} adds {low} and {highest} {high}.",
    ]


def test_more_bands_than_one_can_see_through_are_not_drawn() -> None:
    figure = plots.distance([situs.ALiBi(num_heads=heads) for heads in (2, 4, 8, 16)], length=20)
    (axes,) = panels(figure)
    assert bands(axes) == []
    assert list(lines(axes)) == ["alibi", "alibi (2)", "alibi (3)", "alibi (4)"]
    assert words(figure)[1] == "mean of heads, relative to distance 0"


def test_decay_is_drawn_with_where_nine_of_ten_tokens_lie() -> None:
    encoding = situs.Rotary(head_dim=16)
    figure = plots.decay(encoding, length=30)
    (axes,) = panels(figure)
    found = portraits.decay(Sitter("rotary", (encoding,)), torch.arange(30))
    start = found.mean[0, 0]
    x, y = lines(axes)["rotary"]
    assert x.tolist() == [*range(30)]
    assert np.allclose(y, found.mean[0] - start, atol=1e-6)
    assert y[0] == 0
    (band,) = bands(axes)
    assert band[:, 1].min() == pytest.approx(float((found.low[0] - start).min()), abs=1e-5)
    assert band[:, 1].max() == pytest.approx(float((found.high[0] - start).max()), abs=1e-5)
    assert axes.get_xlabel() == BEHIND
    assert words(figure) == [
        "How scores fall with distance: rotary",
        "mean score of a token with itself, relative to distance 0; bands: 90 % of tokens",
        "The score goes up and down, and ends lower.",
    ]
    both = plots.decay([situs.Rotary(head_dim=16), situs.ALiBi(num_heads=2)], length=30)
    assert words(both)[1].endswith("; bands: 90 % of tokens, or all heads")


def test_decay_of_a_bias_alone_is_drawn_by_head() -> None:
    figure = plots.decay(situs.ALiBi(num_heads=4), length=30)
    (axes,) = panels(figure)
    for (_, y), slope in zip(lines(axes).values(), alibi.slopes(4), strict=True):
        assert np.allclose(y, -slope * np.arange(30), atol=1e-4)
    assert bands(axes) == []
    assert words(figure)[1:] == [
        "mean score of a token with itself, relative to distance 0",
        "All heads fall at every step.",
    ]


def test_decay_of_several_tells_which_go_up_and_down() -> None:
    figure = plots.decay({"a bias": situs.ALiBi(num_heads=4), "turns": situs.Rotary(head_dim=8)}, length=30)
    (axes,) = panels(figure)
    assert np.allclose(lines(axes)["a bias"][1], -alibi.slopes(4).mean() * np.arange(30), atol=1e-4)
    first, _ = bands(axes)
    assert first[:, 1].min() == pytest.approx(-29 / 4, abs=1e-3)
    title, _, caption = words(figure)
    assert title == "How scores fall with distance"
    assert caption == "a bias falls at every step; turns goes up and down, and ends lower."
    falling = {name: situs.ALiBi(num_heads=2) for name in "ab"}
    assert words(plots.decay(falling, length=9))[2] == "All curves fall at every step."


def test_long_texts_are_drawn_at_some_distances_to_the_last() -> None:
    (axes,) = panels(plots.decay(situs.Rotary(head_dim=8), length=5000))
    x, _ = lines(axes)["rotary"]
    assert len(x) == 512
    assert (x[0], x[-1]) == (0, 4999)
    assert float(np.diff(x).max()) <= 10
    assert written(axes, "heading") == ["at 4,999"]


def test_the_floor_lies_below_the_highest_line() -> None:
    x, look = np.arange(3.0), dict[str, Look]()
    assert Curves([Curve("a", x, -5 * x)], look).floor == -12
    assert Curves([Curve("a", x, 5 * x)], look).floor == -12
    low = Curves([Curve("a", x, -20 - x), Curve("b", x, -30 - x)], look)
    assert (low.floor, low.cut) == (-32, False)
    assert Curves([Curve("a", x, -20 - x), Curve("b", x, -31 - x)], look).cut


WAYS: dict[str, list[float]] = {
    "stays constant": [1.0] * 8,
    "falls at every step": [0.0, -1, -1, -2, -3, -3, -4, -5],
    "rises at every step": [0.0, 1, 1, 2, 3, 4, 5, 6],
    "goes up and down, and ends lower": [0.0, -1, 1, -2, 3, 2, 1, -1],
    "goes up and down": [0.0, -1, 1, -2, 3, 2, 1, 0.5],
}


@pytest.mark.parametrize("way", WAYS)
def test_decay_says_which_way_scores_go(way: str) -> None:
    assert words(plots.decay(staircase(WAYS[way]), length=64))[2] == f"The score {way}."


def test_what_rises_by_little_at_each_step_does_not_fall() -> None:
    little = [5e-5 * step for step in range(8)]
    assert words(plots.decay(staircase(little), length=64))[2] == "The score rises at every step."
    assert words(plots.decay(staircase(little[::-1]), length=64))[2] == "The score falls at every step."


def test_heads_that_go_the_same_way_are_told_together() -> None:
    stays, falls, rises, down, sways = WAYS.values()
    said = words(plots.decay(staircase(stays, falls, down, falls, rises, sways), length=64))[2]
    assert said == (
        "head 1 stays constant; heads 2, 4 fall at every step; head 3 goes up and down, and ends lower; head 5 "
        "rises at every step; head 6 goes up and down."
    )
    for way, plural in (
        (stays, "stay constant"),
        (rises, "rise at every step"),
        (down, "go up and down, and end lower"),
    ):
        assert words(plots.decay(staircase(way, way), length=64))[2] == f"All heads {plural}."


def test_heads_with_a_base_of_their_own_are_drawn_one_by_one() -> None:
    encoding = situs.Rotary(head_dim=16, base=(100.0, 10000.0))
    (axes,) = panels(plots.decay(encoding, length=30))
    found = portraits.decay(Sitter("rotary", (encoding,)), torch.arange(30)).mean
    shown = lines(axes)
    assert list(shown) == ["head 1", "head 2"]
    for (_, y), expected in zip(shown.values(), found, strict=True):
        assert np.allclose(y, expected - expected[0], atol=1e-5)
    assert list(lines(panels(plots.decay(situs.Rotary(head_dim=16), length=8))[0])) == ["rotary"]


def test_cope_is_drawn_as_far_as_every_key_can_be_looked_at() -> None:
    encoding = situs.CoPE(num_heads=1, head_dim=4, max_position=8)
    assert lines(panels(plots.decay(encoding, length=4096))[0])["cope"][0][-1] == 4095
    with raises_exactly(
        ValueError, "length must be 4,096 or less for cope, since it looks at every key between; got 4,097."
    ):
        plots.decay(encoding, length=4097)
