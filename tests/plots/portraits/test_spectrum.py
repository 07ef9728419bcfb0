"""Wavelengths and scalings, as drawn, beside the papers' frequencies."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes

import situs
from situs import plots
from situs.lab.naming import parse
from situs.lab.probing import portraits
from situs.lab.probing.sitters import sitters, sitters_of
from situs.plots.portraits.spectrum import PHI
from tests.plots.portraits.reading import lines, panels, points, words, written
from tests.raising import raises_exactly
from tests.references import rotary, scaling, sinusoidal

pytestmark = pytest.mark.once

ROTARY = situs.Rotary(head_dim=16)
TURNS = (
    "pairs make less than one full rotation within the training length: at longer lengths they reach angles that never "
    "occurred in training."
)


def trained(axes: Axes) -> float:
    """The height of the line at the training length."""
    (line,) = (line for line in axes.get_lines() if line.get_gid() == "training")
    _, y = points(line)
    assert y[0] == y[1]
    return float(y[0])


def test_each_pair_is_at_its_wavelength_and_training_has_a_line() -> None:
    figure = plots.wavelengths(ROTARY, train_length=100)
    (axes,) = panels(figure)
    x, y = lines(axes)["rotary"]
    assert x.tolist() == [*range(8)]
    assert np.allclose(y, math.tau / rotary.frequencies(16))
    assert axes.get_yscale() == "log"
    assert trained(axes) == 100
    assert axes.patches[0].get_extents().transformed(axes.transData.inverted()).ymin == pytest.approx(100)
    assert axes.get_ylim() == pytest.approx((4 / 1.3, 1.6 * math.tau * 10000 ** (14 / 16)))
    assert axes.get_xlabel() == "pair of channels"
    assert (written(axes, "label"), written(axes, "number"), written(axes, "heading")) == (
        ["rotary"], ["5 of 8"], ["above"],
    )  # fmt: skip
    assert "longer than the 100 positions of training" in [text.get_text() for text in axes.texts]
    assert words(figure) == [
        "Wavelengths",
        "positions that a pair takes for one full rotation; beside each name: pairs that take longer than training",
        f"5 of 8 {TURNS}",
    ]


def test_several_are_overlaid_and_scalings_are_spoken_of() -> None:
    yarn = situs.Rotary(head_dim=16, scaling=situs.YaRN(factor=4.0, original_length=100))
    sines = situs.Sinusoidal(dim=32)
    figure = plots.wavelengths({"plain": ROTARY, "stretched": yarn, "sines": sines}, train_length=100)
    (axes,) = panels(figure)
    shown = lines(axes)
    assert list(shown) == ["plain", "stretched", "sines"] == written(axes, "label")
    assert np.allclose(shown["stretched"][1], math.tau / scaling.yarn(16, 10000.0, 4.0, 100)[0])
    assert np.allclose(shown["sines"][1], math.tau / sinusoidal.frequencies(32, 10000.0, "interleaved", "exclusive"))
    assert axes.get_xlim() == (-0.6, 15.6)
    assert len({str(line.get_color()) for line in axes.get_lines() if line.get_label() in shown}) == 3
    assert words(figure)[2] == (
        f"Some {TURNS} Scalings slow pairs down, so that a longer text stays within the angles of training."
    )


def test_who_is_slow_is_named_beside_others() -> None:
    fast = situs.Rotary(head_dim=16, base=10.0)
    linear = situs.Rotary(head_dim=16, scaling=situs.LinearScaling(factor=4.0))
    slows = "Scalings slow pairs down, so that a longer text stays within the angles of training."
    turn = "All pairs make a full rotation within the training length: longer texts bring no new angles."
    for encodings, said in (
        ({"fast": fast, "slow": ROTARY}, "5 of 8 " + TURNS.replace("pairs", "pairs of slow")),
        ({"linear": linear}, slows),
        ({"fast": fast, "linear": linear}, f"{turn} {slows}"),
        ({"slow": ROTARY, "linear": linear}, f"5 of 8 {TURNS.replace('pairs', 'pairs of slow')} {slows}"),
    ):
        assert words(plots.wavelengths(encodings, train_length=100))[2] == said


def test_bare_names_of_scalings_give_lines_that_differ() -> None:
    names = ["rotary", *(f"rotary+{name}" for name in ("linear", "ntk", "ntk_by_parts", "yarn", "llama3"))]
    (axes,) = panels(plots.wavelengths(sitters_of([parse(name) for name in names], {}, length=2)))
    shown = {name: y for name, (_, y) in lines(axes).items()}
    plain = rotary.frequencies(64)
    expected = {
        "rotary": plain,
        "rotary+linear": plain / 4,
        "rotary+ntk": scaling.ntk(64, 10000.0, 4.0)[0],
        "rotary+yarn": scaling.yarn(64, 10000.0, 4.0, 2048)[0],
        "rotary+llama3": scaling.llama3(64, 10000.0, 4.0, 1.0, 4.0, 2048)[0],
    }
    for name, frequencies in expected.items():
        assert np.allclose(shown[name], math.tau / frequencies), name
    assert np.allclose(shown["rotary+ntk_by_parts"], shown["rotary+yarn"])  # yarn adds a factor of scores alone
    for one, other in itertools.combinations(expected, 2):
        assert float(np.abs(shown[one] / shown[other] - 1).max()) > 0.4, (one, other)


def test_the_length_of_the_text_counts_for_scalings_that_choose_by_it() -> None:
    encoding = situs.Rotary(head_dim=16, scaling=situs.DynamicNTKScaling(factor=1.0, original_length=100))
    short, long = (
        lines(panels(plots.wavelengths(encoding, train_length=100, length=length))[0])["rotary+DynamicNTK"][1]
        for length in (None, 400)
    )
    assert np.allclose(short, math.tau / rotary.frequencies(16))
    assert np.allclose(long, math.tau / scaling.dynamic_ntk(16, 10000.0, 1.0, 100, 400)[0])


def test_pairs_that_stand_still_leave_the_name_where_the_line_ends() -> None:
    (axes,) = panels(plots.wavelengths(situs.Rotary(head_dim=16, scaling=situs.ProportionalScaling(fraction=0.5))))
    assert written(axes, "label") == ["rotary+Proportional"]
    assert written(axes, "number") == ["0 of 8"]  # those that turn do so within 2,048
    with raises_exactly(
        ValueError, "wavelengths needs pairs that rotate, since others have no wavelength; got rotary+Proportional."
    ):
        plots.wavelengths(situs.Rotary(head_dim=16, scaling=situs.ProportionalScaling(fraction=0.0)))


def test_where_all_pairs_turn_in_training_the_caption_says_so() -> None:
    figure = plots.wavelengths(ROTARY, train_length=20_000)
    assert words(figure)[2] == (
        "All pairs make a full rotation within the training length: longer texts bring no new angles."
    )
    assert trained(panels(figure)[0]) == 20_000


@pytest.fixture(scope="module")
def scaled() -> Any:
    """Rotary with as many pairs as Phi's search found factors for."""
    return plots.scalings(situs.Rotary(head_dim=96), train_length=64, length=1024)


def test_scalings_slow_pairs_as_their_papers_say(scaled: Any) -> None:
    over_pairs, _ = panels(scaled)
    plain = rotary.frequencies(96)
    expected = {
        "plain": np.ones(48),
        "linear (PI)": np.full(48, 16.0),
        "NTK": plain / scaling.ntk(96, 10000.0, 16.0)[0],
        "YaRN": plain / scaling.yarn(96, 10000.0, 16.0, 64)[0],
        "Llama 3": plain / scaling.llama3(96, 10000.0, 16.0, 1.0, 4.0, 64)[0],
        "LongRoPE (Phi-3.5)": np.array(PHI),
    }
    shown = lines(over_pairs)
    assert list(shown) == list(expected)
    for name, (x, y) in shown.items():
        assert x.tolist() == [*range(48)]
        assert np.allclose(y, expected[name]), name
    assert over_pairs.get_yscale() == "log"
    assert over_pairs.get_xlabel() == "pair of channels"
    (legend,) = scaled.legends
    assert [text.get_text() for text in legend.get_texts()] == list(expected)


def test_scores_over_distance_are_means_of_some_steps(scaled: Any) -> None:
    _, over_distance = panels(scaled)
    assert over_distance.get_xscale() == "log"
    assert over_distance.get_xlim() == (1, 1024)
    assert over_distance.get_xlabel() == "distance"
    x, y = lines(over_distance)["plain"]
    decay = portraits.decay(sitters(situs.Rotary(head_dim=96))[0], torch.arange(1024)).mean[0].double()
    assert x[:4].tolist() == [1, 2, 3, 4]
    assert np.allclose(y[:4], decay[1:5], atol=1e-4)
    sampled = np.unique(np.round(2 ** np.linspace(0, np.log2(1023), 48 * 16))).astype(int)
    last = sampled[np.log2(sampled) / 10 * 48 >= 47]
    assert len(last) > 10
    assert (x[-1], y[-1]) == pytest.approx((last.mean(), float(decay[last].mean())), abs=1e-4)
    shade = over_distance.patches[0].get_extents().transformed(over_distance.transData.inverted())
    assert (shade.xmin, shade.xmax) == pytest.approx((64, 1024))


def test_the_words_are_of_these_lengths(scaled: Any) -> None:
    title, subtitle, caption = words(scaled)
    assert title == "Rotary from 64 to 1,024 tokens"
    assert (
        subtitle == "left: wavelength relative to plain rotary; right: mean score of a token with itself, heads of 96"
    )
    slow = math.tau / rotary.frequencies(96) > 64
    whole = [name for name, (_, y) in lines(panels(scaled)[0]).items() if (y[slow] > 15.9).all()]
    assert whole == ["linear (PI)", "YaRN", "Llama 3"]
    kept = {name: int((y < 1.01).sum()) for name, (_, y) in lines(panels(scaled)[0]).items() if name != "plain"}
    assert caption == (
        "linear (PI), YaRN, Llama 3 slow all pairs that made less than a full rotation by 16 or more; NTK, LongRoPE "
        "(Phi-3.5) do not, and so reach new angles. Unchanged pairs: "
        f"{', '.join(f'{name} {count}' for name, count in kept.items())} of 48. YaRN and LongRoPE multiply all scores, "
        "too."
    )
    assert kept["linear (PI)"] == 0 < kept["Llama 3"]


def test_who_slows_less_than_the_text_is_longer_is_left_out() -> None:
    caption = words(plots.scalings(ROTARY, train_length=10, length=1000))[2]
    assert caption == (
        "linear (PI), YaRN, Llama 3 slow all pairs that made less than a full rotation by 100 or more; NTK does not, "
        "and so reaches new angles. Unchanged pairs: linear (PI) 0, NTK 1, YaRN 1, Llama 3 0 of 8. YaRN "
        "multiplies all scores, too."
    )


def test_where_no_pair_is_slow_scalings_have_nothing_to_keep_within() -> None:
    assert words(plots.scalings(ROTARY, train_length=20_000, length=40_000))[2].startswith(
        "All pairs made a full rotation in training, so that none reaches new angles. Unchanged pairs: "
    )


@pytest.mark.parametrize(("length", "there"), [(1023, False), (1024, True), (4096, True), (4097, False)])
def test_longrope_is_drawn_for_about_the_stretch_it_was_found_for(length: int, there: bool) -> None:
    figure = plots.scalings(ROTARY, train_length=64, length=length)
    assert ("LongRoPE (Phi-3.5)" in lines(panels(figure)[0])) == there
    assert ("LongRoPE" in words(figure)[2]) == there


def test_a_text_no_longer_than_training_is_refused() -> None:
    with raises_exactly(
        ValueError,
        "length must be more than train_length=64, since scalings extend the one to the other; got 64.",
    ):
        plots.scalings(ROTARY, train_length=64, length=64)
