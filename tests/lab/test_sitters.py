"""Encodings by the names that people give them, made the same way every time."""

from pathlib import Path
from typing import Any

import pytest
import torch

import situs
from situs.lab.naming import parse_all
from situs.lab.probing.sitters import Sitter, named, sitters, sitters_of
from situs.plots import suiting
from tests.raising import raises_exactly

SCALINGS = (
    "linear, ntk, dynamic_ntk, ntk_by_parts, yarn, longrope, llama3, proportional, selfextend, rerope, dualchunk, axial"
)
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
    found = one(name, untrained=True)
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
    assert one("learned", 40, untrained=True).encodings[0].config["max_length"] == 512
    assert one("learned", 700, untrained=True).encodings[0].config["max_length"] == 700


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
    assert one("fire", length, untrained=True).encodings[0].config["threshold"] == threshold
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
        "selfextend": situs.SelfExtend,
        "rerope": situs.ReRoPE,
        "dualchunk": situs.DualChunk,
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


FIXED = ("alibi", "none", "rotary", "rotary_value", "sandwich", "sinusoidal", "temperature", "xpos")
LEARNING = [name for name in situs.names() if name not in FIXED]


@pytest.mark.parametrize("name", LEARNING)
def test_a_name_alone_has_trained_parameters_and_says_so(name: str) -> None:
    found = one(name)
    assert found.trained is not None
    assert found.encodings == (found.trained.encoding,)
    assert found.note.startswith("Trained for ")
    initial = one(name, untrained=True)
    assert initial.trained is None
    assert initial.note.startswith("As initialised, not trained.")


def test_what_has_no_parameters_says_nothing() -> None:
    assert [name for name in situs.names() if not one(name).note] == [
        name for name in situs.names() if name not in LEARNING
    ]


@pytest.mark.parametrize(
    ("text", "options", "needed", "note"),
    [
        ("t5", {"num_heads": 8}, 1, "As initialised: trained parameters are stored for num_heads=4 only."),
        ("t5(bidirectional=True)", {}, 1,
         "As initialised: trained parameters are stored for bidirectional=False only."),
        ("shaw(max_distance=4)", {"head_dim": 8}, 1,
         "As initialised: trained parameters are stored for head_dim=16, max_distance=16 only."),
        ("learned", {}, 65, "As initialised: the trained table has 64 positions only."),
        ("rotary&kerple", {}, 1, "As initialised: trained parameters are stored for single encodings only."),
    ],
)  # fmt: skip
def test_what_trained_parameters_do_not_fit_is_as_initialised_and_says_why(
    text: str, options: dict[str, Any], needed: int, note: str
) -> None:
    found = one(text, options=options, needed=needed)
    assert found.trained is None
    assert found.note == note


@pytest.mark.parametrize(
    ("text", "options", "needed"),
    [("t5(num_heads=4, max_distance=64)", {}, 1), ("swin", {"window": [7, 7]}, 1), ("learned", {"dim": 64}, 64)],
)
def test_options_that_are_those_of_training_change_nothing(text: str, options: dict[str, Any], needed: int) -> None:
    assert one(text, options=options, needed=needed).trained is not None


def test_what_is_as_initialised_is_what_its_class_makes() -> None:
    (table,) = one("t5", untrained=True).encodings
    assert isinstance(table, situs.T5Bias)
    torch.manual_seed(0)
    assert torch.equal(table.table, situs.T5Bias(num_heads=8).table)
    assert one("cope", untrained=True).note == "As initialised, not trained. All parameters are 0."


def test_encodings_of_one_model_have_the_sizes_of_trained_ones() -> None:
    rotary, shaw, alibi = sitters_of(parse_all("rotary,shaw,alibi"), {}, length=2, one_model=True)
    assert shaw.trained is not None
    assert (rotary.encodings[0].config["head_dim"], alibi.encodings[0].config["num_heads"]) == (16, 4)
    given = sitters_of(parse_all("rotary,shaw,alibi"), {"head_dim": 8}, length=2, one_model=True)
    assert given[1].trained is None
    assert [each.encodings[0].config.get("head_dim") for each in given] == [8, 8, None]


def test_named_makes_what_the_command_draws() -> None:
    first, second = named("shaw,t5(num_buckets=16)")
    assert first.trained is not None
    assert second.encodings[0].config["num_buckets"] == 16
    assert named("learned", length=80)[0].encodings[0].usable_length == 512
    assert named("alibi", num_heads=3)[0].heads == 3
    with raises_exactly(
        TypeError, "untrained must be True or False, since parameters are as initialised or trained; got 1."
    ):
        named("shaw", untrained=1)  # type: ignore[arg-type]


def test_a_class_of_ones_own_is_found_where_one_works_and_drawn_as_it_initialises_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "level_of_ones_own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    found = one("level_of_ones_own:Level")
    assert found.name == "level_of_ones_own:Level"
    assert found.trained is None
    assert float(parameters(found)[0]) == 0
    assert found.note == "As initialised, not trained. All parameters are 0."
    assert found.encodings[0].config["threshold"] == 0.5  # FIRE's is no one else's
    assert suiting(found)[0] == "table"


def test_an_encoding_that_is_handed_over_says_nothing_unless_all_its_parameters_are_zero() -> None:
    assert sitters(situs.T5Bias(num_heads=2))[0].note == ""
    assert sitters(situs.CoPE(num_heads=2, head_dim=4))[0].note == "As initialised. All parameters are 0."
    assert sitters(situs.Rotary(head_dim=4))[0].note == ""


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
        ("rotary", {"head_dim": 15}, "head_dim must be even, since rotary rotates pairs of channels; got 15."),
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
