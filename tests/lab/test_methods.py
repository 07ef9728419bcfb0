"""Methods: from what a person writes to encodings, and clear errors for what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

import situs
from situs.lab.naming import parse
from situs.lab.naming.methods import FITTED, build_layer, fitted, parse_methods, suiting_text
from situs.lab.naming.scalings import scaled
from situs.registry import SCALINGS
from tests.raising import raises_exactly

SIZES: dict[str, Any] = {"dim": 64, "num_heads": 4, "head_dim": 16, "max_length": 64}


@pytest.mark.parametrize("name", suiting_text())
def test_every_encoding_of_text_is_built_for_the_sizes_of_the_model(name: str) -> None:
    (method,) = parse_methods(name)
    (encoding,) = build_layer(method, 0, SIZES)
    assert type(encoding) is situs.entry(name).cls
    assert getattr(encoding, "num_heads", 4) == 4 or encoding.num_heads is None


def test_a_pattern_gives_each_layer_its_own_and_several_act_together() -> None:
    method = parse("rotary&alibi/none")
    kinds = [[type(each).__name__ for each in build_layer(method, layer, SIZES)] for layer in range(3)]
    assert kinds == [["Rotary", "ALiBi"], ["NoPE"], ["Rotary", "ALiBi"]]


def test_options_reach_the_encoding_and_go_before_those_that_suit_the_length() -> None:
    (shaw,) = build_layer(parse("shaw(max_distance=5, values=False)"), 0, SIZES)
    assert isinstance(shaw, situs.Shaw)
    assert (shaw.max_distance, shaw.values) == (5, False)
    (t5,) = build_layer(parse("t5(max_distance=40)"), 0, SIZES)
    assert isinstance(t5, situs.T5Bias)
    assert (t5.max_distance, t5.bidirectional) == (40, fitted("t5", 64)["bidirectional"])


def test_a_scaling_changes_frequencies_alone() -> None:
    plain = situs.Rotary(head_dim=16, base=500.0, pairing="interleaved")
    yarn = scaled(plain, "yarn", factor=4.0, train_length=64, ramp=(2.0, 0.25))
    assert yarn.scaling == situs.YaRN(factor=4.0, original_length=64, beta_fast=2.0, beta_slow=0.25)
    assert (yarn.base, yarn.pairing) == (500.0, "interleaved")
    assert scaled(yarn, None, factor=4.0, train_length=64).config == plain.config


NEEDED = {"longrope": f"longrope(short_factors={(1.0,) * 8}, long_factors={(2.0,) * 8})"}
NEEDED["proportional"] = "proportional(fraction=0.5)"


@pytest.mark.parametrize("name", [NEEDED.get(name, name) for name in SCALINGS])
def test_every_scaling_can_be_resolved_at_any_length(name: str) -> None:
    rotary = scaled(situs.Rotary(head_dim=16), name, factor=8.0, train_length=64)
    positions = situs.Positions.range(512, sequence_length=512)
    assert rotary.frequencies_at(positions).shape[-1] == 8


def test_a_scaling_shares_the_training_of_what_it_scales_and_random_positions_do_not() -> None:
    methods = parse_methods("rotary+yarn,rotary+random,rotary+random+ntk")
    assert [method.trained.name for method in methods] == ["rotary", "rotary+random", "rotary+random"]


def test_a_list_has_each_method_once_and_commas_in_brackets_do_not_part() -> None:
    found = parse_methods("alibi, shaw(max_distance=5, values=False),alibi")
    assert [method.name for method in found] == ["alibi", "shaw(max_distance=5, values=False)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rotary+yern", "rotary+yern: + must be followed by one of linear, ntk, dynamic_ntk, ntk_by_parts, yarn, "
         "longrope, llama3, selfextend, rerope, dualchunk, random; got 'yern'. Did you mean 'yarn'?"),
        ("rotary+dynamic", "rotary+dynamic: + must be followed by one of linear, ntk, dynamic_ntk, ntk_by_parts, yarn, "
         "longrope, llama3, selfextend, rerope, dualchunk, random; got 'dynamic'. Did you mean 'dynamic_ntk'?"),
        ("alibi+yarn", "alibi+yarn: +yarn must follow rotary, since it scales its frequencies; got 'alibi'."),
        ("rotary+yarn+random", "rotary+yarn+random: the scaling must come last, since it is added after training; got "
         "'random'."),
        ("rotary+yarn+ntk", "rotary+yarn+ntk: + must add one scaling at most, since each sets all frequencies of "
         "rotary; got yarn and ntk."),
        ("+yarn", "+yarn: + must stand behind an encoding, since something is added to it; got nothing there."),
        ("none/learned", "none/learned: learned must stand in the first layer's place, since it acts once, before all "
         "layers; got it in a later one. Write learned/... or learned&..."),
        ("swin", "encodings must suit text; swin is for images. Use t5."),
        ("shaw(3)", "options must be written shaw(name=value, ...) with plain values, such as shaw(max_distance=32); "
         "got 'shaw(3)'."),
        ("no_such_module:Thing", "name must be MODULE:CLASS with a module that can be imported, or FILE.py:CLASS; got "
         "'no_such_module:Thing': No module named 'no_such_module'. Call it from the folder of no_such_module.py, or "
         "write the path to that file."),
        ("json:JSONDecoder", "JSONDecoder must be a situs.Encoding in json; got "
         "<class 'json.decoder.JSONDecoder'>."),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_in_full(text: str, message: str) -> None:
    with raises_exactly(ValueError, message):
        parse_methods(text)


def test_an_option_that_nobody_takes_is_refused_as_everywhere() -> None:
    message = (
        "shaw takes num_heads, head_dim, max_distance, max_ahead, keys, values, per_head, beyond, rows; got "
        "'distance'. Did you mean 'max_distance'?"
    )
    with raises_exactly(TypeError, message):
        parse_methods("shaw(distance=3)")


@pytest.mark.parametrize("text", ["", " , "])
def test_nothing_is_no_method(text: str) -> None:
    message = f"encodings must be names separated by commas, such as rotary,alibi; got {text!r}."
    with raises_exactly(ValueError, message):
        parse_methods(text)


def test_a_plus_within_brackets_is_a_numbers() -> None:
    plain, yarn = parse_methods("rotary(base=1e+5),rotary(base=1e+5)+yarn")
    assert (yarn.trained, yarn.scaling) == (plain, "yarn")
    (rotary,) = build_layer(yarn, 0, SIZES)
    assert isinstance(rotary, situs.Rotary)
    assert rotary.base == 1e5


@pytest.mark.parametrize("name", FITTED)
def test_options_that_suit_the_length_are_the_encodings_own_and_said_of_it(name: str) -> None:
    assert set(fitted(name, 64)) <= set(situs.entry(name).options)
    assert name in FITTED[name].said
    assert fitted("alibi", 64) == {}
