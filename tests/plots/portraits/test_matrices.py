"""Maps of query by key, as drawn: biases, likeness, terms by content, and weights."""

import numpy as np
import pytest
import torch

import situs
from situs import plots
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter, alike, sitters
from situs.plots.style import LIGHT
from tests.plots.portraits.reading import (
    MINUS,
    drawn,
    extent,
    image,
    key,
    limits,
    names,
    panels,
    words,
)
from tests.raising import raises_exactly
from tests.references import alibi

pytestmark = pytest.mark.once

DOWN = "rows: queries; columns: keys"
AHEAD = np.triu(np.ones((10, 10), dtype=bool), 1)


def test_every_head_of_a_bias_is_a_map_in_one_scale() -> None:
    figure = plots.bias(situs.ALiBi(num_heads=4), length=10)
    expected = alibi.bias(alibi.slopes(4), alibi.slopes(4), np.arange(10.0), np.arange(10.0))
    assert names(figure) == [(f"head {head}", "") for head in (1, 2, 3, 4)]
    for axes, values in zip(panels(figure), expected, strict=True):
        assert np.allclose(drawn(axes), values)
        assert extent(axes) == (-0.5, 9.5, 9.5, -0.5)
        assert limits(axes) == (-2.25, 0)
    assert key(figure) == [f"added: {MINUS}2.2", "0"]
    assert words(figure) == [
        "alibi: what is added to the scores",
        DOWN,
        "Constant along diagonals: among 10 tokens only the distance counts, the same ahead and behind.",
    ]


def test_colours_end_at_the_floor_and_the_key_says_so() -> None:
    figure = plots.bias(situs.ALiBi(num_heads=2, slopes=(1.0, 0.1)), length=20)
    assert drawn(panels(figure)[0]).min() == -19
    assert limits(panels(figure)[0]) == limits(panels(figure)[1]) == (-12, 0)
    assert key(figure)[0] == f"added: {MINUS}12 or less"


@pytest.mark.parametrize(("highest", "ends"), [(-20.0, (-32, -20)), (3.0, (-9, 9))])
def test_the_floor_lies_below_the_highest_number(highest: float, ends: tuple[float, float]) -> None:
    table = situs.T5Bias(num_heads=1, num_buckets=8, max_distance=16, bidirectional=False)
    with torch.no_grad():
        table.table.copy_(highest - 4.0 * torch.arange(8)[:, None])
    figure = plots.bias(table, length=20)
    assert drawn(panels(figure)[0]).min() == highest - 28
    assert limits(panels(figure)[0]) == ends
    assert key(figure) == [f"added: {ends[0]} or less".replace("-", MINUS), f"{ends[1]}".replace("-", MINUS)]


def test_signs_have_hues_of_their_own() -> None:
    table = situs.T5Bias(num_heads=1, num_buckets=8, max_distance=16, init_std=1.0)
    (axes,) = panels(plots.bias(table, length=10))
    reach = float(np.abs(drawn(axes)).max())
    assert limits(axes) == (-reach, reach)
    assert image(axes).get_cmap().name == LIGHT.signed.name
    assert image(panels(plots.bias(situs.ALiBi(num_heads=1), length=10))[0]).get_cmap().name == LIGHT.colormap.name


def test_captions_tell_distance_from_position_and_ahead_from_behind() -> None:
    one_way = situs.ALiBi(num_heads=2, asymmetric=True, slopes_ahead=(0.5, 0.7))
    assert words(plots.bias(one_way, length=10))[2] == (
        "Constant along diagonals: among 10 tokens only the distance counts."
    )
    by_position = situs.Fire(num_heads=2, threshold=2.0)
    assert (
        words(plots.bias(by_position, length=30))[2]
        == "Rows differ: the query's position counts too, not only the distance."
    )


def test_of_many_heads_eight_are_shown() -> None:
    assert [name for name, _ in names(plots.bias(situs.ALiBi(num_heads=32), length=4))] == [
        f"head {head}" for head in (1, 5, 10, 14, 19, 23, 28, 32)
    ]


def test_likeness_is_drawn_against_the_diagonal_side_by_side() -> None:
    encodings = {"turns": situs.Rotary(head_dim=8), "table": situs.Learned(dim=8, max_length=10, init_std=1.0)}
    figure = plots.likeness(encodings, length=10)
    ranges = []
    for axes, (name, encoding) in zip(panels(figure), encodings.items(), strict=True):
        found = portraits.likeness(Sitter(name, (encoding,)), 10).double().numpy()
        expected = found - np.diagonal(found).mean()
        assert np.allclose(drawn(axes), expected, equal_nan=True, atol=1e-6)
        assert (np.isnan(drawn(axes)) == AHEAD).all()
        assert extent(axes) == (-0.5, 9.5, 9.5, -0.5)
        assert limits(axes) == pytest.approx((np.nanmin(expected), np.nanmax(expected)))
        ends = [round(float(end), 3) + 0.0 for end in (np.nanmin(expected), np.nanmax(expected))]
        ranges.append(f"{ends[0]:.2g} to {ends[1]:.2g}".replace("-", MINUS))
    assert names(figure) == [*zip(encodings, ranges, strict=True)]
    assert key(figure) == ["score: lowest", "highest"]
    assert words(figure) == [
        "What position does to a score",
        "a token scored with itself; rows: position as query; columns: position as key; one colour scale per map",
        "Constant along diagonals: only the distance counts. Not so for table, where positions count too.",
    ]


def test_likeness_of_one_kind_has_one_sentence() -> None:
    table, turns = situs.Learned(dim=8, max_length=10, init_std=1.0), situs.Rotary(head_dim=8)
    assert words(plots.likeness(turns, length=10))[2] == "Constant along diagonals: only the distance counts."
    assert words(plots.likeness(table))[2] == (
        "Not constant along diagonals: the positions themselves count, not only their distance."
    )
    assert extent(panels(plots.likeness([table, turns]))[1]) == (-0.5, 9.5, 9.5, -0.5)  # as far as the table goes


@pytest.mark.parametrize("causal", [True, False])
def test_weights_are_drawn_without_and_with_the_encoding(causal: bool) -> None:
    encodings = {"a bias": situs.ALiBi(num_heads=2), "nothing": situs.NoPE()}
    figure = plots.attention(encodings, length=10, causal=causal)
    beside = alike(sitters(encodings))
    assert [(sitter.heads, sitter.head_dim) for sitter in beside] == [(2, 32)] * 2
    weights = [portraits.attention(beside[0], 10, causal=causal, positions=False)]
    weights += [portraits.attention(sitter, 10, causal=causal) for sitter in beside]
    shown = [each[0].double().numpy() for each in weights]
    for axes, expected in zip(panels(figure), shown, strict=True):
        assert np.allclose(drawn(axes), np.where(AHEAD & causal, np.nan, np.sqrt(expected)), equal_nan=True)
        assert extent(axes) == (-0.5, 9.5, 9.5, -0.5)
        assert limits(axes)[0] == 0
    assert limits(panels(figure)[0])[1] == pytest.approx(np.sqrt(max(each.max() for each in shown)))
    assert [name for name, _ in names(figure)] == ["without positions", "a bias", "nothing"]
    far = [sum(abs(i - j) * each[i, j] for i in range(10) for j in range(10)) / 10 for each in shown]
    assert words(figure) == [
        "Attention weights: a bias, nothing",
        f"{DOWN}; head 1, random text{', causal' * causal}; colour: square root of the weight",
        f"Mean distance from a query to the keys it attends to: without positions {far[0]:.1f}, a bias {far[1]:.1f}, "
        f"nothing {far[2]:.1f}.",
    ]
    assert far[1] < far[0]


def test_another_head_has_other_weights() -> None:
    encoding = situs.ALiBi(num_heads=2)
    expected = portraits.attention(Sitter("alibi", (encoding,)), 10, causal=True)[1].sqrt().double().numpy()
    figure = plots.attention(encoding, length=10, head=1)
    assert np.allclose(drawn(panels(figure)[1])[~AHEAD], expected[~AHEAD])
    assert words(figure)[1].startswith(f"{DOWN}; head 2, random text, causal")


def test_weights_of_layers_that_differ_in_size_are_not_drawn_side_by_side() -> None:
    with raises_exactly(
        ValueError,
        "encodings must be of one size to be drawn beside each other, since they meet the same queries and keys; got "
        "num_heads=4 of alibi (2) with 2 heads of 32.",
    ):
        plots.attention([situs.ALiBi(num_heads=2), situs.ALiBi(num_heads=4)], length=4)
    figure = plots.attention([situs.Sinusoidal(dim=32), situs.ALiBi(num_heads=4), situs.Rotary(head_dim=8)], length=4)
    assert [name for name, _ in names(figure)] == ["without positions", "sinusoidal", "alibi", "rotary"]


def test_many_names_are_cut_short_in_the_title() -> None:
    encodings = {name: situs.NoPE() for name in "abcdef"}
    assert words(plots.attention(encodings, length=4))[0] == "Attention weights: a, b, c, d …"


@pytest.mark.parametrize("head", [2, -1])
def test_a_head_that_is_not_there_is_refused(head: int) -> None:
    with raises_exactly(ValueError, f"head must be one of 0 .. 1, since shaw has 2 here; got {head}."):
        plots.attention(situs.Shaw(num_heads=2, head_dim=8), head=head, length=4)


def test_a_product_of_positions_is_drawn_relative_to_the_highest_of_each_row() -> None:
    encoding = situs.Tupe(dim=8, num_heads=2, head_dim=4, max_length=10, untie_cls=False, init_std=1.0)
    expected = portraits.bias(encoding, 10).double().numpy()
    expected = expected - expected.max(-1, keepdims=True)
    figure = plots.bias(encoding, length=10)
    for axes, values in zip(panels(figure), expected, strict=True):
        assert np.allclose(drawn(axes), values)
    assert words(figure)[1] == f"{DOWN}; relative to the highest of each row"


def test_a_trained_bias_is_drawn_where_the_causal_mask_of_its_training_lets_it_act() -> None:
    figure = plots.bias(plots.named("t5"), length=10)
    for axes in panels(figure):
        assert (np.isnan(drawn(axes)) == AHEAD).all()
    assert words(figure)[1] == f"{DOWN}, causal"
