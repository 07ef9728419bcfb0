"""Encodings by the names that people give them, made the same way every time."""

from pathlib import Path
from typing import Any

import pytest
import torch

import situs
from situs.lab.naming import parse_all
from situs.lab.probing.sitters import Sitter, sitters_of
from situs.plots import suiting
from tests.raising import raises_exactly

SCALINGS = "linear, ntk, dynamic_ntk, ntk_by_parts, yarn, longrope, llama3, proportional, axial"
OWN = '''
import torch
import situs


class Level(situs.InputEncoding):
    """Adds one learned number, which starts at 0."""

    def __init__(self, *, dim: int, threshold: float = 0.5) -> None:
        super().__init__()
        self.dim, self.threshold = dim, threshold
        self.level = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x, positions=None):
        return x + self.level
'''


def one(text: str, length: int = 32, **others: Any) -> Sitter:
    (found,) = sitters_of(parse_all(text), others.pop("options", {}), length=length, **others)
    return found


def parameters(sitter: Sitter) -> list[torch.Tensor]:
    return [parameter.detach().clone() for each in sitter.encodings for parameter in each.parameters()]


@pytest.mark.parametrize("name", situs.names())
def test_every_encoding_is_made_by_its_name_at_the_sizes_of_a_model(name: str) -> None:
    found = one(name)
    (encoding,) = found.encodings
    assert found.name == name
    assert type(encoding) is situs.entry(name).cls
    sizes = {"dim": 128, "head_dim": 64, "num_heads": 8, "size": (14, 14), "max_length": 512}
    assert {option: value for option, value in encoding.config.items() if option in sizes} == {
        option: value for option, value in sizes.items() if option in encoding.config
    }
    assert suiting(found), name


def test_names_are_separated_by_commas_outside_of_brackets() -> None:
    found = sitters_of(parse_all("shaw(max_distance=4, values=False), alibi,rotary"), {}, length=32)
    assert [each.name for each in found] == ["shaw(max_distance=4, values=False)", "alibi", "rotary"]
    shaw = found[0].encodings[0]
    assert isinstance(shaw, situs.Shaw)
    assert (shaw.max_distance, shaw.values) == (4, False)


def test_options_go_to_those_that_take_them() -> None:
    alibi, rotary = sitters_of(parse_all("alibi,rotary"), {"num_heads": 3, "base": 500.0}, length=32)
    assert alibi.encodings[0].config["num_heads"] == 3
    assert rotary.encodings[0].config["base"] == 500.0
    nearer = one("alibi(num_heads=5)", options={"num_heads": 3})
    assert nearer.encodings[0].config["num_heads"] == 5


def test_what_is_joined_acts_together_in_one_model() -> None:
    found = one("rotary & alibi")
    assert [type(each) for each in found.encodings] == [situs.Rotary, situs.ALiBi]
    assert (found.heads, found.head_dim) == (8, 64)
    three = one("learned&shaw&rotary")
    assert three.encodings[0].config["dim"] == three.heads * three.head_dim == 512
    assert one("learned&shaw", options={"dim": 64}).encodings[0].config["dim"] == 64


def test_tables_have_a_row_for_every_token_of_the_text() -> None:
    assert one("learned", 40).encodings[0].config["max_length"] == 512
    assert one("learned", 700).encodings[0].config["max_length"] == 700


@pytest.mark.parametrize(
    ("lengths", "factor", "original"),
    [({"trained": 64, "stretched": 512}, 8.0, 64), ({"trained": 64}, 4.0, 64), ({"trained": 64, "stretched": 32}, 1.0,
     64), ({}, 4.0, 2048), ({"stretched": 3072}, 1.5, 2048)],
)  # fmt: skip
@pytest.mark.parametrize("length", [2, 32, 700])
def test_yarn_stretches_from_the_training_length_whatever_is_drawn(
    length: int, lengths: dict[str, int], factor: float, original: int
) -> None:
    (rotary,) = one("rotary(base=500.0)+yarn", length, **lengths).encodings
    assert isinstance(rotary, situs.Rotary)
    assert rotary.scaling == situs.YaRN(factor=factor, original_length=original, beta_fast=32.0, beta_slow=1.0)
    assert rotary.base == 500.0


@pytest.mark.parametrize(("length", "threshold"), [(2, 4.0), (16, 4.0), (32, 8.0), (130, 32.5)])
def test_fires_threshold_lies_within_the_text(length: int, threshold: float) -> None:
    assert one("fire", length).encodings[0].config["threshold"] == threshold
    assert one("fire(threshold=9.0)", length).encodings[0].config["threshold"] == 9
    assert one("fire", length, options={"threshold": 7.0}).encodings[0].config["threshold"] == 7


def test_every_scaling_goes_with_rotary_and_leaves_what_is_joined() -> None:
    kinds = {
        "linear": situs.LinearScaling,
        "ntk": situs.NTKScaling,
        "dynamic_ntk": situs.DynamicNTKScaling,
        "ntk_by_parts": situs.NTKByPartsScaling,
        "yarn": situs.YaRN,
        f"longrope(short_factors={(1.0,) * 32}, long_factors={(2.0,) * 32})": situs.LongRoPE,
        "llama3": situs.Llama3Scaling,
        "proportional(fraction=0.5)": situs.ProportionalScaling,
    }
    assert [name.partition("(")[0] for name in kinds] == SCALINGS.split(", ")[:-1]
    for name, kind in kinds.items():
        found = one(f"alibi&rotary+{name}")
        assert found.name == f"alibi&rotary+{name}"
        assert isinstance(found.encodings[0], situs.ALiBi)
        assert isinstance(found.encodings[1], situs.Rotary)
        assert type(found.encodings[1].scaling) is kind


def test_a_plus_within_brackets_is_a_numbers() -> None:
    assert one("rotary(base=1e+5)").encodings[0].config["base"] == 1e5
    (scaled,) = one("rotary(base=1e+5)+linear").encodings
    assert (scaled.config["base"], scaled.config["scaling"]) == (1e5, situs.LinearScaling(factor=4.0))
    (window,) = one("swin(window=(2, 3), init_std=1e+1)").encodings
    assert (window.config["window"], window.config["init_std"]) == ((2, 3), 10)


def test_axial_makes_rotary_one_for_images() -> None:
    (rotary,) = one("rotary+axial").encodings
    assert isinstance(rotary, situs.Rotary)
    assert rotary.axes == 2
    assert rotary.split == situs.Axial()
    (scaled,) = one("rotary+axial+linear").encodings
    assert (scaled.config["split"], scaled.config["scaling"]) == (situs.Axial(), situs.LinearScaling(factor=4.0))


def test_random_numbers_are_the_same_every_time_and_nobody_elses_are_used_up() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = parameters(one("t5&learned"))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(8)
    again = parameters(one("t5&learned"))
    assert len(first) == 2
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


def test_what_starts_near_zero_is_drawn_so_that_it_can_be_seen() -> None:
    table = one("t5")
    assert table.untrained
    assert float(parameters(table)[0].std()) == pytest.approx(1, abs=0.1)
    assert [name for name in situs.names() if not one(name).untrained] == [
        "alibi", "none", "rotary", "sandwich", "sinusoidal", "xpos",
    ]  # fmt: skip
    assert one("rotary&kerple").untrained
    (kerple,) = one("kerple").encodings
    assert isinstance(kerple, situs.Kerple)
    assert 0 <= float(kerple.r1.detach().min()) < float(kerple.r1.detach().max()) <= 2


def test_a_class_of_ones_own_is_found_where_one_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "level_of_ones_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    found = one("level_of_ones_own:Level")
    assert found.name == "level_of_ones_own:Level"
    assert found.untrained
    assert float(parameters(found)[0]) != 0
    assert found.encodings[0].config["threshold"] == 0.5  # FIRE's is no one else's
    assert suiting(found)[0] == "table"


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "rotery",
            {},
            f"name must be one of {', '.join(situs.names())}; got 'rotery'. Did you mean 'rotary'?",
        ),
        ("rotary+yarm", {}, f"rotary+yarm: + must be followed by one of {SCALINGS}; got 'yarm'. Did you mean 'yarn'?"),
        ("rotary+", {}, f"rotary+: + must be followed by one of {SCALINGS}; got ''."),
        ("rotary+yarn+ntk", {}, "rotary+yarn+ntk: + must add one scaling at most, since each sets all frequencies of "
         "rotary; got yarn and ntk."),
        ("rotary+random", {}, f"rotary+random: + must be followed by one of {SCALINGS}; got 'random'."),
        ("alibi+yarn", {}, "alibi+yarn: +yarn must follow rotary, since it changes that; got 'alibi'."),
        ("rotary/none", {}, "rotary/none: / must not stand between encodings that are drawn, since a figure shows one "
         "layer; got 2 layers. Separate them by commas."),
        ("alibi&none+axial", {}, "alibi&none+axial: +axial must follow rotary, since it changes that; got "
         "'alibi&none'."),
        ("", {}, "encodings must be names separated by commas, such as rotary,alibi; got ''."),
        (
            "rotary(8)",
            {},
            "options must be written rotary(name=value, ...) with plain values, such as shaw(max_distance=32); got "
            "'rotary(8)'.",
        ),
        ("rotary", {"head_dim": 15}, "head_dim must be even, since rotary turns channel pairs; got 15."),
    ],
)  # fmt: skip
def test_names_that_nobody_has_are_refused(text: str, options: dict[str, Any], message: str) -> None:
    with raises_exactly(ValueError, message):
        sitters_of(parse_all(text), options, length=32)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("kerple(kernal='log')", {}, "kerple takes num_heads, kernel; got 'kernal'. Did you mean 'kernel'?"),
        ("kerple", {"kernal": "log"}, "kerple takes kernel, num_heads; got 'kernal'. Did you mean 'kernel'?"),
        ("none", {"dim": 8}, "none takes no options; got 'dim'."),
        ("kerple,sandwich", {"dim": 8}, "kerple,sandwich takes base, cosine_dim, kernel, num_heads; got 'dim'."),
    ],
)
def test_options_that_nobody_takes_are_refused(text: str, options: dict[str, Any], message: str) -> None:
    with raises_exactly(TypeError, message):
        sitters_of(parse_all(text), options, length=32)
