"""Portraits of encodings at work: decay, likeness, terms by content and attention, checked against plain NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import situs
from situs import Positions
from situs.attention.reference import reference
from situs.checks.bench import Bench, normal
from situs.checks.measures import draw_small_parameters
from situs.lab.naming.methods import OF_IMAGES
from situs.lab.probing import portraits
from situs.lab.probing.sitters import Sitter, alike, label, sitters
from tests.raising import raises_exactly
from tests.references import alibi, attention, rotary

BY_CONTENT = ["cope", "deberta", "shaw", "transformer_xl"]
SIZES: dict[str, Any] = {"dim": 16, "head_dim": 8, "num_heads": 2, "max_length": 32}
Numbers = NDArray[np.float64]


def sitter(name: str, **options: Any) -> Sitter:
    return Sitter(name, (situs.entry(name).build(**{**SIZES, **options}),))


def projected(length: int, seed: int, dim: int, heads: int, which: int) -> Numbers:
    """Random tokens times a random projection, written anew: (heads, length, head_dim)."""
    weights = normal(3, dim, dim, seed=1).double().numpy() / math.sqrt(dim)
    tokens = normal(1, length, dim, seed=seed).double().numpy()[0]
    split: Numbers = (tokens @ weights[which]).reshape(length, heads, -1).transpose(1, 0, 2)
    return split


def softmax(scores: Numbers) -> Numbers:
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    weights: Numbers = raised / raised.sum(-1, keepdims=True)
    return weights


def test_without_positions_scores_do_not_fall() -> None:
    found = portraits.decay(sitter("none"), torch.arange(40))
    for curve in (found.mean, found.low, found.high):
        assert torch.allclose(curve, curve[:, :1].expand_as(curve), atol=1e-5)
    assert bool((found.low < found.mean).all() and (found.mean < found.high).all())


def test_under_alibi_scores_fall_by_its_slopes() -> None:
    found = portraits.decay(sitter("alibi", num_heads=6), torch.arange(100))
    expected = -alibi.slopes(6)[:, None] * np.arange(100)
    for curve in (found.mean, found.low, found.high):
        assert np.allclose(curve - curve[:, :1], expected, atol=1e-4)


def test_under_rotary_scores_sway_as_the_paper_turns_them() -> None:
    found = portraits.decay(sitter("rotary", pairing="halves"), torch.arange(60), contents=5)
    weights = normal(3, 8, 8, seed=1).double().numpy()[0] / math.sqrt(8)
    contents = normal(5, 1, 8, seed=3).double().numpy()[:, 0] @ weights
    ladder = rotary.frequencies(8)
    for distance in (0, 1, 17, 59):
        turn = rotary.matrix(distance, ladder, "halves")
        scores = [(turn @ each) @ each / math.sqrt(8) for each in contents]
        assert float(found.mean[0, distance]) == pytest.approx(np.mean(scores), abs=1e-5)
        assert float(found.high[0, distance]) == pytest.approx(np.quantile(scores, 0.95), abs=1e-5)
        assert float(found.low[0, distance]) == pytest.approx(np.quantile(scores, 0.05), abs=1e-5)


@pytest.mark.parametrize("nearest", [0, 2])
@pytest.mark.parametrize("name", [*BY_CONTENT, "rotary", "alibi", "learned", "fire", "tupe"])
def test_some_distances_show_what_all_show(name: str, nearest: int) -> None:
    drawn = sitter(name)
    draw_small_parameters(drawn.encodings)
    chosen = torch.tensor([nearest, 3, 4, 31])
    some, all_ = portraits.decay(drawn, chosen), portraits.decay(drawn, torch.arange(32))
    assert torch.allclose(some.mean, all_.mean[:, chosen], atol=1e-4)
    assert torch.allclose(some.high, all_.high[:, chosen], atol=1e-4)
    assert float(some.mean.std(-1).max()) > 0.01


def test_cope_counts_every_key_between_and_no_more_than_it_can() -> None:
    drawn = sitter("cope", max_position=40)
    draw_small_parameters(drawn.encodings)
    far = portraits.decay(drawn, torch.tensor([0, 31])).mean[:, 1]
    near = portraits.decay(drawn, torch.tensor([0, 1])).mean[:, 1]
    assert not torch.allclose(far, near, atol=1e-2)
    with raises_exactly(
        ValueError, "length must be 4,096 or less for cope, since it looks at every key between; got 4,097."
    ):
        portraits.decay(drawn, torch.tensor([0, 4096]))


def test_scalings_by_length_see_the_whole_text_at_few_distances_too() -> None:
    drawn = sitter("rotary", scaling=situs.DynamicNTKScaling(factor=1.0, original_length=16))
    chosen = torch.tensor([0, 9, 63])
    some, all_ = portraits.decay(drawn, chosen), portraits.decay(drawn, torch.arange(64))
    assert torch.allclose(some.mean, all_.mean[:, chosen], atol=1e-4)
    assert not torch.allclose(some.mean, portraits.decay(sitter("rotary"), chosen).mean, atol=1e-2)


@pytest.mark.parametrize("name", ["rotary", "xpos", "alibi", "t5", "shaw", "learned", "sinusoidal"])
def test_likeness_hides_keys_ahead_and_depends_on_the_distance_alone_if_relative(name: str) -> None:
    drawn = sitter(name)
    found = portraits.likeness(drawn, 24)
    assert torch.equal(found.isnan(), torch.ones(24, 24, dtype=torch.bool).triu(1))
    spread = max(float(found.diagonal(-apart).max() - found.diagonal(-apart).min()) for apart in range(24))
    assert (spread < 1e-4) == ("relative" in drawn.encodings[0].tags), spread


@pytest.mark.parametrize("name", ["rotary", "alibi", "learned", "shaw"])
def test_the_last_row_of_likeness_is_the_decay_of_the_same_contents(name: str) -> None:
    drawn = sitter(name)
    found = portraits.decay(drawn, torch.arange(24), contents=portraits.CONTENTS // 3)
    assert torch.allclose(portraits.likeness(drawn, 24)[-1].flip(0), found.mean.mean(0), atol=1e-4)


@pytest.mark.parametrize("name", BY_CONTENT)
def test_terms_are_what_the_encoding_gives_for_these_queries_and_keys(name: str) -> None:
    encoding = situs.entry(name).build(**SIZES)
    assert isinstance(encoding, situs.ScoreEncoding)
    query, key = torch.randn(2, 2, 12, 8)
    content, term = portraits.content_scores(encoding, query, key)
    scale, text = encoding.scale_for(8), Positions.range(12)
    visible = torch.ones(1, 1, 12, 12, dtype=torch.bool).tril()
    assert torch.equal(term, encoding(query[None], key[None], text, text, scale=scale, visible=visible)[0])
    assert torch.allclose(content, scale * torch.einsum("hid,hjd->hij", query, key), atol=1e-5)
    assert not term.requires_grad


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", [name for name in situs.names() if name not in OF_IMAGES])
def test_weights_of_a_row_sum_to_one_and_the_future_is_hidden(name: str, causal: bool) -> None:
    found = portraits.attention(sitter(name), 20, causal=causal)
    assert torch.allclose(found.sum(-1), torch.ones(found.shape[:2]), atol=1e-5)
    assert bool((found.triu(1) == 0).all()) == causal


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    "name", [name for name in situs.names() if name not in {*OF_IMAGES, "rotary_value"}]
)  # of which the last changes the one-hot values by which weights are read
def test_weights_are_those_of_reference_attention(name: str, causal: bool) -> None:
    drawn = sitter(name, values=False) if name == "shaw" else sitter(name)  # which would add to the values
    draw_small_parameters(drawn.encodings)
    with drawn.bench() as bench:
        tokens = bench.embed(normal(1, 20, bench.dim, seed=5), Positions.range(20))
        query, key = (bench.project(tokens, which) for which in (0, 1))
        one_hot = torch.eye(20).expand(1, bench.heads, 20, 20)
        features, causal = bench.features(tokens), causal or name == "forgetting"  # which is causal alone
        expected = reference(query, key, one_hot, encoding=drawn.encodings, causal=causal, features=features)[0]
    found = portraits.attention(drawn, 20, causal=causal)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-5)
    without = portraits.attention(drawn, 20, causal=causal, positions=False)
    assert torch.allclose(found, without, atol=1e-3) == (name in ("none", "temperature"))  # which begins far beyond


def test_without_positions_weights_are_the_softmax_of_the_same_content() -> None:
    query, key = (projected(20, 5, 16, 2, which) for which in (0, 1))
    expected = softmax(query @ key.transpose(0, 2, 1) / math.sqrt(8))
    for name in ("shaw", "t5", "deberta"):
        drawn = sitter(name, softmax_scale=1.0) if name == "t5" else sitter(name)
        drawn = Sitter(name, (*drawn.encodings, situs.Rotary(head_dim=8)))
        found = portraits.attention(drawn, 20, causal=False, positions=False)
        assert np.allclose(found, expected, atol=1e-5), name
    nothing = sitter("none")
    same = portraits.attention(nothing, 20, causal=True, positions=False)
    assert torch.equal(portraits.attention(nothing, 20, causal=True), same)


def test_weights_under_alibi_are_those_of_plain_attention_with_its_bias() -> None:
    drawn = Sitter("both", (situs.ALiBi(num_heads=2), situs.Shaw(num_heads=2, head_dim=8, keys=False)))
    query, key = (projected(20, 5, 16, 2, which) for which in (0, 1))
    bias = alibi.bias(alibi.slopes(2), alibi.slopes(2), np.arange(20.0), np.arange(20.0))
    values, allowed = np.stack([np.eye(20)] * 2), np.tril(np.ones((20, 20), dtype=bool))
    expected = attention.attention(query, key, values, allowed, 1 / math.sqrt(8), bias)
    assert np.allclose(portraits.attention(drawn, 20, causal=True), expected, atol=1e-5)


def test_content_weighs_as_much_under_t5s_scale_as_under_others() -> None:
    own, usual = situs.T5Bias(num_heads=2, softmax_scale=1.0), situs.T5Bias(num_heads=2, softmax_scale=None)
    usual.load_state_dict(own.state_dict())
    scaled, plain = (portraits.attention(Sitter("t5", (each,)), 20, causal=True) for each in (own, usual))
    assert torch.allclose(scaled, plain, atol=1e-5)
    assert not torch.allclose(scaled, portraits.attention(Sitter("no", ()), 20, causal=True)[:1], atol=1e-2)


def test_scores_without_positions_have_a_variance_of_one() -> None:
    with sitter("t5", num_heads=8).bench() as bench:
        of_t5 = bench.project(normal(1, 200, bench.dim, seed=5), 0).var()
    plain = Bench((), dim=512, heads=8)
    query, key = (plain.project(normal(1, 200, 512, seed=5), which) for which in (0, 1))
    assert float((query @ key.transpose(-2, -1) / 8).var()) == pytest.approx(1, abs=0.1)
    assert float(of_t5) == pytest.approx(8**-0.5, abs=0.05)  # its projections make up for the scale, in heads of 8


def test_encodings_are_left_as_they_were() -> None:
    encoding = situs.Learned(dim=16, max_length=32, dropout=0.9)
    other = situs.T5Bias(num_heads=2).eval()
    before = {name: value.clone() for name, value in encoding.state_dict().items()}
    drawn = Sitter("both", (encoding, other))
    first = portraits.attention(drawn, 20, causal=True)
    assert torch.equal(portraits.attention(drawn, 20, causal=True), first)  # dropout would differ
    assert torch.equal(portraits.table(encoding, Positions.range(32)), encoding.table.detach())
    assert encoding.training
    assert not other.training
    assert all(torch.equal(value, before[name]) for name, value in encoding.state_dict().items())
    assert encoding.table.grad is None
    with raises_exactly(
        ValueError,
        "positions must lie in 0 .. 31, since the table has a row for 32 positions; got 32. Use extend() for a longer "
        "table.",
    ):
        portraits.table(encoding, Positions.range(33))
    assert encoding.training


def test_sitters_are_one_several_or_by_name() -> None:
    alibi_, yarn = situs.ALiBi(num_heads=2), situs.Rotary(head_dim=8, scaling=situs.YaRN(factor=2.0, original_length=8))
    assert [each.name for each in sitters(yarn)] == ["rotary+YaRN"]
    assert [each.name for each in sitters([alibi_, yarn, alibi_, alibi_])] == [
        "alibi", "rotary+YaRN", "alibi (2)", "alibi (3)",
    ]  # fmt: skip
    (both,) = sitters({"both": [alibi_, yarn]})
    assert (both.name, both.encodings, both.heads, both.head_dim) == ("both", (alibi_, yarn), 2, 8)


def test_what_is_no_encoding_is_refused() -> None:
    none = "encodings must be one or more, since there is nothing to draw otherwise; got none."
    nothings: list[Any] = [[], {}, None]
    for nothing in nothings:
        with raises_exactly(ValueError, none):
            sitters(nothing)
    with raises_exactly(
        TypeError,
        "encodings must be a situs.Encoding or a list of them, since it tells attention where tokens stand; got "
        "'rotary'. Use situs.create('rotary', ...).",
    ):
        sitters("rotary")  # type: ignore[arg-type]


def test_sizes_that_are_not_said_follow_from_those_that_are() -> None:
    table, turning = situs.Sinusoidal(dim=32), situs.Rotary(head_dim=8)
    assert (Sitter("s", (table,)).heads, Sitter("s", (table,)).head_dim) == (1, 32)
    assert (Sitter("b", (table, situs.ALiBi(num_heads=4))).head_dim) == 8
    assert Sitter("t", (table, turning)).heads == 4
    assert portraits.attention(Sitter("t", (table, turning)), 6, causal=True).shape == (4, 6, 6)


def test_those_beside_each_other_are_put_in_layers_of_one_size() -> None:
    given = sitters(
        {"table": situs.Sinusoidal(dim=32), "turns": situs.Rotary(head_dim=8), "bias": situs.ALiBi(num_heads=4)}
    )
    assert [(each.heads, each.head_dim) for each in given] == [(1, 32), (1, 8), (4, 16)]
    made = alike(given)
    assert [(each.heads, each.head_dim) for each in made] == [(4, 8)] * 3
    assert [(each.name, each.encodings) for each in made] == [(each.name, each.encodings) for each in given]
    same = [portraits.attention(each, 6, causal=True, positions=False) for each in made]
    assert all(torch.equal(each, same[0]) for each in same)
    (alone,) = alike([sitter("shaw")])
    assert (alone.heads, alone.head_dim) == (2, 8)


ODD: dict[str, tuple[dict[str, Any], str]] = {
    "heads": (
        {"two": situs.ALiBi(num_heads=2), "four": situs.ALiBi(num_heads=4)},
        "num_heads=4 of four with 2 heads of 32",
    ),
    "channels": (
        {"narrow": situs.Rotary(head_dim=8), "wide": situs.Rotary(head_dim=16)},
        "head_dim=16 of wide with 1 heads of 8",
    ),
    "tokens": (
        {"shaw": situs.Shaw(num_heads=2, head_dim=8), "table": situs.Sinusoidal(dim=32)},
        "dim=32 of table with 2 heads of 8",
    ),
    "heads behind a table": (
        {"bias": situs.ALiBi(num_heads=4), "both": [situs.Sinusoidal(dim=32), situs.ALiBi(num_heads=2)]},
        "num_heads=2 of both with 4 heads of 8",
    ),
    "the second that acts": (
        {"bias": situs.ALiBi(num_heads=4), "both": [situs.Rotary(head_dim=8), situs.ALiBi(num_heads=2)]},
        "num_heads=2 of both with 4 heads of 8",
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_those_that_fit_in_no_one_layer_are_refused(what: str) -> None:
    encodings, said = ODD[what]
    with raises_exactly(
        ValueError,
        "encodings must be of one size to be drawn beside each other, since they meet the same queries and keys; got "
        f"{said}.",
    ):
        alike(sitters(encodings))


def test_a_class_of_ones_own_has_its_own_name() -> None:
    class Mine(situs.InputEncoding):
        def forward(self, x: Tensor, positions: Any = None) -> Tensor:
            return x

    assert label(Mine()) == "Mine"
    assert label(situs.NoPE()) == "none"
